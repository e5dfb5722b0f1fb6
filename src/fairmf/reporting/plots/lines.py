"""Any measured quantity against any other: a line per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairmf.errors import InvalidData
from fairmf.reporting.plots import naming, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKED = 12  # points: a line of more has no markers


def measured_lines(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str,
    up: str,
    logarithmic: bool = False,
    logarithmic_x: bool = False,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """Points (x, y) joined in their order, one line per name; `across` and `up` say what x and y are.

    What cannot be drawn (a number that is not finite, or not above 0 on a logarithmic axis) is left out.
    """
    figure, axes, colours = style.new_figure(theme, across, up, title=title)
    if logarithmic:
        axes.set_yscale("log")
    if logarithmic_x:
        axes.set_xscale("log")
    ends = []
    for k, (name, points) in enumerate(lines.items()):
        kept = [(x, y) for x, y in points if np.isfinite([x, y]).all()]
        kept = [(x, y) for x, y in kept if (y > 0 or not logarithmic) and (x > 0 or not logarithmic_x)]
        if not kept:
            continue
        look = style.look(colours, k) | ({"marker": ""} if len(kept) > MARKED else {})
        axes.plot(*zip(*kept, strict=True), label=name, **look)
        ends.append((name, (float(kept[-1][0]), float(kept[-1][1])), look["color"]))
    if not ends:
        raise InvalidData("There is nothing to draw.")
    if not logarithmic_x and all(float(x).is_integer() for points in lines.values() for x, _ in points):
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.autoscale_view()
    naming.name_lines(figure, axes, ends)
    return figure
