"""Compute the accuracy of ranked lists, one number per user (definitions in docs/metrics.md).

A block of lists is an array rows x N of item positions, best first, -1 for an empty slot. The functions work on the
hits of a block (rows x N booleans), so no array is as large as users x items. Users without targets get NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.csr import Rows

Hits = NDArray[np.bool_]
PerUser = NDArray[np.float64]


def find_hits(items: NDArray[np.integer], targets: Rows, n_items: int) -> Hits:
    """Mark the slots that hold one of the user's targets. Row i of `items` belongs to row i of `targets`."""
    users = np.arange(targets.count, dtype=np.int64)
    # One key per pair of user and item. Indices ascend within a row, so the keys ascend and can be searched.
    wanted = np.repeat(users * n_items, np.diff(targets.indptr)) + targets.indices
    if not len(wanted):
        return np.zeros(items.shape, dtype=bool)
    asked = users[:, None] * n_items + items
    place = np.minimum(np.searchsorted(wanted, asked), len(wanted) - 1)
    # An empty slot, -1, makes the key of the previous user's last item, so it must not count.
    hits: Hits = (wanted[place] == asked) & (items >= 0)
    return hits


def recall(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the hits among the first K divided by min(K, number of targets), so that 1 can always be reached."""
    found = hits[:, :K].sum(axis=1)
    # The inner minimum is 0 for users without targets, who get NaN below whatever it is divided by.
    return _only_scored(found / np.maximum(np.minimum(K, n_targets), 1), n_targets)


def ndcg(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the binary DCG of the first K, gain 1/log2(rank + 1), divided by that of min(K, targets) hits on top."""
    gain = discounts(K)
    ideal = np.concatenate(([1.0], np.cumsum(gain)))  # place 0 belongs to users without targets, who get NaN
    # Lists that were made elsewhere may have fewer than K slots.
    reached = hits[:, :K] @ gain[: hits.shape[1]]
    return _only_scored(reached / ideal[np.minimum(K, n_targets)], n_targets)


def hit_rate(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return 1 if at least one of the first K is a target, else 0."""
    return _only_scored(hits[:, :K].any(axis=1).astype(np.float64), n_targets)


def mrr(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return 1 / rank of the first hit among the first K, 0 if there is none."""
    first = hits[:, :K]
    # `argmax` is 0 as well where there is no hit; `any` below makes that a 0.
    rank = first.argmax(axis=1) + 1.0
    return _only_scored(first.any(axis=1) / rank, n_targets)


def precision(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the hits among the first K divided by K, also if the list is shorter."""
    return _only_scored(hits[:, :K].sum(axis=1) / K, n_targets)


def recall_all(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the hits among the first K divided by the number of targets: below 1 where there are more than K."""
    return _only_scored(hits[:, :K].sum(axis=1) / np.maximum(n_targets, 1), n_targets)


def average_precision(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the sum of the precision at every hit among the first K, divided by min(K, number of targets)."""
    return _only_scored(_precisions(hits, K) / np.maximum(np.minimum(K, n_targets), 1), n_targets)


def average_precision_all(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the sum of the precision at every hit among the first K, divided by the number of targets."""
    return _only_scored(_precisions(hits, K) / np.maximum(n_targets, 1), n_targets)


def _precisions(hits: Hits, K: int) -> PerUser:
    first = hits[:, :K]
    at_rank = np.cumsum(first, axis=1) / np.arange(1, first.shape[1] + 1)
    total: PerUser = (at_rank * first).sum(axis=1)
    return total


def dcg(hits: Hits, n_targets: NDArray[np.integer], K: int) -> PerUser:
    """Return the binary DCG of the first K, not normalised: the utility of a list for its user."""
    return _only_scored(hits[:, :K] @ discounts(K)[: hits.shape[1]], n_targets)


def discounts(K: int) -> NDArray[np.float64]:
    """Return the weights 1/log2(rank + 1) of ranks 1..K."""
    weights: NDArray[np.float64] = 1.0 / np.log2(np.arange(2, K + 2))
    return weights


def _only_scored(values: ArrayLike, n_targets: NDArray[np.integer]) -> PerUser:
    return np.where(n_targets > 0, values, np.nan)
