"""The tree in which partial sums of the shards are added: fixed by their number, and so the bits of the sum are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def levels(shards: int) -> list[list[tuple[int, int]]]:
    """Pairs (into, from) that add at the same time, level after level; the sum ends in shard 0.

    >>> levels(5)
    [[(0, 1), (2, 3)], [(0, 2)], [(0, 4)]]
    """
    found, width = [], 1
    while width < shards:
        found.append([(a, a + width) for a in range(0, shards - width, 2 * width)])
        width *= 2
    return found


def total(parts: Sequence[Any]) -> Any:
    """The sum of small parts, one per shard, added along the same tree."""
    sums = list(parts)
    for level in levels(len(sums)):
        for into, other in level:
            sums[into] = sums[into] + sums[other]
    return sums[0]
