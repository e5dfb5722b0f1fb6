"""The item dial: standardise the scores of each item, and discount popular items (docs/mathematics.md 10).

An item enters top-K lists through the upper tail of its scores, which its spread decides more than its mean. With the
spread sigma_j of item j's scores over the training users, the number f_j of users who have it, and two strengths
g (`flatten`) and h (`discount`),

    s'_ij = s_ij / sigma_j^g - h S(g) (log f_j - mean log f)

where S(g) is the standard deviation of all flattened scores, so that h means the same for every model and every g.
Both act on items alone, at request time: nothing is trained. It equals plain scores when g = h = 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairmf.backends.contract import Backend, Factors, ItemScale, Vector, frozen

SMALLEST = 1e-3  # of the median spread: items whose scores hardly vary are not blown up beyond this
LEVELS_KEPT = 16  # scales and offsets of recently used levels


@dataclass(frozen=True, eq=False)
class ItemDial:
    """The numbers of every item that the dial needs; from the training users, and stored with the model."""

    spread: Vector
    """sigma_j, the standard deviation of the item's scores over the training users."""
    mean: Vector
    """mu_j, the mean of the item's scores."""
    popularity: Vector
    """f_j, the number of users who have the item; at least 1."""

    @classmethod
    def of(cls, backend: Backend, users: Factors, items: Factors, popularity: Vector) -> ItemDial:
        """Compute spread and mean of each item's scores in closed form, from Cov(U): O((n + m) d^2)."""
        n = len(users)
        t = backend.host(backend.mean(users)).astype(np.float64)
        # Cov(U) = G_U / n - t t' loses digits where the mean is large; the Gramian's float64 sums leave enough of them.
        covariance = backend.host(backend.gramian(users)).astype(np.float64) / n - np.outer(t, t)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        V = backend.host(items).astype(np.float64, copy=False)
        return cls(
            frozen(np.sqrt(np.einsum("jd,jd->j", V @ root, V @ root))),
            frozen(V @ t),
            frozen(np.maximum(popularity, 1.0)),
        )

    def level(self, flatten: float, discount: float) -> ItemScale:
        """Return scale and offset of every item at these strengths; those of recent levels are kept."""
        return self._levels(float(flatten), float(discount))

    @functools.cached_property
    def _levels(self) -> Callable[[float, float], ItemScale]:  # a cache of this dial's own, which goes with it
        return functools.lru_cache(LEVELS_KEPT)(self._compute)

    def _compute(self, flatten: float, discount: float) -> ItemScale:
        scale = self.scale(flatten)
        offset = None
        if discount > 0:
            logs = np.log(self.popularity)
            offset = frozen((-discount * self.score_spread(flatten) * (logs - logs.mean())).astype(np.float32))
        return ItemScale(None if flatten == 0 else frozen(scale.astype(np.float32)), offset)

    def scale(self, flatten: float) -> Vector:
        """Return 1 / sigma_j^g; 1 for items whose scores are all 0."""
        silent = (self.spread == 0) & (self.mean == 0)
        if flatten == 0 or silent.all():
            return np.ones(len(self.spread))
        least = SMALLEST * float(np.median(self.spread[~silent]))
        with np.errstate(divide="ignore"):
            scale = np.maximum(self.spread, least) ** -flatten
        return np.where(silent, 1.0, scale)

    def score_spread(self, flatten: float) -> float:
        """Return S(g), the standard deviation of the flattened scores of all users and items."""
        scale = self.scale(flatten)
        squares = float(np.mean((self.spread**2 + self.mean**2) * scale**2))
        return float(np.sqrt(max(squares - float(np.mean(self.mean * scale)) ** 2, 0.0)))
