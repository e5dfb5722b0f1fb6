"""Load a benchmark data set as events: from the cache, from its publisher, or from a copy.

Archives are read as streams, so nothing is unpacked to the disk.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import stat
import tarfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.data.collect import EventsCollector
from fairmf.data.columns import Columns, TextFormat
from fairmf.data.datasets import DataSet, dataset
from fairmf.data.download import Progress, fetch, folder_of, registered_copy, require_licence
from fairmf.data.events import Events
from fairmf.data.read import existing
from fairmf.data.read_csv import read_text
from fairmf.data.text_source import LARGEST_RATIO, SMALL_BYTES, Stream, TextSource, Unpacked, record_blocks, too_much
from fairmf.errors import DownloadFailed, InvalidData, InvalidParameter
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, EOFError, NotImplementedError, zlib.error, lzma.LZMAError)
_PACKED: dict[bytes, Callable[[IO[bytes]], Stream]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""Decompressors of tar archives, by the first bytes of the file."""


def find_text(path: Path, member: str) -> TextSource:
    """Return the text named `member` in a folder or archive; a path to any other file is the text itself."""
    if path.is_dir():
        return TextSource.of_file(_in_folder(path, member))
    if _is_tar(path):
        return _in_tar(path, member)
    if zipfile.is_zipfile(path):
        return _in_zip(path, member)
    if path.suffix.lower() in (".zip", ".tar", ".tgz") or path.name.lower().endswith(".tar.gz"):
        raise InvalidData(
            f"{path} is not an archive that can be read, it may be damaged or cut short.", hint="download it again"
        )
    return TextSource.of_file(path)


def _in_folder(folder: Path, member: str) -> Path:
    found = sorted(
        file for file in (*folder.glob(f"{member}*"), *folder.glob(f"*/{member}*")) if _is_member(file, member)
    )
    if not found:
        raise InvalidData(f"The folder {folder} holds no {member}, neither itself nor one level down.")
    if len(found) > 1:
        raise InvalidData(
            f"The folder {folder} holds several {member}: {', '.join(map(str, found[:5]))}.", hint="name one"
        )
    return found[0]


def _is_member(file: Path, member: str) -> bool:
    return file.is_file() and file.name in (member, *(member + end for end in (".gz", ".bz2", ".zst")))


def _in_zip(path: Path, member: str) -> TextSource:
    with _opening(path), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check_names(path, (entry.filename for entry in entries))
        for entry in entries:
            # The upper 16 bits are the file mode on Unix.
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise InvalidData(f"{path} holds a link, {entry.filename}; such archives are not read.")
        wanted = _the_one(path, member, [entry.filename for entry in entries])
        entry = archive.getinfo(wanted)
    if entry.flag_bits & 0x1:
        raise InvalidData(f"{wanted} in {path} is encrypted.", hint="decrypt it first")
    # A zip bomb is recognised by the sizes that the archive states; zipfile reads no more than these.
    if entry.file_size > max(SMALL_BYTES, LARGEST_RATIO * entry.compress_size):
        raise InvalidData(too_much(f"{wanted} in {path}", entry.compress_size))

    @contextlib.contextmanager
    def opened() -> Iterator[pa.PythonFile]:
        with _opening(path), zipfile.ZipFile(path) as archive, archive.open(wanted) as file:
            yield pa.PythonFile(file, mode="r")

    return TextSource(f"{wanted} in {path}", entry.file_size, opened)


def _in_tar(path: Path, member: str) -> TextSource:
    @contextlib.contextmanager
    def opened() -> Iterator[pa.PythonFile]:
        # "r|" reads from front to back: a compressed stream cannot jump to a member.
        with _opening(path), _unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                _check_names(path, [entry.name])
                if PurePosixPath(entry.name).name != member:
                    continue
                if not entry.isfile():
                    raise InvalidData(f"{entry.name} in {path} is a link or something else that is not a file.")
                if entry.size > max(SMALL_BYTES, LARGEST_RATIO * path.stat().st_size):
                    raise InvalidData(too_much(f"{entry.name} in {path}", path.stat().st_size))
                yield pa.PythonFile(archive.extractfile(entry), mode="r")
                return
        raise InvalidData(f"{path} holds no {member}; it is another archive than expected.")

    return TextSource(f"{member} in {path}", path.stat().st_size, opened)


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Any]:
    """Open a tar archive, and decompress it up to the size that text of its packed size can have."""
    with path.open("rb") as below:
        start = below.read(6)
        below.seek(0)
        unpack = next((open for magic, open in _PACKED.items() if start.startswith(magic)), None)
        yield below if unpack is None else Unpacked(unpack(below), below, str(path), path.stat().st_size)


