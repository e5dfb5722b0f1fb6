"""Results as files for other programs: CSV, Parquet, Arrow or JSON, by the ending of the name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairmf.cli.failures import Problem
from fairmf.cli.outputs import check_output
from fairmf.files.atomic import replacing

ENDINGS = (".csv", ".parquet", ".arrow", ".json")
ENDINGS_HELP = "CSV, Parquet, Arrow or JSON by its ending"


def check_table_output(path: Path) -> None:
    """Whether a table can be written there; asked before the work is done."""
    if path.suffix.lower() not in ENDINGS:
        raise Problem(f"{path} has no ending that says what to write.", f"take one of {', '.join(ENDINGS)}")
    check_output(path)


def write_table(table: Any, path: Path) -> None:
    """Write an Arrow table: whole, or not at all."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    with replacing(path) as file:
        kind = path.suffix.lower()
        if kind == ".parquet":
            pyarrow.parquet.write_table(table, file)
        elif kind == ".csv":
            pyarrow.csv.write_csv(table, file)
        elif kind == ".arrow":
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            from fairmf.cli.json_text import json_text

            file.write((json_text(table.to_pylist()) + "\n").encode())
