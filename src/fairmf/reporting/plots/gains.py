"""Who gains and who loses exposure, from an audit: by popularity, or by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics import Audit
from fairmf.reporting.content import cut
from fairmf.reporting.metric_words import signed
from fairmf.reporting.plots import style
from fairmf.reporting.popularity_bands import band_of, band_shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_GROUPS = 12


def who_gains(audit: Audit, *, by: str = "popularity", title: str = "", theme: str = "light") -> Figure:
    """Each part's share of the exposure after minus before, in points: tenths of the catalogue by training
    popularity, or (`by="group"`) the groups that change most, with their intervals.
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
    figure, axes, colours = style.new_figure(theme, *words, title=title)
    places = np.arange(len(change))
    bars = axes.bar(places, change, color=[colours.gain if c >= 0 else colours.loss for c in change], width=0.75)
    for bar, value in zip(bars, change, strict=True):
        up = value >= 0
        at = (bar.get_x() + bar.get_width() / 2, value)
        style.write(
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
    shown = sorted(most, key=lambda g: g.share.difference)
    if not shown:
        raise InvalidData("One side of the audit shows no item to anybody: there is no exposure to draw.")
    size = (style.SIZE[0], max(2.2, 0.3 * len(shown) + 1.0))
    figure, axes, colours = style.new_figure(
        theme, "change in the share of exposure, points", "", title=title, size=size
    )
    change = [100 * g.share.difference for g in shown]
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


def _zero(axes: Axes, colours: style.Theme, *, vertical: bool) -> None:
    (axes.axvline if vertical else axes.axhline)(0, color=colours.soft, linewidth=1)
