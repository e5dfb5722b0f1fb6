"""Compare the seconds of an epoch by the number of factors (figure 4, left). The grid of a series is its `factors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairmf.reports import plots
from fairmf.reproduce.pieces import Outcome, Piece, every_fit
from fairmf.reproduce.spec import Experiment
from fairmf.reproduce.tables import Row, by_settings, of_series, over_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECONDS = "seconds_per_epoch"


def plan(experiment: Experiment, done: list[Outcome]) -> list[Piece]:  # noqa: ARG001
    """Plan every number of factors with every seed."""
    return every_fit(experiment, lambda _: {"measure": "seconds"})


def rows(experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
    """Return a row per series and number of factors."""
    found = []
    for series in experiment.series:
        for runs in by_settings(of_series(outcomes, series)):
            # Seeds are repeated measurements of the same work here.
            told = over_runs(one.result[SECONDS] for one in runs)
            if told is not None:
                found.append(
                    Row({"series": series.name, "factors": runs[0].piece.settings["factors"]}, {SECONDS: told})
                )
    return found


def draw(experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
    """Draw a line per series."""
    lines: dict[str, dict[int, float]] = {}
    for row in rows(experiment, outcomes):
        lines.setdefault(row.label["series"], {})[row.label["factors"]] = row.measured[SECONDS].mean
    return {"time": plots.time_per_epoch(lines, title=title)} if lines else {}
