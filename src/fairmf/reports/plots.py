"""Draw plots for papers with matplotlib (extra `[report]`), and save them so that equal figures give equal bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module
from fairmf.metrics.audit_result import Audit
from fairmf.metrics.evaluate import Evaluation
from fairmf.metrics.exposure import coverage, lorenz_curve
from fairmf.metrics.sentences import cut, signed
from fairmf.models.fitted import History
from fairmf.reports import plot_style
from fairmf.reports.payload import band_of, band_shares
from fairmf.reports.plot_fronts import evenness_path as evenness_path
from fairmf.reports.plot_fronts import trade_off_front as trade_off_front
from fairmf.types import Record

if TYPE_CHECKING:
    import matplotlib
    from matplotlib import ticker
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
else:
    matplotlib = lazy_module("matplotlib")
    ticker = lazy_module("matplotlib.ticker")


IN_AXES: Record = {"xycoords": "axes fraction", "va": "bottom", "ha": "left", "fontweight": "bold"}
IN_CORNER = 3  # names that fit into the free corner of an exposure plot
POINTS = 400  # points drawn of a curve; more would not be visible
Values = NDArray[np.float64]


def exposure_curves(exposures: Mapping[str, ArrayLike], *, title: str = "", theme: str = "light") -> Figure:
    """Draw how many users the most shown item reaches, the second, and so on, on logarithmic axes.

    `exposures` maps the name of a model to the exposure of its items, such as `evaluation.exposure[20]`. A line ends
    where items are in no list; the coverage is written beside its name.
    """
    words = "rank of the item by exposure", "users who are shown it"
    figure, axes, colours = plot_style.new_figure(theme, *words, title=title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    names, longest, checked = [], 2, _checked(exposures)
    for k, (name, counts) in enumerate(checked.items()):
        descending = np.sort(counts)[::-1]
        shown = int((descending > 0).sum())
        if not shown:
            raise InvalidData(f"{name} shows no item to anybody: there is no exposure to draw.")
        # Evenly spaced on a logarithmic axis; small ranks are met several times, so each is kept once.
        ranks = np.unique(np.round(np.geomspace(1, shown, POINTS)).astype(np.int64))
        look = plot_style.look(colours, k) | {"marker": ""}
        told = f"{name}\n{float(coverage(counts)):.0%} of items shown"
        if len(checked) > IN_CORNER:  # different dashes, so that lines on top of each other are both visible
            look["linestyle"], name = plot_style.DASHES[k % len(plot_style.DASHES)], told
        axes.plot(ranks, descending[ranks - 1], label=name, **look)
        names.append((told, look["color"]))
        longest = max(longest, len(counts))
    axes.set_xlim(1, longest)
    if len(names) > IN_CORNER:
        plot_style.legend_beside(figure, axes)
        return figure
    # From the bottom up, in the lower left: it is empty, because exposure curves fall to the right.
    for k, (told, colour) in enumerate(reversed(names)):
        plot_style.write(axes, told, (0.03, 0.04 + 0.155 * k), (0, 0), colour, **IN_AXES)
    return figure


def coverage_curves(
    evaluations: Mapping[str, Evaluation | Mapping[int, ArrayLike]], *, title: str = "", theme: str = "light"
) -> Figure:
    """Draw the share of the catalogue that is in at least one list, by the length of the lists.

    A value is an evaluation at several K, or a mapping from K to the exposure of the items in the first K slots.
    """
    words = "length of the lists", "part of the catalogue shown to anybody"
    figure, axes, colours = plot_style.new_figure(theme, *words, title=title)
    ends = []
    for k, (name, found) in enumerate(evaluations.items()):
        by_length = found.exposure if isinstance(found, Evaluation) else found
        if not by_length:
            raise InvalidData(f"{name} has no exposure to draw.")
        lengths = sorted(by_length)
        parts = [float(coverage(np.asarray(by_length[K], dtype=np.float64))) for K in lengths]
        look = plot_style.look(colours, k)
        axes.plot(lengths, parts, label=name, **look)
        ends.append((name, (float(lengths[-1]), parts[-1]), look["color"]))
    if not ends:
        raise InvalidData("There is nothing to draw.")
    axes.set_ylim(0, 1)
    _in_percent(axes.yaxis)
    plot_style.label_ends(axes, ends)
    return figure


def lorenz_curves(exposures: Mapping[str, ArrayLike], *, title: str = "", theme: str = "light") -> Figure:
    """Draw Lorenz curves: the share of exposure that the items shown least get. The dashed line is equal exposure."""
    words = "share of the catalogue, least shown first", "share of the exposure"
    figure, axes, colours = plot_style.new_figure(theme, *words, title=title)
    # Labels that begin with an underscore are left out of legends.
    axes.plot([0, 1], [0, 1], color=colours.soft, linewidth=1, linestyle="--", label="_even")
    names = []
    for k, (name, counts) in enumerate(_checked(exposures).items()):
        if not counts.any():
            raise InvalidData(f"{name} shows no item to anybody: there is no exposure to draw.")
        curve = np.asarray(lorenz_curve(counts))
        places = np.unique(np.round(np.linspace(0, len(curve) - 1, POINTS)).astype(np.int64))
        look = plot_style.look(colours, k) | {"marker": ""}
        axes.plot(places / (len(curve) - 1), curve[places], label=name, **look)
        half = float(np.interp(0.5, np.linspace(0, 1, len(curve)), curve))
        names.append((f"{name}: half the items get {half:.1%}", look["color"]))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    for axis in (axes.xaxis, axes.yaxis):
        _in_percent(axis)
    for k, (told, colour) in enumerate(names):  # the upper left is empty, because Lorenz curves stay below the diagonal
        plot_style.write(axes, told, (0.02, 0.97 - 0.075 * k), (0, 0), colour, **(IN_AXES | {"va": "top"}))
    return figure


def _checked(exposures: Mapping[str, ArrayLike]) -> dict[str, Values]:
    found = {str(name): np.asarray(counts, dtype=np.float64) for name, counts in exposures.items()}
    if not found:
        raise InvalidData("There is nothing to draw.")
    for name, counts in found.items():
        if counts.ndim != 1 or not len(counts) or not np.isfinite(counts).all() or (counts < 0).any():
            raise InvalidData(f"The exposure of {name} must be finite numbers >= 0, one per item.")
    return found


def _in_percent(axis: Axis) -> None:
    axis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))


# -- who gains and who loses exposure, from an audit ------------------------------------------------------------------


MOST_GROUPS = 12


def who_gains(audit: Audit, *, by: str = "popularity", title: str = "", theme: str = "light") -> Figure:
    """Draw how shares of exposure change, in points.

    The bars are tenths of the catalogue by training popularity, or with `by="group"` the groups that change most, with
    their intervals.
    """
    if by not in ("popularity", "group"):
        raise InvalidParameter(f"The 'by' of who_gains must be 'popularity' or 'group'. Got {by!r} instead.")
    return _by_popularity(audit, title, theme) if by == "popularity" else _by_group(audit, title, theme)


def _by_popularity(audit: Audit, title: str, theme: str) -> Figure:
    items = audit.items
    if items.popularity is None:
        raise InvalidData("The audit knows no popularity: audit a Split, or pass train=.")
    codes = band_of(items.popularity)
    before, after = (band_shares(exposure, codes) for exposure in (items.before, items.after))
    change = 100 * (after - before)
    if not np.isfinite(change).all():
        raise InvalidData("One side of the audit shows no item to anybody: there is no exposure to draw.")
    words = "tenths of the catalogue by popularity", "change in the share of exposure, points"
    figure, axes, colours = plot_style.new_figure(theme, *words, title=title)
    places = np.arange(len(change))
    bars = axes.bar(places, change, color=[colours.gain if c >= 0 else colours.loss for c in change], width=0.75)
    for bar, value in zip(bars, change, strict=True):
        up = value >= 0
        at = (bar.get_x() + bar.get_width() / 2, value)
        plot_style.write(
            axes, signed(value, 1), at, (0, 2 if up else -2), colours.ink, ha="center", va="bottom" if up else "top"
        )
    axes.set_xticks(places, _ends(len(change)))
    axes.margins(y=0.14)
    _zero(axes, colours, vertical=False)
    return figure


def _by_group(audit: Audit, title: str, theme: str) -> Figure:
    if not audit.groups:
        raise InvalidData("The audit has no groups: pass groups= to audit.")
    known = [g for g in audit.groups if np.isfinite(g.share.difference)]
    most = sorted(known, key=lambda g: -abs(g.share.difference))[:MOST_GROUPS]
    # Horizontal bars are drawn from the bottom up, so the largest gain comes out on top.
    shown = sorted(most, key=lambda g: g.share.difference)
    if not shown:
        raise InvalidData("One side of the audit shows no item to anybody: there is no exposure to draw.")
    size = (plot_style.SIZE[0], max(2.2, 0.3 * len(shown) + 1.0))
    figure, axes, colours = plot_style.new_figure(
        theme, "change in the share of exposure, points", "", title=title, size=size
    )
    change = [100 * g.share.difference for g in shown]
    # Without bootstrap there are no ends; then the zeros are not drawn.
    ends = [(100 * (g.share.low or 0), 100 * (g.share.high or 0)) for g in shown]
    bars = [colours.gain if c >= 0 else colours.loss for c in change]
    axes.barh(range(len(shown)), change, color=bars, height=0.7)
    if all(g.share.beyond_chance is not None for g in shown):
        for place, (low, high) in enumerate(ends):
            axes.plot([low, high], [place, place], color=colours.ink, linewidth=1.3, label="interval")
    axes.set_yticks(range(len(shown)), [cut(str(g.group))[:24] for g in shown], color=colours.ink)
    axes.grid(visible=False, axis="y")
    _zero(axes, colours, vertical=True)
    return figure


def _ends(count: int) -> list[str]:
    return ["least\npopular", *([""] * (count - 2)), "most\npopular"] if count > 1 else ["all items"]


def _zero(axes: Axes, colours: plot_style.Theme, *, vertical: bool) -> None:
    (axes.axvline if vertical else axes.axhline)(0, color=colours.soft, linewidth=1)


# -- any measured quantity against any other --------------------------------------------------------------------------


MARKED = 12  # points; a line with more has no markers


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
    """Draw points (x, y) joined in their order, one line per name. `across` and `up` are the labels of the axes.

    Points that cannot be drawn (not finite, or not above 0 on a logarithmic axis) are left out.
    """
    figure, axes, colours = plot_style.new_figure(theme, across, up, title=title)
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
        look = plot_style.look(colours, k) | ({"marker": ""} if len(kept) > MARKED else {})
        axes.plot(*zip(*kept, strict=True), label=name, **look)
        ends.append((name, (float(kept[-1][0]), float(kept[-1][1])), look["color"]))
    if not ends:
        raise InvalidData("There is nothing to draw.")
    if not logarithmic_x and all(float(x).is_integer() for points in lines.values() for x, _ in points):
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.autoscale_view()
    plot_style.name_lines(figure, axes, ends)
    return figure


# -- training ---------------------------------------------------------------------------------------------------------


TERMS = {"total": "F", "observed": "observed", "unobserved": "unobserved", "l2": "L2", "fairness": "fairness"}
RESIDUALS = {"items": "items", "users": "users", "consensus": "consensus", "dual": "dual (constraint)"}


def convergence(histories: History | Mapping[str, History], *, title: str = "", theme: str = "light") -> Figure:
    """Draw the objective by epoch: with its four terms for one fit, the totals for several fits."""
    if isinstance(histories, History):
        columns = {words: histories.column(f"objective.{term}") for term, words in TERMS.items()}
    else:
        columns = {name: history.column("objective.total") for name, history in histories.items()}
    return _by_epoch(columns, "objective", title, theme, logarithmic=False)


def residuals(
    histories: History | Mapping[str, History], *, which: str = "dual", title: str = "", theme: str = "light"
) -> Figure:
    """Draw FiADMM's residuals by epoch on a logarithmic axis: all for one fit, the one named `which` for several."""
    if isinstance(histories, History):
        columns = {words: histories.column(f"residuals.{name}") for name, words in RESIDUALS.items()}
        label = "how far each variable moved"
    else:
        if which not in RESIDUALS:
            raise InvalidData(f"There are residuals of {', '.join(RESIDUALS)}. Got {which!r} instead.")
        columns = {name: history.column(f"residuals.{which}") for name, history in histories.items()}
        label = f"residual of {RESIDUALS[which]}"
    return _by_epoch(columns, label, title, theme, logarithmic=True)


