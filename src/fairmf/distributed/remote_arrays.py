"""Stand-ins for the users' factors, rows and numbers, which stay in the workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


def total(parts: Sequence[Any]) -> Any:
    """Add small parts, one per shard, along the same tree."""
    sums = list(parts)
    for level in levels(len(sums)):
        for into, other in level:
            sums[into] = sums[into] + sums[other]
    return sums[0]


USERS, ITEMS = "users", "items"


class UserCount(int):
    """The number of users, known to be one: `backend.empty(*U.shape)` is then sharded even where n_users == n_items."""


class Drawn(NamedTuple):
    """The random start: every shard draws the rows of its own users."""

    stream: Stream
    scale: float


class Given(NamedTuple):
    """Values that the caller has."""

    values: Array


class Solved(NamedTuple):
    """The users' half-step to convergence: H_i u_i = b_i - q. What an epoch leaves is close to it."""

    item_factors: Array
    coupling: NDArray[np.float64]
    unobserved_weight: float
    ridge: str


class ShardedFactors:
    """n_users x d numbers in the workers. Their memory is given back when the last reference here is gone.

    `recipe` says how a worker that takes over a shard makes its part again; None for what is on the way in an epoch.
    """

    ndim = 2

    def __init__(self, team: Team, factors: int, dtype: np.dtype[Any], recipe: Drawn | Given | Solved | None = None):
        self.team = team
        self.key = team.new_key()
        self.shape = (UserCount(team.n_users), factors)
        self.dtype = dtype
        self.recipe = recipe
        team.living[self.key] = self
        weakref.finalize(self, team.forget, self.key)

    def stored(self) -> Array:
        """Return the values as a file holds them: none (0 rows) where users stay in the workers, to be made again."""
        if self.team.gather_users:
            return self.team.gathered(self)
        return np.empty((0, self.shape[1]), dtype=self.dtype)

    def filled_with(self, values: Array) -> ShardedFactors:
        """Return factors like these with other values; without values (0 rows) they are made when first needed."""
        recipe = Given(np.asarray(values, dtype=self.dtype)) if len(values) else None
        made = ShardedFactors(self.team, self.shape[1], self.dtype, recipe)
        if recipe is not None:
            self.team.make(made)
        return made


class ShardedVector:
    """One number per user, in the workers."""

    ndim = 1

    def __init__(self, team: Team, key: str):
        self.team = team
        self.key = key

    def mapped(self, key: str, function: Callable[..., Any], *args: Any) -> ShardedVector:
        """Compute function(numbers, *args) in every shard, and keep it there under `key`."""
        self.team.establish("map_vector", self.key, key, function, args)
        return ShardedVector(self.team, key)

    def min(self) -> float:
        """Return the smallest."""
        return float(min(self.team.ask("vector_min", self.key)))

    def sum(self) -> float:
        """Return their sum."""
        return float(total(self.team.ask("vector_sum", self.key)))


class ShardedRows:
    """The interactions, of users or (the same ones, seen from the other side) of items."""

    def __init__(self, team: Team, side: str, key: str = "rows"):
        self.team = team
        self.side = side
        self.key = key

    @property
    def count(self) -> int:
        """Number of rows."""
        return UserCount(self.team.n_users) if self.side == USERS else self.team.n_items

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.team.nnz

    def sums(self) -> Any:
        """Return the sum of every row: in the workers for users, here for items."""
        return ShardedVector(self.team, "sums") if self.side == USERS else self.team.popularity.copy()
