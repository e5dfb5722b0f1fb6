"""Users described together: groups of them by their sum of confidences, and samples spread evenly along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import Vector


class Groups(NamedTuple):
    """Users gathered by their sum of confidences, ascending."""

    sums: Vector
    ridge: Vector
    counts: NDArray[np.int64]


def grouped(sums: Vector, ridge: Vector, most: int) -> Groups:
    """Users with equal sums together; beyond `most` groups, neighbours are merged."""
    distinct, first, counts = np.unique(sums, return_index=True, return_counts=True)
    return _at_most(Groups(distinct, ridge[first], counts), most)


def together(parts: Sequence[Groups], most: int) -> Groups:
    """The groups of several populations as those of one."""
    sums, ridge, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    distinct, where = np.unique(sums, return_inverse=True)
    people = np.bincount(where, counts)
    mean_ridge = np.bincount(where, ridge * counts) / people
    return _at_most(Groups(distinct, mean_ridge, people.astype(np.int64)), most)


def _at_most(groups: Groups, most: int) -> Groups:
    sums, ridge, counts = groups
    if len(sums) <= most:
        return groups
    starts = (np.arange(most) * len(sums)) // most
    total = np.add.reduceat(counts, starts)
    merged = (np.add.reduceat(x * counts, starts) / total for x in (sums, ridge))
    return Groups(next(merged), next(merged), total)


def spread_evenly(sums: Vector, count: int) -> NDArray[np.int64]:
    """Which users to take so that they are spread evenly along their sums (all, if they are few)."""
    order = np.argsort(sums, kind="stable")
    count = min(count, len(order))
    chosen: NDArray[np.int64] = np.sort(order[((np.arange(count) + 0.5) * len(order) / max(count, 1)).astype(np.int64)])
    return chosen
