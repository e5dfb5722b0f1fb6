"""Which line is which: names at the ends of lines, or in a legend beside the plot, never on top of each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairmf.reporting.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 6.6  # inches, with a legend beside the plot
LABEL_ROOM = 11.0  # points between two labels
AT_ENDS = 5  # lines: names of more would crowd


def name_lines(figure: Figure, axes: Axes, labels: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Names of the lines: at their ends where they are few and all end at the right, else beside the plot."""
    if len(labels) <= AT_ENDS and len({end[0] for _, end, _ in labels}) == 1:
        label_ends(axes, labels)
    else:
        legend_beside(figure, axes, by_height=True)


def legend_beside(figure: Figure, axes: Axes, *, by_height: bool = False) -> None:
    """A legend to the right of the plot, which becomes wider by it; by_height: in the order in which lines end."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    if by_height:
        lines.sort(key=lambda line: -float(np.asarray(line.get_ydata())[-1]))
    figure.set_size_inches(WIDE, figure.get_size_inches()[1])
    legend = figure.legend(
        handles=lines,
        loc="outside right upper",
        frameon=False,
        fontsize=style.SMALL,
        handlelength=2.4,
        labelspacing=0.7,
    )
    for text in legend.get_texts():
        text.set_color(axes.xaxis.label.get_color())


def label_ends(axes: Axes, labels: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """A name at the end of every line, (name, end, colour), moved up or down where two would overlap."""
    height = style.SIZE[1] * 72 * 0.72  # of the axes, in points, nearly
    to_share = axes.transScale + axes.transLimits
    places = [float(to_share.transform(end)[1]) * height for _, end, _ in labels]
    moved = apart(places, LABEL_ROOM, 0.0, height)
    for (name, end, colour), place, wanted in zip(labels, places, moved, strict=True):
        style.write(axes, name, end, (5, wanted - place), colour, va="center", ha="left", fontweight="bold")


def apart(places: Sequence[float], room: float, low: float = -math.inf, high: float = math.inf) -> list[float]:
    """The places moved as little as possible (least squares), so that no two are closer than `room`; their order stays.

    Neighbours that would overlap move together about their own middle, and nothing else moves: with k room taken from
    the k-th place it is a monotone regression, by pooling. Between `low` and `high`, if they fit.
    """
    order = sorted(range(len(places)), key=lambda k: (places[k], k))
    pools: list[tuple[float, int]] = []  # mean, how many
    for k, index in enumerate(order):
        pools.append((places[index] - k * room, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, n), (b, m) = pools[-2:]
            pools[-2:] = [((a * n + b * m) / (n + m), n + m)]
    means = [mean for mean, n in pools for _ in range(n)]
    highest = max(low, high - (len(places) - 1) * room)
    moved = list(places)
    for k, index in enumerate(order):
        moved[index] = min(max(means[k], low), highest) + k * room
    return moved
