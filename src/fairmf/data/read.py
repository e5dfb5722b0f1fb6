"""Read events from data frames, Parquet and Arrow.

Files are read in batches, and only the columns that are needed. So a file may be larger than memory: only the codes
must fit, 8 bytes a row, 12 with weights, and 8 more with times.
"""

from __future__ import annotations

import contextlib
import lzma
import os
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairmf.data.collect import EventsCollector, collect_batches
from fairmf.data.columns import ColumnName, Columns
from fairmf.data.encode import Values
from fairmf.data.events import Events
from fairmf.data.text_source import Progress
from fairmf.errors import InvalidData
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import narwhals as nw
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    nw = lazy_module("narwhals")
    pa = lazy_module("pyarrow")
    pq = lazy_module("pyarrow.parquet")

_BATCH_ROWS = 1 << 19
# Parquet pages are read through a buffer of this size: without it a whole row group would be in memory.
_BUFFER_BYTES = 1 << 20


def read_frame(
    frame: Any,
    *,
    user: ColumnName = "user",
    item: ColumnName = "item",
    weights: ColumnName | None = None,
    time: ColumnName | None = None,
    rating: ColumnName | None = None,
    rating_above: float | None = None,
) -> Events:
    """Read a data frame with a row per event.

    Parameters
    ----------
    frame : pandas or polars DataFrame, pyarrow Table, or any other eager frame that narwhals knows
    user, item : str
        The columns of user and item ids. Ids may be of any hashable kind and come back as they went in.
    weights : str, optional
        A column of confidences.
    time : str, optional
        A column of numbers or timestamps; timestamps become microseconds.
    rating, rating_above : str and float, optional
        Keep only rows whose value in the column `rating` is strictly above `rating_above`.

    Returns
    -------
    Events

    Raises
    ------
    InvalidData
        If a column is missing, or holds values that cannot be used; the message says how many, and the first row.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_frame(pa.table({"user": ["ann", "bob", "ann"], "item": [7, 7, 9]}))
    Events(3 rows, 2 users, 2 items)
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    table, source = open_frame(frame)
    columns.check(list(table.columns), source)
    ids = (columns.user, columns.item)
    read = {name: frame_column(table.get_column(name), name, name in ids) for name in columns.names}
    collector = EventsCollector(columns, source)
    for start in range(0, len(table), _BATCH_ROWS):
        collector.add({name: _part(values, start) for name, values in read.items()})
    return collector.finish()


def read_parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    user: ColumnName = "user",
    item: ColumnName = "item",
    weights: ColumnName | None = None,
    time: ColumnName | None = None,
    rating: ColumnName | None = None,
    rating_above: float | None = None,
    progress: Progress | None = None,
) -> Events:
    """Read Parquet files. They are streamed: memory is needed for the codes and one batch.

    Parameters
    ----------
    path : path, or a list of paths
        A file, files in the given order, or a directory, whose `*.parquet` files are read in the order of their names.
    user, item, weights, time, rating, rating_above
        The columns, as in `read_frame`.
    progress : callable, optional
        Called with the bytes read (estimated from the rows) and the size of all files.

    Returns
    -------
    Events

    Raises
    ------
    InvalidData
        If a file is missing or damaged, and as in `read_frame`.

    Examples
    --------
    >>> read_parquet("2024/", user="user_id", item="track_id")  # doctest: +SKIP
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    files = parquet_files(path)
    collector = EventsCollector(columns, str(path) if len(files) == 1 else f"these {len(files)} Parquet files")
    done, total = 0, sum(file.stat().st_size for file in files)
    for file in files:
        with reading(file, "Parquet"), pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False) as parquet:
            columns.check(parquet.schema_arrow.names, str(file))
            rows = 0
            if parquet.num_row_groups == 0:  # PyArrow 18 would call such a file damaged
                continue
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=columns.names):
                collector.add({name: batch.column(name) for name in columns.names})
                if progress is not None:
                    rows += batch.num_rows
                    progress(done + file.stat().st_size * rows // parquet.metadata.num_rows, total)
        done += file.stat().st_size
    return collector.finish()


def parquet_names(file: Path) -> list[ColumnName]:
    """Return the names of the file's columns."""
    with reading(file, "Parquet"), pq.ParquetFile(file) as parquet:
        return list(parquet.schema_arrow.names)


@contextlib.contextmanager
def reading(file: Path | str, kind: str) -> Iterator[None]:
    """Turn Arrow's errors about a file that is damaged, or of another kind, into InvalidData."""
    try:
        yield
    except (InvalidData, MemoryError):
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeError, lzma.LZMAError) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InvalidData(
            f"{file} cannot be read as {kind}, it may be damaged, cut short or of another kind: {reason}."
        ) from error


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path if it exists; else raise InvalidData."""
    try:
        found = Path(path)
    except TypeError as error:
        raise InvalidData(f"A file is named by a string or a path, not by {type(path).__name__}.") from error
    if not found.exists():
        raise InvalidData(f"There is no file {found}.", hint=f"check the path (the working directory is {Path.cwd()})")
    return found


def parquet_files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the files behind a path, a list of paths or a directory, in order."""
    if isinstance(path, (list, tuple)):
        if not path:
            raise InvalidData("The list of Parquet files is empty.", hint="give at least one")
        return [file for part in path for file in parquet_files(part)]
    found = existing(path)  # type: ignore[arg-type]
    if not found.is_dir():
        return [found]
    # Names that begin with . or _ are by convention not data (Spark, Hadoop).
    files = sorted(file for file in found.rglob("*.parquet") if file.is_file() and not file.name.startswith((".", "_")))
    if not files:
        raise InvalidData(
            f"The directory {found} holds no *.parquet file.", hint="give the directory of the files themselves"
        )
    return files


