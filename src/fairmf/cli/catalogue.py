"""Read the names and the groups of items from a table, for recommend, audit, evaluate and report."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.options import Flags
from fairmf.data.columns import ITEM_GROUPS, ITEM_TITLES, is_item_id, item_column
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    from pyarrow import feather, parquet

    from fairmf.data import read, read_csv, sniff, text_source
    from fairmf.data.sniff import Peek
else:
    # Readers are imported when a catalogue is read: `recommend` seldom needs them.
    read, read_csv = lazy_module("fairmf.data.read"), lazy_module("fairmf.data.read_csv")
    sniff, text_source = lazy_module("fairmf.data.sniff"), lazy_module("fairmf.data.text_source")
    feather = lazy_module("pyarrow.feather")
    parquet = lazy_module("pyarrow.parquet")

log = logging.getLogger("fairmf")
NO_GROUP = "no group"
SEPARATOR = "|"
"""Between the groups of an item that has several, as in the genres of MovieLens: Comedy|Drama."""
MOST_ODD_ROWS = 0.001
"""The share of rows with too few or too many columns that are left out of a catalogue; with more it is cut wrongly."""
GroupsOfItems: TypeAlias = "list[str] | list[list[str]]"


@dataclass
class Titles(Flags):
    """Flags that name the table of items and its column of names."""

    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table (CSV, Parquet) with one row per item: its id and its name."),
    ] = None
    name_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of item names in the catalogue; guessed if not given.")
    ] = None

    def titles(self, item_ids: Ids | None, n_items: int) -> list[str] | None:
        """Return the names of the items; None without a catalogue."""
        self.check()
        if self.catalogue is None:
            return None
        names, _ = read_catalogue(self.catalogue, item_ids, n_items, self.name_column, None)
        if names is None:
            raise Problem(f"{self.catalogue} has no column of names that can be guessed.", "--name-column COLUMN")
        return names

    def check(self) -> None:
        """Raise a Problem if a column is named, but no catalogue."""
        columns = (("--name-column", self.name_column), ("--group-column", getattr(self, "group_column", None)))
        for flag, value in columns:
            if value is not None and self.catalogue is None:
                raise Problem(f"{flag} names a column of a catalogue, but no catalogue was given.", "--catalogue FILE")


@dataclass
class Catalogue(Titles):
    """Flags that name the table of items and its columns of names and groups."""

    catalogue: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Table (CSV, Parquet) with one row per item: its id, its name and its group."
        ),
    ] = None
    group_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of groups (seller, genre) in the catalogue; guessed if not given. An item with the groups "
            "A|B belongs to both, and its exposure is divided between them.",
        ),
    ] = None

    def table(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Return the names and the groups of all items of the table, by id as text; empty if they are not known."""
        self.check()
        if self.catalogue is None:
            return {}, {}
        table, ids, names, groups = _columns(self.catalogue, self.name_column, self.group_column)
        keys = [str(item) for item in table[ids]]
        titles = [] if names is None else table[names]
        kinds = [] if groups is None else map(_several, table[groups])
        return (
            {key: str(title) for key, title in zip(keys, titles, strict=False) if title is not None},
            {key: several for key, several in zip(keys, kinds, strict=False) if several},
        )

    def read(self, data: Interactions) -> tuple[list[str] | None, GroupsOfItems | None]:
        """Return the names and the groups of the data's items; None if they are not known."""
        self.check()
        if self.catalogue is None:
            return None, None
        return read_catalogue(self.catalogue, data.item_ids, data.n_items, self.name_column, self.group_column)


def read_catalogue(
    path: Path, known: Ids | None, n_items: int, name: str | None, group: str | None
) -> tuple[list[str] | None, GroupsOfItems | None]:
    """Return the names and the groups of the items, in their order; None where the table has no such column.

    The columns of ids, names and groups are given, or found by their usual names, or in a table without a header by
    their values. Ids are compared as text. An item that is not in the table is called by its id and has no group.
    """
    table, ids, *columns = _columns(path, name, group)
    own = [str(x) for x in (range(n_items) if known is None else known.values.tolist())]
    rows = {str(item): row for row, item in enumerate(table[ids])}
    if not any(item in rows for item in own):
        raise Problem(f"Column {ids!r} of {path} has none of the model's items; the first item is {own[0]!r}.")
    names = None if columns[0] is None else _of_items(own, rows, table[columns[0]], own)
    return names, None if columns[1] is None else _groups(own, rows, table[columns[1]])


