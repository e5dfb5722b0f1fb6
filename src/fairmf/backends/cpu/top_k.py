"""Top-K by blocks of users: one GEMM per block, then one scan per user with a small heap. Never users x items."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True)
def _worse(score_a, item_a, score_b, item_b):
    """True when a ranks below b: a lower score, or the same score and the higher item index."""
    return score_a < score_b or (score_a == score_b and item_a > item_b)


@njit(cache=True)
def _sift_down(scores, items, start, size):
    """Restore the heap (worst entry on top) below `start`."""
    at = start
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _worse(scores[child + 1], items[child + 1], scores[child], items[child]):
            child += 1
        if not _worse(scores[child], items[child], scores[at], items[at]):
            return
        scores[at], scores[child] = scores[child], scores[at]
        items[at], items[child] = items[child], items[at]
        at = child


@njit(cache=True)
def select(row, k, items, scores):
    """The k best of one row of scores, best first; -inf and NaN are never taken.   in: row, k   out: items, scores"""
    size = 0
    j = 0
    while j < len(row) and size < k:  # fill
        if row[j] > -np.inf:
            scores[size], items[size] = row[j], j
            size += 1
        j += 1
    for start in range(size // 2 - 1, -1, -1):
        _sift_down(scores, items, start, size)
    while j < len(row) and k > 0:  # an equal score later in the row has the higher index, so it never enters
        if row[j] > scores[0]:
            scores[0], items[0] = row[j], j
            _sift_down(scores, items, 0, size)
        j += 1
    for last in range(size - 1, 0, -1):  # heap sort: the worst goes to the end
        scores[0], scores[last] = scores[last], scores[0]
        items[0], items[last] = items[last], items[0]
        _sift_down(scores, items, 0, last)
    for slot in range(size, k):
        items[slot], scores[slot] = -1, np.nan


@njit(cache=True, parallel=True)
def top_k(this, other_transposed, k, indptr, indices, bounds, users_at_once, items, scores):
    """See contract. `indptr` is None when nothing is excluded.   in: all but the last two   out: items, scores"""
    for b in prange(len(bounds) - 1):
        block = np.empty((users_at_once, other_transposed.shape[1]), dtype=np.float32)
        for start in range(bounds[b], bounds[b + 1], users_at_once):
            stop = min(start + users_at_once, bounds[b + 1])
            np.dot(this[start:stop], other_transposed, block[: stop - start])
            for i in range(start, stop):
                row = block[i - start]
                if indptr is not None:
                    for e in range(indptr[i], indptr[i + 1]):
                        row[indices[e]] = -np.inf
                select(row, k, items[i], scores[i])
