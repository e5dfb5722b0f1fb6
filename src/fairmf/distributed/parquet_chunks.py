"""Find the files of a Parquet data set on any file system, and split them into chunks that tasks read on their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from fairmf.data.columns import ColumnName, Columns
from fairmf.data.encode import kind_of
from fairmf.data.read import parquet_files, reading
from fairmf.errors import InvalidData

if TYPE_CHECKING:
    import fsspec

# One task reads a chunk: with its ids it takes some hundred MB at most, and a second or two to read.
ROWS_PER_CHUNK = 1 << 22
_BATCH_ROWS = 1 << 19
_BUFFER_BYTES = 1 << 20

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
FileSystem: TypeAlias = "pafs.FileSystem | fsspec.AbstractFileSystem"
"""A file system of PyArrow or of fsspec."""


@dataclass(frozen=True)
class DataFile:
    """Name a file, with its size and time of change when it was found."""

    file_system: pafs.FileSystem
    path: str
    size: int
    changed: int | None

    @contextlib.contextmanager
    def opened(self) -> Iterator[pq.ParquetFile]:
        """Open the file for the block; raise InvalidData if it cannot be read, or has changed since it was found."""
        with reading(self.path, "Parquet"):
            now = self.file_system.get_file_info(self.path)
            if now.type == pafs.FileType.NotFound:
                raise InvalidData(f"There is no file {self.path} on this machine, or it was deleted.")
            if (now.size, now.mtime_ns) != (self.size, self.changed):
                raise InvalidData(
                    f"{self.path} has changed since it was first read.", hint="call ParquetShards.read again"
                )
            # On a remote file system every read is a request, so a few large ones are faster than many small ones.
            far = not isinstance(self.file_system, pafs.LocalFileSystem)
            options = {"pre_buffer": True} if far else {"buffer_size": _BUFFER_BYTES}
            with self.file_system.open_input_file(self.path) as file, pq.ParquetFile(file, **options) as parquet:
                yield parquet


@dataclass(frozen=True)
class Chunk:
    """Name consecutive row groups of a file. `number` counts all chunks of the data set, in its order."""

    number: int
    file: DataFile
    row_groups: tuple[int, int]
    first_row: int
    rows: int
    whole: bool
    """Whether the chunk is the whole file."""

    @property
    def source(self) -> str:
        """Return how errors name the chunk."""
        if self.whole:
            return self.file.path
        return f"{self.file.path} (in its rows {self.first_row:,} to {self.first_row + self.rows - 1:,})"

    def batches(self, names: Sequence[ColumnName]) -> Iterator[pa.RecordBatch]:
        """Yield record batches with these columns."""
        with self.file.opened() as parquet:
            groups = list(range(*self.row_groups))
            yield from parquet.iter_batches(batch_size=_BATCH_ROWS, columns=list(names), row_groups=groups)


@dataclass(frozen=True)
class Outline:
    """Hold what a file's footer says: the rows of each row group, and the kind of ids in each id column."""

    rows: tuple[int, ...]
    kinds: tuple[str, str]


def outlines_of(files: Sequence[DataFile], columns: Columns) -> list[Outline]:
    """Read the footers of some files; raise InvalidData if a column is missing."""
    return [_outline(file, columns) for file in files]


