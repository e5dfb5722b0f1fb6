"""Compare quality and inequality of exposure of models over their range of fairness (figures 1 and 3).

Each combination of a series' grid is fitted with one seed and measured at every dial and FairRec share. The validation
users decide which points form a front, and only the combinations of these are fitted with the other seeds. The reported
numbers are those of the test users.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from fairmf.control.trade_off import Curve, front_positions
from fairmf.metrics.registry import is_accuracy
from fairmf.reports import plots
from fairmf.reproduce.kinds.ranking_table import piece
from fairmf.reproduce.pieces import Outcome, Piece, seeded
from fairmf.reproduce.spec import Experiment, Series, Settings
from fairmf.reproduce.tables import Measured, Row, by_settings, measured, of_series, setting_words
from fairmf.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan(experiment: Experiment, done: list[Outcome]) -> list[Piece]:
    """Plan every combination with the first seed; when all are done, those on a front with the other seeds."""
    pieces = []
    for series in experiment.series:
        first = [piece(experiment, series, seeded(series.model, one, 1)[0]) for one in series.combinations]
        pieces += first
        mine = [one for one in of_series(done, series) if one.piece in first]
        if len([one for one in done if one.piece in first]) == len(first):
            for settings in _on_a_front(experiment, series, mine):
                pieces += [
                    piece(experiment, series, one) for one in seeded(series.model, settings, experiment.seeds)[1:]
                ]
    return pieces


def later(experiment: Experiment) -> list[Piece]:
    """Return pieces like those of the second round, as if a third of the combinations were on a front."""
    found = []
    for series in experiment.series:
        for settings in series.combinations[: max(1, len(series.combinations) // 3)]:
            found += [piece(experiment, series, one) for one in seeded(series.model, settings, experiment.seeds)[1:]]
    return found


def _on_a_front(experiment: Experiment, series: Series, firsts: list[Outcome]) -> list[Settings]:
    """Return the combinations with a point on the front of any pair of axes, with the first seed."""
    alone = dataclasses.replace(experiment, series=(series,))
    kept: list[Settings] = []
    for points in _points(alone, firsts).values():
        for quality, inequality in axes(experiment):
            kept += [points[k][3] for k in _front(points, quality, inequality)]
    return [one.piece.without_seed for one in firsts if one.piece.without_seed in kept]


def rows(experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
    """Return a row per point; `front` marks the points that are on the front of their series."""
    found = []
    for name, points in _points(experiment, outcomes).items():
        on_front = _front(points, *axes(experiment)[0])
        for k, (label, values, *_) in enumerate(points):
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
Points = list[tuple[Record, Values, Values, Settings]]


def _points(experiment: Experiment, outcomes: list[Outcome]) -> dict[str, Points]:
    """Group points by series, with FairRec separate: (label, values on test and validation users, settings)."""
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
                found.setdefault(name, []).append((label, test, validation, runs[0].piece.without_seed))
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
    known = [k for k, (_, test, seen, _) in enumerate(points) if {quality, inequality} <= set(seen) & set(test)]
    values = [(points[k][2][quality].mean, points[k][2][inequality].mean) for k in known]
    return [known[k] for k in front_positions(values, (False, True))]
