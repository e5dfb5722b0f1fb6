"""How exposure is spread: exposure curves, coverage, Lorenz curves. Several models in one picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.errors import InvalidData
from fairmf.metrics import Evaluation, lorenz_curve
from fairmf.metrics.exposure import coverage
from fairmf.reporting.plots import naming, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IN_AXES: dict[str, Any] = {"xycoords": "axes fraction", "va": "bottom", "ha": "left", "fontweight": "bold"}
IN_CORNER = 3  # names that the free corner of an exposure plot holds
POINTS = 400  # of a curve: more cannot be seen
Values = NDArray[np.float64]


def exposure_curves(exposures: Mapping[str, ArrayLike], *, title: str = "", theme: str = "light") -> Figure:
    """Users reached by the most shown item, the second, and so on, on logarithmic axes.

    `exposures` maps a model's name to its items' exposure, such as `evaluation.exposure[20]`. Each name tells the
    coverage: the line ends where items are shown to nobody.
    """
    words = "rank of the item by exposure", "users who are shown it"
    figure, axes, colours = style.new_figure(theme, *words, title=title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    names, longest, checked = [], 2, _checked(exposures)
    for k, (name, counts) in enumerate(checked.items()):
        descending = np.sort(counts)[::-1]
        shown = int((descending > 0).sum())
        if not shown:
            raise InvalidData(f"{name} shows no item to anybody: there is no exposure to draw.")
        ranks = np.unique(np.round(np.geomspace(1, shown, POINTS)).astype(np.int64))
        look = style.look(colours, k) | {"marker": ""}
        told = f"{name}\n{float(coverage(counts)):.0%} of items shown"
        if len(checked) > IN_CORNER:  # lines that lie on each other are seen by their dashes
            look["linestyle"], name = style.DASHES[k % len(style.DASHES)], told
        axes.plot(ranks, descending[ranks - 1], label=name, **look)
        names.append((told, look["color"]))
        longest = max(longest, len(counts))
    axes.set_xlim(1, longest)
    if len(names) > IN_CORNER:
        naming.legend_beside(figure, axes)
        return figure
    for k, (told, colour) in enumerate(reversed(names)):  # the lower left is free: exposure curves fall to the right
        style.write(axes, told, (0.03, 0.04 + 0.155 * k), (0, 0), colour, **IN_AXES)
    return figure


def coverage_curves(
    evaluations: Mapping[str, Evaluation | Mapping[int, ArrayLike]], *, title: str = "", theme: str = "light"
) -> Figure:
    """Part of the catalogue shown to anybody, by the length of the lists.

    A model's evaluation (at several K), or a mapping from K to the items' exposure in the first K places.
    """
    words = "length of the lists", "part of the catalogue shown to anybody"
    figure, axes, colours = style.new_figure(theme, *words, title=title)
    ends = []
    for k, (name, found) in enumerate(evaluations.items()):
        by_length = found.exposure if isinstance(found, Evaluation) else found
        if not by_length:
            raise InvalidData(f"{name} has no exposure to draw.")
        lengths = sorted(by_length)
        parts = [float(coverage(np.asarray(by_length[K], dtype=np.float64))) for K in lengths]
        look = style.look(colours, k)
        axes.plot(lengths, parts, label=name, **look)
        ends.append((name, (float(lengths[-1]), parts[-1]), look["color"]))
    if not ends:
        raise InvalidData("There is nothing to draw.")
    axes.set_ylim(0, 1)
    _in_percent(axes.yaxis)
    naming.label_ends(axes, ends)
    return figure


def lorenz_curves(exposures: Mapping[str, ArrayLike], *, title: str = "", theme: str = "light") -> Figure:
    """What part of all exposure the items shown least get; the dashed line is perfectly even."""
    words = "share of the catalogue, least shown first", "share of the exposure"
    figure, axes, colours = style.new_figure(theme, *words, title=title)
    axes.plot([0, 1], [0, 1], color=colours.soft, linewidth=1, linestyle="--", label="_even")
    names = []
    for k, (name, counts) in enumerate(_checked(exposures).items()):
        if not counts.any():
            raise InvalidData(f"{name} shows no item to anybody: there is no exposure to draw.")
        curve = np.asarray(lorenz_curve(counts))
        places = np.unique(np.round(np.linspace(0, len(curve) - 1, POINTS)).astype(np.int64))
        look = style.look(colours, k) | {"marker": ""}
        axes.plot(places / (len(curve) - 1), curve[places], label=name, **look)
        half = float(np.interp(0.5, np.linspace(0, 1, len(curve)), curve))
        names.append((f"{name}: half the items get {half:.1%}", look["color"]))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    for axis in (axes.xaxis, axes.yaxis):
        _in_percent(axis)
    for k, (told, colour) in enumerate(names):  # the upper left is free: Lorenz curves stay below the diagonal
        style.write(axes, told, (0.02, 0.97 - 0.075 * k), (0, 0), colour, **(IN_AXES | {"va": "top"}))
    return figure


def _checked(exposures: Mapping[str, ArrayLike]) -> dict[str, Values]:
    found = {str(name): np.asarray(counts, dtype=np.float64) for name, counts in exposures.items()}
    if not found:
        raise InvalidData("There is nothing to draw.")
    for name, counts in found.items():
        if counts.ndim != 1 or not len(counts) or not np.isfinite(counts).all() or (counts < 0).any():
            raise InvalidData(f"The exposure of {name} must be finite numbers >= 0, one per item.")
    return found


def _in_percent(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1, decimals=0))
