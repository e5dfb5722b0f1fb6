"""Hold sparse rows in the form that kernels read, and build them from pairs or SciPy matrices."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.lazy import lazy_module
from fairmf.types import Array
from fairmf.types import frozen as frozen  # what makes rows read-only

if TYPE_CHECKING:
    from fairmf.data import row_kernels, sort_kernels
else:
    row_kernels, sort_kernels = lazy_module("fairmf.data.row_kernels"), lazy_module("fairmf.data.sort_kernels")

LARGE = 1 << 20  # entries from which rows are worked on in compiled code, on several threads


class Rows(NamedTuple):
    """Hold compressed sparse rows. `weights` is None if all entries are 1, so that binary data store no values."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.indptr[-1])

    @property
    def is_large(self) -> bool:
        """Whether there are so many entries that compiled code on several threads pays."""
        return self.nnz >= LARGE

    def to_csr(self, values: Array, n_columns: int) -> sp.csr_array:
        """Return a SciPy CSR array of these rows with the given values; it shares the indices below 2^31 entries."""
        # SciPy needs one type for indices and offsets: given 8-byte offsets it would copy all indices to 8 bytes.
        indptr = self.indptr.astype(np.int32) if self.nnz < 2**31 else self.indptr
        return sp.csr_array((values, self.indices, indptr), shape=(self.count, n_columns))

    def sums(self) -> NDArray[np.float64]:
        """Return the sum of every row's confidences (c_i); the number of its entries if they are binary.

        Dislikes (weights below 0) count with their confidence |w|, as in the ridges.
        """
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float64)
        if self.is_large:
            return row_kernels.absolute_sums(self.indptr, self.weights)
        return np.bincount(self.row_of_entry(), np.abs(self.weights), self.count).astype(np.float64)

    def row_of_entry(self) -> NDArray[np.int64]:
        """Return the number of the row that each entry is in."""
        return np.repeat(np.arange(self.count), np.diff(self.indptr))

    def column_counts(self, n_columns: int) -> NDArray[np.float64]:
        """Return the number of entries in every column; dislikes (weights below 0) do not count."""
        if self.is_large:
            return row_kernels.column_counts(self.indices, self.weights, n_columns)
        likes = self.indices if self.weights is None else self.indices[self.weights > 0]
        return np.bincount(likes, minlength=n_columns).astype(np.float64)

    def row(self, i: int) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
        """Return the column indices and weights of row `i`, as views."""
        a, b = self.indptr[i], self.indptr[i + 1]
        return self.indices[a:b], None if self.weights is None else self.weights[a:b]

    def read_only(self) -> Rows:
        """Return these rows as views that cannot be written to; the arrays themselves stay writable.

        Numba compiles a kernel again for writable arrays. Kernels get rows in this form only, so each is compiled once.
        """
        weights = None if self.weights is None else frozen(self.weights)
        return Rows(frozen(self.indptr), frozen(self.indices), weights)

    def block(self, start: int, stop: int) -> Rows:
        """Return rows start..stop as views; only the offsets are copied."""
        a, b = self.indptr[start], self.indptr[stop]
        weights = None if self.weights is None else self.weights[a:b]
        return Rows(self.indptr[start : stop + 1] - a, self.indices[a:b], weights)

    def take(self, rows: NDArray[np.integer]) -> Rows:
        """Copy the given rows, in the given order."""
        lengths = self.indptr[1:][rows] - self.indptr[:-1][rows]  # a pass over these rows, not over all
        indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        # Entry k of a new row is entry k of the old row: shift all entries of a row by the same amount.
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths)
        weights = None if self.weights is None else self.weights[entries]
        return Rows(indptr, self.indices[entries], weights)


def item_sums(rows: Rows, n_items: int) -> NDArray[np.float64]:
    """Return the sum of the confidences of every item, from rows of users; dislikes do not count."""
    weights = None if rows.weights is None else np.maximum(rows.weights, 0)
    return np.bincount(rows.indices, weights, n_items).astype(np.float64)