def time_per_epoch(seconds: Mapping[str, Mapping[int, float]], *, title: str = "", theme: str = "light") -> Figure:
    """Draw the seconds of an epoch by the number of factors on logarithmic axes, one line per solver."""
    figure, axes, colours = plot_style.new_figure(theme, "factors", "seconds per epoch", title=title)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ends = []
    for k, (name, measured) in enumerate(seconds.items()):
        if not measured or not all(d > 0 and t > 0 for d, t in measured.items()):
            raise InvalidData(f"{name} needs seconds > 0 for at least one number of factors.")
        factors = sorted(measured)
        look = plot_style.look(colours, k)
        axes.plot(factors, [measured[d] for d in factors], label=name, **look)
        ends.append((name, (float(factors[-1]), float(measured[factors[-1]])), look["color"]))
    if not ends:
        raise InvalidData("There is nothing to draw.")
    every = sorted({d for measured in seconds.values() for d in measured})
    axes.set_xticks(every, [str(d) for d in every])
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.minorticks_off()
    axes.autoscale_view()
    plot_style.name_lines(figure, axes, ends)
    return figure


def _by_epoch(
    columns: Mapping[str, Sequence[float | None]], label: str, title: str, theme: str, *, logarithmic: bool
) -> Figure:
    figure, axes, colours = plot_style.new_figure(theme, "epoch", label, title=title)
    if logarithmic:
        axes.set_yscale("log")
    ends = []
    for k, (name, column) in enumerate(columns.items()):
        points = [(epoch, y) for epoch, y in enumerate(column, start=1) if y is not None and np.isfinite(y)]
        points = [(epoch, y) for epoch, y in points if y > 0 or not logarithmic]
        if not points:
            continue
        epochs, values = zip(*points, strict=True)
        look = plot_style.look(colours, k) | ({} if len(points) == 1 else {"marker": ""})
        axes.plot(epochs, values, label=name, **look)
        ends.append((name, (float(epochs[-1]), float(values[-1])), look["color"]))
    if not ends:
        raise InvalidData(f"The history records no {label.partition(' ')[0]}: there is nothing to draw.")
    if not logarithmic:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.autoscale_view()
    # A single epoch would give an axis from 1 to 1.
    axes.set_xlim(left=1 if axes.get_xlim()[1] > 1 else None)
    plot_style.name_lines(figure, axes, ends)
    return figure


# Metadata that would differ between two runs, such as the date, is left out.
FORMATS = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 200) -> Path:
    """Write a figure as SVG, PNG or PDF, depending on the file name. An existing file is replaced atomically."""
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidParameter(f"A plot is saved as .svg, .png or .pdf. Got {target.name!r} instead.")
    # The ids inside an SVG are random unless they are salted. As paths, letters need no installed font.
    with matplotlib.rc_context({"svg.hashsalt": "fairmf", "svg.fonttype": "path"}), replacing(target) as file:
        figure.savefig(file, format=kind, dpi=dpi, facecolor=figure.get_facecolor(), metadata=FORMATS[kind])
    return target
