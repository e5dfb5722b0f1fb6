"""Show a leaderboard: as Markdown, as results.json, and as plots of accuracy against seconds and against Gini."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairmf.errors import MissingDependency
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module
from fairmf.reports import plot_style, plots
from fairmf.types import Record

if TYPE_CHECKING:
    from matplotlib import ticker
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    ticker = lazy_module("matplotlib.ticker")

NAMES = {"ndcg": "nDCG", "recall": "Recall", "gini": "Gini", "coverage": "coverage"}
FAR = 0.6  # of the best accuracy: rows below are left out of plots, which would be all white otherwise


def title(label: str) -> str:
    """Return the name of a metric for people: "ndcg@20" is nDCG@20."""
    name, _, K = label.partition("@")
    return f"{NAMES.get(name, name)}@{K}"


def write(folder: Path, result: Record) -> list[Path]:
    """Write results.json, table.md and, if matplotlib is installed, the plots; return their paths."""
    texts = {"results.json": json.dumps(result, indent=1, allow_nan=False) + "\n", "table.md": markdown(result)}
    files = []
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
        files.append(folder / name)
    try:
        drawn = {name: draw(result) for name, draw in (("seconds", against_seconds), ("gini", against_gini))}
    except MissingDependency:
        return files  # the results are complete without plots; the command line says that there are none
    return files + [plots.save(figure, folder / f"{name}.svg") for name, figure in drawn.items()]


def metrics_of(result: Record) -> list[str]:
    """Return the metrics of the measured rows, accuracy first."""
    return list(result["rows"][0]["values"])


def named(row: Record) -> str:
    """Return the name of a row for people."""
    name = str(row["model"]) if row["factors"] is None else f"{row['model']}, {row['factors']:,} factors"
    return f"{name}, evenness {row['evenness']:g}" if row["evenness"] else name


def markdown(result: Record) -> str:
    """Return the rows as a Markdown table: measured ones, then published ones with their sources."""
    board, metrics = result["board"], metrics_of(result)
    heads = ["model", *map(title, metrics), "validation", "fit, s", "tuning, s", "trials", "memory, MB"]
    lines = [
        f"# {board['name']}: leaderboard",
        "",
        f"{board['protocol']}; training part {board['users']:,} users, {board['items']:,} items, "
        f"{board['interactions']:,} interactions; {board['test_users']:,} users are tested. Recall is "
        f"{board['recall']}. Settings were chosen by {title(board['chosen_by'])} on validation data, with a budget of "
        f"{board['budget']} for each model; each row was tested once. **Bold**: the best on validation data.",
        "",
        *table(result, heads),
    ]
    if result["published"]:
        lines += ["", "Published rows:", "", *published_table(result)]
    return "\n".join(lines) + "\n"


def table(result: Record, heads: Sequence[str]) -> list[str]:
    """Return the lines of the table of measured rows."""
    metrics = metrics_of(result)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in result["rows"]:
        name = named(row)
        cells = [f"**{name}**" if row["best"] and not row["evenness"] else name]
        cells += [f"{row['values'][label]:.4f}" for label in metrics]
        cells.append(f"{row['validation']:.4f}" if "validation" in row else "")
        cells += [f"{row['fit_seconds']:.1f}", f"{row['tuning_seconds']:.0f}" if "tuning_seconds" in row else ""]
        cells.append(str(row.get("trials", "")))
        lines.append("| " + " | ".join([*cells, f"{row['peak_mb']:,}"]) + " |")
    return lines


def published_table(result: Record) -> list[str]:
    """Return the lines of the table of published rows."""
    metrics = [label for label in metrics_of(result) if any(label in row["values"] for row in result["published"])]
    heads = ["method", *map(title, metrics), "recall", "source", "settings or epochs chosen on"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in result["published"]:
        cells = [row["method"], *(_number(row["values"].get(label)) for label in metrics), f"hits / {row['recall']}"]
        lines.append(
            "| "
            + " | ".join([*cells, row["source"], row["chosen_on"] or "not looked up"]).replace("|T|", "\\|T\\|")
            + " |"
        )
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".rstrip("0")


# -- plots ------------------------------------------------------------------------------------------------------------


def against_seconds(result: Record) -> Figure:
    """Draw accuracy against the seconds of a fit, for each model by its number of factors."""
    rows = [row for row in _near(result) if not row["evenness"]]
    return _drawn(result, rows, "seconds of the fit", lambda row: max(row["fit_seconds"], 0.01), log=True)


def against_gini(result: Record) -> Figure:
    """Draw accuracy against Gini@20: models by their number of factors, the best one by evenness."""
    return _drawn(
        result, _near(result), "Gini@20 of the lists (lower is more even)", lambda row: row["values"]["gini@20"]
    )


def _near(result: Record) -> list[Record]:
    label = result["board"]["chosen_by"]
    best = max(row["values"][label] for row in result["rows"])
    return [row for row in result["rows"] if row["values"][label] >= FAR * best]


def _drawn(result: Record, rows: list[Record], x_label: str, x: object, *, log: bool = False) -> Figure:
    label = result["board"]["chosen_by"]
    heading = f"{result['board']['name']}, test part"
    figure, axes, colours = plot_style.new_figure("light", x_label, title(label), title=heading, size=(6.6, 3.8))
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(ticker.LogLocator(subs=(2.0, 5.0)))
        axes.xaxis.set_minor_formatter("{x:g}")
    assert callable(x)
    series: dict[str, list[Record]] = {}
    for row in rows:
        series.setdefault(row["model"], [])
        if row["evenness"]:
            series.setdefault(
                f"{row['model']}, by evenness", [row for row in rows if row["best"] and not row["evenness"]]
            )
            series[f"{row['model']}, by evenness"].append(row)
        else:
            series[row["model"]].append(row)
    for k, (name, points) in enumerate(series.items()):
        look = plot_style.look(colours, k)
        across, up = [x(row) for row in points], [row["values"][label] for row in points]
        axes.plot(across, up, label=name, **look)
        for row, a, b in zip(points, across, up, strict=True):
            told = (
                f"{row['evenness']:g}" if row["evenness"] else "" if row["factors"] is None else f"{row['factors']:,}"
            )
            if told and (row["evenness"] or "by evenness" not in name):
                plot_style.write(axes, told, (a, b), (4, -10 if k % 2 else 5), look["color"])
    _lines_of_others(axes, result, label, colours.soft)
    plot_style.legend_beside(figure, axes)
    return figure


def _lines_of_others(axes: Axes, result: Record, label: str, colour: str) -> None:
    """Draw a line at the accuracy of each published row, named at its right end."""
    best = max(row["values"][label] for row in result["rows"])
    rows = [row for row in result["published"] if row["values"].get(label, 0.0) >= 0.9 * best]
    axes.margins(0.12)
    right = axes.get_xlim()[1]
    for row in rows:
        axes.axhline(row["values"][label], color=colour, linewidth=0.8, linestyle=":", label="_published")
    axes.autoscale_view()
    plot_style.label_ends(axes, [(row["method"], (right, row["values"][label]), colour) for row in rows])
