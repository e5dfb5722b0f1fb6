"""Store arrays and a JSON document in one safetensors file, with a checksum of each.

Any safetensors library can read the file. Its metadata hold five texts: `format` (the kind of file), `format_version`,
`written_by`, `document` and `checksum`, which is the SHA-256 of the four others, one per line. The document is
{"arrays": {name: [dtype, shape, SHA-256 of its bytes]}, "content": ...}, so that the checksum covers the whole file.
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
from typing import Any, BinaryIO, TypeAlias, TypeGuard

import numpy as np

from fairmf.errors import BrokenFile, FairmfError, InvalidData
from fairmf.io import strict_json
from fairmf.io.atomic import replacing
from fairmf.io.strict_json import Malformed
from fairmf.types import Array, Record
from fairmf.version import __version__

# The header of a safetensors file is 8 bytes of length, then JSON that says where every array lies.
#
# Headers are not trusted: every size is compared with the size of the file before memory is allocated, so that a header
# which claims terabytes does no harm.

MAX_BYTES = 16 << 20  # of a header, which includes the document
ALIGNMENT = 64  # the first array begins at a multiple of a cache line
METADATA = "__metadata__"
DType: TypeAlias = np.dtype[np.generic]
DTYPES: dict[str, DType] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """Describe one array: its type, its shape, and the position of its first byte in the file."""

    dtype: DType
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return size_of(self.dtype, self.shape)


def size_of(dtype: DType, shape: tuple[int, ...]) -> int:
    """Return the size of an array in bytes, in Python integers, which cannot overflow."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    return size


def compose(arrays: dict[str, tuple[DType, tuple[int, ...]]], metadata: dict[str, str]) -> bytes:
    """Return the header for arrays that are stored in the given order without gaps; ValueError if it is too long."""
    table: dict[str, object] = {METADATA: metadata}
    position = 0
    for name, (dtype, shape) in arrays.items():
        end = position + size_of(dtype, shape)
        table[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = strict_json.dump(table).encode("ascii")
    # safetensors allows spaces at the end of the header.
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    if len(text) > MAX_BYTES:
        raise ValueError(f"The header would take {len(text):,} bytes; at most {MAX_BYTES:,} are possible.")
    return len(text).to_bytes(8, "little") + text


def read_header(file: BinaryIO) -> tuple[dict[str, Entry], dict[str, str]]:
    """Read the header of an open file; return its arrays and metadata. Malformed if they do not fit the file."""
    size = os.fstat(file.fileno()).st_size
    if size < 10:
        raise Malformed(f"it has only {size} bytes")
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_BYTES or length > size - 8:
        raise Malformed("it is no safetensors file, or is truncated")
    try:
        text = file.read(length).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("its header is not text") from error
    if len(text) < 2 or text[0] != "{":
        raise Malformed("it is no safetensors file")
    table = strict_json.parse(text, "its header")
    assert isinstance(table, dict)  # it begins with a brace and is valid JSON
    metadata = table.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Malformed("the metadata in its header are not a table of texts")
    return _places(table, 8 + length, size), metadata


def _places(table: dict[str, object], first: int, size: int) -> dict[str, Entry]:
    """Check the table of arrays: together they must cover the file from `first` to its end without overlap."""
    entries = {}
    position = first
    for name, value in table.items():
        dtype, shape, begin, end = _fields(name, value)
        # Arrays must follow each other without gaps: safetensors' own rule, which also rules out overlaps.
        if begin + first != position or end < begin or first + end > size:
            raise Malformed(f"array {name[:80]!r} is not where it should be; the file is damaged or truncated")
        entry = Entry(dtype, shape, position)
        if entry.nbytes != end - begin:
            raise Malformed(f"array {name[:80]!r} has another size than its shape says")
        entries[name] = entry
        position = first + end
    if position != size:
        raise Malformed(f"it has {size:,} bytes, but its header describes {position:,}; it is damaged or truncated")
    return entries


def _fields(name: str, value: object) -> tuple[DType, tuple[int, ...], int, int]:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise Malformed(f"array {name[:80]!r} is not described as safetensors does")
    dtype = DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        raise Malformed(f"array {name[:80]!r} is of an unknown kind")
    shape, offsets = value["shape"], value["data_offsets"]
    if not _are_sizes(shape, most=2) or not _are_sizes(offsets, most=2) or len(offsets) != 2:
        raise Malformed(f"array {name[:80]!r} has an impossible shape or place")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _are_sizes(value: object, most: int) -> TypeGuard[list[int]]:
    # type(...) is, not isinstance: to Python, JSON's true is an integer.
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(type(number) is int and 0 <= number < 1 << 48 for number in value)
    )


