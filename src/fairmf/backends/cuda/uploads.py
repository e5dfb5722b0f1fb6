"""What is on the device: arrays that do not change are sent once, and everything is given back at the end."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from fairmf.interactions import Rows

LONG = 1024  # entries from which a row is cut into chunks
CHUNK = 512


class Uploads:
    """Copies on the device of host arrays that cannot be written to, for as long as the host's array lives."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], tuple[Any, Any]] = {}

    def array(self, values: Any, dtype: str) -> Any:
        """The values on the device as that dtype. Only read-only host arrays are remembered."""
        if isinstance(values, cp.ndarray):
            return values.astype(dtype, copy=False)
        return self.derived(values, dtype, lambda: cp.asarray(np.ascontiguousarray(values, dtype=dtype)))

    def derived(self, values: NDArray[Any], kind: str, make: Any) -> Any:
        """What `make` derives from a read-only host array, remembered likewise."""
        if values.flags.writeable:
            return make()
        key = id(values), kind
        found = self._held.get(key)
        if found is None or found[0]() is not values:
            forget = weakref.ref(values, lambda _: self._held.pop(key, None))
            found = self._held[key] = forget, make()
        return found[1]

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()


@dataclass(frozen=True)
class Chunks:
    """Runs of at most CHUNK entries, in the order of `rows` (positions into which `of_row` counts)."""

    rows: Any  # int32
    first: Any  # int64, len(rows) + 1: the chunks of each row
    of_row: Any  # int32, per chunk
    start: Any  # int64, per chunk
    stop: Any  # int64, per chunk

    def __len__(self) -> int:
        return len(self.of_row)


@dataclass(frozen=True)
class DeviceRows:
    """Sparse rows on the device. Longest rows come first, so that no late block works alone."""

    indptr: Any
    indices: Any
    weights: Any
    short: Any
    """Rows up to LONG entries, longest first."""
    long: Chunks
    """The others, cut."""
    host_indptr: NDArray[np.int64]
    uploads: Uploads

    def all_chunks(self) -> Chunks:
        """Every row, cut."""
        rows = np.arange(len(self.host_indptr) - 1, dtype=np.int32)
        made: Chunks = self.uploads.derived(self.host_indptr, "chunks", lambda: cut(self.host_indptr, rows))
        return made


def device_rows(rows: Rows, uploads: Uploads) -> DeviceRows:
    """These rows on the device."""

    def make() -> DeviceRows:
        lengths = np.diff(rows.indptr)
        order = np.argsort(-lengths, kind="stable").astype(np.int32)
        many = int((lengths > LONG).sum())
        return DeviceRows(
            uploads.array(rows.indptr, "int64"),
            uploads.array(rows.indices, "int32"),
            None if rows.weights is None else uploads.array(rows.weights, "float32"),
            cp.asarray(order[many:]),
            cut(rows.indptr, order[:many]),
            rows.indptr,
            uploads,
        )

    made: DeviceRows = uploads.derived(rows.indptr, "rows", make)
    return made


def cut(indptr: NDArray[np.int64], rows: NDArray[np.int32]) -> Chunks:
    """The chunks of these rows."""
    start, stop = indptr[rows], indptr[rows.astype(np.int64) + 1]
    counts = -(-(stop - start) // CHUNK)
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    of_row = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
    begins = start[of_row] + CHUNK * (np.arange(len(of_row)) - first[of_row])
    ends = np.minimum(begins + CHUNK, stop[of_row])
    return Chunks(*(cp.asarray(x) for x in (rows, first, of_row, begins, ends)))
