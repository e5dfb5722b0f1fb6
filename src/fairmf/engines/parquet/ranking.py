"""Numbers of users in the whole: the rank of everyone's first position, without one place that has all of them.

Positions are cut at the same borders in every shard; what lies between two borders is ranked by one task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
_SAMPLES = 256


def sample(firsts: Positions) -> Positions:
    """Some of a shard's ascending positions, evenly spread."""
    return firsts[:: max(1, len(firsts) // _SAMPLES)]


def borders(samples: Sequence[Positions], parts: int) -> Positions:
    """Where to cut so that every part has about as many positions."""
    together = np.sort(np.concatenate(samples))
    if parts <= 1 or len(together) == 0:
        return np.zeros(0, dtype=np.int64)
    return together[(np.arange(1, parts) * len(together)) // parts]


def cut(firsts: Positions, at: Positions) -> list[Positions]:
    """A shard's positions between the borders."""
    return np.split(firsts, np.searchsorted(firsts, at))


def rank(*parts: Positions) -> list[Positions]:
    """How many positions of all parts there are, and the rank of each among them, part by part."""
    everything = np.concatenate(parts)
    ranks = np.empty(len(everything), dtype=np.int64)
    ranks[np.argsort(everything, kind="stable")] = np.arange(len(everything))
    split = np.split(ranks, np.cumsum([len(part) for part in parts])[:-1])
    return [np.array([len(everything)]), *split]


def joined(offsets: Sequence[int], *ranks: Positions) -> Positions:
    """The numbers of a shard's users, from their ranks between the borders."""
    return np.concatenate([part + offset for part, offset in zip(ranks, offsets, strict=True)])
