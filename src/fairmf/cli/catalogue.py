"""What a table says about items: their titles and their groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairmf.cli.errors import Problem

if TYPE_CHECKING:
    from fairmf.data.ids import Ids
    from fairmf.data.sniff import Peek


NO_GROUP = "no group"


def read_catalogue(
    path: Path, known: Ids | None, n_items: int, name: str | None, group: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """The items' names and groups in the order of the model, each None where the table has no such column.

    The columns of ids, names and groups are named, or found by their usual names. Ids are compared as text. An item
    that the table lacks is called by its id and has no group.
    """
    from fairmf.data.columns import ITEM_GROUPS, ITEM_TITLES, is_item_id

    table = _read(path)
    ids = next(filter(is_item_id, table), next(iter(table)))
    columns = [
        _column(path, table, wanted, usual, f"--{flag}")
        for wanted, usual, flag in ((name, ITEM_TITLES, "name-column"), (group, ITEM_GROUPS, "group-column"))
    ]
    if columns == [None, None]:
        raise Problem(
            f"{path} has neither names nor groups of items: its columns are {', '.join(table)}.",
            "--name-column COLUMN or --group-column COLUMN",
        )
    own = [str(x) for x in (range(n_items) if known is None else known.values.tolist())]
    rows = {str(item): row for row, item in enumerate(table[ids])}
    if not any(item in rows for item in own):
        raise Problem(f"Column {ids!r} of {path} has none of the model's items; the first item is {own[0]!r}.")
    names = None if columns[0] is None else _of_items(own, rows, table[columns[0]], own)
    groups = None if columns[1] is None else _of_items(own, rows, table[columns[1]], [NO_GROUP] * n_items)
    return names, groups


def _of_items(own: list[str], rows: dict[str, int], values: list[Any], otherwise: list[str]) -> list[str]:
    found = [values[rows[item]] if item in rows else None for item in own]
    return [default if value is None else str(value) for value, default in zip(found, otherwise, strict=True)]


def _column(
    path: Path, table: dict[str, list[Any]], wanted: str | None, usual: tuple[str, ...], what: str
) -> str | None:
    if wanted is not None:
        if wanted not in table:
            raise Problem(f"Column {wanted!r} is not in {path}: there are {', '.join(table)}.", f"{what} COLUMN")
        return wanted
    return next((column for column in table if column.lower() in usual), None)


def _read(path: Path) -> dict[str, list[Any]]:
    """The table by column name; columns of a text without a header are called 0, 1, and so on."""
    from fairmf.data.read import reading
    from fairmf.data.sniff import peek

    if not path.is_file():
        raise Problem(f"There is no table of items {path}.", "a CSV or Parquet file with a row per item")
    seen = peek(path)
    with reading(path, seen.kind.upper() if seen.kind == "csv" else seen.kind.capitalize()):
        if seen.kind == "csv":
            table = _text_columns(path, seen)
        elif seen.kind == "parquet":
            import pyarrow.parquet as pq

            table = pq.read_table(path).to_pydict()
        else:
            from pyarrow import feather

            table = feather.read_table(path).to_pydict()
    if len(table) < 2 or not any(table.values()):
        raise Problem(f"{path} should have a row per item and at least two columns: an id, and a name or a group.")
    return table


def _text_columns(path: Path, seen: Peek) -> dict[str, list[Any]]:
    from fairmf.data.read_csv import text_rows
    from fairmf.data.text_source import TextSource

    source, cut = TextSource.of_file(path), str(seen.delimiter)
    try:
        rows = list(text_rows(source, cut))
    except UnicodeDecodeError:
        rows = list(text_rows(source, cut, "latin-1"))  # as the older MovieLens titles are
    width = len(seen.names)
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise Problem(
                f"Row {number:,} of {path} has {len(row):,} columns when cut at {cut!r}, the first has {width:,}.",
                "quote texts in which the delimiter occurs",
            )
    body = rows[1 if seen.header else 0 :]
    return {str(name): [row[k] or None for row in body] for k, name in enumerate(seen.names)}
