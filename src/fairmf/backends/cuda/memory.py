"""Keep arrays on the GPU while there is room, else in page-locked host memory, and stream them in blocks."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import cupy as cp
import cupyx
import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, deferred_bytes, fetch_deferred
from fairmf.data.csr import Rows
from fairmf.errors import InvalidParameter, NotEnoughMemory
from fairmf.types import Array

log = logging.getLogger("fairmf")

VARIABLE = "FAIRMF_CUDA_MEMORY_GB"
# Shares of device memory: a fit holds about four arrays of the users' size, so each may take an eighth; interactions
# are held in both orientations, a fifth each.
OF_FACTORS, OF_ROWS = 1 / 8, 1 / 5
OF_DEFERRED = 1 / 8  # share of the free memory beyond which factors of finished fits go to the host
BLOCK_BYTES = 256 << 20  # factors or interactions streamed to the device at a time

T = TypeVar("T")


class Placing:
    """Decide what is stored on the device, and stream in blocks what does not fit."""

    def __init__(self) -> None:
        self.uploads = Uploads()
        self.pool = cp.cuda.MemoryPool()
        self._limit: int | None = None
        self._said: set[str] = set()

    def limit(self) -> int:
        """Return the bytes of device memory that may be used: all that is free, or what the environment allows."""
        if self._limit is None:
            free, _ = cp.cuda.runtime.memGetInfo()
            if deferred_bytes() > OF_DEFERRED * free:  # factors of finished fits make room for this call
                fetch_deferred()
                self.pool.free_all_blocks()
                free, _ = cp.cuda.runtime.memGetInfo()
            asked = os.environ.get(VARIABLE)
            self._limit = free if asked is None else min(free, _gigabytes(asked))
        return self._limit

    def clear(self) -> None:
        """Free all device memory."""
        self.uploads.clear()
        self.pool.free_all_blocks()
        self._limit = None
        self._said.clear()

    # -- factors --------------------------------------------------------------------------------------------------

    def stays_on_host(self, rows: int, factors: int) -> bool:
        """Return whether an array of that size is too large to be one of several on the device."""
        return 4 * rows * factors > OF_FACTORS * self.limit()

    def empty(self, rows: int, factors: int) -> Factors:
        """Allocate an uninitialised float32 array, on the device if there is room, else in host memory."""
        if self.stays_on_host(rows, factors):
            self._say(f"factors of {rows:,} rows x {factors:,} stay in the host's memory and are streamed")
            return cupyx.empty_pinned((rows, factors), dtype=np.float32)
        return cp.empty((rows, factors), dtype=cp.float32)

    def array(self, values: Factors) -> Factors:
        """Return the values as a float32 array, on the device if there is room, else in host memory."""
        if isinstance(values, cp.ndarray):
            return cp.ascontiguousarray(values.astype(cp.float32, copy=False))
        if values.ndim == 2 and self.stays_on_host(*values.shape):
            if values.dtype == np.float32 and values.flags.c_contiguous:
                return values
            out = self.empty(*values.shape)
            out[...] = values
            return out
        return cp.asarray(np.ascontiguousarray(values, dtype=np.float32))

    def whole(self, factors: Factors) -> cp.ndarray:
        """Return all of an array on the device: kernels read rows of the fixed side in any order."""
        if isinstance(factors, cp.ndarray):
            return factors
        if 2 * factors.nbytes > self.limit():
            raise NotEnoughMemory(
                f"Factors of {len(factors):,} rows x {factors.shape[1]:,} take {factors.nbytes / 2**30:.1f} GiB, and "
                f"the device has {self.limit() / 2**30:.1f} GiB free: they must fit twice. Take fewer factors or "
                "backend='cpu'."
            )
        return cp.asarray(factors)

    def parts(self, factors: Factors) -> Iterator[tuple[slice, cp.ndarray]]:
        """Yield the rows of an array on the device: all at once, or in blocks copied from the host."""
        if isinstance(factors, cp.ndarray):
            yield slice(0, len(factors)), factors
            return
        at_once = max(1, BLOCK_BYTES // (4 * factors.shape[1]))
        for first in range(0, len(factors), at_once):
            part = slice(first, min(first + at_once, len(factors)))
            yield part, cp.asarray(factors[part])

    @staticmethod
    def store(values: cp.ndarray, part: slice, out: Factors) -> None:
        """Write a block that `parts` or `row_parts` yielded back to where it came from."""
        if isinstance(out, cp.ndarray):
            # On the device `parts` yields views, so the values may be in place already.
            if values.data.ptr != out[part].data.ptr:
                out[part] = values
        else:
            values.get(out=out[part])

    # -- interactions ---------------------------------------------------------------------------------------------

    def fits(self, rows: Rows) -> bool:
        """Return whether these interactions may stay on the device."""
        entry = 4 if rows.weights is None else 8
        return rows.nnz * entry <= OF_ROWS * self.limit()

    def row_parts(self, rows: Rows, *factors: Factors) -> Iterator[tuple[slice, DeviceRows]]:
        """Yield the rows on the device: all at once and cached, or in blocks if they or their factors do not fit."""
        entry = 4 if rows.weights is None else 8
        fits = self.fits(rows)
        if fits and all(isinstance(x, cp.ndarray) for x in factors):
            yield slice(0, rows.count), device_rows(rows, self.uploads)
            return
        if not fits:
            self._say(f"{rows.nnz:,} interactions stay in the host's memory and are streamed")
        width = max((4 * x.shape[1] for x in factors), default=4)
        budget = min(BLOCK_BYTES, max(int(OF_ROWS * self.limit()) // 4, 1 << 20))
        # A block ends where its entries or its factors would exceed the budget; a single row may exceed it.
        cost = np.maximum(rows.indptr[1:] * entry, np.arange(1, rows.count + 1, dtype=np.int64) * width)
        first = 0
        while first < rows.count:
            used = max(int(rows.indptr[first]) * entry, first * width)
            last = max(first + 1, int(np.searchsorted(cost, used + budget, side="right")))
            yield slice(first, last), device_rows(rows.block(first, last), self.uploads)
            first = last

    def _say(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("the device has %.1f GiB free: %s", self.limit() / 2**30, what)


def _gigabytes(text: str) -> int:
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not size > 0:
        raise InvalidParameter(f"{VARIABLE} must be a number of gigabytes above 0. Got {text!r} instead.")
    return int(size * 2**30)


def as_vector(values: Array, part: slice, uploads: Uploads, dtype: str) -> cp.ndarray:
    """Return the numbers of the rows of a part on the device; a read-only array is copied there once, as a whole."""
    return uploads.array(values, dtype)[part]


LONG = 1024  # rows with more entries than this are split into chunks
CHUNK = 512  # entries of a chunk


class Uploads:
    """Cache device copies of read-only host arrays, for as long as the host array exists."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], tuple[weakref.ref[Array], Any]] = {}

    def array(self, values: Array, dtype: str) -> cp.ndarray:
        """Return the values on the device as that dtype. Only read-only host arrays are cached."""
        if isinstance(values, cp.ndarray):
            return values.astype(dtype, copy=False)
        return self.derived(values, dtype, lambda: cp.asarray(np.ascontiguousarray(values, dtype=dtype)))

    def derived(self, values: Array, kind: str, make: Callable[[], T]) -> T:
        """Return `make()`, which depends on `values` alone; cached under `kind` if `values` is read-only."""
        if values.flags.writeable:
            return make()
        key = id(values), kind
        found = self._held.get(key)
        # An id is used again when its array is gone, so the array itself is compared.
        if found is None or found[0]() is not values:
            forget = weakref.ref(values, lambda _: self._held.pop(key, None))
            found = self._held[key] = forget, make()
        return found[1]

    def clear(self) -> None:
        """Empty the cache."""
        self._held.clear()


