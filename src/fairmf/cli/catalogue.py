"""Read the names and the groups of items from a table, for audit and report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.options import Flags
from fairmf.data.columns import ITEM_GROUPS, ITEM_TITLES, is_item_id
from fairmf.data.interactions import Interactions
from fairmf.data.read import reading
from fairmf.data.read_csv import text_rows
from fairmf.data.sniff import Peek, peek
from fairmf.data.text_source import TextSource
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    from pyarrow import feather, parquet
else:
    feather = lazy_module("pyarrow.feather")
    parquet = lazy_module("pyarrow.parquet")

NO_GROUP = "no group"


@dataclass
class Catalogue(Flags):
    """Flags that name the table of items and its columns."""

    catalogue: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Table (CSV, Parquet) with one row per item: its id, its name and its group."
        ),
    ] = None
    name_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of item names in the catalogue; guessed if not given.")
    ] = None
    group_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of groups (seller, genre) in the catalogue; guessed if not given."),
    ] = None

    def table(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the names and the groups of all items of the table, by id as text; empty if they are not known."""
        self._check()
        if self.catalogue is None:
            return {}, {}
        table, ids, names, groups = _columns(self.catalogue, self.name_column, self.group_column)
        keys = [str(item) for item in table[ids]]
        named, grouped = (
            {} if column is None else {k: str(v) for k, v in zip(keys, table[column], strict=True) if v is not None}
            for column in (names, groups)
        )
        return named, grouped

    def read(self, data: Interactions) -> tuple[list[str] | None, list[str] | None]:
        """Return the names and the groups of the data's items; None if they are not known."""
        self._check()
        if self.catalogue is not None:
            return read_catalogue(self.catalogue, data, self.name_column, self.group_column)
        return None, None

    def _check(self) -> None:
        for flag, value in (("--name-column", self.name_column), ("--group-column", self.group_column)):
            if value is not None and self.catalogue is None:
                raise Problem(f"{flag} names a column of a catalogue, but no catalogue was given.", "--catalogue FILE")


def read_catalogue(
    path: Path, data: Interactions, name: str | None, group: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """Return the names and the groups of the items of `data`, in their order; None where the table has no such column.

    The columns of ids, names and groups are given, or found by their usual names. Ids are compared as text. An item
    that is not in the table is called by its id and has no group.
    """
    known, n_items = data.item_ids, data.n_items
    table, ids, *columns = _columns(path, name, group)
    own = [str(x) for x in (range(n_items) if known is None else known.values.tolist())]
    rows = {str(item): row for row, item in enumerate(table[ids])}
    if not any(item in rows for item in own):
        raise Problem(f"Column {ids!r} of {path} has none of the model's items; the first item is {own[0]!r}.")
    names = None if columns[0] is None else _of_items(own, rows, table[columns[0]], own)
    groups = None if columns[1] is None else _of_items(own, rows, table[columns[1]], [NO_GROUP] * n_items)
    return names, groups


def _columns(
    path: Path, name: str | None, group: str | None
) -> tuple[dict[str, list[object]], str, str | None, str | None]:
    """Return the table, and which of its columns hold ids, names and groups."""
    table = _read(path)
    ids = next(filter(is_item_id, table), next(iter(table)))
    names = _column(path, table, name, ITEM_TITLES, "--name-column")
    groups = _column(path, table, group, ITEM_GROUPS, "--group-column")
    if names is None and groups is None:
        raise Problem(
            f"{path} has no column of names or groups that can be guessed: its columns are {', '.join(table)}.",
            "--name-column COLUMN or --group-column COLUMN",
        )
    return table, ids, names, groups


def _of_items(own: list[str], rows: dict[str, int], values: list[object], otherwise: list[str]) -> list[str]:
    found = [values[rows[item]] if item in rows else None for item in own]
    return [default if value is None else str(value) for value, default in zip(found, otherwise, strict=True)]


def _column(
    path: Path, table: dict[str, list[object]], wanted: str | None, usual: tuple[str, ...], what: str
) -> str | None:
    if wanted is not None:
        if wanted not in table:
            raise Problem(f"Column {wanted!r} is not in {path}: there are {', '.join(table)}.", f"{what} COLUMN")
        return wanted
    return next((column for column in table if column.lower() in usual), None)


def _read(path: Path) -> dict[str, list[object]]:
    """Return the columns of the table by name; in a text without a header they are called 0, 1, and so on."""
    if not path.is_file():
        raise Problem(
            f"There is no table of items {path}.", "--catalogue takes a CSV or Parquet file with one row per item"
        )
    seen = peek(path)
    with reading(path, seen.kind.upper() if seen.kind == "csv" else seen.kind.capitalize()):
        if seen.kind == "csv":
            table = _text_columns(path, seen)
        elif seen.kind == "parquet":
            table = parquet.read_table(path).to_pydict()
        else:
            table = feather.read_table(path).to_pydict()
    if len(table) < 2 or not any(table.values()):
        raise Problem(f"{path} should have one row per item and at least two columns: an id, and a name or a group.")
    return table


def _text_columns(path: Path, seen: Peek) -> dict[str, list[object]]:
    source, cut = TextSource.of_file(path), str(seen.delimiter)
    try:
        rows = list(text_rows(source, cut))
    except UnicodeDecodeError:
        rows = list(text_rows(source, cut, "latin-1"))  # older MovieLens files are in Latin-1
    width = len(seen.names)
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise Problem(
                f"Row {number:,} of {path} has {len(row):,} columns when cut at {cut!r}, the first has {width:,}.",
                "quote texts in which the delimiter occurs",
            )
    body = rows[1 if seen.header else 0 :]
    return {str(name): [row[k] or None for row in body] for k, name in enumerate(seen.names)}
