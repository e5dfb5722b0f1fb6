"""Fixed partitions of rows: the unit of work of one thread, and the unit of every ordered reduction.

They depend on the data alone, never on the number of threads: that is what makes results bit-identical.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Rows

COUNT = 256  # enough pieces for any machine's cores, few enough that one scratch buffer per piece costs nothing


def even(n: int, size: int, most: int = COUNT) -> NDArray[np.int64]:
    """Bounds of blocks of about equal length: at most `size` rows each, unless that took more than `most` blocks."""
    count = max(1, min(most, -(-n // size)))
    return (np.arange(count + 1, dtype=np.int64) * n) // count


def balanced(rows: Rows, cost_per_row: float, count: int = COUNT) -> NDArray[np.int64]:
    """Bounds of blocks of about equal cost, where a row costs its entries plus `cost_per_row`."""
    n = rows.count
    if n <= 1:
        return np.array([0, n])
    count = min(count, n)
    cost = rows.indptr + np.arange(n + 1) * cost_per_row
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1], count + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, n
    return bounds


_largest: dict[int, tuple[weakref.ref[Any], int]] = {}
"""The largest column of rows that cannot change, by the identity of their indices: a fit asks for it all the time."""


def check(rows: Rows, this: NDArray[Any] | None, other: NDArray[Any]) -> None:
    """Raise InvalidData unless there is a row for each of `this` (where given), with columns that are rows of `other`.

    Kernels look at no bounds: what they are given beyond the end of an array they would read, or crash.
    """
    if this is not None and rows.count != len(this):
        raise InvalidData(f"There are {rows.count:,} sparse rows for {len(this):,} vectors.")
    if rows.nnz > len(rows.indices):
        raise InvalidData(f"The rows end at entry {rows.nnz:,}, but there are {len(rows.indices):,}.")
    if rows.nnz and largest_column(rows) >= len(other):
        raise InvalidData(f"The rows hold columns beyond the last one, {len(other) - 1:,}.")


def largest_column(rows: Rows) -> int:
    """The largest column; `2**32` or more where one is negative or the rows' bounds are not ascending."""
    indices, indptr = rows.indices, rows.indptr
    known = _largest.get(id(indices))
    if known is not None and known[0]() is indices:
        return known[1]
    if indptr[0] < 0 or (np.diff(indptr) < 0).any():
        return 2**32
    found = int(indices.view(np.uint32).max(initial=0))  # a negative one is a huge one
    if not indices.flags.writeable and len(indices) > 4096:
        address = id(indices)
        _largest[address] = weakref.ref(indices, lambda _: _largest.pop(address, None)), found
    return found
