"""What lists guarantee to items, and which items got less, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairmf.interactions import Rows

EXCLUDED = "fewer users may be given it than it is owed"
FULL = "every user who may be given it had it, or a full list"


@dataclass(frozen=True)
class Certificate:
    """The exposure items were promised and got, in numbers of users."""

    guaranteed: int
    """ell: the exposure every item is owed."""
    realised: int
    """The smallest exposure of any item."""
    short: NDArray[np.int64]
    """Positions of all items below `guaranteed`."""
    exposure: NDArray[np.int64]
    """Exposure of each item in `short`."""
    feasible: NDArray[np.int64]
    """How many users may be given each item in `short`: n less those who exclude it."""

    @property
    def kept(self) -> bool:
        """True when no item is below the guarantee."""
        return len(self.short) == 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each item in `short` is below the guarantee.

        Phase 1 ends with copies of an item left only when every user who may be given it has it or has K items; where
        fewer may be given it than it is owed, no list could have kept the promise.
        """
        return tuple(EXCLUDED if count < self.guaranteed else FULL for count in self.feasible.tolist())

    def __repr__(self) -> str:
        state = "kept" if self.kept else f"{len(self.short):,} items below it"
        return f"Certificate(guaranteed {self.guaranteed:,} users, smallest {self.realised:,}, {state})"


def certify(lists: NDArray[np.int32], n_items: int, guaranteed: int, exclude: Rows | None) -> Certificate:
    """Count the exposure of every item in the lists and hold it against the guarantee."""
    exposure = np.bincount(lists[lists >= 0], minlength=n_items)
    short = np.flatnonzero(exposure < guaranteed)
    feasible = np.full(len(short), len(lists), dtype=np.int64)
    if exclude is not None and len(short):
        place = np.full(n_items, -1, dtype=np.int64)
        place[short] = np.arange(len(short))
        users = np.repeat(np.arange(exclude.count, dtype=np.int64), np.diff(exclude.indptr))
        entries = place[exclude.indices] >= 0
        # A user who names an item twice excludes it once.
        pairs = np.unique(users[entries] * len(short) + place[exclude.indices[entries]])
        feasible -= np.bincount(pairs % len(short), minlength=len(short))
    return Certificate(guaranteed, int(exposure.min()), short, exposure[short], feasible)
