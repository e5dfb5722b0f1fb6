"""Accuracy of ranked lists, one number per user (definitions in docs/metrics.md).

A block of lists is an array rows x N of item positions, best first, -1 where there is no item. Everything
below works on the block's hits (rows x N booleans), so nothing is ever as large as users x items. A user
without targets has NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.csr import Rows

Hits = NDArray[np.bool_]
PerUser = NDArray[np.float64]


def find_hits(items: NDArray[np.integer], targets: Rows, n_items: int) -> Hits:
    """Mark the slots of the lists that hold one of their user's targets. Row i of `items` is row i of `targets`."""
    users = np.arange(targets.count, dtype=np.int64)
    # Indices ascend within a row, so these keys ascend as a whole and can be searched.
    wanted = np.repeat(users * n_items, np.diff(targets.indptr)) + targets.indices
    if not len(wanted):
        return np.zeros(items.shape, dtype=bool)
    asked = users[:, None] * n_items + items
    place = np.minimum(np.searchsorted(wanted, asked), len(wanted) - 1)
    hits: Hits = (wanted[place] == asked) & (items >= 0)
    return hits


def recall(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the hits among the first K, divided by min(K, number of targets): 1 is always reachable."""
    found = hits[:, :K].sum(axis=1)
    return _only_scored(found / np.maximum(np.minimum(K, n_targets), 1), n_targets)


def ndcg(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the binary DCG of the first K, gain 1/log2(rank + 1), divided by that of min(K, targets) hits on top."""
    gain = discounts(K)
    ideal = np.concatenate(([1.0], np.cumsum(gain)))  # place 0 is never used: no targets, no score
    reached = hits[:, :K] @ gain[: hits.shape[1]]
    return _only_scored(reached / ideal[np.minimum(K, n_targets)], n_targets)


def hit_rate(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return 1 if at least one of the first K is a target, else 0."""
    return _only_scored(hits[:, :K].any(axis=1).astype(np.float64), n_targets)


def mrr(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return 1 / rank of the first hit among the first K, 0 if there is none."""
    first = hits[:, :K]
    rank = first.argmax(axis=1) + 1.0
    return _only_scored(first.any(axis=1) / rank, n_targets)


def discounts(K: int) -> NDArray[np.float64]:
    """Return the weights 1/log2(rank + 1) of ranks 1..K."""
    weights: NDArray[np.float64] = 1.0 / np.log2(np.arange(2, K + 2))
    return weights


def _only_scored(values: ArrayLike, n_targets: NDArray[np.integer]) -> PerUser:
    return np.where(n_targets > 0, values, np.nan)