def _outline(file: DataFile, columns: Columns) -> Outline:
    with file.opened() as parquet:
        columns.check(parquet.schema_arrow.names, file.path)
        metadata = parquet.metadata
        rows = tuple(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
        user, item = (kind_of(parquet.schema_arrow.field(str(name)).type) for name in (columns.user, columns.item))
        return Outline(rows, (user, item))


def chunks_of(files: Sequence[DataFile], outlines: Sequence[Outline], most_rows: int = ROWS_PER_CHUNK) -> list[Chunk]:
    """Group row groups into chunks of at most `most_rows` rows, and at least one row group."""
    chunks: list[Chunk] = []
    for file, outline in zip(files, outlines, strict=True):
        start, first, total = 0, 0, sum(outline.rows)
        while start < len(outline.rows):
            stop, rows = start + 1, outline.rows[start]
            while stop < len(outline.rows) and rows + outline.rows[stop] <= most_rows:
                rows += outline.rows[stop]
                stop += 1
            if rows:
                chunks.append(Chunk(len(chunks), file, (start, stop), first, rows, rows == total))
            start, first = stop, first + rows
    return chunks


def check_kinds(files: Sequence[DataFile], outlines: Sequence[Outline], columns: Columns) -> None:
    """Raise InvalidData if an id column has different kinds of ids in different files."""
    for place, name in enumerate((columns.user, columns.item)):
        first: tuple[str, str] | None = None
        for file, outline in zip(files, outlines, strict=True):
            kind = outline.kinds[place]
            # A column of nulls alone has no kind. The nulls themselves are reported when it is read.
            if not sum(outline.rows) or kind == "null":
                continue
            if first is not None and first[1] != kind:
                raise InvalidData(
                    f"Column {name!r} holds {first[1]} in {first[0]} and {kind} in {file.path}.",
                    hint="write it with one type in all files",
                )
            first = first or (file.path, kind)


def find_files(path: Paths, file_system: FileSystem | None = None) -> list[DataFile]:
    """Return the files of a path, a list of paths, a directory or URLs of these, in the order of `read_parquet`.

    A URL is opened by Arrow (file, s3, gs, hdfs, abfs) or else by fsspec. If a `file_system` of Arrow or fsspec is
    given, paths are paths in it.
    """
    if isinstance(path, (list, tuple)):
        if not path:
            raise InvalidData("The list of Parquet files is empty.", hint="give at least one")
        return [file for part in path for file in find_files(part, file_system)]
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if file_system is None and not (isinstance(name, str) and "://" in name):
        local = pafs.LocalFileSystem()
        # Absolute, because the processes that read have other working directories.
        found = [str(Path(file).absolute()) for file in parquet_files(name)]
        return [_data_file(local, info) for info in local.get_file_info(found)]
    if not isinstance(name, str):
        raise InvalidData(f"A file is named by a string or a path, not by {type(path).__name__}.")
    opened, inside = _file_system(name, file_system)
    with reading(name, "Parquet"):
        return _files_under(opened, inside, name)


def _files_under(file_system: pafs.FileSystem, inside: str, name: str) -> list[DataFile]:
    info = file_system.get_file_info(inside)
    if info.type == pafs.FileType.NotFound:
        raise InvalidData(f"There is no file {name}.", hint="check the path")
    if info.type == pafs.FileType.File:
        return [_data_file(file_system, info)]
    listed = file_system.get_file_info(pafs.FileSelector(inside, recursive=True))
    files = [
        entry for entry in listed
        if entry.type == pafs.FileType.File
        and entry.base_name.endswith(".parquet")
        and not entry.base_name.startswith((".", "_"))
    ]  # fmt: skip
    if not files:
        raise InvalidData(
            f"The directory {name} holds no *.parquet file.", hint="give the directory of the files themselves"
        )
    # By the parts of the path, as `parquet_files` sorts: as texts, a-b would come before a/b.
    return [_data_file(file_system, entry) for entry in sorted(files, key=lambda entry: PurePosixPath(entry.path))]


def _data_file(file_system: pafs.FileSystem, info: pafs.FileInfo) -> DataFile:
    return DataFile(file_system, info.path, info.size, info.mtime_ns)


def _file_system(name: str, file_system: FileSystem | None) -> tuple[pafs.FileSystem, str]:
    """Return Arrow's file system for a URL, or for a path in the given one, and the path inside it."""
    if isinstance(file_system, pafs.FileSystem):
        return file_system, name
    if file_system is not None:
        return pafs.PyFileSystem(pafs.FSSpecHandler(file_system)), file_system._strip_protocol(name)
    try:
        opened, inside = pafs.FileSystem.from_uri(name)
    except pa.ArrowInvalid:
        try:
            import fsspec
        except ImportError as error:
            raise InvalidData(f"Arrow does not support the file system of {name}: pip install fsspec.") from error
        try:
            found, inside = fsspec.core.url_to_fs(name)
        except (ImportError, ValueError) as error:
            raise InvalidData(f"Cannot open the file system of {name}: {error}") from error
        return pafs.PyFileSystem(pafs.FSSpecHandler(found)), inside
    return opened, inside


def output_folder(
    path: str | os.PathLike[str], file_system: FileSystem | None = None
) -> tuple[pafs.FileSystem | None, str]:
    """Create a folder if needed, and return its file system and path; None stands for the disk of this machine."""
    name = os.fspath(path)
    if file_system is None and "://" not in name:
        folder = Path(name).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidData(f"Cannot create the folder {folder}: {error}.") from error
        return None, str(folder)
    opened, inside = _file_system(name, file_system)
    try:
        opened.create_dir(inside, recursive=True)
    except OSError as error:
        raise InvalidData(f"Cannot create the folder {name}: {error}.") from error
    return opened, inside
