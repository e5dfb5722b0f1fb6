"""Compare quality and inequality of exposure of models over their range of fairness (figures 1 and 3).

Each combination of a series' grid is fitted with every seed and measured at every dial and FairRec share. The
validation users decide which points form the front; the reported numbers are those of the test users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairmf.control.trade_off import Curve, front_positions
from fairmf.metrics.registry import is_accuracy
from fairmf.reports import plots
from fairmf.reproduce.kinds.ranking_table import measured_points
from fairmf.reproduce.pieces import Outcome, Piece, every_fit
from fairmf.reproduce.spec import Experiment, Series, Settings
from fairmf.reproduce.tables import Measured, Row, by_settings, measured, of_series, setting_words
from fairmf.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan(experiment: Experiment, done: list[Outcome]) -> list[Piece]:  # noqa: ARG001
    """Plan every combination with every seed."""
    return every_fit(experiment, lambda series: measured_points(experiment, series))


def rows(experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
    """Return a row per point; `front` marks the points that are on the front of their series."""
    found = []
    for name, points in _points(experiment, outcomes).items():
        on_front = _front(points, *axes(experiment)[0])
        for k, (label, values, _) in enumerate(points):
            found.append(Row({"series": name, **label, "front": "yes" if k in on_front else ""}, values))
    return found


def draw(experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
    """Draw the fronts, one plot for every pair of axes."""
    figures: dict[str, Figure] = {}
    for quality, inequality in axes(experiment):
        curves = _curves(experiment, outcomes, quality, inequality)
        if curves:
            name = f"front-{quality.replace('@', '-')}" if figures else "front"
            figures[name] = plots.trade_off_front(curves, quality=quality, inequality=inequality, title=title)
    return figures


def _curves(experiment: Experiment, outcomes: list[Outcome], quality: str, inequality: str) -> dict[str, Curve]:
    curves = {}
    for name, points in _points(experiment, outcomes).items():
        kept = [points[k][1] for k in _front(points, quality, inequality)]
        kept.sort(key=lambda values: -values[inequality].mean)
        if kept:
            told = [{metric: value.mean for metric, value in values.items()} for values in kept]
            # The plot joins points by rising fairness, so the place on the front stands for it.
            curves[name] = Curve(tuple({"fairness": float(k), **t} for k, t in enumerate(told)), experiment.metrics)
    return curves


def axes(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the metrics of the figures: the first accuracy with the first Gini, the second with the second."""
    # In the order of the experiment's file. A metric without a partner has no figure.
    qualities = [metric for metric in experiment.metrics if is_accuracy(metric)]
    return list(zip(qualities, (metric for metric in experiment.metrics if metric.startswith("gini")), strict=False))


Values = dict[str, Measured]
Points = list[tuple[Record, Values, Values]]


def _points(experiment: Experiment, outcomes: list[Outcome]) -> dict[str, Points]:
    """Group points by series, with FairRec separate: (label, values on test users, values on validation users)."""
    found: dict[str, Points] = {}
    for series in experiment.series:
        for runs in by_settings(of_series(outcomes, series)):
            for k, point in enumerate(runs[0].result["points"]):
                test, validation = (
                    measured(experiment.metrics, [one.result["points"][k][part] for one in runs])
                    for part in ("test", "validation")
                )
                # FairRec on top is a line of its own.
                name = series.name + (" + FairRec" if point["share"] else "")
                label = _label(experiment, series, runs[0].piece.settings, point)
                found.setdefault(name, []).append((label, test, validation))
    return found


def _label(experiment: Experiment, series: Series, settings: Settings, point: Record) -> Record:
    label = {"settings": setting_words(series, settings)}
    if any(one.dials for one in experiment.series):
        label["dial"] = "" if point["dial"] is None else point["dial"]
    if any(one.shares for one in experiment.series):
        label["share"] = point["share"] or ""
    return label


def _front(points: Points, quality: str, inequality: str) -> list[int]:
    """Return the positions of points that no other point beats on the validation users."""
    known = [k for k, (_, test, seen) in enumerate(points) if {quality, inequality} <= set(seen) & set(test)]
    values = [(points[k][2][quality].mean, points[k][2][inequality].mean) for k in known]
    return [known[k] for k in front_positions(values, (False, True))]