def _is_tar(path: Path) -> bool:
    """Return whether a file begins like a tar archive. (`tarfile.is_tarfile` reads as much as the header claims.)"""
    try:
        with _unpacked(path) as stream:
            tarfile.TarInfo.frombuf(stream.read(tarfile.BLOCKSIZE), tarfile.ENCODING, "surrogateescape")
    except (*_DAMAGED, OSError):
        return False
    return True


def _the_one(path: Path, member: str, names: list[str]) -> str:
    # macOS adds a file of attributes, with the same name, for each file that it packs.
    found = [name for name in names if PurePosixPath(name).name == member and "__MACOSX" not in name]
    if len(found) != 1:
        what = "several" if found else "no"
        raise InvalidData(f"{path} holds {what} {member}; it is another archive than expected.")
    return found[0]


def _check_names(path: Path, names: Iterable[str]) -> None:
    for name in names:
        # A Windows path is divided at both kinds of slashes, so it finds ".." in either.
        windows = PureWindowsPath(name)
        if PurePosixPath(name).is_absolute() or windows.drive or windows.root or ".." in windows.parts:
            raise InvalidData(
                f"{path} holds {name!r}, which points outside of the archive; such archives are not read."
            )


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Turn errors of a damaged archive, when it is opened or read, into InvalidData."""
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        # Errors of the system have a number, those of a decompressor have none.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InvalidData(
            f"{path} cannot be read, it is damaged or cut short: {error}.", hint="download it again"
        ) from error


_BLOCK_BYTES = 1 << 20


def read_adjacency(sources: Sequence[TextSource], columns: Columns) -> tuple[Events, list[int]]:
    """Read lines of a user followed by their items, as in the NGCF and LightGCN files.

    Return the events of all sources, one after the other, and how many rows each has.
    """
    collector = EventsCollector(columns, " and ".join(source.name for source in sources))
    sizes = []
    for source in sources:
        number = rows = 0
        for block in record_blocks(source, _BLOCK_BYTES, delimiter=None):
            numbers, lengths = _numbers(block.text, source, number)
            number += len(lengths)
            rows += _add(collector, columns, numbers, lengths)
        sizes.append(rows)
    return collector.finish(), sizes


def _add(collector: EventsCollector, columns: Columns, numbers: NDArray[np.int64], lengths: NDArray[np.int64]) -> int:
    """Add the pairs of lines with these numbers, of which each line has `lengths`; return how many there are."""
    # The first number of every line is the user, the others are items.
    first = np.zeros(len(numbers), dtype=bool)
    first[np.cumsum(lengths) - lengths] = True
    users, items = np.repeat(numbers[first], lengths - 1), numbers[~first]
    if len(items):
        collector.add({columns.user: pa.array(users), columns.item: pa.array(items)})
    return len(items)


def _numbers(block: bytes, source: TextSource, before: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all numbers of the lines, and how many each line has; empty lines are left out."""
    rows = [line.split() for line in block.splitlines()]
    try:
        numbers = np.array([word for row in rows for word in row], dtype=np.int64)
    except (ValueError, OverflowError):
        bad = next(k for k, row in enumerate(rows) if not all(word.lstrip(b"-").isdigit() for word in row))
        raise InvalidData(
            f"Line {before + bad + 1:,} of {source} is not a user followed by items, all as integers; it is another "
            f"file than expected, or damaged."
        ) from None
    return numbers, np.array([len(row) for row in rows if row], dtype=np.int64)