_largest: dict[int, tuple[weakref.ref[NDArray[np.int32]], int]] = {}
"""The largest column of read-only rows that `check_rows` has seen, by the id of the indices; every kernel call asks."""


def check_rows(rows: Rows, this: Array | None, other: Array) -> None:
    """Raise InvalidData unless `rows` has a row for each of `this` (if given) and columns that are rows of `other`.

    Kernels do not check bounds: they would read beyond the end of an array, or crash.
    """
    if this is not None and rows.count != len(this):
        raise InvalidData(f"There are {rows.count:,} sparse rows for {len(this):,} vectors.")
    if rows.nnz > len(rows.indices):
        raise InvalidData(f"The rows end at entry {rows.nnz:,}, but there are {len(rows.indices):,}.")
    if largest_column(rows) >= len(other) and rows.nnz:
        raise InvalidData(f"The rows hold columns beyond the last one, {len(other) - 1:,}.")


def largest_column(rows: Rows) -> int:
    """Return the largest column of rows, 2^31 or more if one is negative. Raise InvalidData if rows do not ascend."""
    address, indices = id(rows.indices), rows.indices
    known, largest = _largest.get(address, (None, 0))
    # An id is used again when its array is gone, so the array itself is compared.
    if known is None or known() is not indices:
        if rows.indptr[0] < 0 or (np.diff(rows.indptr) < 0).any():
            raise InvalidData("The bounds of the rows do not ascend from 0.")
        largest = int(indices.view(np.uint32).max(initial=0))  # as unsigned, a negative column is a huge one
        if not indices.flags.writeable and len(indices) > 4096:
            _largest[address] = weakref.ref(indices, lambda _: _largest.pop(address, None)), largest
    return largest


# -- dislikes: entries with a weight below 0 (docs/mathematics.md 12) -------------------------------------------------


def has_dislikes(rows: Rows) -> bool:
    """Return whether an entry has a weight below 0."""
    return rows.weights is not None and bool((rows.weights < 0).any())


def liked(rows: Rows) -> Rows:
    """Return the entries that are no dislikes: the same rows where there are none."""
    return entries_where(rows, rows.weights > 0) if rows.weights is not None and has_dislikes(rows) else rows


def disliked(rows: Rows) -> Rows:
    """Return the dislikes alone, with their confidences |w|."""
    weights = np.zeros(rows.nnz, dtype=np.float32) if rows.weights is None else rows.weights
    found = entries_where(rows, weights < 0)
    return found._replace(weights=np.abs(weights[weights < 0]))


def confidences(rows: Rows) -> Rows:
    """Return the rows with |w| for every weight w: the confidence of a like or of a dislike."""
    return rows if rows.weights is None else rows._replace(weights=np.abs(rows.weights))


