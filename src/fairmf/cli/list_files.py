"""Lists into a file, a batch of users at a time: Parquet, CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fairmf.cli.failures import Problem
from fairmf.cli.printed import json_text
from fairmf.cli.table_files import without_formulas
from fairmf.files.atomic import replacing

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
