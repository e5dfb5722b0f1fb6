"""Stand in for the users' factors, rows and numbers, which stay in the workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.random_start import Stream
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.distributed.team import Team


# Add the shards' partial sums in a fixed binary tree, so that the result has the same bits for any schedule.


def levels(shards: int) -> list[list[tuple[int, int]]]:
    """Return pairs (into, from) that add at the same time, level after level; the sum ends in shard 0.

    >>> levels(5)
    [[(0, 1), (2, 3)], [(0, 2)], [(0, 4)]]
    """
    found, width = [], 1
    while width < shards:
        found.append([(a, a + width) for a in range(0, shards - width, 2 * width)])
        width *= 2
    return found


T = TypeVar("T", float, Array)


def total(parts: Sequence[T]) -> T:
    """Add small parts, one per shard, along the same tree."""
    sums = list(parts)
    for level in levels(len(sums)):
        for into, other in level:
            sums[into] = sums[into] + sums[other]
    return sums[0]


USERS, ITEMS = "users", "items"
LIKES = "likes"  # the key of rows without dislikes


class UserCount(int):
    """Mark a number of rows as the number of users, so that `backend.empty(*U.shape)` makes a sharded array.

    The number alone would not do: there may be as many items as users.
    """


class Drawn(NamedTuple):
    """Recipe: every shard draws the random start of its own users."""

    stream: Stream
    scale: float


class Given(NamedTuple):
    """Recipe: every shard gets its rows of values that the caller holds."""

    values: Array


class UserTerms(NamedTuple):
    """Stand in for what features and dislikes add to each user's right-hand side: ridge_i M'x_i - sum_j |w_ij| v_j.

    The workers compute it: they have the users' features, ridges and dislikes.
    """

    feature_map: Array | None = None
    """M, or None where users have no features."""
    dislikes: bool = False


class Solved(NamedTuple):
    """Recipe: every shard solves its users' half-step to convergence, H_i u_i = b_i - q.

    For a worker that replaces a lost one. The result is close to the factors that the epoch left in the lost worker.
    """

    item_factors: Array
    coupling: NDArray[np.float64]
    unobserved_weight: float
    ridge: str
    terms: UserTerms = UserTerms()


class ShardedFactors:
    """Stand in for an n_users x d array in the workers, which free it when the last reference here is gone.

    `recipe` says how a worker that takes over a shard makes its part again; None for temporary arrays of an epoch.
    """

    ndim = 2

    def __init__(self, team: Team, factors: int, dtype: np.dtype[Any], recipe: Drawn | Given | Solved | None = None):
        self.team = team
        self.key = team.new_key()
        self.shape = (UserCount(team.n_users), factors)
        self.dtype = dtype
        self.recipe = recipe
        # `living` holds no reference of its own, so the last one elsewhere frees the factors in the workers.
        team.living[self.key] = self
        weakref.finalize(self, team.forget, self.key)

    def stored(self) -> Array:
        """Return the values to store in a file: none (0 rows) if users stay in the workers, which can remake them."""
        if self.team.gather_users:
            return self.team.gathered(self)
        return np.empty((0, self.shape[1]), dtype=self.dtype)

    def filled_with(self, values: Array) -> ShardedFactors:
        """Return factors of this shape with other values; without values (0 rows) they are made when first needed."""
        recipe = Given(np.asarray(values, dtype=self.dtype)) if len(values) else None
        made = ShardedFactors(self.team, self.shape[1], self.dtype, recipe)
        if recipe is not None:
            self.team.make(made)
        return made


class ShardedVector:
    """Stand in for a vector in the workers: one number per user."""

    ndim = 1

    def __init__(self, team: Team, key: str):
        self.team = team
        self.key = key

    def mapped(self, key: str, function: Callable[..., Array], *args: object) -> ShardedVector:
        """Compute function(numbers, *args) in every shard, and store the result there under `key`."""
        self.team.establish("map_vector", self.key, key, function, args)
        return ShardedVector(self.team, key)

    def min(self) -> float:
        """Return the smallest number."""
        return float(min(self.team.ask("vector_min", self.key)))

    def sum(self) -> float:
        """Return the sum of the numbers."""
        return float(total(self.team.ask("vector_sum", self.key)))


class ShardedRows:
    """Stand in for the interactions by user, or (the same interactions) by item."""

    def __init__(self, team: Team, side: str, key: str = "rows"):
        self.team = team
        self.side = side
        self.key = key

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return UserCount(self.team.n_users) if self.side == USERS else self.team.n_items

    @property
    def nnz(self) -> int:
        """Return the number of stored entries."""
        return self.team.nnz

    def sums(self) -> ShardedVector | NDArray[np.float64]:
        """Return the sum of every row: in the workers for users, in this process for items."""
        if self.side == USERS:
            return ShardedVector(self.team, "sums")
        return (self.team.liked_popularity if self.key == LIKES else self.team.popularity).copy()

    def column_counts(self, n_columns: int) -> NDArray[np.float64]:
        """Return the number of users of every item, from the rows of users; dislikes do not count."""
        assert self.side == USERS
        assert n_columns == self.team.n_items
        return self.team.item_counts.copy()


def key_of(stand_in: object) -> str:
    """Return the name that a sharded array, which the contract types as an array, has in the workers."""
    assert isinstance(stand_in, (ShardedFactors, ShardedVector, ShardedRows))
    return stand_in.key
