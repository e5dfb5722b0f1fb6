"""Which items of the catalogue a page lists: all of a small one, of a large one those with something to tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairmf.reporting.content import Content, Position
from fairmf.reporting.examples import HISTORY

MOST = 4000  # items in the page: with every one's exposure at every stop it stays a fraction of 6 MB
MOVERS = 10  # gainers and losers that are named at every stop


def shown_items(content: Content, most: int = MOST) -> NDArray[np.int64]:
    """Positions of the items in the page, most exposed at the first stop first.

    Those that are named somewhere (in example lists, as gainers or losers) are always in; then come those with the most
    exposure at any stop.
    """
    exposures = np.stack([p.exposure for p in content.positions if p.exposure is not None])
    highest = exposures.max(axis=0)
    highest[_named(content)] = np.inf
    chosen = np.argsort(-highest, kind="stable")[:most]
    ranks: NDArray[np.int64] = chosen[np.lexsort((chosen, -exposures[0][chosen]))]
    return ranks


def movers(first: Position, now: Position) -> tuple[list[int], list[int]]:
    """The items that gain and those that lose most users, most first; of equal ones the lower position."""
    if first.exposure is None or now.exposure is None:
        return [], []
    gain = now.exposure - first.exposure
    return _most(gain), _most(-gain)


def _most(gain: NDArray[np.float64]) -> list[int]:
    order = np.argsort(-gain, kind="stable")[:MOVERS]
    return [int(j) for j in order if gain[j] > 0]


def _named(content: Content) -> list[int]:
    named: set[int] = set()
    for position in content.positions:
        if position.lists is not None:
            named.update(position.lists.ravel().tolist())
        for part in movers(content.before, position):
            named.update(part)
    for example in content.examples:
        named.update(seen(example.history))
    named.discard(-1)
    return sorted(named)


def seen(history: Sequence[int]) -> Sequence[int]:
    """The part of a history that is shown."""
    return history[:HISTORY]