def _columns(
    path: Path, name: str | None, group: str | None
) -> tuple[dict[str, list[object]], str, str | None, str | None]:
    """Return the table, and which of its columns hold ids, names and groups."""
    table = _read(path)
    ids = next(filter(is_item_id, table), next(iter(table)))
    guessed = _guessed(table, ids)
    names = _column(path, table, name, guessed[0], "--name-column")
    groups = _column(path, table, group, guessed[1], "--group-column")
    if names is None and groups is None:
        raise Problem(
            f"{path} has no column of names or groups that can be guessed: its columns are {', '.join(table)}.",
            "--name-column COLUMN or --group-column COLUMN",
        )
    return table, ids, names, groups


def _of_items(own: list[str], rows: dict[str, int], values: list[object], otherwise: list[str]) -> list[str]:
    found = [values[rows[item]] if item in rows else None for item in own]
    return [default if value is None else str(value) for value, default in zip(found, otherwise, strict=True)]


def _groups(own: list[str], rows: dict[str, int], values: list[object]) -> GroupsOfItems:
    """Return the group of every item; a list of groups for each where some item has several."""
    found = [values[rows[item]] if item in rows else None for item in own]
    if not any(isinstance(value, list) or SEPARATOR in str(value) for value in found):
        return [NO_GROUP if value is None else str(value) for value in found]
    return [_several(value) or [NO_GROUP] for value in found]


def _several(value: object) -> list[str]:
    """Return the groups that a cell names: a list of a Parquet file, or a text such as Comedy|Drama."""
    if value is None:
        return []
    parts = value if isinstance(value, list) else str(value).split(SEPARATOR)
    return [str(part).strip() for part in parts if str(part).strip()]


def _guessed(table: dict[str, list[object]], ids: str) -> tuple[str | None, str | None]:
    """Return the columns of names and groups, by their names; if there is no header, by their values."""
    others = [column for column in table if column != ids]
    if any(not column.isdigit() for column in table):
        return item_column(others, ITEM_TITLES), item_column(others, ITEM_GROUPS)
    # Titles are texts that hardly ever repeat; groups are texts that do.
    texts = [c for c in others if not all(_is_number(value) for value in table[c])]
    repeats = {c: 1 - len({str(value) for value in table[c]}) / max(len(table[c]), 1) for c in texts}
    title = next((c for c in texts if repeats[c] < 0.1), None)
    return title, next((c for c in texts if c != title and repeats[c] > 0.5), None)


def _is_number(value: object) -> bool:
    return value is None or str(value).replace(".", "", 1).isdigit()


def _column(
    path: Path, table: dict[str, list[object]], wanted: str | None, guessed: str | None, flag: str
) -> str | None:
    if wanted is not None and wanted not in table:
        raise Problem(f"Column {wanted!r} is not in {path}: there are {', '.join(table)}.", f"{flag} COLUMN")
    return guessed if wanted is None else wanted


def _read(path: Path) -> dict[str, list[object]]:
    """Return the columns of the table by name; in a text without a header they are called 0, 1, and so on."""
    if not path.is_file():
        raise Problem(
            f"There is no table of items {path}.", "--catalogue takes a CSV or Parquet file with one row per item"
        )
    seen = sniff.peek(path)
    with read.reading(path, seen.kind.upper() if seen.kind == "csv" else seen.kind.capitalize()):
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
    source, cut = text_source.TextSource.of_file(path), str(seen.delimiter)
    try:
        rows = read_csv.table_rows(source, cut)
    except UnicodeDecodeError:
        rows = read_csv.table_rows(source, cut, "latin-1")  # older MovieLens files are in Latin-1
    width = len(seen.names)
    odd = [number for number, row in enumerate(rows, start=1) if len(row) != width]
    if odd:
        found = len(rows[odd[0] - 1])
        said = f"Row {odd[0]:,} of {path} has {found:,} columns when cut at {cut!r}, the first has {width:,}"
        if len(odd) > MOST_ODD_ROWS * len(rows):
            raise Problem(f"{said}.", "quote texts in which the delimiter occurs")
        log.warning("%s. Left out: %s of %s rows.", said, f"{len(odd):,}", f"{len(rows):,}")
        rows = [row for row in rows if len(row) == width]
    body = rows[1 if seen.header else 0 :]
    return {str(name): [row[k] or None for row in body] for k, name in enumerate(seen.names)}
