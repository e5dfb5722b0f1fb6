"""A random share of every user's rows, for all users at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEWEST_ITEMS = 5  # nothing is held out of users with fewer


def draw_parts(users: NDArray[np.integer], share: float, n_parts: int, random: np.random.Generator) -> NDArray[np.int8]:
    """For every row its part: 1..n_parts for floor(share * k) of a user's k rows each, 0 for all others.

    Users with fewer than five rows have all of them in part 0.
    """
    # Each user's rows in random order, the first so many to part 1, and so on: one sort for all users.
    order = np.lexsort((random.random(len(users)), users))
    _, start, counts = np.unique(users[order], return_index=True, return_counts=True)
    each = np.where(counts >= FEWEST_ITEMS, np.floor(share * counts), 0).astype(np.int64)
    rank = np.arange(len(users)) - np.repeat(start, counts)
    number = rank // np.maximum(np.repeat(each, counts), 1) + 1
    held_out = (number <= n_parts) & (np.repeat(each, counts) > 0)
    parts = np.zeros(len(users), dtype=np.int8)
    parts[order] = np.where(held_out, number, 0)
    return parts
