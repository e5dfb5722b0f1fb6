"""Compute the exposure of items (or groups) in ranked lists, and how evenly it is spread.

An exposure vector has one number per item of the whole catalogue. All measures work along the last axis, so that many
vectors (bootstrap replicates) are measured at once. A vector without any exposure gives NaN. Definitions, ranges and
tie rules: docs/metrics.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.popularity import gini
from fairmf.errors import InvalidParameter
from fairmf.metrics.accuracy import discounts

# The probability that a user goes on to the next rank (rank-biased precision).
RBP_PATIENCE = 0.85
WEIGHTINGS = ("count", "dcg", "rbp")
Values = NDArray[np.float64]


def slot_weights(K: int, weighting: str = "count") -> Values:
    """Return what rank 1..K is worth: "count" 1, "dcg" 1/log2(rank + 1), "rbp" (1 - p) p^(rank - 1) with p = .85."""
    if weighting == "count":
        return np.ones(K)
    if weighting == "dcg":
        return discounts(K)
    if weighting == "rbp":
        return np.asarray((1 - RBP_PATIENCE) * RBP_PATIENCE ** np.arange(K), dtype=np.float64)
    raise InvalidParameter(f"The 'weighting' of exposure must be one of {WEIGHTINGS}. Got {weighting!r} instead.")


def exposure(items: NDArray[np.integer], n_items: int, K: int, weighting: str = "count") -> Values:
    """Count the exposure of every item in the first K slots of the lists; -1 is an empty slot."""
    shown = items[:, :K]
    weights = np.broadcast_to(slot_weights(shown.shape[1], weighting), shown.shape)
    filled = shown >= 0
    return np.bincount(shown[filled], weights=weights[filled], minlength=n_items).astype(np.float64)


def coverage(o: ArrayLike) -> Values:
    """Return the share of items that are in at least one list."""
    return np.asarray(np.mean(np.asarray(o) > 0, axis=-1))


def entropy(o: ArrayLike) -> Values:
    """Return the Shannon entropy of the exposure shares divided by log m: 1 if all are equal, 0 if one item has all."""
    share = _shares(o)
    m = share.shape[-1]
    # 0 log 0 counts as 0, its limit.
    terms = share * np.log(share, out=np.zeros_like(share), where=share > 0)
    # With a single item log m is 0, and so is the entropy; NaN without exposure is kept.
    return _divide(-terms.sum(axis=-1), np.asarray(np.log(m))) if m > 1 else terms.sum(axis=-1)


def top_share(o: ArrayLike, percent: int) -> Values:
    """Return the share of the exposure that goes to the ceil(percent % of m) most exposed items."""
    values = np.asarray(o, dtype=np.float64)
    m = values.shape[-1]
    count = -(-m * percent // 100)  # rounded up
    # np.sort rather than np.partition, which is slow for many equal numbers: most items have exposure 0.
    top = np.sort(values, axis=-1)[..., m - count :]
    return _divide(top.sum(axis=-1), values.sum(axis=-1))


def bottom_share(o: ArrayLike, percent: int) -> Values:
    """Return the share of the exposure that goes to the floor(percent % of m) least exposed items."""
    values = np.asarray(o, dtype=np.float64)
    m = values.shape[-1]
    # Rounded down, and in `top_share` up, so that top 20 % and bottom 80 % never share an item.
    count = m * percent // 100
    bottom = np.sort(values, axis=-1)[..., :count]
    return _divide(bottom.sum(axis=-1), values.sum(axis=-1))


def lorenz_curve(o: ArrayLike) -> Values:
    """Return the m + 1 points of the Lorenz curve: point k is the share of the k least exposed items."""
    ordered = np.sort(np.asarray(o, dtype=np.float64), axis=-1)
    start = np.zeros((*ordered.shape[:-1], 1))
    running = np.concatenate((start, np.cumsum(ordered, axis=-1)), axis=-1)
    return _divide(running, running[..., -1:])


def average_popularity(o: ArrayLike, popularity: Values) -> Values:
    """Return the mean popularity of the items shown: sum_j o_j p_j / sum_j o_j."""
    values = np.asarray(o, dtype=np.float64)
    return _divide(values @ popularity, values.sum(axis=-1))


def novelty(o: ArrayLike, popularity: Values, n_train: int) -> Values:
    """Return the mean self-information of the items shown, -log2 of the share of training users who have the item.

    An item without training users counts as one with a single user: its self-information would be infinite.
    """
    values = np.asarray(o, dtype=np.float64)
    information = -np.log2(np.maximum(popularity, 1) / max(n_train, 1))
    return _divide(values @ information, values.sum(axis=-1))


def tail(popularity: Values) -> NDArray[np.bool_]:
    """Mark the floor(0.8 m) least popular items; among equally popular items, those with the higher index."""
    m = len(popularity)
    # `lexsort` sorts by its last key first. In integers, so that no rounding of 0.8 m decides about an item.
    ascending = np.lexsort((-np.arange(m), popularity))
    chosen = np.zeros(m, dtype=bool)
    chosen[ascending[: 4 * m // 5]] = True
    return chosen


def tail_share(o: ArrayLike, popularity: Values) -> Values:
    """Return the share of the exposure that goes to the tail of the popularity distribution."""
    values = np.asarray(o, dtype=np.float64)
    return _divide(values[..., tail(popularity)].sum(axis=-1), values.sum(axis=-1))


def cold_share(o: ArrayLike, popularity: Values) -> Values:
    """Return the share of the exposure that goes to cold items, which nobody has in the training data."""
    values = np.asarray(o, dtype=np.float64)
    return _divide(values[..., popularity == 0].sum(axis=-1), values.sum(axis=-1))


def cold_lift(o: ArrayLike, popularity: Values) -> Values:
    """Return the share of exposure of cold items, divided by their share of the catalogue; NaN if there are none."""
    share = np.asarray(np.mean(popularity == 0), dtype=np.float64)
    found = cold_share(o, popularity)
    return _divide(found, np.broadcast_to(share, np.shape(found)))


def merit_distance(o: ArrayLike, merit: Values) -> Values:
    """Return the total variation distance between exposure and merit shares: 0 if proportional, 1 if disjoint."""
    distance: Values = 0.5 * np.abs(_shares(o) - _shares(merit)).sum(axis=-1)
    return distance


def merit_gini(o: ArrayLike, merit: Values) -> Values:
    """Return the Gini index of exposure per unit of merit, over items with merit: 0 if exposure is proportional."""
    having = merit > 0
    return gini(np.asarray(o, dtype=np.float64)[..., having] / merit[having])


def add_up(o: ArrayLike, codes: NDArray[np.integer], n_groups: int) -> Values:
    """Sum exposure over each group's items; codes[j] is the group of item j."""
    values = np.asarray(o, dtype=np.float64)
    # `bincount` takes one vector at a time.
    flat = values.reshape(-1, values.shape[-1])
    sums = np.stack([np.bincount(codes, row, n_groups).astype(np.float64) for row in flat])
    return sums.reshape(*values.shape[:-1], n_groups)


def _shares(o: ArrayLike) -> Values:
    values = np.asarray(o, dtype=np.float64)
    return _divide(values, values.sum(axis=-1, keepdims=True))


def _divide(above: Values, below: Values) -> Values:
    """Divide; return NaN, without a warning, if there is no exposure."""
    result: Values = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=np.asarray(below) > 0)
    return result