def load_dataset(
    name: str,
    *,
    from_path: str | os.PathLike[str] | None = None,
    accept_licence: bool = False,
    filtered: bool = True,
    part: str | None = None,
    progress: Progress | None = None,
    unprotected: bool = False,
) -> Events:
    """Load a benchmark data set; it is fetched once and kept in the folder that `FAIRMF_DATA_CACHE` names.

    Parameters
    ----------
    name : str
        One of `datasets()`.
    from_path : path, optional
        Read a copy instead: the archive, the folder it unpacks to, or the file of ratings itself. After
        `fairmf datasets fetch NAME --from PATH` that copy is the default.
    accept_licence : bool
        Accept the data set's terms, which is needed once, before it is fetched.
    filtered : bool
        Apply the paper's filters: ratings above 3.5 where there are ratings, then the data set's `min_item` and
        `min_user`.
    part : "train" or "test", optional
        That part of a data set published in two files, with the codes of the whole.
    progress : callable, optional
        Called with the bytes fetched and the size of the file (None where the server does not say).
    unprotected : bool
        Also fetch data sets that come over plain http without a checksum: they could be replaced on the way.

    Returns
    -------
    Events
        Play counts are their weights.

    Raises
    ------
    LicenceNotAccepted
        If the terms were not accepted yet; the message shows them.
    DownloadFailed
        If the file cannot be fetched, or is not the published one.
    InvalidData
        If a copy is damaged, or is another file.

    Examples
    --------
    >>> load_dataset("ml-1m", accept_licence=True)  # doctest: +SKIP
    """
    entry = dataset(name)
    if part is not None and (len(entry.members) == 1 or part not in ("train", "test")):
        raise InvalidParameter(
            f"'part' must be None, or 'train' or 'test' for a data set published in two files. Got {part!r} for {name}."
        )
    if from_path is None:
        from_path = registered_copy(entry)
    if from_path is None:
        fetch_dataset(name, accept_licence=accept_licence, progress=progress, unprotected=unprotected)
        paths = [folder_of(entry) / file_name(address) for address in entry.addresses]
    else:
        # One archive or folder holds all files of the data set.
        paths = [existing(from_path)] * len(entry.members)
    return _read(entry, paths, filtered, part)


def fetch_dataset(
    name: str, *, accept_licence: bool = False, progress: Progress | None = None, unprotected: bool = False
) -> list[dict[str, Any]]:
    """Fetch a data set into the cache, unless it is there.

    Parameters
    ----------
    name, accept_licence, progress, unprotected
        As in `load_dataset`.

    Returns
    -------
    list of dict
        A record per file: address, bytes, SHA-256, and what it was checked against.

    Raises
    ------
    LicenceNotAccepted, DownloadFailed
        As in `load_dataset`.

    Examples
    --------
    >>> fetch_dataset("ml-1m", accept_licence=True)  # doctest: +SKIP
    """
    entry = dataset(name)
    require_licence(entry, accept_licence)
    folder = folder_of(entry)
    files = {address: folder / file_name(address) for address in entry.addresses}
    if entry.unprotected and not unprotected and not all(file.exists() for file in files.values()):
        raise DownloadFailed(
            f"{entry.name} comes over plain http and no checksum is published: anybody on the way can replace it.",
            hint="pass {parameter}=True to download it nevertheless, or pass a copy that you have as from_path",
            parameter="unprotected",
        )
    return [
        fetch(address, file, md5=entry.md5, md5_beside=entry.md5_beside, progress=progress, most_bytes=entry.most_bytes)
        for address, file in files.items()
    ]


def file_name(address: str) -> str:
    """Return the name in the cache of the file behind an address."""
    return Path(urllib.parse.urlsplit(address).path).name


def _read(entry: DataSet, paths: list[Path], filtered: bool, part: str | None) -> Events:
    sources = [find_text(path, member) for path, member in zip(paths, entry.members, strict=True)]
    layout, columns = entry.layout, entry.layout.columns
    if layout.delimiter is None:
        # Both files are read together, so that a part has the codes of the whole.
        events, sizes = read_adjacency(sources, columns)
        if part is not None:
            events = events.select(_rows_of(part, sizes))
        return events
    if not filtered:
        columns = replace(columns, rating=None, rating_above=None)
    form = TextFormat(layout.delimiter, layout.header, text_ids=layout.literal)
    events = read_text(sources[0], columns, form, literal=layout.literal)
    if layout.literal:
        events = _with_names(events)
    if filtered and (entry.min_user or entry.min_item):
        events = events.at_least(min_user=entry.min_user, min_item=entry.min_item)
    return events.compact()


def _with_names(events: Events) -> Events:
    """Drop the rows whose user or item has no name."""
    named = [ids.values != "" for ids in (events.user_ids, events.item_ids)]
    return events.select(named[0][events.users] & named[1][events.items])


def _rows_of(part: str, sizes: list[int]) -> NDArray[np.bool_]:
    """Return a mask of the rows of one part."""
    rows = np.zeros(sum(sizes), dtype=bool)
    rows[: sizes[0]] = part == "train"
    rows[sizes[0] :] = part == "test"
    return rows
