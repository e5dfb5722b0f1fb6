"""Lists into a file, a batch of users at a time: Parquet, CSV or JSON lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.terminal import json_text
from fairmf.errors import CannotWrite
from fairmf.io.atomic import replacing
from fairmf.text import FORMULA, NUMBER

# Whether a result can be written where it is wanted: asked before an hour's work rather than after it.


def check_output(path: Path) -> None:
    """Raise CannotWrite if a file of that name cannot be made; a folder that is missing is made."""
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
        return f"its folder cannot be made ({error.strerror})"
    return "" if os.access(folder, os.W_OK) else f"there is no right to write in {folder}"


def make_folder(path: Path) -> None:
    """Make the folder, with those above it; CannotWrite says why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.errno, f"{path} cannot be written: {error.strerror}") from error


# Results as files for other programs: CSV, Parquet, Arrow or JSON, by the ending of the name.


SafeCsv = Annotated[
    bool,
    typer.Option(
        "--safe-csv/--no-safe-csv",
        help="In CSV, put a ' in front of text that a spreadsheet would run as a formula.",
    ),
]
ENDINGS = (".csv", ".parquet", ".arrow", ".json")
ENDINGS_HELP = "CSV, Parquet, Arrow or JSON by its ending"


def check_table_output(path: Path) -> None:
    """Whether a table can be written there; asked before the work is done."""
    if path.suffix.lower() not in ENDINGS:
        raise Problem(f"{path} has no ending that says what to write.", f"take one of {', '.join(ENDINGS)}")
    check_output(path)


def write_table(table: Any, path: Path, safe_csv: bool = True) -> None:
    """Write an Arrow table: whole, or not at all. `safe_csv`: see `without_formulas`."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    with replacing(path) as file:
        kind = path.suffix.lower()
        if kind == ".parquet":
            pyarrow.parquet.write_table(table, file)
        elif kind == ".csv":
            pyarrow.csv.write_csv(without_formulas(table) if safe_csv else table, file)
        elif kind == ".arrow":
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            from fairmf.cli.terminal import json_text

            file.write((json_text(table.to_pylist()) + "\n").encode())


def without_formulas(table: Any) -> Any:
    """An Arrow table or batch with a ' in front of every text that a spreadsheet would run as a formula.

    Such text begins with = + - @, a tab or a line break, after any number of ', and is no number. To have it back,
    take one ' away where one or more stand before such a character. Columns of numbers are as they were.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        runs = pc.and_(pc.match_substring_regex(column, FORMULA), pc.invert(pc.match_substring_regex(column, NUMBER)))
        quote = pa.scalar("'", column.type)
        kept = pc.if_else(runs, pc.binary_join_element_wise(quote, column, pa.scalar("", column.type)), column)
        table = table.set_column(place, field.with_type(column.type), kept)
    return table


KINDS = (".parquet", ".csv", ".jsonl")


def check_list_file(path: Path) -> None:
    """Raise unless the name says which kind of file is wanted."""
    if path.suffix.lower() not in KINDS:
        raise Problem(f"{path} should end in {', '.join(KINDS[:-1])} or {KINDS[-1]}, which says how lists are written.")


def write_lists(model: Any, path: Path, users: Any, top: int, options: dict[str, Any], safe_csv: bool = True) -> int:
    """Write the lists of these users (None: all) and return the number of recommendations in them."""
    if path.suffix.lower() == ".parquet":
        return int(model.recommend_to_parquet(path, users, top, **options))
    with replacing(path) as file:
        if path.suffix.lower() == ".csv":
            return _write_csv(model, file, users, top, options, safe_csv)
        written = 0
        for entry in lists_of(model, users, top, options):
            file.write(json_text(entry).encode() + b"\n")
            written += len(entry["items"])
        return written


def _write_csv(model: Any, file: BinaryIO, users: Any, top: int, options: dict[str, Any], safe_csv: bool) -> int:
    import pyarrow.csv

    from fairmf.models.batches import record_batches

    schema, batches = record_batches(model, users, top, options)
    written = 0
    how = pyarrow.csv.WriteOptions(quoting_style="needed")
    with pyarrow.csv.CSVWriter(file, schema, write_options=how) as writer:
        for batch in batches:
            writer.write_batch(without_formulas(batch) if safe_csv else batch)
            written += batch.num_rows
    return written


def lists_of(model: Any, users: Any, top: int, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One user after the other: user, items, scores (null for an item that is given for its popularity)."""
    from fairmf.models.batches import record_batches

    _, batches = record_batches(model, users, top, options)
    for batch in batches:  # a user's rows are never in two batches
        user, item, score, rank = (batch.column(name).to_pylist() for name in ("user", "item", "score", "rank"))
        starts = [k for k, number in enumerate(rank) if number == 1]
        for start, stop in zip(starts, [*starts[1:], len(rank)], strict=True):
            yield {"user": user[start], "items": item[start:stop], "scores": score[start:stop]}
