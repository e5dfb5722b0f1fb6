"""Test that runs of benchmarks are kept, and that a figure that got worse is found."""

from __future__ import annotations

from pathlib import Path

import pytest

history = pytest.importorskip("benchmarks.history", reason="benchmarks/ is only in a checkout")
from benchmarks.result import Result  # noqa: E402

FOLD_IN = next(figure for figure in history.FIGURES if figure.benchmark == "fold_in")


def add(folder: Path, value: float, date: str = "2026-01-01", machine: str = "a machine, 2 cores; NumPy 2.0") -> None:
    result = Result("Fold-in", "", ("factors", "CSR row / implicit"), [(64, value), (128, 2.0)])
    history.add("fold_in", result, date, "python -m benchmarks fold_in", machine, folder)


def test_runs_come_back_in_order_with_their_values(tmp_path: Path) -> None:
    add(tmp_path, 1.5)
    add(tmp_path, 1.25, "2026-01-02")
    first, second = history.runs("fold_in", tmp_path)
    assert (first.date, second.date) == ("2026-01-01", "2026-01-02")
    assert second.values(FOLD_IN) == {"factors 64": 1.25, "factors 128": 2.0}


def test_a_figure_that_got_worse_is_found_and_one_that_got_better_is_not(tmp_path: Path) -> None:
    for value in (1.0, 1.1, 0.9, 1.4):
        add(tmp_path, value)
    found = history.series(tmp_path)
    (lost,) = history.worse(found)
    assert lost.row == "factors 64"
    assert lost.change == pytest.approx(1.0 / 1.4 - 1)
    assert "1.4 on 2026-01-01, median before 1" in history.told([lost])
    add(tmp_path, 0.5)
    assert history.worse(history.series(tmp_path)) == []


def test_runs_on_another_machine_are_not_compared(tmp_path: Path) -> None:
    add(tmp_path, 1.0, machine="another machine; NumPy 2.0")
    add(tmp_path, 9.0)
    assert [each.change for each in history.series(tmp_path)] == [None, None]
    add(tmp_path, 9.0, machine="a machine, 2 cores; NumPy 2.1")  # other libraries: compared
    assert [each.change for each in history.series(tmp_path)] == [0.0, 0.0]


def test_the_columns_of_all_figures_are_in_the_stored_tables() -> None:
    for figure in history.FIGURES:
        stored = history.runs(figure.benchmark)
        assert not stored or stored[-1].values(figure), f"{figure.benchmark} has no column {figure.column!r} any more"


def test_the_page_has_a_row_for_every_figure_and_a_plot_where_there_are_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(history, "plot", lambda _, path: drawn.append(path.name))
    found = history.series()
    text = history.page(found, tmp_path)
    assert all(f"| {each.row} |" in text for each in found)
    repeated = {each.figure for each in found if len(each.points) > 1}
    assert len(drawn) == len(repeated) > 0
    assert all(f"(images/{name})" in text for name in drawn)
