"""Fronts: which points no other point beats, and how much a set of points beats.

A point has one number per objective. `lower` says of each objective whether less is better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.errors import InvalidParameter


def dominates(a: Sequence[float], b: Sequence[float], lower: Sequence[bool]) -> bool:
    """Whether a is at least as good as b everywhere and better somewhere."""
    gains = [y - x if less else x - y for x, y, less in zip(a, b, lower, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


def front_positions(points: Sequence[Sequence[float]], lower: Sequence[bool]) -> list[int]:
    """Positions of the points that no other dominates, best in the first objective first; equal points all stay."""
    kept = [i for i, p in enumerate(points) if not any(dominates(q, p, lower) for q in points)]
    return sorted(kept, key=lambda i: (points[i][0] if lower[0] else -points[i][0], i))


def hypervolume(points: ArrayLike, worst: tuple[float, float], lower: Sequence[bool]) -> float:
    """Area that the points (two objectives) dominate inside the rectangle up to `worst`; points beyond it count for 0.

    One front with a larger area than another is better on the whole, though not everywhere.
    """
    values: NDArray[np.float64] = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    if len(lower) != 2:
        raise InvalidParameter(f"hypervolume is for two objectives. Got {len(lower)} instead.")
    sign = np.where(np.asarray(lower), -1.0, 1.0)
    gains = sign * (values - np.asarray(worst))  # how far inside the rectangle, in each direction
    inside = gains[(gains > 0).all(axis=1)]
    area, height = 0.0, 0.0
    for x, y in inside[np.lexsort((-inside[:, 1], -inside[:, 0]))]:
        if y > height:  # a strip that nothing further right covers
            area += float(x * (y - height))
            height = float(y)
    return area
