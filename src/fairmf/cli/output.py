"""Write results to files: tables (CSV, Parquet, Arrow, JSON) and lists of recommendations (Parquet, CSV, JSON lines).

Verbs check that their files can be written before they start work.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.terminal import json_text
from fairmf.errors import CannotWrite
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module
from fairmf.text import FORMULA, NUMBER

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    from fairmf.models import batches as batches_module
    from fairmf.models.factor_model import FactorModel
    from fairmf.types import Array, Record
else:
    pa = lazy_module("pyarrow")
    arrow_csv = lazy_module("pyarrow.csv")
    pc = lazy_module("pyarrow.compute")
    parquet = lazy_module("pyarrow.parquet")
    batches_module = lazy_module("fairmf.models.batches")

_Tabular = TypeVar("_Tabular", "pa.Table", "pa.RecordBatch")
Users: TypeAlias = "Sequence[Hashable] | Array | None"


def check_output(path: Path) -> None:
    """Raise CannotWrite if the file cannot be written; create its folder if it is missing."""
    reason = _obstacle(path)
    if reason:
        raise CannotWrite(None, f"{path} cannot be written: {reason}")


def _obstacle(path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    if path.exists() and not path.is_file():
        return "it is a device or a pipe"
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"its folder cannot be created ({error.strerror})"
    # The folder decides, not the file: files are written under another name and then renamed.
    return "" if os.access(folder, os.W_OK) else f"you have no permission to write in {folder}"


def make_folder(path: Path) -> None:
    """Create the folder and its parents; raise CannotWrite where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.errno, f"{path} cannot be written: {error.strerror}") from error


SafeCsv = Annotated[
    bool,
    typer.Option(
        "--safe-csv/--no-safe-csv",
        help="In CSV files, put a ' in front of text that a spreadsheet would run as a formula.",
    ),
]
ENDINGS = (".csv", ".parquet", ".arrow", ".json")
ENDINGS_HELP = ".csv, .parquet, .arrow or .json"


def check_table_output(path: Path) -> None:
    """Raise a Problem or CannotWrite unless a table can be written there."""
    if path.suffix.lower() not in ENDINGS:
        raise unknown_format(path, ENDINGS)
    check_output(path)


def unknown_format(path: Path, endings: Sequence[str]) -> Problem:
    """Return the error for a file name whose ending is not a known format."""
    return Problem(
        f"Cannot tell the format of {path} from its name.", f"use {', '.join(endings[:-1])} or {endings[-1]}"
    )


def write_table(table: pa.Table, path: Path, safe_csv: bool = True) -> None:
    """Write an Arrow table in the format of the file name; an error leaves no partial file."""
    with replacing(path) as file:
        kind = path.suffix.lower()
        if kind == ".parquet":
            parquet.write_table(table, file)
        elif kind == ".csv":
            arrow_csv.write_csv(without_formulas(table) if safe_csv else table, file)
        elif kind == ".arrow":
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            file.write((json_text(table.to_pylist()) + "\n").encode())


def without_formulas(table: _Tabular) -> _Tabular:
    """Put a ' in front of every text in an Arrow table or batch that a spreadsheet would run as a formula.

    Such a text starts with any number of ' followed by = + - @, a tab or a line break, and is not a number. To undo the
    change, remove one ' from each text that starts with ' and is such a text. Columns of numbers are unchanged.
    """
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        runs = pc.and_(
            pc.match_substring_regex(column, FORMULA),
            pc.invert(pc.match_substring_regex(column, NUMBER)),
        )
        quote = pa.scalar("'", column.type)
        kept = pc.if_else(runs, pc.binary_join_element_wise(quote, column, pa.scalar("", column.type)), column)
        table = table.set_column(place, field.with_type(column.type), kept)
    return table


LIST_ENDINGS = (".parquet", ".csv", ".jsonl")


def check_list_file(path: Path) -> None:
    """Raise a Problem or CannotWrite unless lists can be written there."""
    if path.suffix.lower() not in LIST_ENDINGS:
        raise unknown_format(path, LIST_ENDINGS)
    check_output(path)


def write_lists(lists: ListsOf, path: Path, safe_csv: bool = True) -> int:
    """Write the lists batch by batch, with titles if they are known; return the number of recommendations."""
    schema, batches = lists.batches()
    kind, written = path.suffix.lower(), 0
    with replacing(path) as file:
        if kind == ".jsonl":
            for entry in lists:
                file.write(json_text(entry).encode() + b"\n")
                written += len(entry["items"])
            return written
        if kind == ".parquet":
            writer = parquet.ParquetWriter(file, schema)
        else:
            writer = arrow_csv.CSVWriter(file, schema, write_options=arrow_csv.WriteOptions(quoting_style="needed"))
        with writer:
            for batch in batches:
                safe = kind == ".csv" and safe_csv
                writer.write_batch(without_formulas(batch) if safe else batch)
                written += batch.num_rows
    return written


@dataclass(frozen=True)
class ListsOf:
    """Lists of some users (None: all), to be made when they are printed or written.

    Attributes
    ----------
    model, users, top, options
        As `recommend` takes them; `top` is its N.
    titles
        A name for every item, where a catalogue has them.
    then
        Lists of further users, which come after these.
    """

    model: FactorModel
    users: Users
    top: int
    options: Record
    titles: list[str] | None = None
    then: ListsOf | None = None

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema of the lists (user, item, score, rank and title), and their batches."""
        schema, batches = self._batches()
        if self.then is None:
            return schema, batches
        return schema, itertools.chain(batches, (batch.cast(schema) for batch in self.then.batches()[1]))

    def _batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        schema, batches = batches_module.record_batches(self.model, self.users, self.top, self.options)
        if self.titles is None:
            return schema, batches
        ids = self.model.fitted.item_ids
        items = pa.array(range(self.model.n_items) if ids is None else ids.values).cast(schema.field("item").type)
        titles, schema = pa.array(self.titles, pa.string()), schema.append(pa.field("title", pa.string()))

        def titled() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                named = titles.take(pc.index_in(batch.column("item"), items))
                yield pa.RecordBatch.from_arrays([*batch.columns, named], schema=schema)

        return schema, titled()

    def __iter__(self) -> Iterator[Record]:
        """Yield user, items, scores and titles, user by user. Items recommended for their popularity score None."""
        schema, batches = self.batches()
        columns = {"items": "item", "scores": "score", **({"titles": "title"} if "title" in schema.names else {})}
        for batch in batches:  # a user's rows are never in two batches
            user, rank = (batch.column(name).to_pylist() for name in ("user", "rank"))
            found = {many: batch.column(one).to_pylist() for many, one in columns.items()}
            starts = [k for k, number in enumerate(rank) if number == 1]  # rank 1 begins the list of the next user
            for start, stop in zip(starts, [*starts[1:], len(rank)], strict=True):
                yield {"user": user[start], **{name: values[start:stop] for name, values in found.items()}}
