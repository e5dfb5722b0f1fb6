"""Define a shard (some users with all their interactions) and the sources that workers load shards from."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows, confidences, item_sums
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.weighting import Weighting
from fairmf.errors import InvalidData


@dataclass(frozen=True)
class Shard:
    """Hold some users with all their interactions. Item numbers are those of the whole data, ascending in every row."""

    rows: Rows
    users: NDArray[np.int64]
    """The number that each row's user has in the whole data, ascending."""
    user_ids: Ids | None
    """The ids of these users."""


class ShardLoader(Protocol):
    """Load shards in a worker: the part of a `ShardSource` that workers need."""

    n_users: int
    n_items: int

    def load(self, number: int) -> Shard:
        """Return a shard, read in the process that calls: its worker's, or that of a worker that replaces it."""


@runtime_checkable
class ShardSource(ShardLoader, Protocol):
    """Load shards of users. A source is small and picklable: it is sent to every worker, which loads its own shard.

    Users and items have the numbers that `Interactions` of the same data would give them.
    """

    nnz: int
    shards: int
    is_binary: bool
    n_dislikes: int
    """Number of entries with a weight below 0, whose confidence is |w|."""
    item_ids: Ids | None
    popularity: NDArray[np.float64]
    """The sum of every item's confidences, of dislikes too."""
    weighting: Weighting | None
    """The weighting by which the confidences were computed from raw ones; None if they are raw."""

    def fingerprint(self) -> str:
        """Return a hash of the data, equal for equal data."""


class InMemoryShards:
    """Split interactions in memory into ranges of users with about the same number of interactions."""

    def __init__(self, interactions: Interactions, shards: int):
        self.interactions = interactions
        self.n_users, self.n_items = interactions.shape
        self.nnz, self.is_binary, self.n_dislikes = interactions.nnz, interactions.is_binary, interactions.n_dislikes
        self.item_ids, self.weighting = interactions.item_ids, interactions.weighting
        self.shards = shards
        self.bounds = _balanced(interactions.by_user.indptr, shards)
        self.popularity = item_sums(confidences(interactions.by_user), self.n_items)

    def cut_like(self, other: InMemoryShards) -> InMemoryShards:
        """Return the same interactions, cut at the users at which `other` is cut; both must have the same users."""
        if self.interactions.user_ids != other.interactions.user_ids or self.n_users != other.n_users:
            raise InvalidData("Interactions in memory that are measured together must have the same users in order.")
        cut = copy.copy(self)
        cut.shards, cut.bounds = other.shards, other.bounds
        return cut

    def load(self, number: int) -> Shard:
        """Return a range of users, as views."""
        first, last = int(self.bounds[number]), int(self.bounds[number + 1])
        users = np.arange(first, last, dtype=np.int64)
        ids = self.interactions.user_ids
        return Shard(self.interactions.by_user.block(first, last), users, None if ids is None else ids.take(users))

    def fingerprint(self) -> str:
        """Return the fingerprint of the interactions."""
        return self.interactions.fingerprint()


def _balanced(indptr: NDArray[np.int64], shards: int) -> NDArray[np.int64]:
    """Return bounds of non-empty ranges of about equal cost.

    A user costs its number of entries, plus eight for the work on its own vectors.
    """
    n = len(indptr) - 1
    cost = indptr + 8.0 * np.arange(n + 1)
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1], shards + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, n
    number = np.arange(shards + 1)
    rising = np.maximum.accumulate(bounds - number) + number  # each bound at least one above the last
    return np.minimum(rising, n - shards + number)
