"""Items a user must not get: checked once, and taken out of candidate lists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Rows


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
