"""The header of a safetensors file: 8 bytes of length, then JSON that says where every array lies.

Read with suspicion. Every size is held against the size of the file before memory is asked for, so that a header which
claims terabytes costs nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from fairmf.files import strict_json
from fairmf.files.strict_json import Malformed

MAX_BYTES = 16 << 20
ALIGNMENT = 64  # the data begin at a multiple of it: a cache line
METADATA = "__metadata__"
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """One array: its kind, its shape, and its first byte counted from the beginning of the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Its size, in exact integers."""
        return size_of(self.dtype, self.shape)


def size_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes of an array."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    return size


def compose(arrays: dict[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: dict[str, str]) -> bytes:
    """The bytes before the data. Arrays lie in the given order, without gaps; ValueError if it gets too long."""
    table: dict[str, Any] = {METADATA: metadata}
    position = 0
    for name, (dtype, shape) in arrays.items():
        end = position + size_of(dtype, shape)
        table[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = strict_json.dump(table).encode("ascii")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    if len(text) > MAX_BYTES:
        raise ValueError(f"The header would take {len(text):,} bytes; at most {MAX_BYTES:,} are possible.")
    return len(text).to_bytes(8, "little") + text


def read(file: BinaryIO) -> tuple[dict[str, Entry], dict[str, str]]:
    """The arrays' places and the metadata of an open file; Malformed if they do not fit each other and the file."""
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
    metadata = table.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Malformed("the metadata in its header are not a table of texts")
    return _places(table, 8 + length, size), metadata


def _places(table: dict[str, Any], first: int, size: int) -> dict[str, Entry]:
    """Every entry checked; together they cover the file from `first` to its end, once."""
    entries = {}
    position = first
    for name, value in table.items():
        dtype, shape, begin, end = _fields(name, value)
        if begin + first != position or end < begin or first + end > size:
            raise Malformed(f"array {name[:80]!r} does not lie where it should; it is damaged or truncated")
        entry = Entry(dtype, shape, position)
        if entry.nbytes != end - begin:
            raise Malformed(f"array {name[:80]!r} has another size than its shape says")
        entries[name] = entry
        position = first + end
    if position != size:
        raise Malformed(f"it has {size:,} bytes, but its header describes {position:,}; it is damaged or truncated")
    return entries


def _fields(name: str, value: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise Malformed(f"array {name[:80]!r} is not described as safetensors does")
    dtype = DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        raise Malformed(f"array {name[:80]!r} is of an unknown kind")
    shape, offsets = value["shape"], value["data_offsets"]
    if not _are_sizes(shape, most=2) or not _are_sizes(offsets, most=2) or len(offsets) != 2:
        raise Malformed(f"array {name[:80]!r} has an impossible shape or place")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _are_sizes(value: Any, most: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(type(number) is int and 0 <= number < 1 << 48 for number in value)
    )
