"""What a file says about items: a group or a name for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairmf.cli.failures import Problem

if TYPE_CHECKING:
    from fairmf.cli.session import Session
    from fairmf.interactions import Ids

_ITEM_NAMES = ("item", "item_id", "itemid", "movieid", "movie_id", "product", "product_id", "track_id", "id")


def read_facts(
    path: Path, what: str, item_column: str | None, column: str | None, item_ids: Ids | None, session: Session
) -> dict[Any, str]:
    """A mapping from item id, as the data have it, to the text in a column of a CSV, Parquet or Arrow file.

    `what` names the fact in errors and flags: "group" or "name". Items the file does not have are left out.
    """
    from rich.markup import escape

    if item_ids is None:
        raise Problem("The items of this split have no ids, so a file cannot name them.")
    if not path.is_file():
        raise Problem(f"There is no file {path}.", f"--{what}s FILE, with a column of items and a column of {what}s")
    table = _read(path)
    names = table.column_names
    items = _item_column(item_column, names, path)
    facts = _fact_column(column, what, names, items, path)
    session.note(escape(f"{what + 's':7} {path}: item={items}, {what}={facts}"))
    whole = item_ids.values.dtype.kind in "iu"
    found = {}
    for item, fact in zip(table.column(items).to_pylist(), table.column(facts).to_pylist(), strict=True):
        if item is not None and fact is not None:
            found[_same_kind(item, whole)] = str(fact)
    known = sum(item in found for item in item_ids.values.tolist())
    if not known:
        raise Problem(
            f"None of the {len(item_ids):,} items is in {path}: the first item is {item_ids.values[0]!r}, the file "
            f"begins with {next(iter(found), None)!r}.", "--item-column names the column of item ids"
        )  # fmt: skip
    if known < len(item_ids):
        session.warn(f"{len(item_ids) - known:,} of {len(item_ids):,} items are not in {path}.")
    return found


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from fairmf.interactions.csv_reader import guess_delimiter
    from fairmf.interactions.readers import reading

    with path.open("rb") as file:
        start = file.read(1 << 14)
    with reading(path, "a table"):
        if start.startswith(b"PAR1"):
            return pyarrow.parquet.read_table(path)
        if start.startswith(b"ARROW1"):
            with pa.memory_map(str(path)) as mapped:
                return pa.ipc.open_file(mapped).read_all()
        delimiter = guess_delimiter(start.decode("utf-8", errors="replace").lstrip("\ufeff"))
        if len(delimiter) > 1:
            raise Problem(f"{path} is cut at {delimiter!r}.", "write it as CSV with a header, or as Parquet")
        # Ids as text: 007 stays 007 where the data have it so.
        return pyarrow.csv.read_csv(
            path, parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=_all_text(start, delimiter),
        )  # fmt: skip


def _all_text(start: bytes, delimiter: str) -> Any:
    import csv

    import pyarrow as pa
    import pyarrow.csv

    lines = start.decode("utf-8", errors="replace").lstrip("\ufeff").splitlines()
    header = next(csv.reader(lines[:1], delimiter=delimiter), [])
    return pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True)


def _item_column(given: str | None, names: Sequence[str], path: Path) -> str:
    if given is not None:
        return _named(given, names, path, "--item-column")
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in _ITEM_NAMES if name in lower), names[0])


def _fact_column(given: str | None, what: str, names: Sequence[str], items: str, path: Path) -> str:
    if given is not None:
        return _named(given, names, path, f"--{what}-column")
    others = [name for name in names if name != items]
    likely = [name for name in others if what in name.lower()]
    if len(others) == 1 or len(likely) == 1:
        return (likely or others)[0]
    listed = ", ".join(names)
    raise Problem(f"It is not clear which column of {path} is the {what}: there are {listed}.", f"--{what}-column NAME")


def _named(given: str, names: Sequence[str], path: Path, flag: str) -> str:
    if given not in names:
        raise Problem(f"Column {given!r} is not in {path}, whose columns are {', '.join(names)}.", f"{flag} NAME")
    return given


def _same_kind(item: Any, whole: bool) -> Any:
    """The id as the data have it: an integer where they have integers, else text."""
    if not whole:
        return str(item)
    try:
        return int(item)
    except ValueError:
        return item
