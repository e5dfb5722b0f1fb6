"""The parts of a page that need no script: tables and lists, as HTML text with everything escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rich.table import Table

from fairmf.metrics.registry import parse_metric
from fairmf.metrics.sentences import (
    VERDICTS,
    arrow,
    better,
    cut,
    ends_of,
    points,
    signed,
    title,
    written,
    written_change,
)
from fairmf.reports.content import COLUMNS, Contender, Content, Position
from fairmf.reports.payload import shown_groups, shown_items

# Tables for a terminal.


def comparison_table(contenders: Sequence[Contender], columns: Sequence[str] = COLUMNS) -> Table:
    """One row per model, one column per metric; fits 80 columns."""
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


WITHOUT_SCRIPT = 50  # rows of a long table that are there without JavaScript


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of HTML cells; the first of each row is its heading."""
    columns = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>' for first, *rest in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def dial_table(content: Content) -> str:
    """Every stop with every metric, and the interval of each difference from the first."""
    caption = "All stops"
    if any(position.changes for position in content.positions):
        caption += f"; small figures are {content.confidence:.0%} intervals of the difference from the first row"
    head = ["stop", *(f"{escape(title(m))} {arrow(m)}" for m in content.metrics)]
    rows = [
        [escape(cut(position.name)), *(_with_interval(position, m) for m in content.metrics)]
        for position in content.positions
    ]
    return table(caption, head, rows)


def _with_interval(position: Position, metric: str) -> str:
    text = written(metric, position.values.get(metric))
    change = position.changes.get(metric)
    if change is None or change.beyond_chance is None:
        return text
    return f"{text}<br><small>{ends_of(metric, change)}</small>"


def figures(content: Content) -> str:
    """The key figures before and after, for the summary."""
    wanted = [content.quality, content.inequality, f"coverage@{content.at}", content.share]
    cards = []
    for metric in (m for m in wanted if m is not None and m in content.metrics):
        change = content.change(content.after, metric)
        word = VERDICTS[better(metric, change)]
        cards.append(
            f'<li class="figure {word.replace(" ", "-")}"><span class="name">{escape(title(metric))}</span>'
            f'<span class="value">{written(metric, change.before)} <span class="to">to</span> '
            f"<strong>{written(metric, change.after)}</strong></span>"
            f'<span class="verdict">{written_change(metric, change.difference)}, {word}</span></li>'
        )
    return f'<ul class="figures">{"".join(cards)}</ul>'


def metric_cards(content: Content) -> str:
    """The figures that follow the dial."""
    now = content.after
    cards = (
        f'<li class="card" data-metric="{escape(m)}"><span class="name">{escape(title(m))} {arrow(m)}</span>'
        f'<span class="value">{written(m, now.values.get(m))}</span><span class="change"></span></li>'
        for m in content.metrics
    )
    return f'<ul class="cards">{"".join(cards)}</ul>'


def meanings(content: Content) -> str:
    """What each metric tells."""
    told = (f"<dt>{escape(title(m))}</dt><dd>{escape(parse_metric(m).meaning)}</dd>" for m in content.metrics)
    return f"<dl>{''.join(told)}</dl>"


def item_table(content: Content) -> str:
    """The head of the item table, and its first rows for readers without JavaScript."""
    catalogue = content.catalogue
    if catalogue is None or content.before.exposure is None or content.after.exposure is None:
        return ""
    head = ["item", *(["group"] if catalogue.groups else [])]
    head += ["interactions"] if catalogue.popularity is not None else []
    head += [escape(cut(content.before.name)), escape(cut(content.after.name)), "change"]
    rows = []
    for j in shown_items(content)[:WITHOUT_SCRIPT].tolist():
        before, after = int(content.before.exposure[j]), int(content.after.exposure[j])
        row = [escape(cut(catalogue.names[j]))]
        row += [escape(cut(str(catalogue.groups[j])))] if catalogue.groups else []
        row += [f"{catalogue.popularity[j]:,.0f}"] if catalogue.popularity is not None else []
        rows.append([*row, f"{before:,}", f"{after:,}", signed(after - before, 0)])
    return table("Users whose list holds the item: the items shown most", head, rows)


def group_table(content: Content) -> str:
    """Groups with their share of the exposure before and after."""
    now = content.after
    if not now.groups:
        return ""
    rows = []
    for g in shown_groups(content):
        group = now.groups[g]
        ends = group.share
        difference = points(ends.difference)
        if ends.beyond_chance is not None:
            difference += f"<br><small>{ends_of('tail_share@1', ends)}</small>"
        shares = [written("tail_share@1", x) for x in (ends.before, ends.after)]
        rows.append([escape(cut(str(group.group))), f"{group.n_items:,}", *shares, difference])
    head = ["group", "items", escape(cut(content.before.name)), escape(cut(now.name)), "change"]
    return table("Share of the exposure", head, rows)


def comparison(contenders: Sequence[Contender]) -> str:
    """A row per model."""
    if not contenders:
        return ""
    shared = [m for m in COLUMNS if all(m in c.evaluation for c in contenders)]
    columns = shared or [m for m in contenders[0].evaluation.values if all(m in c.evaluation for c in contenders)]
    rows = []
    for contender in contenders:
        cells = []
        for metric in columns:
            text = written(metric, contender.evaluation[metric])
            if metric in contender.evaluation.intervals:
                low, high = (written(metric, end) for end in contender.evaluation.intervals[metric])
                text += f"<br><small>{low} to {high}</small>"
            cells.append(text)
        rows.append([escape(cut(contender.name)), *cells, f"{contender.seconds:.1f}"])
    head = ["model", *(f"{escape(title(m))} {arrow(m)}" for m in columns), "fit, seconds"]
    return table("The same users for every model; small figures are bootstrap intervals", head, rows)


def record_list(record: Mapping[str, Any]) -> str:
    """A run record: plain values as a list, nested ones as indented text."""
    parts = []
    for name, value in record.items():
        if isinstance(value, (Mapping, list, tuple)):
            text = f"<pre>{escape(json.dumps(value, indent=1, default=str, ensure_ascii=False))}</pre>"
        else:
            text = escape(str(value))
        parts.append(f"<dt>{escape(str(name))}</dt><dd>{text}</dd>")
    return f"<dl>{''.join(parts)}</dl>"
