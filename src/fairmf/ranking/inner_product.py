"""From the largest inner product to the nearest neighbour: one more coordinate puts all items at the same distance.

With M the largest item norm, x_j = (v_j, sqrt(M^2 - |v_j|^2)) has norm M and y = (u, 0) gives y.x_j = u.v_j, so that
|y - x_j|^2 = |u|^2 + M^2 - 2 u.v_j: the nearest x_j is the item with the largest score (Bachrach et al. 2014). An
offset per item is a coordinate of its own: (v_j, o_j) against (u, 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


def reduce_items(vectors: Vectors, offsets: Vectors | None) -> tuple[Vectors, float]:
    """The items on a sphere, and its radius M."""
    parts = [vectors] if offsets is None else [vectors, offsets[:, None]]
    squares = sum(np.einsum("ij,ij->i", part, part, dtype=np.float64) for part in parts)
    largest = float(np.max(squares))
    rest = np.sqrt(np.maximum(largest - squares, 0.0)).astype(np.float32)
    return np.concatenate([*parts, rest[:, None]], axis=1), float(np.sqrt(largest))


def reduce_users(vectors: NDArray[Any], radius: float, with_offsets: bool) -> tuple[Vectors, Vectors]:
    """The users near the items' sphere, and the factor each was multiplied with.

    Only a user's direction decides the order of the items, but which groups of items are near depends on the length.
    The factor is a power of two: dividing a score by it gives the inner product back without any rounding.
    """
    columns = [vectors, *([np.ones((len(vectors), 1))] if with_offsets else []), np.zeros((len(vectors), 1))]
    extended = np.concatenate(columns, axis=1).astype(np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", extended, extended, dtype=np.float64))
    ratio = np.divide(radius, norms, out=np.ones_like(norms), where=(norms > 0) & (radius > 0))
    # Within float32's normal range, so that no power underflows.
    scale = np.exp2(np.clip(np.round(np.log2(ratio)), -60, 60)).astype(np.float32)
    return extended * scale[:, None], scale
