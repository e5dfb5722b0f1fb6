"""One named file out of an archive, a folder or by itself. Read as a stream: nothing is ever unpacked."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from fairmf.errors import InvalidData
from fairmf.interactions.text_source import LARGEST_RATIO, SMALL_BYTES, TextSource, Unpacked, too_much

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, EOFError, NotImplementedError, zlib.error, lzma.LZMAError)
_PACKED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}  # tar archives, by their first bytes


def find_text(path: Path, member: str) -> TextSource:
    """The text called `member` in a folder, a zip or tar archive; or the file itself, compressed or not."""
    if path.is_dir():
        return TextSource.of_file(_in_folder(path, member))
    if _is_tar(path):
        return _in_tar(path, member)
    if zipfile.is_zipfile(path):
        return _in_zip(path, member)
    if path.suffix.lower() in (".zip", ".tar", ".tgz") or path.name.lower().endswith(".tar.gz"):
        raise InvalidData(f"{path} is not an archive that can be read, it may be damaged or cut short; fetch it anew.")
    return TextSource.of_file(path)


def _in_folder(folder: Path, member: str) -> Path:
    found = sorted(
        file for file in (*folder.glob(f"{member}*"), *folder.glob(f"*/{member}*")) if _is_member(file, member)
    )
    if not found:
        raise InvalidData(f"The folder {folder} holds no {member}, neither itself nor one level down.")
    if len(found) > 1:
        raise InvalidData(f"The folder {folder} holds several {member}: {', '.join(map(str, found[:5]))}; name one.")
    return found[0]


def _is_member(file: Path, member: str) -> bool:
    return file.is_file() and file.name in (member, *(member + end for end in (".gz", ".bz2", ".zst")))


def _in_zip(path: Path, member: str) -> TextSource:
    with _opening(path), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check_names(path, (entry.filename for entry in entries))
        for entry in entries:
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise InvalidData(f"{path} holds a link, {entry.filename}; such archives are not read.")
        wanted = _the_one(path, member, [entry.filename for entry in entries])
        entry = archive.getinfo(wanted)
    if entry.flag_bits & 0x1:
        raise InvalidData(f"{wanted} in {path} is encrypted; decrypt it first.")
    if entry.file_size > max(SMALL_BYTES, LARGEST_RATIO * entry.compress_size):
        raise InvalidData(too_much(f"{wanted} in {path}", entry.compress_size))

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        import pyarrow as pa

        with _opening(path), zipfile.ZipFile(path) as archive, archive.open(wanted) as file:
            yield pa.PythonFile(file, mode="r")

    return TextSource(f"{wanted} in {path}", entry.file_size, opened)


def _in_tar(path: Path, member: str) -> TextSource:
    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        import pyarrow as pa

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
    """The bytes of a tar archive, decompressed as far as they can be believed."""
    with path.open("rb") as below:
        start = below.read(6)
        below.seek(0)
        unpack = next((open for magic, open in _PACKED.items() if start.startswith(magic)), None)
        stream: Any = below if unpack is None else Unpacked(unpack(below), below, str(path), path.stat().st_size)
        yield stream


def _is_tar(path: Path) -> bool:
    """Whether it begins as a tar archive does. tarfile's own answer reads all that the first header claims."""
    try:
        with _unpacked(path) as stream:
            tarfile.TarInfo.frombuf(stream.read(tarfile.BLOCKSIZE), tarfile.ENCODING, "surrogateescape")
    except (*_DAMAGED, OSError):
        return False
    return True


def _the_one(path: Path, member: str, names: list[str]) -> str:
    found = [name for name in names if PurePosixPath(name).name == member and "__MACOSX" not in name]
    if len(found) != 1:
        what = "several" if found else "no"
        raise InvalidData(f"{path} holds {what} {member}; it is another archive than expected.")
    return found[0]


def _check_names(path: Path, names: Iterable[str]) -> None:
    for name in names:
        windows = PureWindowsPath(name)
        if PurePosixPath(name).is_absolute() or windows.drive or windows.root or ".." in windows.parts:
            raise InvalidData(
                f"{path} holds {name!r}, which points outside of the archive; such archives are not read."
            )


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Turn what a damaged archive raises, also far down while it is read, into InvalidData."""
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's word; a decompressor's has no number
            raise
        raise InvalidData(f"{path} cannot be read, it is damaged or cut short: {error}; fetch it anew.") from error
