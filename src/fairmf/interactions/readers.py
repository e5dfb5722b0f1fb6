"""Events from data frames and Parquet files. CSV files have their own module, `csv_reader`.

Files are read in batches, only the columns that are asked for, so that a file larger than the memory loads as long as
its codes (8 bytes a row, 12 with weights, 8 more for times) fit.
"""

from __future__ import annotations

import contextlib
import lzma
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairmf.errors import InvalidData
from fairmf.interactions.collecting import EventsCollector
from fairmf.interactions.columns import ColumnName, Columns
from fairmf.interactions.events import Events
from fairmf.interactions.text_source import Progress

_BATCH_ROWS = 1 << 19
# Parquet pages are fetched through a buffer of this size: without one a whole row group would be in memory.
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
    """Read a pandas or polars data frame, a pyarrow table, or any other eager frame that narwhals knows.

    `user` and `item` name the id columns, `weights` a column of confidences, `time` one of numbers or timestamps
    (timestamps become microseconds). With `rating` and `rating_above` only rows with a rating strictly above stay.
    Ids may be of any hashable kind and come back as they went in.
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    table, source = _narwhals_frame(frame)
    columns.check(list(table.columns), source)
    ids = (columns.user, columns.item)
    read = {name: _frame_column(table.get_column(name), name, name in ids) for name in columns.names}
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
    """Read a Parquet file, a list of files in the given order, or all `*.parquet` of a directory by name.

    The columns are named as in `read_frame`. Files are streamed: memory is needed for the codes and one batch.
    `progress` is called with the bytes read, estimated from the rows, and the bytes in all.
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    files = parquet_files(path)
    collector = EventsCollector(columns, str(path) if len(files) == 1 else f"these {len(files)} Parquet files")
    import pyarrow.parquet as pq

    done, total = 0, sum(file.stat().st_size for file in files)
    for file in files:
        with reading(file, "Parquet"), pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False) as parquet:
            columns.check(parquet.schema_arrow.names, str(file))
            rows = 0
            if parquet.num_row_groups == 0:  # pyarrow 18 takes such a file for a damaged one
                continue
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=columns.names):
                collector.add({name: batch.column(name) for name in columns.names})
                if progress is not None:
                    rows += batch.num_rows
                    progress(done + file.stat().st_size * rows // parquet.metadata.num_rows, total)
        done += file.stat().st_size
    return collector.finish()


def parquet_names(file: Path) -> list[ColumnName]:
    """The names of the file's columns."""
    import pyarrow.parquet as pq

    with reading(file, "Parquet"), pq.ParquetFile(file) as parquet:
        return list(parquet.schema_arrow.names)


@contextlib.contextmanager
def reading(file: Path | str, kind: str) -> Iterator[None]:
    """Turn what Arrow raises about a file that is damaged, or of another kind, into InvalidData."""
    import pyarrow as pa

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
    """The path, if something is there."""
    try:
        found = Path(path)
    except TypeError as error:
        raise InvalidData(f"A file is named by a string or a path, not by {type(path).__name__}.") from error
    if not found.exists():
        raise InvalidData(f"There is no file {found}; check the path (the working directory is {Path.cwd()}).")
    return found


def parquet_files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files behind a path, a list of paths or a directory, in order."""
    if isinstance(path, (list, tuple)):
        if not path:
            raise InvalidData("The list of Parquet files is empty; give at least one.")
        return [file for part in path for file in parquet_files(part)]
    found = existing(path)  # type: ignore[arg-type]
    if not found.is_dir():
        return [found]
    files = sorted(file for file in found.rglob("*.parquet") if file.is_file() and not file.name.startswith((".", "_")))
    if not files:
        raise InvalidData(f"The directory {found} holds no *.parquet file; give the directory of the files themselves.")
    return files


def _narwhals_frame(frame: Any) -> tuple[Any, str]:
    """The frame as narwhals sees it, and how to call it in an error."""
    import narwhals as nw

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
        raise InvalidData(f"{source} has {names.count(twice)} columns named {twice!r}; rename all but one.") from error
    return table, source


def _frame_column(column: Any, name: ColumnName, is_id: bool) -> Any:
    """One column as an Arrow array, or as a list where it holds Python objects that Arrow would change or refuse."""
    import pyarrow as pa

    native = column.to_native()
    if isinstance(native, (pa.ChunkedArray, pa.Array)):
        return native
    if str(getattr(native, "dtype", "")).lower() != "object":
        try:
            return column.to_arrow()
        except pa.ArrowException as error:
            raise InvalidData(
                f"Column {name!r} holds {native.dtype}, which Arrow cannot: {error}; convert it first."
            ) from error
    empty = column.is_null().to_list()  # pandas' NA and NaT too, which have no plain comparison
    objects = [None if gone else value for gone, value in zip(empty, native, strict=True)]
    if is_id:
        return objects
    try:
        return pa.array(objects)
    except pa.ArrowException as error:
        raise InvalidData(f"Column {name!r} must hold numbers, but it holds {error}; convert it first.") from error


def _part(values: Any, start: int) -> Any:
    if isinstance(values, list):
        return values[start : start + _BATCH_ROWS]
    part = values.slice(start, _BATCH_ROWS)
    return part.combine_chunks() if hasattr(part, "combine_chunks") else part
