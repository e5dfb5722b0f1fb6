"""What must not be recommended, as sparse rows: one per user."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
