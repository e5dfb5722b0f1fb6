"""Check, transpose, sum and balance large sparse rows in compiled code, on several threads.

csr.py and weighting.py do the same in NumPy for rows with fewer than `csr.LARGE` entries, where loading compiled code
would take longer than it saves. Both give the same bits, on any number of threads: the entries of a row are added in
their order, in double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf import threads
from fairmf.kernels import kernel
from fairmf.types import Array, Floats

_PART = 1 << 16  # entries of a part of a flat array
_COST = 8.0  # of an entry, in flops: these kernels wait for the memory
_COST_PER_ROW = 4.0  # in entries


def transposed(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None, n_columns: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32] | None]:
    """Return the other orientation: the offsets of the columns, ascending row numbers, and weights.

    Each part of the rows counts its entries by column. The counts say where it writes them, so parts need not wait for
    each other.
    """
    # A part has a number for each column, and these must stay fewer than the entries.
    most = int(np.clip(len(indices) // max(1, 4 * n_columns), 1, threads.count()))
    bounds = threads.balanced(indptr, _COST_PER_ROW, most)
    parts, work = len(bounds) - 1, _COST * len(indices)
    places = np.zeros((parts, n_columns), dtype=np.int64)
    threads.run(count_columns, parts, indptr[bounds], indices, None, out=(places,), work=work)
    starts = np.zeros(n_columns + 1, dtype=np.int64)
    np.cumsum(places.sum(axis=0), out=starts[1:])
    free = starts[:-1].copy()
    for own in places:  # a part's entries of a column come after those of the parts before it
        counts = own.copy()
        own[:] = free
        free += counts
    rows = np.empty(len(indices), dtype=np.int32)
    moved = None if weights is None else np.empty(len(indices), dtype=np.float32)
    threads.run(scatter, parts, bounds, indptr, indices, weights, out=(places, rows, moved), work=work)
    return starts, rows, moved


def column_counts(
    indices: NDArray[np.int32], weights: NDArray[np.float32] | None, n_columns: int
) -> NDArray[np.float64]:
    """Return the number of entries in every column; those with a weight of 0 or less do not count."""
    parts = int(np.clip(len(indices) // max(1, 4 * n_columns), 1, threads.count()))
    bounds = np.arange(parts + 1) * len(indices) // parts
    counts = np.zeros((parts, n_columns), dtype=np.int64)
    threads.run(count_columns, parts, bounds, indices, weights, out=(counts,), work=_COST * len(indices))
    return counts.sum(axis=0).astype(np.float64)


def absolute_sums(indptr: NDArray[np.int64], weights: NDArray[np.float32]) -> Floats:
    """Return the sum of |w| over every row."""
    sums: Floats = np.empty(len(indptr) - 1)
    bounds = threads.balanced(indptr, _COST_PER_ROW)
    threads.run(sum_rows, len(bounds) - 1, bounds, indptr, weights, out=(sums,), work=_COST * len(weights))
    return sums


class Products(NamedTuple):
    """Hold what the balanced confidence of an entry is a product of, beside its own weight."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    of_column: Floats
    of_row: Floats

    def sums(self) -> Floats:
        """Return the sum of the products over every row."""
        sums: Floats = np.empty(len(self.indptr) - 1)
        bounds, work = threads.balanced(self.indptr, _COST_PER_ROW), _COST * len(self.indices)
        threads.run(sum_products, len(bounds) - 1, bounds, *self, out=(sums,), work=work)
        return sums

    def divided(self, norm: float, low: float, high: float) -> NDArray[np.float32]:
        """Return every product over `norm`, from `low` to `high`, with the sign of the entry's weight."""
        found: NDArray[np.float32] = np.empty(len(self.indices), dtype=np.float32)
        bounds, work = threads.balanced(self.indptr, _COST_PER_ROW), _COST * len(self.indices)
        threads.run(divide_products, len(bounds) - 1, bounds, *self, norm, low, high, out=(found,), work=work)
        return found


class Values(NamedTuple):
    """Say what the values of a matrix are."""

    all_ones: bool
    all_stored: bool
    """Whether none is 0."""
    all_clean: bool
    """Whether all are finite and none is negative."""


def kinds_of(values: Array) -> Values:
    """Return what the values are."""
    bounds = _flat(len(values))
    found = np.ones((len(bounds) - 1, 3), dtype=np.bool_)
    threads.run(look_at_values, len(found), bounds, values, out=(found,), work=_COST * len(values))
    return Values(*(bool(column.all()) for column in found.T))


