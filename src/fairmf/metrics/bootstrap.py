"""Bootstrap intervals: resample the users and recount their lists, to see how far numbers would move.

A replicate is a weight per user (how often it was drawn). Weighted exposures of many replicates are one
product of a sparse matrix (items x users) with a dense one (users x replicates), which costs no more than
adding up the lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.metrics.exposure import slot_weights
from fairmf.params import check_count, check_seed, check_share

Values = NDArray[np.float64]
Interval = tuple[float, float]
CELLS_AT_ONCE = 4_000_000  # replicates x (items or users) held at a time, 32 MB


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made: number of resamples (0: none), confidence and seed."""

    count: int
    confidence: float
    random_state: int

    @classmethod
    def checked(cls, owner: str, count: int, confidence: float, random_state: int) -> Bootstrap:
        """Check the three arguments of `owner`."""
        check_count(owner, "bootstrap", count, 0)
        check_share(owner, "confidence", confidence)
        check_seed(owner, random_state)
        return cls(count, float(confidence), random_state)


class ListMatrices(NamedTuple):
    """Sparse items x users matrices of one weighting; matrix k has the slots between cut-offs k-1 and k."""

    cutoffs: tuple[int, ...]
    matrices: tuple[sp.csc_array, ...]

    def exposures(self, weights: Values) -> Iterator[tuple[int, Values]]:
        """Yield for every cut-off K the exposures (replicates x items) under weights (users x replicates)."""
        total = np.zeros((self.matrices[0].shape[0], weights.shape[1]))
        for K, matrix in zip(self.cutoffs, self.matrices, strict=True):
            total += matrix @ weights
            yield K, np.ascontiguousarray(total.T)


def list_matrices(items: NDArray[np.integer], n_items: int, cutoffs: list[int], weighting: str) -> ListMatrices:
    """Prepare the lists (users x N, -1 in empty slots) for counting at the given cut-offs, ascending."""
    n_users, N = items.shape
    worth = slot_weights(max(N, 1), weighting)
    matrices, start = [], 0
    for K in cutoffs:
        stop = max(start, min(K, N))
        slots = items[:, start:stop]
        filled = slots >= 0
        indptr = np.concatenate(([0], np.cumsum(filled.sum(axis=1))))
        values = np.broadcast_to(worth[start:stop], slots.shape)[filled]
        matrices.append(sp.csc_array((values, slots[filled], indptr), shape=(n_items, n_users)))
        start = stop
    return ListMatrices(tuple(cutoffs), tuple(matrices))


def draw_weights(n_users: int, replicates: int, n_items: int, random_state: int) -> Iterator[Values]:
    """Draw n users with replacement; yield how often each was drawn, in blocks users x replicates."""
    random = np.random.default_rng(random_state)
    at_once = max(1, CELLS_AT_ONCE // max(n_users, n_items, 1))
    for start in range(0, replicates, at_once):
        count = min(at_once, replicates - start)
        draws = [np.bincount(random.integers(n_users, size=n_users), minlength=n_users) for _ in range(count)]
        yield np.ascontiguousarray(np.stack(draws, axis=1), dtype=np.float64)


def weighted_means(per_user: Values, weights: Values) -> Values:
    """Return the mean over the users that have a value, per replicate; NaN where a replicate drew none of them."""
    scored = np.isfinite(per_user)
    count = scored @ weights
    total = np.where(scored, per_user, 0.0) @ weights
    means: Values = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return means


def interval(
    replicates: Values, confidence: float, centre: float | None = None, highest: float = np.inf, lowest: float = 0.0
) -> Interval:
    """Return the percentile interval; with `centre` shifted to have the replicates' mean there, in [lowest, highest].

    The shift is for measures of exposure: drawing users twice makes every exposure vector more unequal than
    the lists it comes from, so unshifted intervals of Gini or coverage can miss the very value they belong
    to.
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
