"""Show how exposure is spread over items, and the coverage of the catalogue, at some levels of fairness (figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.reports import plots
from fairmf.reproduce.pieces import Outcome, Piece, every_fit
from fairmf.reproduce.spec import Experiment, Series, Settings
from fairmf.reproduce.tables import Row, by_settings, measured, of_series, over_runs, row_of, setting_words, short
from fairmf.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = (5, 10, 20, 50, 100)


def plan(experiment: Experiment, done: list[Outcome]) -> list[Piece]:  # noqa: ARG001
    """Plan every combination with every seed."""
    how = {"measure": "exposure", "metrics": list(experiment.metrics), "K": list(experiment.options.get("K", [20]))}
    how["lengths"] = list(experiment.options.get("lengths", LENGTHS))

    def of(series: Series) -> Settings:
        mine = {**how, **({"dials": list(series.dials)} if series.dials else {})}
        return mine | ({"ranking": series.ranking} if series.ranking else {})

    return every_fit(experiment, of)


def rows(experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
    """Return a row per level of fairness: metrics, and coverage at every length of lists."""
    found = []
    for series in experiment.series:
        for runs in by_settings(of_series(outcomes, series)):
            for k, point in enumerate(runs[0].result["points"]):
                values = measured(experiment.metrics, [one.result["points"][k]["test"] for one in runs])
                for K in point["coverage"]:
                    told = over_runs(one.result["points"][k]["coverage"][K] for one in runs)
                    if told is not None:
                        values[f"coverage@{K}"] = told
                label = {"series": _name(series, runs[0], point)}
                found.append(row_of(series, runs[0].piece.settings, label, values))
    return found


def draw(experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
    """Draw exposure by rank of the first seed, a plot per K, and coverage by length of lists, the mean over seeds."""
    counts: dict[str, dict[str, NDArray[np.float64]]] = {}
    shown = {}
    for series in experiment.series:
        for runs in by_settings(of_series(outcomes, series)):
            for k, point in enumerate(runs[0].result["points"]):
                name = _name(series, runs[0], point)
                # Pieces store only exposures above 0, in descending order.
                for K, exposed in point["exposure"].items():
                    everything = np.zeros(runs[0].result["items"])
                    everything[: len(exposed)] = exposed
                    counts.setdefault(K, {})[name] = everything
                means = {
                    K: over_runs(one.result["points"][k]["coverage"][K] for one in runs) for K in point["coverage"]
                }
                # JSON turned the lengths into texts.
                shown[name] = {int(K): mean.mean for K, mean in means.items() if mean is not None}
    if not counts:
        return {}
    lines = {name: sorted(points.items()) for name, points in shown.items()}
    coverage = plots.measured_lines(
        lines, across="length of the lists", up="part of the catalogue shown to anybody", title=title
    )
    drawn = {f"exposure-{K}": plots.exposure_curves(each, title=f"{title}, K = {K}") for K, each in counts.items()}
    return {**drawn, "coverage": coverage}


def _name(series: Series, outcome: Outcome, point: Record) -> str:
    words = setting_words(series, outcome.piece.settings)
    dialled = "" if point["dial"] is None else f"dial {short(float(point['dial']))}"
    told = ", ".join(part for part in (words, dialled) if part)
    return f"{series.name}, {told}" if told else series.name
