"""Follow FiADMM's residual norms and losses by epoch, for several rho and gamma (figure 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairmf.reports import plots
from fairmf.reproduce.pieces import Outcome, Piece, every_fit
from fairmf.reproduce.spec import Experiment
from fairmf.reproduce.tables import Row, by_settings, of_series, over_runs, setting_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {
    "objective": "objective F",
    "lagrangian": "augmented Lagrangian",
    "items": "|V+ - V|",
    "users": "|U+ - U|",
    "consensus": "|s+ - s|",
    "dual": "|w+ - w| = |t - s|",
}
SHOWN = (1, 10, 50, 100)
DECADE = 10  # over a smaller range, a logarithmic axis would have hardly any labels


def plan(experiment: Experiment, done: list[Outcome]) -> list[Piece]:  # noqa: ARG001
    """Plan every rho with every gamma and every seed."""
    return every_fit(experiment, lambda _: {"measure": "residuals"})


def rows(experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
    """Return a row per epoch of each fit; means over seeds."""
    found = []
    for series in experiment.series:
        for runs in by_settings(of_series(outcomes, series)):
            label = {"series": series.name, "settings": setting_words(series, runs[0].piece.settings)}
            # A fit that diverged is shorter; the epochs after it are means over the others.
            length = max(len(one.result["objective"]) for one in runs)
            for k in range(length):
                told = {
                    name: over_runs(one.result[name][k] for one in runs if k < len(one.result[name]))
                    for name in COLUMNS
                }
                values = {name: value for name, value in told.items() if value is not None}
                shown = k + 1 in SHOWN or k == length - 1
                found.append(Row({**label, "epoch": k + 1}, values, shown=shown))
    return found


def draw(experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
    """Draw a plot per quantity, a line per setting."""
    every = rows(experiment, outcomes)
    figures = {}
    for name, words in COLUMNS.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in every:
            # A logarithmic axis cannot show 0.
            if name in row.measured and row.measured[name].mean > 0:
                line = row.label["settings"] or row.label["series"]
                lines.setdefault(line, []).append((float(row.label["epoch"]), row.measured[name].mean))
        if lines:
            heights = [y for points in lines.values() for _, y in points]
            wide = max(heights) > DECADE * min(heights)
            figures[name] = plots.measured_lines(lines, across="epoch", up=words, logarithmic=wide, title=title)
    return figures
