"""Users in shards: what one worker owns of the interactions, and where it gets it from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.types import Array


@dataclass(frozen=True)
class Shard:
    """Some users with all their interactions. Item numbers are those of the whole data, ascending in every row."""

    rows: Rows
    users: NDArray[np.int64]
    """The number that each row's user has in the whole data, ascending."""
    user_ids: Ids | None
    """What these users are called."""


@runtime_checkable
class ShardSource(Protocol):
    """Interactions in shards by user. Small and picklable: it is sent to every worker, which loads its own shard.

    Numbers of users and items are those that `Interactions` of the same data would give.
    """

    n_users: int
    n_items: int
    nnz: int
    shards: int
    is_binary: bool
    item_ids: Ids | None
    popularity: NDArray[np.float64]
    """Sum of every item's confidences."""

    def load(self, number: int) -> Shard:
        """One shard, read where this is called: by its worker at the start, and again by whoever replaces it."""

    def fingerprint(self) -> str:
        """Equal for equal data."""


class InMemoryShards:
    """Interactions that are in memory, as ranges of users with about equally many interactions."""

    def __init__(self, interactions: Interactions, shards: int):
        self.interactions = interactions
        self.n_users, self.n_items = interactions.shape
        self.nnz, self.is_binary = interactions.nnz, interactions.is_binary
        self.item_ids = interactions.item_ids
        self.shards = shards
        self.bounds = _balanced(interactions.by_user.indptr, shards)
        self.popularity = item_sums(interactions.by_user, self.n_items)

    def load(self, number: int) -> Shard:
        """A range of users, as views."""
        first, last = int(self.bounds[number]), int(self.bounds[number + 1])
        users = np.arange(first, last, dtype=np.int64)
        ids = self.interactions.user_ids
        return Shard(self.interactions.by_user.block(first, last), users, None if ids is None else ids.take(users))

    def fingerprint(self) -> str:
        """That of the interactions."""
        return self.interactions.fingerprint()


def item_sums(rows: Rows, n_items: int) -> NDArray[np.float64]:
    """Sum of the confidences of every item, from rows of users."""
    sums: Array = np.bincount(rows.indices, rows.weights, minlength=n_items)
    return sums.astype(np.float64)


def _balanced(indptr: NDArray[np.int64], shards: int) -> NDArray[np.int64]:
    """Bounds of ranges that are never empty; a user costs its entries and, for its own vectors, eight more."""
    n = len(indptr) - 1
    cost = indptr + 8.0 * np.arange(n + 1)
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1], shards + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, n
    number = np.arange(shards + 1)
    rising = np.maximum.accumulate(bounds - number) + number  # each at least one above the last
    return np.minimum(rising, n - shards + number)
