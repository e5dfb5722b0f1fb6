"""Follow quality and Gini on the validation users over epochs and over seconds of training (figure 4, right)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairmf.metrics.sentences import title as metric_title
from fairmf.reports import plots
from fairmf.reproduce.pieces import Outcome, Piece, every_fit
from fairmf.reproduce.spec import Experiment
from fairmf.reproduce.tables import Row, by_settings, measured, of_series, setting_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (1, 2, 4, 8, 16, 32, 50, 64, 100)  # epochs in the Markdown table


def plan(experiment: Experiment, done: list[Outcome]) -> list[Piece]:  # noqa: ARG001
    """Plan every combination with every seed."""
    how = {"measure": "epochs", "metrics": list(experiment.metrics), "every": experiment.options.get("every", 1)}
    return every_fit(experiment, lambda series: how | ({"ranking": series.ranking} if series.ranking else {}))


def rows(experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
    """Return a row per measured epoch."""
    found = []
    for name, runs in _named(experiment, outcomes):
        # Means are over all seeds, so they end with the seed that stopped first.
        last = min(len(one.result["epochs"]) for one in runs)
        for k in range(last):
            epoch = runs[0].result["epochs"][k]["epoch"]
            values = measured(("seconds", *experiment.metrics), [one.result["epochs"][k] for one in runs])
            found.append(Row({"series": name, "epoch": epoch}, values, shown=epoch in SHOWN or k == last - 1))
    return found


def draw(experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
    """Draw every metric against epochs and against seconds."""
    every = rows(experiment, outcomes)
    if not every:
        return {}
    figures = {}
    for metric in experiment.metrics:
        for across, words in (("epoch", "epoch"), ("seconds", "seconds of training")):
            lines: dict[str, list[tuple[float, float]]] = {}
            for row in every:
                if metric in row.measured:
                    x = row.label["epoch"] if across == "epoch" else row.measured["seconds"].mean
                    lines.setdefault(row.label["series"], []).append((float(x), row.measured[metric].mean))
            figures[f"{metric.replace('@', '-')}-{across}"] = plots.measured_lines(
                lines, across=words, up=metric_title(metric), logarithmic_x=across == "seconds", title=title
            )
    return figures


def _named(experiment: Experiment, outcomes: list[Outcome]) -> list[tuple[str, list[Outcome]]]:
    found = []
    for series in experiment.series:
        for runs in by_settings(of_series(outcomes, series)):
            words = setting_words(series, runs[0].piece.settings)
            found.append((f"{series.name}, {words}" if words else series.name, runs))
    return found
