"""What a user must not be given, as sparse rows: one per user."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Rows


def merged(first: Rows | None, second: Rows | None) -> Rows | None:
    """The union of two sets of rows, row by row; an item may stand in both."""
    if first is None or second is None:
        return second if first is None else first
    lengths = np.diff(first.indptr) + np.diff(second.indptr)
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    indices = np.empty(indptr[-1], dtype=np.int32)
    for rows, starts in ((first, indptr[:-1]), (second, indptr[:-1] + np.diff(first.indptr))):
        shift = np.repeat(starts - rows.indptr[:-1], np.diff(rows.indptr))
        indices[np.arange(rows.nnz) + shift] = rows.indices
    return Rows(indptr, indices, None)


def restricted(rows: Rows, allowed: NDArray[np.integer], n_items: int) -> Rows:
    """The rows over `allowed` items only, renumbered: column c of the answer is item allowed[c]."""
    place = np.full(n_items, -1, dtype=np.int32)
    place[allowed] = np.arange(len(allowed), dtype=np.int32)
    places = place[rows.indices]
    kept = places >= 0
    before = np.concatenate(([0], np.cumsum(kept)))
    return Rows(before[rows.indptr].astype(np.int64), places[kept], None)


def check_exclusions(exclude: Rows, n_users: int, n_items: int) -> None:
    """Raise InvalidData unless there is one row per user, of item positions."""
    if exclude.count != n_users:
        raise InvalidData(f"exclude must have one row per user: {n_users:,}. Got {exclude.count:,} instead.")
    if len(exclude.indices) and (exclude.indices.min() < 0 or exclude.indices.max() >= n_items):
        raise InvalidData(f"exclude holds item positions outside 0..{n_items - 1:,}.")


def first_allowed(
    items: NDArray[np.int32], scores: NDArray[np.float32], N: int, exclude: Rows | None, n_items: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The first N entries of every row that are neither -1 nor excluded; -1 and NaN where there are fewer."""
    allowed = items >= 0
    if exclude is not None:
        row = np.arange(exclude.count, dtype=np.int64)
        hidden = np.repeat(row, np.diff(exclude.indptr)) * n_items + exclude.indices
        allowed &= ~np.isin(row[:, None] * n_items + items, hidden)
    slot = np.cumsum(allowed, axis=1) - 1
    taken = allowed & (slot < N)
    rows = np.nonzero(taken)[0]
    best = np.full((len(items), N), -1, dtype=np.int32)
    value = np.full((len(items), N), np.nan, dtype=np.float32)
    best[rows, slot[taken]], value[rows, slot[taken]] = items[taken], scores[taken]
    return best, value
