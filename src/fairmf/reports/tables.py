"""Make the tables of a report: for the page, as plain text that the templates escape, and for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from fairmf.metrics.audit_change import Change
from fairmf.metrics.sentences import (
    SHARE,
    arrow,
    cut,
    ends_of,
    sentence,
    shown_change,
    signed,
    title,
    written,
    written_change,
)
from fairmf.reports.content import COLUMNS, Contender, Content, Position
from fairmf.reports.payload import between, shown_groups, shown_items

NBSP = "\N{NO-BREAK SPACE}"
WITHOUT_SCRIPT = 50  # rows of a long table that readers without JavaScript see


class Cell(NamedTuple):
    """The text of a cell, and the small text below it."""

    text: str
    small: str = ""


class PageTable(NamedTuple):
    """A table of the page. The first cell of each row is a heading."""

    caption: str
    head: list[str]
    rows: list[list[Cell]]


def dial_table(content: Content) -> PageTable:
    """Return a table of all stops and metrics, with the interval of each difference from the first stop."""
    caption = "All stops"
    if any(position.changes for position in content.positions):
        caption += f"; small figures are {content.confidence:.0%} intervals of the difference from the first row"
    rows = [
        [
            Cell(_place(content, position)),
            *(Cell(written(m, position.values.get(m)), _ends(m, position.changes.get(m))) for m in content.metrics),
        ]
        for position in content.positions
    ]
    return PageTable(caption, [content.knob or "side", *_headings(content.metrics)], rows)


def cost_table(content: Content) -> PageTable | None:
    """Return a table of what each stop costs: quality, its loss from the first stop, Gini, and who loses and gains."""
    if not content.knob or len(content.positions) < 2:
        return None
    first, quality = content.before, content.quality
    wanted = (content.inequality, f"ndcg@{content.at}", f"coverage@{content.at}", content.share)
    others = [m for m in dict.fromkeys(wanted) if m != quality and m in content.metrics]
    head = [content.knob, *_headings([quality]), f"change from{NBSP}{_place(content, first)}", *_headings(others)]
    with_users = any(quality in position.users for position in content.positions)
    head += [f"users who lose{NBSP}/{NBSP}gain"] if with_users else []
    rows = []
    for position in content.positions:
        row = [Cell(_place(content, position)), _value(position, quality)]
        row.append(Cell("") if position is first else _loss(quality, content.change(position, quality)))
        row += [_value(position, metric) for metric in others if metric]
        users = position.users.get(quality)
        share = "" if users is None else f"{users.worse_off.value:.1%} / {users.better_off.value:.1%}"
        rows.append([*row, Cell(share)] if with_users else row)
    caption = sentence(content.measured_on)
    if any(position.intervals for position in content.positions):
        caption += f" Small figures, on wide screens, are {content.confidence:.0%} intervals."
    return PageTable(caption or "Measured", head, rows)


def cold_table(content: Content) -> PageTable | None:
    """Return a table of what items without interactions in training get at each stop."""
    share, catalogue = content.cold_share, content.catalogue
    if share is None or catalogue is None:
        return None
    part = catalogue.n_cold / len(catalogue)
    recall = f"cold_recall@{content.at}"
    found = recall in content.before.values
    head = [content.knob or "side", f"share of exposure{NBSP}↑", "times their share of the catalogue"]
    head += _headings([recall]) if found else []
    rows = []
    for position in content.positions:
        value = position.values.get(share, math.nan)
        row = [Cell(_place(content, position)), _value(position, share)]
        row.append(Cell(f"{value / part:.2f}" if math.isfinite(value) else written(share, None)))
        rows.append([*row, _value(position, recall)] if found else row)
    caption = f"{catalogue.n_cold:,} of {len(catalogue):,} items ({part:.1%} of the catalogue)."
    if any(position.intervals for position in content.positions):
        caption += f" Small figures are {content.confidence:.0%} intervals."
    return PageTable(caption, head, rows)


def level_table(content: Content) -> PageTable | None:
    """Return a table of the levels that the values of evenness stand for."""
    levels = [(position, position.level) for position in content.positions if position.level is not None]
    if not levels:
        return None
    rows = [
        [
            Cell(_place(content, position)),
            *(Cell(f"{x:.3g}") for x in (*level.on_items, level.strengths[0])),
        ]
        for position, level in levels
    ]
    strengths = ["flatten (g)", "discount (h)", "lift (t)", "psi"]
    return PageTable("What each evenness stands for", [content.knob, *strengths], rows)


def _place(content: Content, position: Position) -> str:
    value = position.evenness if content.knob == "evenness" else position.fairness
    return cut(position.name) if value is None else f"{value:g}"


def _value(position: Position, metric: str) -> Cell:
    return Cell(written(metric, position.values.get(metric)), _between(metric, position.intervals.get(metric)))


def _loss(metric: str, change: Change) -> Cell:
    """Write a change in per cent of the value at the first stop, with its interval."""
    if not math.isfinite(change.relative):
        return Cell(written_change(metric, change.difference), _ends(metric, change))
    ends = ""
    if change.beyond_chance is not None:
        low, high = (100 * (end or 0.0) / change.before for end in (change.low, change.high))
        ends = f"{signed(low, 1)}% to {signed(high, 1)}%"
    return Cell(f"{signed(100 * change.relative, 1)}%", ends)


def item_table(content: Content) -> PageTable | None:
    """Return the first rows of the item table, for readers without JavaScript."""
    catalogue, before, after = content.catalogue, content.before, content.after
    if catalogue is None or before.exposure is None or after.exposure is None:
        return None
    head = ["item", *(["group"] if catalogue.groups else [])]
    head += ["interactions"] if catalogue.popularity is not None else []
    head += [cut(before.name), cut(after.name), "change"]
    rows = []
    for j in shown_items(content)[:WITHOUT_SCRIPT].tolist():
        was, now = int(before.exposure[j]), int(after.exposure[j])
        row = [cut(catalogue.names[j])]
        row += [cut(str(catalogue.groups[j]))] if catalogue.groups else []
        row += [f"{catalogue.popularity[j]:,.0f}"] if catalogue.popularity is not None else []
        rows.append([*map(Cell, row), Cell(f"{was:,}"), Cell(f"{now:,}"), Cell(signed(now - was, 0))])
    return PageTable("Users whose list holds the item: the items shown most", head, rows)


def group_table(content: Content) -> PageTable | None:
    """Return a table of the groups with their shares of exposure before and after."""
    now = content.after
    if not now.groups:
        return None
    rows = []
    for group in (now.groups[g] for g in shown_groups(content)):
        share = group.share
        shares = [Cell(written(SHARE, x)) for x in (share.before, share.after)]
        change = Cell(shown_change(SHARE, share), _ends(SHARE, share))
        rows.append([Cell(cut(str(group.group))), Cell(f"{group.n_items:,}"), *shares, change])
    head = ["group", "items", cut(content.before.name), cut(now.name), "change"]
    return PageTable("Share of the exposure", head, rows)


def model_table(contenders: Sequence[Contender]) -> PageTable | None:
    """Return a table with a row per compared model."""
    if not contenders:
        return None
    # Only what all models were measured by can be compared.
    measured = [m for m in contenders[0].evaluation.values if all(m in c.evaluation for c in contenders)]
    columns = [m for m in COLUMNS if m in measured] or measured
    rows = []
    for contender in contenders:
        found = contender.evaluation
        cells = [Cell(written(m, found[m]), _between(m, found.intervals.get(m))) for m in columns]
        rows.append([Cell(cut(contender.name)), *cells, Cell(f"{contender.seconds:.1f}")])
    caption = "The same users for every model; small figures are bootstrap intervals"
    return PageTable(caption, ["model", *_headings(columns), "fit, seconds"], rows)


def comparison_table(contenders: Sequence[Contender], columns: Sequence[str] = COLUMNS) -> Table:
    """Return a table of the compared models for a terminal of 80 columns: a row per model, a column per metric."""
    table = Table(caption="↑ higher is better, ↓ lower is more even exposure", caption_justify="left")
    table.add_column("model", no_wrap=True)
    for column in columns:
        name, _, cut_off = title(column).partition("@")
        table.add_column(f"{name}\n@{cut_off} {arrow(column)}", justify="right", no_wrap=True)
    table.add_column("fit\nseconds", justify="right")
    for contender in contenders:
        cells = (f"{contender.evaluation[column]:.3f}" for column in columns)
        table.add_row(contender.name, *cells, f"{contender.seconds:.1f}")
    return table


def _headings(metrics: Sequence[str]) -> list[str]:
    return [f"{title(m)}{NBSP}{arrow(m)}" for m in metrics]


def _ends(metric: str, change: Change | None) -> str:
    return "" if change is None or change.beyond_chance is None else ends_of(metric, change)


def _between(metric: str, ends: tuple[float, float] | None) -> str:
    return "" if ends is None or ends[0] == ends[1] else between(metric, ends)