Arrays = dict[str, Array]


@dataclass(frozen=True)
class Format:
    """Name a kind of file, its newest version, and the oldest version that can still be read."""

    name: str
    version: int
    oldest: int = 1


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn errors about the content into a BrokenFile that names the file."""
    try:
        yield
    except (Malformed, FairmfError) as error:
        if isinstance(error, BrokenFile):
            raise
        reason = str(error).rstrip(".")
        raise BrokenFile(f"{path} cannot be read as a {what}: {reason}.") from error


def write(path: Path, kind: Format, content: object, arrays: Arrays, version: int | None = None) -> None:
    """Write the file in one atomic step.

    `version` is the oldest version of the format that can hold this content, so that older programs can read the file
    (default: the newest version).
    """
    # Arrays with the largest numbers first: then every array is aligned without gaps.
    ordered = sorted(arrays.items(), key=lambda pair: (-pair[1].dtype.itemsize, pair[0]))
    plain = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in ordered}
    table = {name: [NAMES[a.dtype], list(a.shape), _sha256(a)] for name, a in plain.items()}
    metadata = {
        "format": kind.name,
        "format_version": str(kind.version if version is None else version),
        "written_by": f"fairmf {__version__}",
        "document": strict_json.dump({"arrays": table, "content": content}),
    }
    metadata["checksum"] = _seal(metadata)
    try:
        first = compose({name: (a.dtype, a.shape) for name, a in plain.items()}, metadata)
    except ValueError as error:
        what = "The data beside its arrays, such as the history of a fit, are too long."
        raise InvalidData(f"{path} cannot be written: {error} {what}") from error
    with replacing(path) as file:
        file.write(first)
        for array in plain.values():
            file.write(_bytes(array))


def read(path: Path, kind: Format, *, mmap: bool = False, verify: bool = True) -> tuple[Any, Arrays]:
    """Return the content and the arrays. With `mmap`, arrays stay in the file; a page is copied if it is written to.

    Only the container is checked here. The caller checks the content.
    """
    with reading(path, kind.name), _open(path) as file:
        entries, metadata = read_header(file)
        content = _checked_content(metadata, entries, kind)
        arrays = _mapped(file, entries) if mmap else {name: _loaded(file, entry) for name, entry in entries.items()}
        if verify:
            for name, (_, _, expected) in content["arrays"].items():
                if _sha256(arrays[name]) != expected:
                    raise Malformed(f"array {name!r} has another checksum than when it was written; it is damaged")
        return content["content"], arrays


def is_own(path: Path, kind: Format, *, partial: bool = False) -> bool:
    """Return whether the file begins like those of this kind. Check this before deleting a file.

    With `partial`, also accept the rest of a write that was killed: a shorter beginning, or an empty file.
    """
    # `write` puts the metadata first, and the format first in it.
    start = b'{"%s":{"format":%s,' % (METADATA.encode(), strict_json.dump(kind.name).encode())
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


def _checked_content(metadata: dict[str, str], entries: dict[str, Entry], kind: Format) -> dict[str, Record]:
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
    described, real = document["arrays"], {n: [NAMES[e.dtype], list(e.shape)] for n, e in entries.items()}
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
    """Compute the checksum, in the same way for all versions: a newer file must not look damaged."""
    lines = "\n".join(metadata[name] for name in ("format", "format_version", "written_by", "document"))
    return hashlib.sha256(lines.encode("utf-8", errors="surrogatepass")).hexdigest()


def _loaded(file: BinaryIO, entry: Entry) -> Array:
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


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _sha256(array: Array) -> str:
    return hashlib.sha256(_bytes(array)).hexdigest()
