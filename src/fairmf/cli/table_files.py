"""Results as files for other programs: CSV, Parquet, Arrow or JSON, by the ending of the name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairmf.cli.failures import Problem
from fairmf.cli.outputs import check_output
from fairmf.files.atomic import replacing
from fairmf.text import FORMULA, NUMBER

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
            from fairmf.cli.printed import json_text

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
