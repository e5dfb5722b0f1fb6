"""Balance confidences: give popular items and busy users less weight in training (docs/mathematics.md 9).

    c_ij = r_ij f_j^(-b_I) a_i^(-b_U) / z

r_ij is the raw confidence (1 for binary data), f_j the number of users who have item j, a_i the number of items user i
has, both at least 1. z keeps the mean of all confidences as it was, so that regularization and unobserved_weight keep
their meaning. Without it popular items dominate the loss, and the factors are spent on them.

f_j and z belong to the model: the same history gives the same confidences in training, fold-in and partial_fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.weighting import Weighting, put

ENTRIES_AT_ONCE = 1 << 20  # bounds the memory for numbers in double precision


@dataclass(frozen=True, eq=False)
class Balance:
    """How a model balances the confidences of any history (a `Weighting`); learned from its training data."""

    how: ClassVar[str] = "balance"
    item_balance: float
    """b_I: 0 leaves items as they are, 1 gives all items the same total weight."""
    user_balance: float
    """b_U, for users."""
    item_counts: NDArray[np.float64] = field(repr=False)
    """f_j of every item."""
    norm: float
    """z."""
    inner: Weighting | None = None
    """What raw confidences are weighted by first, such as BM25."""

    @classmethod
    def learn(
        cls, rows: Rows, n_items: int, item_balance: float, user_balance: float, inner: Weighting | None = None
    ) -> Balance:
        """Count the items of training rows (users x items), and find the z that keeps the mean confidence.

        The rows are those that `inner` has weighted already.
        """
        counts = np.bincount(rows.indices, minlength=n_items).astype(np.float64)
        found = cls(item_balance, user_balance, counts, 1.0, inner)
        raw = balanced = 0.0
        for part, weights in found._parts(rows):
            raw += float(part.nnz if part.weights is None else part.weights.sum(dtype=np.float64))
            balanced += float(weights.sum())
        return replace(found, norm=balanced / raw if raw > 0 else 1.0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Balance):
            return NotImplemented
        mine, others = ((x.item_balance, x.user_balance, x.norm, x.inner) for x in (self, other))
        return self is other or (mine == others and np.array_equal(self.item_counts, other.item_counts))

    __hash__ = None  # type: ignore[assignment]

    def weights(self, rows: Rows) -> NDArray[np.float32]:
        """Return the balanced confidences of raw rows (users x items), in their order."""
        return self.balanced(rows if self.inner is None else rows._replace(weights=self.inner.weights(rows)))

    def balanced(self, rows: Rows) -> NDArray[np.float32]:
        """Return the balanced confidences of rows that `inner` has weighted already."""
        out = np.empty(rows.nnz, dtype=np.float32)
        start = 0
        for part, weights in self._parts(rows):
            out[start : start + part.nnz] = weights / self.norm
            start += part.nnz
        return out

    def item_weights(self, rows: Rows, items_per_user: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the balanced confidences of raw rows of items (items x users); f_j is the number of a row's users."""
        if self.inner is not None:
            rows = rows._replace(weights=self.inner.item_weights(rows, items_per_user))
        busy = self._factor(items_per_user, self.user_balance)
        raw = np.ones(rows.nnz) if rows.weights is None else rows.weights.astype(np.float64)
        lengths = np.diff(rows.indptr)
        found = raw * np.repeat(self._factor(lengths, self.item_balance), lengths) * busy[rows.indices] / self.norm
        return found.astype(np.float32)

    def user_factor(self, items_per_user: NDArray[np.integer]) -> NDArray[np.float64]:
        """See Weighting."""
        own = self._factor(items_per_user, self.user_balance)
        shared = None if self.inner is None else self.inner.user_factor(items_per_user)
        return own if shared is None else own * shared

    def with_items(self, where: NDArray[np.integer], rows: Rows) -> Balance:
        """See Weighting. z stays, because otherwise all weights would change."""
        counts = put(self.item_counts, where, np.diff(rows.indptr))
        inner = None if self.inner is None else self.inner.with_items(where, rows)
        return replace(self, item_counts=counts, inner=inner)

    def _parts(self, rows: Rows) -> Iterator[tuple[Rows, NDArray[np.float64]]]:
        """Yield the rows in parts of about ENTRIES_AT_ONCE entries, each with r f^-b_I a^-b_U in double precision."""
        popular = self._factor(self.item_counts, self.item_balance)
        first = 0
        while first < rows.count:
            # A row longer than a part is a part of its own.
            last = int(np.searchsorted(rows.indptr, rows.indptr[first] + ENTRIES_AT_ONCE, side="right")) - 1
            part = rows.block(first, max(last, first + 1))
            lengths = np.diff(part.indptr)
            found = popular[part.indices] * np.repeat(self._factor(lengths, self.user_balance), lengths)
            if part.weights is not None:
                found *= part.weights
            yield part, found
            first = max(last, first + 1)

    @staticmethod
    def _factor(counts: NDArray[np.integer] | NDArray[np.float64], strength: float) -> NDArray[np.float64]:
        factor: NDArray[np.float64] = np.maximum(counts, 1).astype(np.float64) ** -strength
        return factor
