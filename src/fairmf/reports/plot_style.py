"""Style all plots: light and dark themes, colours for colour-blind readers, text that is readable at 460 pixels.

Lines are named at their ends or in a legend beside the plot, so that names never overlap. Figures are made without
pyplot, which would change global state and may open a window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairmf.errors import InvalidParameter, MissingDependency
from fairmf.lazy import lazy_module
from fairmf.types import Record
from fairmf.version import install_command

if TYPE_CHECKING:
    from matplotlib import colors, patheffects
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    colors = lazy_module("matplotlib.colors")
    patheffects = lazy_module("matplotlib.patheffects")


SIZE = (4.6, 3.4)  # inches: 460 x 340 pixels at 100 per inch
WORDS, SMALL = 9.5, 8.5  # points
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", ":", "-.")


class Theme(NamedTuple):
    """Colours of one theme. `series` are those of Okabe & Ito's palette that stand out on its background."""

    ink: str
    soft: str
    grid: str
    page: str
    series: tuple[str, ...]
    gain: str
    loss: str


THEMES = {
    "light": Theme(
        "#1b2430", "#55606e", "#e1e6ec", "#ffffff",
        ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"), "#009E73", "#D55E00",
    ),
    "dark": Theme(
        "#e9edf2", "#a9b4c0", "#2a333d", "#12171d",
        ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00"), "#009E73", "#D55E00",
    ),
}  # fmt: skip


def theme_of(name: str) -> Theme:
    """Return a theme by name."""
    if name not in THEMES:
        raise InvalidParameter(f"The 'theme' of a plot must be 'light' or 'dark'. Got {name!r} instead.")
    return THEMES[name]


def new_figure(
    theme: str, x_label: str, y_label: str, *, title: str = "", size: tuple[float, float] = SIZE
) -> tuple[Figure, Axes, Theme]:
    """Return an empty figure with one pair of axes, and its theme."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(f"Plots need matplotlib: {install_command('report')}.") from error
    colours = theme_of(theme)
    figure = Figure(figsize=size, layout="constrained", facecolor=colours.page)
    axes = figure.add_subplot()
    axes.set_facecolor(colours.page)
    axes.set_xlabel(x_label, color=colours.soft, fontsize=WORDS)
    axes.set_ylabel(y_label, color=colours.soft, fontsize=WORDS)
    if title:
        axes.set_title(title, loc="left", color=colours.ink, fontsize=WORDS + 1.5, fontweight="bold")
    axes.tick_params(which="both", colors=colours.soft, labelsize=SMALL, length=0)
    axes.grid(color=colours.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(colours.soft)
    return figure, axes, colours


def look(theme: Theme, k: int) -> Record:
    """Return colour, marker and dashes of the k-th series. Series differ in more than colour."""
    round_ = k // len(theme.series)
    return {
        "color": theme.series[k % len(theme.series)],
        "marker": MARKERS[k % len(MARKERS)],
        "linestyle": DASHES[round_ % len(DASHES)],
        "linewidth": 1.9,
        "markersize": 4.5,
    }


def write(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], colour: str, **more: object
) -> None:
    """Write text beside a point, with a halo in the background colour so that lines do not cross it."""
    halo = [patheffects.withStroke(linewidth=2.5, foreground=axes.get_facecolor())]
    words = readable(colour, axes.get_facecolor())
    # Names at the ends of lines reach beyond the axes, where matplotlib would not draw them by default.
    style: Record = {"fontsize": SMALL, "color": words, "path_effects": halo, "annotation_clip": False} | more
    axes.annotate(text, at, offset, textcoords="offset points", **style)


def readable(colour: str, ground: str | Sequence[float], wanted: float = 4.5) -> tuple[float, ...]:
    """Move a colour towards black or white until text in it has enough contrast with the background (WCAG)."""
    own, behind = colors.to_rgb(colour), colors.to_rgb(ground)
    # Darker on a light background, lighter on a dark one.
    end = 0.0 if luminance(behind) > 0.4 else 1.0
    for share in range(21):
        # 4.5, the default, is what WCAG asks for text of normal size (level AA).
        mixed = tuple(x + (end - x) * share / 20 for x in own)
        if contrast(mixed, behind) >= wanted:
            return mixed
    return (end, end, end)


def contrast(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the contrast of two colours, from 1 to 21, as WCAG defines it."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: Sequence[float]) -> float:
    """Return the relative luminance of red, green and blue in [0, 1] (WCAG)."""
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


WIDE = 6.6  # inches, with a legend beside the plot
LABEL_ROOM = 11.0  # points between two labels
AT_ENDS = 5  # lines that are named at their ends; names of more would be crowded


def name_lines(figure: Figure, axes: Axes, labels: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Name the lines at their ends if they are few and end at the same x; otherwise in a legend beside the plot."""
    if len(labels) <= AT_ENDS and len({end[0] for _, end, _ in labels}) == 1:
        label_ends(axes, labels)
    else:
        legend_beside(figure, axes, by_height=True)


def legend_beside(figure: Figure, axes: Axes, *, by_height: bool = False) -> None:
    """Put a legend to the right of the plot, which becomes wider. `by_height` sorts it by the ends of the lines."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    if by_height:
        lines.sort(key=lambda line: -float(np.asarray(line.get_ydata())[-1]))
    figure.set_size_inches(WIDE, figure.get_size_inches()[1])
    legend = figure.legend(
        handles=lines,
        loc="outside right upper",
        frameon=False,
        fontsize=SMALL,
        handlelength=2.4,
        labelspacing=0.7,
    )
    for text in legend.get_texts():
        text.set_color(axes.xaxis.label.get_color())


def label_ends(axes: Axes, labels: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Write a name at the end of every line (name, end, colour), moved up or down so that names do not overlap."""
    height = SIZE[1] * 72 * 0.72  # approximate height of the axes in points
    # From data to shares of the height, on linear and on logarithmic axes.
    to_share = axes.transScale + axes.transLimits
    places = [float(to_share.transform(end)[1]) * height for _, end, _ in labels]
    moved = apart(places, LABEL_ROOM, 0.0, height)
    for (name, end, colour), place, wanted in zip(labels, places, moved, strict=True):
        write(axes, name, end, (5, wanted - place), colour, va="center", ha="left", fontweight="bold")


def apart(places: Sequence[float], room: float, low: float = -math.inf, high: float = math.inf) -> list[float]:
    """Move places as little as possible (least squares) so that no two are closer than `room`; keep their order.

    After subtracting k * room from the k-th place, this is a monotone regression, solved by pooling neighbours: those
    that would overlap are spread around their mean, and all others stay. Places stay between `low` and `high` if they
    fit.
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