def clean_indices(
    indptr: NDArray[np.int64], indices: NDArray[np.integer], n_columns: int, copy: bool
) -> NDArray[np.int32] | None:
    """Return the indices of rows as int32, shared or copied; None unless all are columns and all rows ascend."""
    copied = None if not copy and indices.dtype == np.int32 else np.empty(len(indices), dtype=np.int32)
    bounds, work = threads.balanced(indptr, _COST_PER_ROW), _COST * len(indices)
    clean = np.ones(len(bounds) - 1, dtype=np.bool_)
    threads.run(look_at_rows, len(clean), bounds, indptr, indices, n_columns, out=(clean, copied), work=work)
    if not clean.all():
        return None
    return indices.astype(np.int32, copy=False) if copied is None else copied


def _flat(size: int) -> NDArray[np.int64]:
    """Return the bounds of the parts of a flat array."""
    return threads.even(size, _PART)


# -- kernels: each works on the parts first..last of `bounds` ---------------------------------------------------------


@kernel
def count_columns(first, last, bounds, indices, weights, counts):
    """Add to counts[p, j] how many entries of part p are in column j.   in: bounds, indices, weights   out: counts"""
    for p in range(first, last):
        for e in range(bounds[p], bounds[p + 1]):
            if weights is None or weights[e] > 0:
                counts[p, indices[e]] += 1


@kernel
def scatter(first, last, bounds, indptr, indices, weights, places, rows, moved):
    """Write each entry of part p to the place of its column.   in and out: places   out: rows, moved"""
    for p in range(first, last):
        for i in range(bounds[p], bounds[p + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                at = places[p, indices[e]]
                places[p, indices[e]] = at + 1
                rows[at] = i
                if weights is not None:
                    moved[at] = weights[e]


@kernel
def sum_rows(first, last, bounds, indptr, weights, sums):
    """Set sums[i] to the sum of |w| over row i.   in: bounds, indptr, weights   out: sums"""
    for i in range(bounds[first], bounds[last]):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += np.float64(abs(weights[e]))
        sums[i] = total


@kernel
def sum_products(first, last, bounds, indptr, indices, weights, of_column, of_row, sums):
    """Set sums[i] to the sum of of_column[j] of_row[i] |w_ij| over row i.   in: all but sums   out: sums"""
    for i in range(bounds[first], bounds[last]):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            product = of_column[indices[e]] * of_row[i]
            if weights is not None:
                product *= np.float64(abs(weights[e]))
            total += product
        sums[i] = total


@kernel
def divide_products(first, last, bounds, indptr, indices, weights, of_column, of_row, norm, low, high, found):
    """Set found[e] to of_column[j] of_row[i] w_ij / norm, limited to low..high, for entry e.   out: found"""
    for i in range(bounds[first], bounds[last]):
        for e in range(indptr[i], indptr[i + 1]):
            product = of_column[indices[e]] * of_row[i]
            if weights is not None:
                product *= np.float64(abs(weights[e]))
            product = np.float32(min(max(product / norm, low), high))
            if weights is not None and weights[e] < 0:
                product = -product
            found[e] = product


@kernel
def look_at_values(first, last, bounds, values, found):
    """Set found[p] to whether the values of part p are all 1, none 0, all finite and not negative.   out: found"""
    for p in range(first, last):
        ones = stored = clean = True
        for e in range(bounds[p], bounds[p + 1]):
            value = values[e]
            ones &= value == 1
            stored &= value != 0
            clean &= value >= 0 and value - value == 0  # of infinity and NaN the difference is NaN
        found[p, 0], found[p, 1], found[p, 2] = ones, stored, clean


@kernel
def look_at_rows(first, last, bounds, indptr, indices, n_columns, clean, copied):
    """Set clean[p] to whether all rows of part p ascend and end before n_columns; copy them.   out: clean, copied"""
    for p in range(first, last):
        fine = True
        for i in range(bounds[p], bounds[p + 1]):
            before = np.int64(-1)
            for e in range(indptr[i], indptr[i + 1]):
                column = np.int64(indices[e])
                fine &= before < column < n_columns
                before = column
                if copied is not None:
                    copied[e] = column
        clean[p] = fine
