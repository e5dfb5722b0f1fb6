"""Interactions cut by users into shards: what one actor holds, and where it gets it from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairmf.interactions import Ids, Rows


@dataclass(frozen=True)
class Shard:
    """Some users and their interactions; items are numbered as in the whole."""

    rows: Rows
    users: NDArray[np.int64]
    """The number of each row's user in the whole, ascending."""
    user_ids: Ids | None
    """What the users are called, by row."""


class ShardSource(Protocol):
    """Where shards come from. Small and picklable: it goes to every actor."""

    n_users: int
    n_items: int
    nnz: int
    shards: int
    is_binary: bool

    @property
    def item_ids(self) -> Ids | None:
        """What the items are called, by number."""

    @property
    def popularity(self) -> NDArray[np.float64]:
        """The sum of every item's confidences."""

    def load(self, number: int) -> Shard:
        """One shard. Called in the actor that holds it, again wherever that actor is replaced."""

    def fingerprint(self) -> str:
        """Equal for equal data, whatever the number of shards."""
