"""Events from Arrow: IPC files and streams, Feather, and the record batches of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairmf.errors import InvalidData
from fairmf.interactions.columns import ColumnName, Columns
from fairmf.interactions.events import Events
from fairmf.interactions.readers import existing, reading
from fairmf.interactions.record_batches import collect_batches
from fairmf.interactions.text_source import Progress

_BATCH_ROWS = 1 << 19
IPC_FILE, FEATHER_1 = b"ARROW1", b"FEA1"


def read_arrow(
    source: Any,
    *,
    user: ColumnName = "user",
    item: ColumnName = "item",
    weights: ColumnName | None = None,
    time: ColumnName | None = None,
    rating: ColumnName | None = None,
    rating_above: float | None = None,
    progress: Progress | None = None,
) -> Events:
    """Read an Arrow IPC file or stream (a Feather file is one too), or any object that gives an Arrow stream.

    Such objects are pyarrow's RecordBatchReader, and what DuckDB and ADBC drivers answer a query with. The columns are
    named as in `read_frame`. Batches are read one after the other; of a file, only the columns asked for. For a file,
    `progress` is called with the bytes read, estimated from the batches, and the bytes in all.
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    if hasattr(source, "__arrow_c_stream__"):
        return _read_stream(source, columns)
    file = existing(source)
    if file.is_dir():
        raise InvalidData(f"{file} is a directory; give one Arrow file.")
    import pyarrow as pa

    with reading(file, "Arrow"), pa.OSFile(str(file)) as opened:
        batches = _batches(file, opened, [str(name) for name in columns.names], progress or (lambda *_: None))
        return collect_batches(arrow_names(file), batches, columns, str(file), _BATCH_ROWS)


def _read_stream(source: Any, columns: Columns) -> Events:
    import pyarrow as pa

    name = f"the {type(source).__module__.partition('.')[0]} stream"
    with reading(name, "Arrow"):
        # Send no reader of pyarrow's own through the C interface: string views crash there in versions 18 to 21.
        stream = source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
        return collect_batches(stream.schema.names, stream, columns, name, _BATCH_ROWS)


def arrow_names(file: Path) -> list[ColumnName]:
    """The names of the file's columns."""
    import pyarrow as pa

    with reading(file, "Arrow"), pa.OSFile(str(file)) as source:
        opened = pa.ipc.open_file(source) if _is_ipc_file(file) else pa.ipc.open_stream(source)
        return list(opened.schema.names)


def _batches(file: Path, source: Any, names: list[str], progress: Progress) -> Any:
    import pyarrow as pa

    size = file.stat().st_size
    if not _is_ipc_file(file):
        for batch in pa.ipc.open_stream(source):
            yield batch
            progress(source.tell(), size)
        return
    schema = pa.ipc.open_file(source).schema
    # Only these columns are taken from the file.
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names])
    opened = pa.ipc.open_file(source, options=options)
    for k in range(opened.num_record_batches):
        yield opened.get_batch(k)
        progress(size * (k + 1) // opened.num_record_batches, size)


def _is_ipc_file(file: Path) -> bool:
    with file.open("rb") as opened:
        start = opened.read(6)
    if not start:
        raise InvalidData(f"{file} is empty; at least one interaction is needed.")
    if start.startswith(b"PAR1"):
        raise InvalidData(f"{file} is a Parquet file; read it with from_parquet or read_parquet.")
    if start.startswith(FEATHER_1):
        raise InvalidData(
            f"{file} is a Feather file of version 1, which Arrow has given up; write it anew as version 2."
        )
    return start == IPC_FILE