@dataclass(frozen=True)
class Chunks:
    """Split rows into runs of at most CHUNK entries, in the order of `rows`."""

    rows: cp.ndarray
    """Row numbers, int32."""
    first: cp.ndarray
    """The chunks of row k are first[k]..first[k + 1]; int64."""
    of_row: cp.ndarray
    """The position in `rows` of each chunk's row, int32."""
    start: cp.ndarray
    """The first entry of each chunk, int64."""
    stop: cp.ndarray
    """The end of each chunk's entries, int64."""

    def __len__(self) -> int:
        return len(self.of_row)


@dataclass(frozen=True)
class DeviceRows:
    """Hold sparse rows on the device. Longest rows come first, so that no block of threads is left working alone."""

    indptr: cp.ndarray
    indices: cp.ndarray
    weights: cp.ndarray | None
    short: cp.ndarray
    """Rows of at most LONG entries, longest first."""
    long: Chunks
    """The longer rows, in chunks."""
    host_indptr: NDArray[np.int64]
    uploads: Uploads

    def all_chunks(self) -> Chunks:
        """Return the chunks of every row, short ones included."""
        rows = cp.arange(len(self.indptr) - 1, dtype=cp.int32)
        return self.uploads.derived(self.host_indptr, "chunks", lambda: cut(self.indptr, rows))


def device_rows(rows: Rows, uploads: Uploads) -> DeviceRows:
    """Copy rows to the device, or return the cached copy."""

    def make() -> DeviceRows:
        indptr = uploads.array(rows.indptr, "int64")
        lengths = cp.diff(indptr)
        order = cp.argsort(-lengths, kind="stable").astype(cp.int32)
        many = int((lengths > LONG).sum())
        return DeviceRows(
            indptr,
            uploads.array(rows.indices, "int32"),
            None if rows.weights is None else uploads.array(rows.weights, "float32"),
            order[many:],
            cut(indptr, order[:many]),
            rows.indptr,
            uploads,
        )

    return uploads.derived(rows.indptr, "rows", make)


def cut(indptr: cp.ndarray, rows: cp.ndarray) -> Chunks:
    """Split these rows into chunks."""
    start, stop = indptr[rows], indptr[rows + 1]
    first = cp.zeros(len(rows) + 1, dtype=cp.int64)
    cp.cumsum((stop - start + (CHUNK - 1)) // CHUNK, out=first[1:])
    count = cp.arange(int(first[-1]), dtype=cp.int64)
    of_row = cp.searchsorted(first, count, side="right") - 1  # the last row that begins there or before
    begins = start[of_row] + CHUNK * (count - first[of_row])
    ends = cp.minimum(begins + CHUNK, stop[of_row])
    return Chunks(rows, first, of_row.astype(cp.int32), begins, ends)
