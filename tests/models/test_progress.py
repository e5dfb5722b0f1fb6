"""The bar: steps, rate, time left; and silence where it is asked for."""

from types import SimpleNamespace

import pytest

from fairmf.models.progress import _rate, progress_bar


def test_a_bar_counts_steps_and_shows_the_note(capsys):
    with progress_bar("things", 5, True) as advance:
        advance("first")
        advance("second", 3)
    shown = capsys.readouterr()
    assert "things" in shown.err
    assert "4/5" in shown.err
    assert "second" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("show", [False, None])  # stderr is no terminal here
def test_silence(show, capsys):
    with progress_bar("things", 5, show) as advance:
        advance("first")
        advance("second", 3)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("speed", "text"), [(None, ""), (0.25, "4.0 s each"), (2.5, "2.5/s"), (12345.6, "12,346/s")])
def test_rates(speed, text):
    assert _rate(SimpleNamespace(finished_speed=None, speed=speed)) == text
