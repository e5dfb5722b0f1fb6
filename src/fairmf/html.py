"""Write small pieces of HTML for notebooks: tables, facts and bars, with all text from data escaped.

Objects return them from `_repr_html_`. Styles are written inside the tags and take their colours from the notebook, so
that they are readable on light and dark pages, and no style sheet or script is needed.
"""

from __future__ import annotations

import html as standard
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairmf.text import visible

MOST_ROWS = 20  # of a table; the rest is counted
_CELL = "padding:2px 10px 2px 0;border:none;vertical-align:top;"
_HEAD = f"{_CELL}font-weight:600;border-bottom:1px solid currentColor;"


def escaped(value: object) -> str:
    """Return text from data so that a page shows it as it is: no tags, no control characters, one line."""
    return standard.escape(visible(value, one_line=True))


def title(name: str, note: str = "") -> str:
    """Write the name of an object, and beside it a note."""
    beside = f' <span style="opacity:.7">{escaped(note)}</span>' if note else ""
    return f'<div style="margin:2px 0"><b>{escaped(name)}</b>{beside}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[object]], most: int = MOST_ROWS) -> str:
    """Write a table with a line of names; numbers are aligned to the right. At most `most` rows are shown."""
    listed = [list(row) for row in rows]
    numbers = [bool(listed) and all(_is_number(row[k]) for row in listed) for k in range(len(head))]
    align = ["right" if number else "left" for number in numbers]
    lines = ["".join(_cell("th", name, _HEAD, side) for name, side in zip(head, align, strict=True))]
    for row in listed[:most]:
        lines.append("".join(_cell("td", cell, _CELL, side) for cell, side in zip(row, align, strict=True)))
    more = len(listed) - most
    after = f'<div style="opacity:.7">and {more:,} more rows</div>' if more > 0 else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table style="border-collapse:collapse;margin:2px 0">{body}</table>{after}'


def facts(values: Mapping[str, object]) -> str:
    """Write names and their values, one per line."""
    body = "".join(
        f"<tr>{_cell('td', name, _CELL + 'opacity:.7;', 'left')}{_cell('td', value, _CELL, 'left')}</tr>"
        for name, value in values.items()
    )
    return f'<table style="border-collapse:collapse;margin:2px 0">{body}</table>'


def first_ids(users: Any, items: Any) -> str:
    """Write the first ids of users and items, each an `Ids` or None."""
    named = {"user ids": users, "item ids": items}
    shown = {name: None if ids is None else ids.values[:3].tolist() for name, ids in named.items()}
    return facts({name: "row numbers" if ids is None else f"{str(ids)[1:-1]}, ..." for name, ids in shown.items()})


def paragraph(text: str) -> str:
    """Write a sentence."""
    return f'<div style="margin:2px 0;max-width:60em">{escaped(text)}</div>'


def bar(name: str, done: int, total: int, words: str) -> str:
    """Write a progress bar with its title before it and some words after it."""
    share = 100 * done / total if total else 100
    filled = f'<div style="width:{share:.1f}%;height:100%;background:currentColor"></div>'
    box = "display:inline-block;width:16em;height:.6em;border:1px solid currentColor;border-radius:3px;overflow:hidden"
    return (
        f'<div style="font-family:monospace;white-space:nowrap">{escaped(name)} <span style="{box}">{filled}</span> '
        f"{escaped(words)}</div>"
    )


def number(value: float) -> str:
    """Write a number with four digits that matter: 0.3124, 1,234."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _cell(tag: str, value: object, style: str, side: str) -> str:
    text = number(value) if isinstance(value, float) else f"{value:,}" if type(value) is int else value
    return f'<{tag} style="{style}text-align:{side}">{escaped(text)}</{tag}>'


def _is_number(value: object) -> bool:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or value == ""
