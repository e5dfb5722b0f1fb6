"""Events from Arrow's own files: IPC files, IPC streams and Feather."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairmf.errors import InvalidData
from fairmf.interactions.collecting import EventsCollector
from fairmf.interactions.columns import ColumnName, Columns
from fairmf.interactions.events import Events
from fairmf.interactions.readers import existing, reading

_BATCH_ROWS = 1 << 19
IPC_FILE, FEATHER_1 = b"ARROW1", b"FEA1"


def read_arrow(
    path: str | os.PathLike[str],
    *,
    user: ColumnName = "user",
    item: ColumnName = "item",
    weights: ColumnName | None = None,
    time: ColumnName | None = None,
    rating: ColumnName | None = None,
    rating_above: float | None = None,
) -> Events:
    """Read an Arrow IPC file or stream; a Feather file is one too.

    The columns are named as in `read_frame`. Batches are read one after the other, only the columns asked for.
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    file = existing(path)
    if file.is_dir():
        raise InvalidData(f"{file} is a directory; give one Arrow file.")
    collector = EventsCollector(columns, str(file))
    import pyarrow as pa

    with reading(file, "Arrow"), pa.OSFile(str(file)) as source:
        columns.check(arrow_names(file), str(file))
        for batch in _batches(file, source, [str(name) for name in columns.names]):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                part = batch.slice(start, _BATCH_ROWS)
                collector.add({name: part.column(str(name)) for name in columns.names})
    return collector.finish()


def arrow_names(file: Path) -> list[ColumnName]:
    """The names of the file's columns."""
    import pyarrow as pa

    with reading(file, "Arrow"), pa.OSFile(str(file)) as source:
        opened = pa.ipc.open_file(source) if _is_ipc_file(file) else pa.ipc.open_stream(source)
        return list(opened.schema.names)


def _batches(file: Path, source: Any, names: list[str]) -> Any:
    import pyarrow as pa

    if not _is_ipc_file(file):
        yield from pa.ipc.open_stream(source)
        return
    schema = pa.ipc.open_file(source).schema
    # Only these columns are taken from the file.
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names])
    opened = pa.ipc.open_file(source, options=options)
    for k in range(opened.num_record_batches):
        yield opened.get_batch(k)


def _is_ipc_file(file: Path) -> bool:
    with file.open("rb") as opened:
        start = opened.read(6)
    if not start:
        raise InvalidData(f"{file} is empty; at least one interaction is needed.")
    if start.startswith(FEATHER_1):
        raise InvalidData(
            f"{file} is a Feather file of version 1, which Arrow has given up; write it anew as version 2."
        )
    return start == IPC_FILE
