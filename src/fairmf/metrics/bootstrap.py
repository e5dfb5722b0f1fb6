"""Compute intervals: resample the users, or leave some of them out, and recount their lists.

A replicate is a weight per user: how often the user was drawn. The exposures of many replicates are one product of a
sparse matrix (items x users) with a dense one (users x replicates), which costs as much as counting the lists.

Metrics of the least shown items use a jackknife instead: every replicate leaves out one group of users. A bootstrap
replicate lacks a third of the users, and with them most items that one user alone is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import stdtrit

from fairmf.metrics.exposure import slot_weights
from fairmf.params import check_count, check_seed, check_share

Values = NDArray[np.float64]
Interval = tuple[float, float]
CELLS_AT_ONCE = 4_000_000  # numbers of replicates x items (or users) in memory at a time: 32 MB
LEFT_OUT = 40  # groups of users of the jackknife


@dataclass(frozen=True)
class Bootstrap:
    """The settings of intervals: number of resamples (0 for no intervals), confidence and seed."""

    count: int
    confidence: float
    random_state: int

    @classmethod
    def checked(cls, owner: str, count: int, confidence: float, random_state: int) -> Bootstrap:
        """Return the settings; raise InvalidParameter in the name of `owner` if one is out of range."""
        check_count(owner, "bootstrap", count, 0)
        check_share(owner, "confidence", confidence)
        check_seed(owner, random_state)
        return cls(count, float(confidence), random_state)


class ListMatrices(NamedTuple):
    """Sparse matrices items x users for one weighting; matrix k holds the slots between cut-offs k-1 and k."""

    cutoffs: tuple[int, ...]
    matrices: tuple[sp.csc_array, ...]

    def exposures(self, weights: Values) -> Iterator[tuple[int, Values]]:
        """Yield, for every cut-off K, the exposures (replicates x items) for weights (users x replicates)."""
        total = np.zeros((self.matrices[0].shape[0], weights.shape[1]))
        for K, matrix in zip(self.cutoffs, self.matrices, strict=True):
            total += matrix @ weights
            # Measures go along the last axis, so the items of one replicate lie side by side.
            yield K, np.ascontiguousarray(total.T)


def list_matrices(items: NDArray[np.integer], n_items: int, cutoffs: list[int], weighting: str) -> ListMatrices:
    """Convert lists (users x N, -1 in empty slots) to matrices, one per cut-off; `cutoffs` ascend."""
    n_users, N = items.shape
    worth = slot_weights(max(N, 1), weighting)
    matrices, start = [], 0
    for K in cutoffs:
        # Only the slots after the previous cut-off: `exposures` adds the matrices up, so each slot is counted once.
        # A cut-off beyond the lists adds no slots: its matrix is empty.
        stop = max(start, min(K, N))
        slots = items[:, start:stop]
        filled = slots >= 0
        indptr = np.concatenate(([0], np.cumsum(filled.sum(axis=1))))
        values = np.broadcast_to(worth[start:stop], slots.shape)[filled]
        # A mask picks its elements row by row, that is user by user: the order in which CSC stores columns.
        matrices.append(sp.csc_array((values, slots[filled], indptr), shape=(n_items, n_users)))
        start = stop
    return ListMatrices(tuple(cutoffs), tuple(matrices))


def draw_weights(n_users: int, replicates: int, n_items: int, random_state: int) -> Iterator[Values]:
    """Draw users with replacement; yield how often each was drawn, in blocks of users x replicates."""
    random = np.random.default_rng(random_state)
    at_once = max(1, CELLS_AT_ONCE // max(n_users, n_items, 1))
    for start in range(0, replicates, at_once):
        count = min(at_once, replicates - start)
        # One replicate at a time, so that the draws do not depend on the size of the blocks.
        draws = [np.bincount(random.integers(n_users, size=n_users), minlength=n_users) for _ in range(count)]
        yield np.ascontiguousarray(np.stack(draws, axis=1), dtype=np.float64)


def leave_out_weights(n_users: int, n_items: int, random_state: int) -> Iterator[Values]:
    """Divide the users at random into groups; yield weights 0 for one group and 1 for the others, in blocks."""
    group = np.random.default_rng(random_state).permutation(n_users) % LEFT_OUT
    at_once = max(1, CELLS_AT_ONCE // max(n_users, n_items, 1))
    for start in range(0, min(LEFT_OUT, n_users), at_once):
        left_out = np.arange(start, min(start + at_once, LEFT_OUT, n_users))
        yield np.ascontiguousarray(group[:, None] != left_out, dtype=np.float64)


def weighted_means(per_user: Values, weights: Values) -> Values:
    """Return the mean over users with a value, for each replicate; NaN if a replicate drew none of them."""
    scored = np.isfinite(per_user)
    count = scored @ weights
    # Zero instead of NaN, which would make the whole product NaN.
    total = np.where(scored, per_user, 0.0) @ weights
    means: Values = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return means


def interval(
    replicates: Values, confidence: float, centre: float | None = None, highest: float = np.inf, lowest: float = 0.0
) -> Interval:
    """Return the percentile interval. With `centre`, shift it so that the mean of the replicates is there.

    The shift is for measures of exposure. A replicate draws some users twice and others not at all, so its exposure is
    more unequal than that of the lists. Without the shift, an interval of Gini or coverage can miss its own value. The
    shifted ends are clipped to [lowest, highest].
    """
    finite = replicates[np.isfinite(replicates)]
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [(1 - confidence) / 2, (1 + confidence) / 2])
    if centre is None:
        return float(low), float(high)
    shift = centre - finite.mean()
    low, high = np.clip([low + shift, high + shift], lowest, highest)
    return float(low), float(high)


def jackknife_interval(
    replicates: Values, confidence: float, centre: float, highest: float = np.inf, lowest: float = 0.0
) -> Interval:
    """Return the interval around `centre` of a jackknife that leaves out one of G groups of users at a time.

    The variance is (G - 1) / G times the sum of squared deviations of the replicates from their mean, and the interval
    that of Student's t with G - 1 degrees of freedom (Kott 2001), clipped to [lowest, highest].
    """
    count = len(replicates)
    if count < 2 or not np.isfinite(replicates).all():
        return float("nan"), float("nan")
    error = np.sqrt((count - 1) * replicates.var())
    reach = stdtrit(count - 1, (1 + confidence) / 2) * error
    low, high = np.clip([centre - reach, centre + reach], lowest, highest)
    return float(low), float(high)
