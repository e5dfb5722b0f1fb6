"""What tests/conftest.py adds to pytest: skipped tests are counted by reason, one line each."""

from types import SimpleNamespace

from conftest import pytest_terminal_summary, slow_values


def test_skips_of_one_kind_are_one_line():
    reasons = ["Skipped: no device", "Skipped: no PyTorch", *["Skipped: no device"] * 1300]
    skipped = [SimpleNamespace(longrepr=(f"test_{k}.py", k, reason)) for k, reason in enumerate(reasons)]
    written = []
    reporter = SimpleNamespace(
        stats={"skipped": skipped}, section=lambda title: written.append(title), write_line=written.append
    )
    pytest_terminal_summary(reporter)
    assert written == ["skipped", " 1,301 no device", "     1 no PyTorch"]
    written.clear()
    reporter.stats = {}
    pytest_terminal_summary(reporter)
    assert written == []


def test_slow_values_are_marked():
    (param,) = slow_values(3)
    assert param.values == (3,)
    assert [mark.name for mark in param.marks] == ["slow"]
