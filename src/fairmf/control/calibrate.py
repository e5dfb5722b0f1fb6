"""Calibrate evenness: find the cheapest path from the best quality to the most even lists, on validation users.

1. Measure quality and Gini on a grid of levels (fairness, flatten, discount).
2. `monotone_chain`: of all chains of measured points that start at the best quality, along which no strength falls and
   Gini falls strictly, take the one with the largest area under quality as a function of Gini.
3. `thinned`: drop knots whose quality does not differ from the knot before by more than its standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairmf.models.evenness import Level
from fairmf.types import Floats


@dataclass(frozen=True)
class Point:
    """A level, and what was measured there."""

    level: Level
    gini: float
    quality: float
    per_user: Floats
    """The quality of each user, for paired standard errors."""


def monotone_chain(points: Sequence[Point], min_quality: float) -> list[Point]:
    """Return the chain of points that encloses most area under quality(Gini).

    It starts at the point of the best quality (of equal ones at the lowest Gini). From knot to knot no strength falls
    and Gini falls strictly. Points below `min_quality` are left out. Dynamic programming over points by falling Gini.
    """
    start = max(points, key=lambda point: (point.quality, -point.gini))
    allowed = [p for p in points if p.gini < start.gini and p.quality >= min_quality and _beyond(start, p)]
    order = [start, *sorted(allowed, key=lambda point: -point.gini)]
    area, before = np.full(len(order), -np.inf), np.zeros(len(order), dtype=int)
    area[0] = 0.0
    for b, after in enumerate(order):
        for a in range(b):
            if area[a] > -np.inf and order[a].gini > after.gini and _beyond(order[a], after):
                gained = area[a] + (order[a].gini - after.gini) * (order[a].quality + after.quality) / 2
                if gained > area[b]:
                    area[b], before[b] = gained, a
    at = int(np.argmax(area))
    chain = [order[at]]
    while at != 0:
        at = int(before[at])
        chain.append(order[at])
    return chain[::-1]


def _beyond(a: Point, b: Point) -> bool:
    return (
        b.level.fairness >= a.level.fairness
        and b.level.flatten >= a.level.flatten
        and b.level.discount >= a.level.discount
    )


def thinned(chain: Sequence[Point]) -> list[Point]:
    """Drop inner knots whose quality is within one paired standard error of the last kept knot's."""
    kept = [chain[0]]
    for point in chain[1:-1]:
        difference = kept[-1].per_user - point.per_user
        error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0.0
        if abs(difference.mean()) > error:
            kept.append(point)
    return [*kept, chain[-1]] if len(chain) > 1 else kept
