"""Draw quality against inequality of exposure: curves, and the path of evenness of a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fairmf.control.calibrate import Calibration
from fairmf.control.trade_off import Curve, place_of
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.registry import is_accuracy
from fairmf.metrics.sentences import title as metric_title
from fairmf.reports import plot_style
from fairmf.types import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CROWDED = 3  # fronts that are named at their ends; more would be crowded, since fronts meet there


def trade_off_front(
    curves: Curve | Mapping[str, Curve],
    *,
    quality: str | None = None,
    inequality: str | None = None,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """Draw quality against inequality, with points joined by rising evenness: up is better, left is more even.

    A single curve is divided by its `way` ("evenness", "dial", "re-trained", ...). If there is only one line, its
    points are marked with their evenness, or their fairness where they have none. By default the axes are the first
    accuracy metric and the first Gini of the curves.
    """
    series = _by_way(curves) if isinstance(curves, Curve) else dict(curves)
    if not series or not all(len(curve) for curve in series.values()):
        raise InvalidData("There are no points to draw: every curve needs at least one.")
    first = next(iter(series.values()))
    up, across = quality or first.quality, inequality or first.inequality
    words = f"{metric_title(across)} of exposure (left is more even)", f"{metric_title(up)} (up is better)"
    figure, axes, colours = plot_style.new_figure(theme, *words, title=title)
    ends = []
    for k, (name, curve) in enumerate(series.items()):
        rows = sorted(curve, key=lambda row: place_of(row)[0])
        x, y = [row[across] for row in rows], [row[up] for row in rows]
        axes.plot(x, y, label=name, **plot_style.look(colours, k) | ({"linestyle": ""} if len(x) == 1 else {}))
        # The name stands at the most even point, the left end of the line.
        lowest = min(range(len(x)), key=lambda i: x[i])
        ends.append((name, (x[lowest], y[lowest]), colours.series[k % len(colours.series)]))
    if len(series) == 1:
        _mark(axes, [(row[across], row[up], f"{place_of(row)[0]:g}") for row in first], colours.soft)
    axes.margins(0.08)
    axes.autoscale_view()
    if len(series) > CROWDED:
        plot_style.legend_beside(figure, axes)
    elif len(series) > 1:
        plot_style.label_ends(axes, ends)
    return figure


def evenness_path(
    calibration: Calibration, *, quality: str | None = None, title: str = "", theme: str = "light"
) -> Figure:
    """Draw what evenness costs: quality against Gini along the path of a calibration, with intervals of both.

    Parameters
    ----------
    calibration
        The result of `calibrate`.
    quality
        Which of its accuracy metrics to draw, such as "ndcg@20"; None draws the one it was calibrated for.
    title
        A title above the plot; "" for none.
    theme
        "light" or "dark".

    Returns
    -------
    Figure
        For `plots.save`. Points are marked with their evenness, from 0 at the right to 1 at the left.

    Raises
    ------
    InvalidParameter
        If the calibration did not measure `quality`.

    Examples
    --------
    >>> from fairmf import FairALS, calibrate, split_by_user, synthetic
    >>> from fairmf.reports import plots
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = calibrate(FairALS(factors=8, epochs=4).fit(split.train), split, bootstrap=20)
    >>> plots.evenness_path(found).axes[0].get_ylabel()
    'nDCG@100 (up is better)'
    """
    up, across = quality or calibration.path.quality, f"gini@{calibration.path.at}"
    measured = [row.found for row in calibration.rows]
    known = [name for name in measured[0].values if is_accuracy(name)]
    if up not in known:
        raise InvalidParameter(f"The calibration measured {', '.join(known)}. Got {up!r} instead.", parameter="quality")
    users = f"{measured[0].n_users:,} {calibration.shown_on} users"
    words = f"{metric_title(across)} of exposure, {users} (left is more even)", f"{metric_title(up)} (up is better)"
    figure, axes, colours = plot_style.new_figure(theme, *words, title=title)
    x, y = [found[across] for found in measured], [found[up] for found in measured]
    look: Record = {"color": colours.soft, "linewidth": 1.1, "alpha": 0.75, "label": "_interval", "zorder": 1.5}
    for found in measured:
        if across in found.intervals and up in found.intervals:
            axes.plot([found[across]] * 2, found.intervals[up], **look)
            axes.plot(found.intervals[across], [found[up]] * 2, **look)
    axes.plot(x, y, label="evenness", **plot_style.look(colours, 0))
    axes.margins(0.08)
    axes.autoscale_view()
    told = [f"{row.evenness:g}" for row in calibration.rows]
    told[-1] = f"evenness {told[-1]}"  # there is room beside the end, and it says what the other numbers are
    _mark(axes, list(zip(x, y, told, strict=True))[::-1], colours.ink)
    return figure


def _mark(axes: Axes, points: Sequence[tuple[float, float, str]], colour: str) -> None:
    """Write the evenness or fairness beside every point that has room for it."""
    across, up = [x for x, _, _ in points], [y for _, y, _ in points]
    width, height = max(across) - min(across) or 1.0, max(up) - min(up) or 1.0
    taken: list[tuple[float, float]] = []
    for x, y, told in points:
        # About the size of a label, as shares of the plot.
        if all(abs(x - a) > 0.05 * width or abs(y - b) > 0.06 * height for a, b in taken):
            plot_style.write(axes, told, (x, y), (4, -10), colour)
            taken.append((x, y))


def _by_way(curve: Curve) -> dict[str, Curve]:
    ways = dict.fromkeys(row["way"] for row in curve)
    return {way: Curve(tuple(row for row in curve if row["way"] == way), curve.metrics) for way in ways}
