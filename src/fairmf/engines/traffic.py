"""Bytes that a cluster's members send each other, by purpose."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np


class Traffic:
    """A running count. What is broadcast counts once for every shard that reads it.

    `broadcast`: arrays of all items, driver to workers. `reduced`: partial sums over all items, along the tree and from
    its root to the driver. `small`: everything of the size of factors x factors and below, both ways.
    `users`: user factors that are gathered or given.
    """

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()

    def add(self, purpose: str, size: int) -> None:
        """Count these bytes."""
        self.bytes[purpose] += size

    def since_last(self) -> dict[str, int]:
        """What was counted since this was last asked."""
        new = self.bytes - self._seen
        self._seen = self.bytes.copy()
        return dict(new)


def size_of(value: Any) -> int:
    """Bytes of the numbers in an answer or in arguments; containers and pickling are not counted."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (tuple, list)):
        return sum(size_of(part) for part in value)
    return 8 if isinstance(value, (int, float, np.generic)) else 0
