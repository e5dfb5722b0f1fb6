"""The item dial: standardise the scores of each item, discount popular ones, raise rare ones (docs/mathematics.md 10).

An item enters top-K lists through the upper tail of its scores, which its spread decides more than its mean. With the
spread sigma_j of item j's scores over the training users, the number f_j of users who have it, its price p_j, and
three strengths g (`flatten`), h (`discount`) and t (`lift`),

    s'_ij = s_ij / sigma_j^g - h S(g) (log f_j - mean log f) + t S(g) p_j

where S(g) is the standard deviation of all flattened scores, so that h and t mean the same for every model and every g.
The price is what an item's scores lack to bring it into a fair share of the lists (`learn_offsets.item_prices`). All
act on items alone, at request time: nothing is trained. It equals plain scores when g = h = t = 0.

Nobody had the chance to take an item that is new, so its f_j is not 0 but unknown. Where features predict its vector,
the discount takes what items of the same spread have: log f is regressed on log sigma over the items that are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, ItemScale, Vector, frozen
from fairmf.types import Array

SMALLEST = 1e-3  # of the median spread: items whose scores hardly vary are not blown up beyond this
LEVELS_KEPT = 16  # scales and offsets of recently used levels


@dataclass(frozen=True, eq=False)
class ItemDial:
    """The numbers of every item that the dial needs; from the training users, and stored with the model."""

    spread: Vector
    """sigma_j, the standard deviation of the item's scores over the training users."""
    mean: Vector
    """mu_j, the mean of the item's scores."""
    counts: Vector
    """f_j, the number of users who have the item."""
    offsets: Array | None = None
    """What is added to the dialled scores of each item (ranking/learn_offsets.py)."""
    prices: Vector | None = None
    """p_j, in units of S(0); None where no prices were learned."""
    known: NDArray[np.bool_] | None = None
    """Items whose f_j is known; None stands for all. Of the others it is estimated."""

    def level(self, flatten: float, discount: float, lift: float = 0.0) -> ItemScale | None:
        """Return scale and offset of every item at these strengths; None where all scores stay as they are.

        Those of recent levels are kept.
        """
        return self._levels(float(flatten), float(discount), float(lift))

    @functools.cached_property
    def _levels(self) -> Callable[[float, float, float], ItemScale | None]:  # this dial's own cache, which goes with it
        return functools.lru_cache(LEVELS_KEPT)(self._compute)

    def _compute(self, flatten: float, discount: float, lift: float) -> ItemScale | None:
        offset = None if self.offsets is None else self.offsets.astype(np.float64)
        if discount > 0:
            logs = self.log_counts
            taken = discount * self.score_spread(flatten) * (logs - logs.mean())
            offset = -taken if offset is None else offset - taken
        if lift > 0 and self.prices is not None:
            raised = lift * self.score_spread(flatten) * self.prices
            offset = raised if offset is None else offset + raised
        if flatten == 0 and offset is None:
            return None
        return ItemScale(
            None if flatten == 0 else frozen(self.scale(flatten).astype(np.float32)),
            None if offset is None else frozen(offset.astype(np.float32)),
        )

    @functools.cached_property
    def floored_spread(self) -> Vector:
        """sigma_j, at least a small part of the median; 1 for items whose scores are all 0, and where none vary."""
        silent = (self.spread == 0) & (self.mean == 0)
        least = 0.0 if silent.all() else SMALLEST * float(np.median(self.spread[~silent]))
        if least == 0:
            return np.ones(len(self.spread))
        floored: Vector = np.where(silent, 1.0, np.maximum(self.spread, least))
        return floored

    @functools.cached_property
    def log_counts(self) -> Vector:
        """log f_j, f_j at least 1; of items that are not known what those of their spread have, at most the most."""
        logs: Vector = np.log(np.maximum(self.counts, 1.0))
        if self.known is None or self.known.all():
            return logs
        heard = self.known & (self.spread > 0)
        logs[~self.known] = logs[heard].mean() if heard.any() else 0.0  # of those of which nothing is known either
        new = ~self.known & (self.spread > 0)
        if heard.sum() > 1 and new.any():
            x, y = np.log(self.floored_spread[heard]), logs[heard]
            slope = float(np.cov(x, y, bias=True)[0, 1] / max(float(x.var()), np.finfo(np.float64).tiny))
            expected = y.mean() + slope * (np.log(self.floored_spread[new]) - x.mean())
            logs[new] = np.clip(expected, 0.0, y.max())
        return logs

    def scale(self, flatten: float) -> Vector:
        """Return 1 / sigma_j^g; 1 for items whose scores are all 0, and where no item's scores vary."""
        scale: Vector = self.floored_spread**-flatten
        return scale

    def score_spread(self, flatten: float) -> float:
        """Return S(g), the standard deviation of the flattened scores of all users and items."""
        scale = self.scale(flatten)
        squares = float(np.mean((self.spread**2 + self.mean**2) * scale**2))
        return float(np.sqrt(max(squares - float(np.mean(self.mean * scale)) ** 2, 0.0)))


def score_spreads(backend: Backend, users: Factors, n: int, items: Factors) -> Vector:
    """Return sigma_j of every item, the standard deviation of its scores over these n users.

    In closed form from Cov(U): O((n + m) d^2), and nothing of size users x items. Call it inside `backend.threads`.
    After a fit that diverged the numbers may be too large for that: then all are 0, and the dial does nothing.
    """
    if n == 0:
        return np.zeros(len(items))
    t = backend.host(backend.mean(users)).astype(np.float64)
    # Cov(U) = G_U / n - t t' loses digits where the mean is large; the Gramian's float64 sums leave enough of them.
    covariance = backend.host(backend.gramian(users)).astype(np.float64) / n - np.outer(t, t)
    if not np.isfinite(covariance).all():  # the state that a diverged fit leaves
        return np.zeros(len(items))
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:  # fewer users than factors, or a factor that nobody uses
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
    turned = backend.empty(*items.shape)
    backend.multiply(items, backend.vector(root), turned)
    spread = np.sqrt(backend.host(backend.squared_norms(turned)).astype(np.float64))
    return spread if np.isfinite(spread).all() else np.zeros(len(items))