def open_frame(frame: Any) -> tuple[Any, str]:
    """Wrap the frame with narwhals; return it and what to call it in an error."""
    source = f"the {type(frame).__module__.partition('.')[0]} frame"
    try:
        table = nw.from_native(frame, eager_only=True)
        table.columns  # noqa: B018  (pandas allows a name twice, narwhals does not)
    except TypeError as error:
        lazy = ": call .collect() on it first" if hasattr(frame, "collect") else ""
        raise InvalidData(
            f"A frame must be a pandas or polars DataFrame or a pyarrow Table, not {type(frame).__name__}{lazy}."
        ) from error
    except ValueError as error:
        names = list(getattr(frame, "column_names", getattr(frame, "columns", [])))
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is None:
            raise
        raise InvalidData(
            f"{source} has {names.count(twice)} columns named {twice!r}.", hint="rename all but one"
        ) from error
    return table, source


def frame_column(column: nw.Series[Any], name: ColumnName, is_id: bool) -> pa.ChunkedArray | list[Hashable]:
    """Return a column as an Arrow array, or as a list where it holds ids that Arrow would change or refuse."""
    native = column.to_native()
    if isinstance(native, (pa.ChunkedArray, pa.Array)):
        return native
    if str(getattr(native, "dtype", "")).lower() != "object":
        try:
            return column.to_arrow()
        except pa.ArrowException as error:
            raise InvalidData(
                f"Column {name!r} holds {native.dtype}, which Arrow cannot: {error}.", hint="convert it first"
            ) from error
    empty = column.is_null().to_list()  # pandas' NA and NaT too, which have no plain comparison
    objects = [None if gone else value for gone, value in zip(empty, native, strict=True)]
    if is_id:
        return objects
    try:
        return pa.array(objects)
    except pa.ArrowException as error:
        raise InvalidData(
            f"Column {name!r} must hold numbers, but it holds {error}.", hint="convert it first"
        ) from error


def _part(values: pa.ChunkedArray | list[Hashable], start: int) -> Values:
    """Return the batch of a column that begins at row `start`."""
    if isinstance(values, list):
        return values[start : start + _BATCH_ROWS]
    part = values.slice(start, _BATCH_ROWS)
    # A plain Arrow array has no chunks to combine.
    return part.combine_chunks() if hasattr(part, "combine_chunks") else part


IPC_FILE, FEATHER_1 = b"ARROW1", b"FEA1"  # the first bytes of such files


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
    """Read an Arrow file or stream, batch by batch. Of a file, only the columns that are needed are read.

    Parameters
    ----------
    source : path, or an object with an Arrow stream
        An Arrow IPC file or stream (a Feather file is one too), a pyarrow RecordBatchReader, or the result of a query
        with DuckDB or an ADBC driver.
    user, item, weights, time, rating, rating_above
        The columns, as in `read_frame`.
    progress : callable, optional
        For a file, called with the bytes read (estimated from the batches) and the size of the file.

    Returns
    -------
    Events

    Raises
    ------
    InvalidData
        If the file is missing or damaged, and as in `read_frame`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_arrow(pa.table({"user": [1, 2], "item": [3, 3]}).to_reader())
    Events(2 rows, 2 users, 1 items)
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    if hasattr(source, "__arrow_c_stream__"):
        return _read_stream(source, columns)
    file = existing(source)
    if file.is_dir():
        raise InvalidData(f"{file} is a directory.", hint="give one Arrow file")
    with reading(file, "Arrow"), pa.OSFile(str(file)) as opened:
        batches = _batches(file, opened, [str(name) for name in columns.names], progress or (lambda *_: None))
        return collect_batches(arrow_names(file), batches, columns, str(file), _BATCH_ROWS)


def _read_stream(source: object, columns: Columns) -> Events:
    name = f"the {type(source).__module__.partition('.')[0]} stream"
    with reading(name, "Arrow"):
        # PyArrow's own readers are used directly: sent through the C interface, string views crash PyArrow 18 to 21.
        stream = source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
        return collect_batches(stream.schema.names, stream, columns, name, _BATCH_ROWS)


def arrow_names(file: Path) -> list[ColumnName]:
    """Return the names of the file's columns."""
    with reading(file, "Arrow"), pa.OSFile(str(file)) as source:
        opened = pa.ipc.open_file(source) if _is_ipc_file(file) else pa.ipc.open_stream(source)
        return list(opened.schema.names)


def _batches(file: Path, source: pa.NativeFile, names: list[str], progress: Progress) -> Iterator[pa.RecordBatch]:
    size = file.stat().st_size
    if not _is_ipc_file(file):
        for batch in pa.ipc.open_stream(source):
            yield batch
            progress(source.tell(), size)
        return
    schema = pa.ipc.open_file(source).schema
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names])
    opened = pa.ipc.open_file(source, options=options)
    for k in range(opened.num_record_batches):
        yield opened.get_batch(k)
        progress(size * (k + 1) // opened.num_record_batches, size)


def _is_ipc_file(file: Path) -> bool:
    """Return True for an Arrow IPC file, False for a stream; raise InvalidData for formats that are neither."""
    with file.open("rb") as opened:
        start = opened.read(6)
    if not start:
        raise InvalidData(f"{file} is empty.", hint="at least one interaction is needed")
    if start.startswith(b"PAR1"):
        raise InvalidData(f"{file} is a Parquet file.", hint="read it with from_parquet or read_parquet")
    if start.startswith(FEATHER_1):
        raise InvalidData(
            f"{file} is a Feather file of version 1, which Arrow no longer supports.",
            hint="write it again as version 2",
        )
    return start == IPC_FILE
