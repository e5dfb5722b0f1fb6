"""Quality against inequality of exposure: the trade-off front of one or several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fairmf.control import Curve
from fairmf.errors import InvalidData
from fairmf.reporting.metric_words import title as metric_title
from fairmf.reporting.plots import naming, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CROWDED = 3  # fronts meet where their names would stand: more are named beside the plot


def trade_off_front(
    curves: Curve | Mapping[str, Curve],
    *,
    quality: str | None = None,
    inequality: str | None = None,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """Each curve's points joined by rising fairness: up is better for users, left is more even for items.

    One curve is divided by its `way` ("dial", "re-trained", ...); of a single series every point is marked with its
    fairness. The axes are the curves' first accuracy and first Gini unless others are named.
    """
    series = _by_way(curves) if isinstance(curves, Curve) else dict(curves)
    if not series or not all(len(curve) for curve in series.values()):
        raise InvalidData("There are no points to draw: every curve needs at least one.")
    first = next(iter(series.values()))
    up, across = quality or first.quality, inequality or first.inequality
    words = f"{metric_title(across)} of exposure (left is fairer to items)", f"{metric_title(up)} (up is better)"
    figure, axes, colours = style.new_figure(theme, *words, title=title)
    ends = []
    for k, (name, curve) in enumerate(series.items()):
        rows = sorted(curve, key=lambda row: row.get("fairness") or 0.0)
        x, y = [row[across] for row in rows], [row[up] for row in rows]
        axes.plot(x, y, label=name, **style.look(colours, k) | ({"linestyle": ""} if len(x) == 1 else {}))
        lowest = min(range(len(x)), key=lambda i: x[i])
        ends.append((name, (x[lowest], y[lowest]), colours.series[k % len(colours.series)]))
    if len(series) == 1:
        _mark(axes, [(row[across], row[up], f"{row['fairness']:g}") for row in first], colours.soft)
    axes.margins(0.08)
    axes.autoscale_view()
    if len(series) > CROWDED:
        naming.legend_beside(figure, axes)
    elif len(series) > 1:
        naming.label_ends(axes, ends)
    return figure


def _mark(axes: Axes, points: Sequence[tuple[float, float, str]], colour: str) -> None:
    """The fairness beside every point that has room for it."""
    across, up = [x for x, _, _ in points], [y for _, y, _ in points]
    width, height = max(across) - min(across) or 1.0, max(up) - min(up) or 1.0
    taken: list[tuple[float, float]] = []
    for x, y, told in points:
        if all(abs(x - a) > 0.05 * width or abs(y - b) > 0.06 * height for a, b in taken):
            style.write(axes, told, (x, y), (4, -10), colour)
            taken.append((x, y))


def _by_way(curve: Curve) -> dict[str, Curve]:
    ways = dict.fromkeys(row["way"] for row in curve)
    return {way: Curve(tuple(row for row in curve if row["way"] == way), curve.metrics) for way in ways}