def summed_weights(
    columns: NDArray[np.integer], weights: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Add up the weights of items that are named twice; return the items, ascending, and their sums other than 0."""
    found, at = np.unique(columns, return_inverse=True)
    sums = _as_weights(np.bincount(at, weights, minlength=len(found)))
    return found[sums != 0].astype(np.int32), sums[sums != 0]


def like_counts(rows: Rows) -> NDArray[np.int64]:
    """Return the number of entries in every row that are no dislikes."""
    return np.diff(liked(rows).indptr)


def entries_where(rows: Rows, kept: NDArray[np.bool_]) -> Rows:
    """Return the entries that are kept, in the same rows."""
    before = np.concatenate(([0], np.cumsum(kept)))
    weights = None if rows.weights is None else rows.weights[kept]
    return Rows(before[rows.indptr].astype(np.int64), rows.indices[kept], weights)


# From 2^31 entries on, SciPy uses 8-byte indices. Larger data are built in parts of this many pairs instead.
_PART = 1 << 30
_CHUNK = 1 << 18  # pairs per step of `bincount`, which copies them to 8 bytes each
# From this many pairs on, compiled code is faster than SciPy, including the time to load it.
_MANY_PAIRS = 1 << 19


def rows_from_pairs(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    shape: tuple[int, int],
    weights: NDArray[np.float32] | None = None,
    count: bool = False,
    part: int = _PART,
    overwrite: bool = False,
) -> Rows:
    """Build rows from pairs. For repeated pairs, add up `weights`, or count them (`count`), or keep one entry.

    `overwrite` allows to use the memory of `users` and `items`: the caller may not use them afterwards.
    """
    if weights is None and not count and len(users) >= _MANY_PAIRS:
        rows, columns = (np.ascontiguousarray(x, dtype=np.int32) for x in (users, items))
        if overwrite and rows.flags.owndata and columns.flags.owndata:
            return Rows(*sort_kernels.distinct_pairs(rows, columns, shape, overwrite=True), None)
        return Rows(*sort_kernels.distinct_pairs(frozen(rows), frozen(columns), shape), None)
    if len(users) <= part:
        return _rows_of_part(users, items, shape, weights, count)
    pieces = []
    for start, stop in _user_ranges(users, shape[0], part):
        # In place, to save a temporary array of the size of the data.
        chosen = users >= start
        chosen &= users < stop
        own = None if weights is None else weights[chosen]
        size = (stop - start, shape[1])
        pieces.append(_rows_of_part(users[chosen] - np.int32(start), items[chosen], size, own, count))
    return _stack(pieces)


def rows_from_sparse(matrix: Any, keep_values: bool, copy: bool = True) -> Rows:
    """Build rows from a SciPy sparse matrix, which is not changed.

    With `copy=False` they share the matrix's arrays where these have the right types and need no cleaning.
    """
    csr = matrix if matrix.format in ("csr", "coo") else matrix.tocsr()
    if csr.format == "coo":
        _check_values(csr, csr.data, keep_values)
        _check_indices(csr.row, csr.shape[0])
        _check_indices(csr.col, csr.shape[1])
        stored = csr.data != 0
        row, column = (index[stored].astype(np.int32, copy=False) for index in (csr.row, csr.col))
        return rows_from_pairs(row, column, csr.shape, csr.data[stored] if keep_values else None)
    size = int(csr.indptr[-1])
    indptr = csr.indptr.astype(np.int64, copy=copy)
    if len(indptr) != csr.shape[0] + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any() or size > len(csr.indices):
        raise InvalidData(
            "The matrix is damaged: its indptr does not describe its rows.", hint="build it again with SciPy"
        )
    given, values = csr.indices[:size], csr.data[:size]
    clean = _clean_rows(indptr, given, values, csr.shape[1], keep_values, copy)
    if clean is not None:
        return clean
    _check_indices(given, csr.shape[1])
    indices = given.astype(np.int32, copy=copy)
    _check_values(csr, values, keep_values)
    if values.all() and is_ascending(indices, indptr):
        return Rows(indptr, indices, _as_weights(values, copy) if keep_values else None)
    # One byte per value is enough for binary data: sums may wrap around, but only the positions are used.
    own = values.astype(np.float64) if keep_values else (values != 0).astype(np.int8)
    mine = Rows(indptr, indices, None).to_csr(own, csr.shape[1])
    mine.eliminate_zeros()
    mine.sum_duplicates()
    if keep_values:
        mine.eliminate_zeros()  # a like and a dislike of the same item may cancel
    return _rows_of_csr(mine, keep_values)


def all_zeros_or_ones(values: Array) -> bool:
    """Return whether every value is 0 or 1."""
    if len(values) >= LARGE and values.dtype.kind in "buif" and row_kernels.kinds_of(values).all_ones:
        return True
    return bool(((values == 0) | (values == 1)).all())


def _clean_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[np.integer],
    values: Array,
    n_columns: int,
    keep_values: bool,
    copy: bool,
) -> Rows | None:
    """Return the rows if there are many and all is well, in two passes on several threads; None if not."""
    if len(values) < LARGE or values.dtype.kind not in "buif":
        return None
    kinds = row_kernels.kinds_of(values)
    if not kinds.all_stored or not kinds.all_clean:
        return None
    found = row_kernels.clean_indices(indptr, indices, n_columns, copy)
    if found is None:
        return None
    return Rows(indptr, found, _as_weights(values, copy) if keep_values and not kinds.all_ones else None)


def _rows_of_part(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    shape: tuple[int, int],
    weights: NDArray[np.floating] | None,
    count: bool,
) -> Rows:
    # Sums of int8 may wrap around, but without `count` only the positions are used.
    ones = np.int32 if count else np.int8
    values: Array = np.ones(len(users), dtype=ones) if weights is None else weights
    pairs: Any = sp.coo_array((values, (users, items)), shape=shape)
    # Not true, but SciPy then does not merge the pairs here: below they are merged in double precision if needed.
    pairs.has_canonical_format = True
    merged: Any = pairs.tocsr()
    del pairs, values
    merged.sort_indices()
    if not merged.has_canonical_format:
        if weights is not None:
            merged.data = merged.data.astype(np.float64)  # confidences add up in double precision
        merged.sum_duplicates()
    if weights is not None:
        merged.eliminate_zeros()  # a like and a dislike of the same item may cancel
    return _rows_of_csr(merged, weights is not None or count)


def _rows_of_csr(csr: Any, keep_values: bool) -> Rows:
    weights = _as_weights(csr.data) if keep_values else None
    indices = csr.indices.astype(np.int32, copy=False)
    # After merging, SciPy may leave a view of a longer array: copy it to free the rest.
    indices = indices if indices.base is None else indices.copy()
    return Rows(csr.indptr.astype(np.int64), indices, weights)


def _stack(pieces: list[Rows]) -> Rows:
    ends = np.cumsum([0] + [piece.nnz for piece in pieces])
    indptr = [piece.indptr[1:] + end for piece, end in zip(pieces, ends[:-1], strict=True)]
    weights = [piece.weights for piece in pieces if piece.weights is not None]
    return Rows(
        np.concatenate([np.zeros(1, dtype=np.int64), *indptr]),
        np.concatenate([piece.indices for piece in pieces]),
        np.concatenate(weights) if weights else None,
    )


def _user_ranges(users: NDArray[np.int32], n_users: int, part: int) -> list[tuple[int, int]]:
    """Return ranges of users with at most `part` pairs each (or a single user)."""
    totals = np.zeros(n_users, dtype=np.int64)
    for start in range(0, len(users), _CHUNK):
        totals += np.bincount(users[start : start + _CHUNK], minlength=n_users)
    ends = np.cumsum(totals)
    ranges, start = [], 0
    while start < n_users:
        # As many users as fit. A user alone may have more pairs than fit, and is a range all the same.
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + part, side="right")))
        ranges.append((start, stop))
        start = stop
    return ranges


def _as_weights(values: Array, copy: bool = True) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32, copy=copy)
    if not np.isfinite(weights).all():
        raise InvalidData("Weights add up to more than a float32 can hold (3.4e38).", hint="scale them down")
    return weights


def _check_values(matrix: Any, values: Array, signed: bool) -> None:
    if values.dtype.kind not in "buif":
        raise InvalidData(f"The matrix holds {values.dtype} values.", hint="it must hold numbers, such as float32")
    # These can be neither NaN nor negative.
    if values.dtype.kind in "bu":
        return
    for what, bad in (("NaN", np.isnan), ("infinite", np.isinf), ("negative", lambda x: x < 0)):
        if signed and what == "negative":
            continue
        found = np.flatnonzero(bad(values))
        if len(found):
            if matrix.format == "coo":
                row, column = matrix.row[found[0]], matrix.col[found[0]]
            else:
                row = np.searchsorted(matrix.indptr, found[0], side="right") - 1
                column = matrix.indices[found[0]]
            raise InvalidData(
                f"The matrix holds {len(found):,} {what} values, the first at row {row}, column {column}; "
                f"an interaction's weight must be finite.",
                hint='with weights="values" a negative one is a dislike' if what == "negative" else None,
            )


def _check_indices(indices: NDArray[np.integer], size: int) -> None:
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        raise InvalidData(
            f"The matrix is damaged: it holds indices from {indices.min()} to {indices.max()} where 0 to {size - 1} "
            f"is possible.",
            hint="build it again with SciPy",
        )


def is_ascending(indices: NDArray[np.int32], indptr: NDArray[np.int64]) -> bool:
    """Return whether every row's indices strictly ascend."""
    ascending = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    ascending[starts[(starts > 0) & (starts < len(indices))] - 1] = True  # between two rows any order is right
    return bool(ascending.all())


def replace_rows(rows: Rows, where: NDArray[np.integer], new: Rows) -> Rows:
    """Replace row where[k] by row k of `new`. Rows from `rows.count` on are added, without gaps."""
    # Put the new rows after the old ones, then pick for every place the row that belongs there.
    order = np.arange(max(rows.count, int(where.max(initial=-1)) + 1))
    order[where] = rows.count + np.arange(new.count)
    return _one_after_the_other(rows, new).take(order)


def _one_after_the_other(first: Rows, second: Rows) -> Rows:
    weights = None
    if first.weights is not None or second.weights is not None:
        parts = (np.ones(x.nnz, dtype=np.float32) if x.weights is None else x.weights for x in (first, second))
        weights = np.concatenate(list(parts))
    return Rows(
        np.concatenate([first.indptr, second.indptr[1:] + first.nnz]),
        np.concatenate([first.indices, second.indices]),
        weights,
    )


def transpose(rows: Rows, n_columns: int) -> Rows:
    """Return the other orientation, with sorted indices; binary rows stay binary."""
    if rows.is_large:
        return Rows(*row_kernels.transposed(*rows, n_columns))
    # SciPy's transposition needs a value per entry; zeros of one byte are the smallest.
    values = np.zeros(rows.nnz, dtype=np.int8) if rows.weights is None else rows.weights
    other = rows.to_csr(values, n_columns).tocsc()
    weights = None if rows.weights is None else np.ascontiguousarray(other.data, dtype=np.float32)
    return Rows(other.indptr.astype(np.int64), other.indices.astype(np.int32, copy=False), weights)


def without_ones(rows: Rows) -> Rows:
    """Drop the weights where all of them are 1."""
    return rows if rows.weights is None or (rows.weights != 1).any() else rows._replace(weights=None)


def check_sparse(matrix: Any) -> None:
    """Raise InvalidData unless this is a two-dimensional SciPy sparse matrix of a size that int32 can index."""
    is_sparse: bool = sp.issparse(matrix)
    if not is_sparse:
        name = type(matrix).__name__
        if isinstance(matrix, np.ndarray):
            advice = "wrap it in scipy.sparse.csr_array(...)"
        elif hasattr(matrix, "columns"):
            advice = "use from_frame"
        else:
            advice = "build one with scipy.sparse.csr_array"
        raise InvalidData(f"from_csr takes a SciPy sparse matrix, users as rows, not {name}.", hint=advice)
    shape: tuple[int, ...] = matrix.shape
    if len(shape) != 2:
        raise InvalidData(f"The matrix must have two dimensions, users x items, but its shape is {shape}.")
    if max(shape) >= 2**31:
        raise InvalidData(f"At most 2^31 - 1 users and items are possible, but the matrix is {shape}.")
