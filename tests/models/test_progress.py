"""The bar: steps, rate, time left; and silence where it is asked for."""

import sys
from types import SimpleNamespace

import pytest

from fairmf.models.progress import Pace, clock, progress_bar


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


@pytest.mark.parametrize(("each", "text"), [(None, ""), (4.0, "4.0 s each"), (0.4, "2.5/s"), (0.0001, "10,000/s")])
def test_rates(each, text):
    assert Pace(5, each=each).rate() == text


def test_the_time_left_is_estimated_from_the_steps():
    pace = Pace(10, began=100.0)
    assert pace.left(now=105.0) is None  # nothing is known before the first step is done
    for k in range(4):
        pace.step(now=103.0 + 3 * k)
    assert pace.left(now=112.0) == pytest.approx(6 * 3)
    assert pace.left(now=114.0) == pytest.approx(6 * 3 - 2)
    # Slower steps at the end, as in a search that refines: recent ones count more than their share.
    pace.step(now=142.0)
    assert pace.left(now=142.0) > 5 * 3 * 2


def test_a_step_that_takes_long_raises_the_estimate_while_it_runs():
    """Two quick steps, then one of minutes: the bar must not say "one second left" for minutes."""
    pace = Pace(3, began=0.0)
    pace.step(now=1.0)
    pace.step(now=2.0)
    shown = [pace.left(now=2.0 + seconds) for seconds in (0, 0.5, 10, 60, 180)]
    assert shown == pytest.approx([1, 0.5, 10, 60, 180])


def test_more_steps_than_expected_make_the_bar_longer(capsys):
    pace = Pace(2)
    for _ in range(4):
        pace.step()
    assert (pace.done, pace.total, pace.left()) == (4, 4, 0.0)
    with progress_bar("things", 2, True) as advance:
        for _ in range(4):
            advance("")
    assert "4/4" in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (75, "1:15"), (3723, "1:02:03")])
def test_clock(seconds, text):
    assert clock(seconds) == text


class Notebook:
    """Stands in for IPython in a notebook: remembers what is displayed."""

    def __init__(self, monkeypatch, kernel=True):
        self.shown = []
        shell = SimpleNamespace(kernel=object() if kernel else None)
        module = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=self.display))
        monkeypatch.setitem(sys.modules, "IPython", module)

    def display(self, picture, display_id):
        assert display_id is True
        self.update(picture)
        return self

    def update(self, picture):
        self.shown.append((repr(picture), picture._repr_html_()))


def test_a_notebook_shows_bars_without_widgets(monkeypatch, capsys):
    notebook = Notebook(monkeypatch)
    with progress_bar("<b>fit</b>", 4, None) as advance:
        for _ in range(3):
            advance("loss <i>")
    assert capsys.readouterr().err == ""
    text, page = notebook.shown[-1]
    assert text.startswith("<b>fit</b> 3/4")
    assert "width:75.0%" in page
    assert "&lt;b&gt;fit&lt;/b&gt;" in page
    assert "<i>" not in page
    assert len(notebook.shown) == 2  # many quick steps are not drawn one by one


def test_no_bar_in_a_notebook_if_none_is_wanted(monkeypatch, capsys):
    notebook = Notebook(monkeypatch)
    with progress_bar("fit", 4, False) as advance:
        advance("")
    assert notebook.shown == []
    terminal = Notebook(monkeypatch, kernel=False)  # IPython without a notebook, and stderr is no terminal
    with progress_bar("fit", 4, None) as advance:
        advance("")
    assert terminal.shown == []
    assert capsys.readouterr().err == ""
