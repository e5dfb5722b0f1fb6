"""One file: arrays and a JSON document, with a checksum of each.

A safetensors file, readable by any safetensors library. Its metadata hold five texts: `format` (what it is),
`format_version`, `written_by`, `document` and `checksum`, the SHA-256 of the four others, one per line. The document is
{"arrays": {name: [dtype, shape, SHA-256 of its bytes]}, "content": ...}, so the checksum covers every byte that means
anything.
"""

from __future__ import annotations

import hashlib
import mmap as memory_map
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import BrokenFile, FairmfError, InvalidData
from fairmf.files import header, strict_json
from fairmf.files.atomic import replacing
from fairmf.files.header import Entry
from fairmf.files.strict_json import Malformed
from fairmf.version import __version__

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Format:
    """A kind of file, the version written, and the oldest that is still read."""

    name: str
    version: int
    oldest: int = 1


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever is found wrong inside into a BrokenFile that names the file."""
    try:
        yield
    except (Malformed, FairmfError) as error:
        if isinstance(error, BrokenFile):
            raise
        reason = str(error).rstrip(".")
        raise BrokenFile(f"{path} cannot be read as a {what}: {reason}.") from error


def write(path: Path, kind: Format, content: Any, arrays: Arrays) -> None:
    """Write the file in one atomic step."""
    # Large items first: then every array is aligned to its item without gaps.
    ordered = sorted(arrays.items(), key=lambda pair: (-pair[1].dtype.itemsize, pair[0]))
    plain = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in ordered}
    table = {name: [header.NAMES[a.dtype], list(a.shape), _sha256(a)] for name, a in plain.items()}
    metadata = {
        "format": kind.name,
        "format_version": str(kind.version),
        "written_by": f"fairmf {__version__}",
        "document": strict_json.dump({"arrays": table, "content": content}),
    }
    metadata["checksum"] = _seal(metadata)
    try:
        first = header.compose({name: (a.dtype, a.shape) for name, a in plain.items()}, metadata)
    except ValueError as error:
        what = "What it says beside its arrays, such as the history of a fit, is too long."
        raise InvalidData(f"{path} cannot be written: {error} {what}") from error
    with replacing(path) as file:
        file.write(first)
        for array in plain.values():
            file.write(_bytes(array))


def read(path: Path, kind: Format, *, mmap: bool = False, verify: bool = True) -> tuple[Any, Arrays]:
    """The content and the arrays. With `mmap` arrays stay in the file (copied page by page if written to)."""
    with reading(path, kind.name), _open(path) as file:
        entries, metadata = header.read(file)
        content = _checked_content(metadata, entries, kind)
        arrays = _mapped(file, entries) if mmap else {name: _loaded(file, entry) for name, entry in entries.items()}
        if verify:
            for name, (_, _, expected) in content["arrays"].items():
                if _sha256(arrays[name]) != expected:
                    raise Malformed(f"array {name!r} has another checksum than when it was written; it is damaged")
        return content["content"], arrays


def is_own(path: Path, kind: Format, *, partial: bool = False) -> bool:
    """Whether the file begins as those of this kind do: asked before a file is deleted.

    With `partial`, it may also be what a killed process left of one: less than the beginning, or nothing.
    """
    start = b'{"%s":{"format":%s,' % (header.METADATA.encode(), strict_json.dump(kind.name).encode())
    try:
        if path.is_symlink() or not path.is_file():
            return False
        with path.open("rb") as file:
            found = file.read(8 + len(start))[8:]
    except OSError:
        return False
    return found == start or (partial and start.startswith(found))


def _open(path: Path) -> BinaryIO:
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
        raise Malformed("it is not a file")
    return path.open("rb")


def _checked_content(metadata: dict[str, str], entries: dict[str, Entry], kind: Format) -> dict[str, Any]:
    names = ("format", "format_version", "written_by", "document", "checksum")
    if not metadata.get("format", "").startswith("fairmf "):
        raise Malformed("it is a safetensors file, but not one of fairmf's")
    if any(name not in metadata for name in names) or metadata["checksum"] != _seal(metadata):
        raise Malformed("its document has another checksum than when it was written; it is damaged")
    if metadata["format"] != kind.name:
        raise Malformed(f"it is a {metadata['format']}")
    _check_version(metadata["format_version"], metadata["written_by"], kind)
    document = strict_json.parse(metadata["document"], "its document")
    if len(metadata) != len(names) or not isinstance(document, dict) or set(document) != {"arrays", "content"}:
        raise Malformed("its document has other parts than this format")
    described, real = document["arrays"], {n: [header.NAMES[e.dtype], list(e.shape)] for n, e in entries.items()}
    if not isinstance(described, dict) or not all(isinstance(v, list) and len(v) == 3 for v in described.values()):
        raise Malformed("its document does not describe its arrays")
    if {name: value[:2] for name, value in described.items()} != real:
        raise Malformed("its arrays are not those its document describes; it is damaged")
    return document


def _check_version(version: str, written_by: str, kind: Format) -> None:
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise Malformed("its format version is not a number")
    if kind.oldest <= int(version) <= kind.version:
        return
    advice = "upgrade fairmf" if int(version) > kind.version else "load and save it with an older fairmf first"
    reads = f"formats {kind.oldest} to {kind.version}"
    raise Malformed(f"{written_by[:40]} wrote it in format {version}, this version reads {reads}: {advice}")


def _seal(metadata: dict[str, str]) -> str:
    """The rule of every format version, so that a newer file can be told from a damaged one."""
    lines = "\n".join(metadata[name] for name in ("format", "format_version", "written_by", "document"))
    return hashlib.sha256(lines.encode("utf-8", errors="surrogatepass")).hexdigest()


def _loaded(file: BinaryIO, entry: Entry) -> NDArray[Any]:
    array = np.empty(entry.shape, dtype=entry.dtype)
    file.seek(entry.start)
    if entry.nbytes and file.readinto(_bytes(array)) != entry.nbytes:  # type: ignore[attr-defined]
        raise Malformed("it became shorter while it was read")
    return array


def _mapped(file: BinaryIO, entries: dict[str, Entry]) -> Arrays:
    # Copy-on-write rather than read-only: kernels see the same kind of array as after a fit, and are not compiled anew.
    whole = memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_COPY)
    if len(whole) != os.fstat(file.fileno()).st_size:
        raise Malformed("it became shorter while it was read")
    arrays: Arrays = {}
    for name, entry in entries.items():
        count = entry.nbytes // entry.dtype.itemsize
        values = np.frombuffer(whole, entry.dtype, count, entry.start) if count else np.empty(0, entry.dtype)
        arrays[name] = values.reshape(entry.shape)
    return arrays


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _sha256(array: NDArray[Any]) -> str:
    return hashlib.sha256(_bytes(array)).hexdigest()
