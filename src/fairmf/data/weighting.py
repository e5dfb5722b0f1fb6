"""Compute confidences from raw ones, by a logarithm or by BM25.

A model keeps the weighting of its training data and applies it to raw histories, so that new users are weighted exactly
like those of training. BM25 needs the lengths of the training items for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.params import check_number

NAMES = ("log", "bm25")


@dataclass(frozen=True)
class LogWeighting:
    """Replace a confidence c by log2(1 + c), so that 1 stays 1."""

    how: ClassVar[str] = "log"

    def weights(self, rows: Rows) -> NDArray[np.float32] | None:
        """Return the new confidences of raw rows; None for binary rows, which stay binary."""
        if rows.weights is None:
            return None
        weights: NDArray[np.float32] = np.log2(1 + rows.weights.astype(np.float64)).astype(np.float32)
        return weights


@dataclass(frozen=True, eq=False)
class BM25Weighting:
    """Weight by BM25 with items as documents and users as words; `Interactions.reweighted` has the formula.

    Everything that comes from the training data is stored, so that the weights of one history depend on no other.
    """

    how: ClassVar[str] = "bm25"
    K1: float
    B: float
    item_lengths: NDArray[np.float64] = field(repr=False)
    """Sum of the raw confidences of every item (L_j)."""
    mean_length: float
    """Mean of L over the training items. It stays when items are added, because otherwise all weights would change."""
    n_items: int
    """Number of training items; it also stays when items are added."""

    @classmethod
    def learn(cls, rows: Rows, n_items: int, K1: float, B: float) -> BM25Weighting:
        """Compute the item lengths from training rows (users x items)."""
        check_number("reweighted", "K1", K1, above=0)
        check_number("reweighted", "B", B, low=0, high=1)
        lengths: NDArray[np.float64] = np.bincount(rows.indices, _raw(rows), n_items).astype(np.float64)
        return cls(float(K1), float(B), lengths, float(lengths.mean()), n_items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BM25Weighting):
            return NotImplemented
        mine, others = ((x.K1, x.B, x.mean_length, x.n_items) for x in (self, other))
        return self is other or (mine == others and np.array_equal(self.item_lengths, other.item_lengths))

    __hash__ = None  # type: ignore[assignment]

    def weights(self, rows: Rows) -> NDArray[np.float32]:
        """Return the new confidences of raw rows (users x items)."""
        per_user = np.diff(rows.indptr)
        weights = self._saturated(_raw(rows), self.item_lengths, rows.indices)
        weights *= np.repeat(self.rarity(per_user), per_user)
        return weights.astype(np.float32)

    def item_weights(self, rows: Rows, items_per_user: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the new confidences of raw rows of items (items x users); item lengths are those of the rows."""
        weights = self._saturated(_raw(rows), item_lengths(rows), _row_of_entry(rows))
        weights *= self.rarity(items_per_user)[rows.indices]
        return weights.astype(np.float32)

    def rarity(self, items_per_user: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return ln(n_items / (1 + N_i)), the factor that all entries of a user with N_i items share."""
        # A user with (nearly) all items would get a factor of zero or less, which cannot be a confidence. The floor is
        # below the factor of any other user.
        floor = np.log1p(1.0 / self.n_items)
        found: NDArray[np.float64] = np.maximum(np.log(self.n_items / (1.0 + items_per_user)), floor)
        return found

    def with_lengths(self, lengths: NDArray[np.float64]) -> BM25Weighting:
        """Return the same weighting with other item lengths (of all items, including added ones)."""
        return replace(self, item_lengths=lengths)

    def _saturated(
        self, weights: NDArray[np.float64], lengths: NDArray[np.float64], item: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        # K1 (1 - B + B L_j / mean(L)), the denominator's first term.
        norm = self.K1 * (1.0 - self.B + self.B * lengths / self.mean_length)
        # In place to save memory: these are never the caller's weights, because `_raw` has made a new array.
        weights *= (self.K1 + 1.0) / (norm[item] + weights)
        return weights


Weighting = LogWeighting | BM25Weighting


def item_lengths(rows: Rows) -> NDArray[np.float64]:
    """Return the sum of every row of items, added in the order of `BM25Weighting.learn`: the same bits."""
    lengths: NDArray[np.float64] = np.bincount(_row_of_entry(rows), _raw(rows), rows.count).astype(np.float64)
    return lengths


def _row_of_entry(rows: Rows) -> NDArray[np.int64]:
    return np.repeat(np.arange(rows.count), np.diff(rows.indptr))


def _raw(rows: Rows) -> NDArray[np.float64]:
    return np.ones(rows.nnz) if rows.weights is None else rows.weights.astype(np.float64)
