"""Compute confidences from raw ones: by a logarithm, by BM25, or balanced by popularity and activity.

A model keeps the weighting of its training data and applies it to raw histories, so that new users are weighted exactly
like those of training. BM25 needs the lengths of the training items for that, a balance the number of their users.

Balanced confidences (docs/mathematics.md 9) give popular items and busy users less weight in training:

    c_ij = r_ij f_j^(-b_I) a_i^(-b_U) / z

r_ij is the raw confidence (1 for binary data), f_j the number of users who have item j, a_i the number of items user i
has, both at least 1. z keeps the mean of all confidences as it was, so that regularization and unobserved_weight keep
their meaning. Without it popular items dominate the loss, and the factors are spent on them.

Dislikes (weights below 0) are weighted like likes of the same strength and stay below 0. They count neither in f_j and
a_i nor in the lengths of BM25 (docs/mathematics.md 12).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.csr import Rows, frozen, item_sums, like_counts, liked
from fairmf.errors import InvalidData
from fairmf.lazy import cached_property, lazy_module
from fairmf.params import check_number
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.data import row_kernels
    from fairmf.data.interactions import Interactions
else:
    row_kernels = lazy_module("fairmf.data.row_kernels")

NAMES = ("log", "bm25")
SHORT = 1024  # items of a history for which the factor of its length is kept

RANGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)  # of confidences: float32, above 0


class Weighting(Protocol):
    """Computes the confidences that a model trains on from raw ones."""

    @property
    def how(self) -> str:
        """Its name, for messages and files."""

    def weights(self, rows: Rows) -> NDArray[np.float32] | None:
        """Return the new confidences of raw rows (users x items); None where all are 1."""

    def item_weights(self, rows: Rows, items_per_user: NDArray[np.integer]) -> NDArray[np.float32] | None:
        """Return the new confidences of raw rows of items (items x users), the whole row of each item."""

    def user_factor(self, items_per_user: NDArray[np.integer]) -> NDArray[np.float64] | None:
        """Return the factor that all entries of a user share and that depends on the user's number of items."""

    def with_items(self, where: NDArray[np.integer], rows: Rows) -> Weighting:
        """Return the weighting after raw rows of items (items x users) are put at these places, or appended."""


@dataclass(frozen=True)
class LogWeighting:
    """Replace a confidence c by log2(1 + c), so that 1 stays 1."""

    how: ClassVar[str] = "log"

    def weights(self, rows: Rows) -> NDArray[np.float32] | None:
        """Return the new confidences of raw rows; None for binary rows, which stay binary."""
        if rows.weights is None:
            return None
        weights: NDArray[np.float32] = np.log2(1 + np.abs(rows.weights.astype(np.float64))).astype(np.float32)
        return _signed(weights, rows)

    def item_weights(self, rows: Rows, items_per_user: NDArray[np.integer]) -> NDArray[np.float32] | None:  # noqa: ARG002
        """See Weighting."""
        return self.weights(rows)

    def user_factor(self, items_per_user: NDArray[np.integer]) -> None:
        """See Weighting."""

    def with_items(self, where: NDArray[np.integer], rows: Rows) -> LogWeighting:  # noqa: ARG002
        """See Weighting."""
        return self


@dataclass(frozen=True, eq=False)
class BM25Weighting:
    """Weight by BM25 with items as documents and users as words: the confidence c_ij of user i and item j becomes

        c_ij (K1 + 1) / (K1 (1 - B + B L_j / mean(L)) + c_ij) * ln(n_items / (1 + N_i))

    where L_j is the sum of item j's confidences and N_i the number of items of user i. Where the logarithm is not
    positive, for users with all items or all but one, it is replaced by ln(1 + 1/n_items).

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
        lengths = item_sums(rows, n_items)
        return cls(float(K1), float(B), lengths, float(lengths.mean()), n_items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BM25Weighting):
            return NotImplemented
        mine, others = ((x.K1, x.B, x.mean_length, x.n_items) for x in (self, other))
        return self is other or (mine == others and np.array_equal(self.item_lengths, other.item_lengths))

    __hash__ = None  # type: ignore[assignment]

    def weights(self, rows: Rows) -> NDArray[np.float32]:
        """Return the new confidences of raw rows (users x items)."""
        weights = self._saturated(_raw(rows), self.item_lengths, rows.indices)
        weights *= np.repeat(self.user_factor(like_counts(rows)), np.diff(rows.indptr))
        return _signed(weights.astype(np.float32), rows)

    def item_weights(self, rows: Rows, items_per_user: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the new confidences of raw rows of items (items x users); item lengths are those of the rows."""
        weights = self._saturated(_raw(rows), _lengths(rows), rows.row_of_entry())
        weights *= self.user_factor(items_per_user)[rows.indices]
        return _signed(weights.astype(np.float32), rows)

    def user_factor(self, items_per_user: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return ln(n_items / (1 + N_i)), the factor that all entries of a user with N_i items share."""
        # A user with (nearly) all items would get a factor of zero or less, which cannot be a confidence. The floor is
        # below the factor of any other user.
        floor = np.log1p(1.0 / self.n_items)
        found: NDArray[np.float64] = np.maximum(np.log(self.n_items / (1.0 + items_per_user)), floor)
        return found

    def with_items(self, where: NDArray[np.integer], rows: Rows) -> BM25Weighting:
        """See Weighting. The mean length stays."""
        return replace(self, item_lengths=put(self.item_lengths, where, _lengths(rows)))

    def _saturated(
        self, weights: NDArray[np.float64], lengths: NDArray[np.float64], item: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        # K1 (1 - B + B L_j / mean(L)), the denominator's first term.
        if len(item) > len(lengths):
            norm = (self.K1 * (1.0 - self.B + self.B * lengths / self.mean_length))[item]
        else:  # a short history needs the lengths of its own items only
            norm = self.K1 * (1.0 - self.B + self.B * lengths[item] / self.mean_length)
        # In place to save memory: these are never the caller's weights, because `_raw` has made a new array.
        weights *= (self.K1 + 1.0) / (norm + weights)
        return weights


@dataclass(frozen=True, eq=False)
class Balance:
    """Balance the confidences of any history, by numbers learned from the training data (a `Weighting`)."""

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
    """The weighting that is applied to raw confidences first, such as BM25."""

    def __post_init__(self) -> None:
        if isinstance(self.inner, Balance):
            raise InvalidData("These interactions are balanced already.", hint="fit on the raw ones")
        for name in ("item_balance", "user_balance", "norm"):  # a file has floats, and a setting may be the integer 1
            object.__setattr__(self, name, float(getattr(self, name)))

    def totals(self, rows: Rows) -> tuple[float, float]:
        """Return the sum of the confidences r of some rows, and of r f^-b_I a^-b_U, which z is computed from.

        The rows are those that `inner` has weighted already.
        """
        if rows.is_large:
            balanced = self._factors(rows).sums()
        else:
            balanced = np.bincount(rows.row_of_entry(), self._products(rows), rows.count).astype(np.float64)
        return float(rows.sums().sum()), float(balanced.sum())

    def normalised(self, totals: Sequence[tuple[float, float]]) -> Balance:
        """Return this balance with the z that keeps the mean confidence, from the totals of all parts of the data."""
        raw, balanced = (math.fsum(part) for part in zip(*totals, strict=True))
        return replace(self, norm=balanced / raw if raw > 0 else 1.0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Balance):
            return NotImplemented
        mine, others = ((x.item_balance, x.user_balance, x.norm, x.inner) for x in (self, other))
        return self is other or (mine == others and np.array_equal(self.item_counts, other.item_counts))

    __hash__ = None  # type: ignore[assignment]

    def weights(self, rows: Rows) -> NDArray[np.float32]:
        """Return the balanced confidences of raw rows (users x items), in their order."""
        k = len(rows.indices)
        if len(rows.indptr) == 2 and rows.weights is None and self.inner is None and 0 < k <= SHORT:
            # As below for one short binary history, in few calls: this is what a request takes.
            found = self._popular[rows.indices]
            found *= self._busy[k]
            found /= self.norm
            return (found if self._in_range else np.clip(found, *RANGE)).astype(np.float32)
        return self.balanced(rows if self.inner is None else rows._replace(weights=self.inner.weights(rows)))

    def balanced(self, rows: Rows) -> NDArray[np.float32]:
        """Return the balanced confidences of rows that `inner` has weighted already."""
        if rows.is_large:
            return self._factors(rows).divided(self.norm, *RANGE)
        out: NDArray[np.float32] = np.clip(self._products(rows) / self.norm, *RANGE).astype(np.float32)
        if rows.weights is not None:  # dislikes keep their minus
            np.copysign(out, rows.weights, out=out)
        return out

    def item_weights(self, rows: Rows, items_per_user: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the balanced confidences of raw rows of items (items x users); f_j is the number of a row's users."""
        if self.inner is not None:
            rows = rows._replace(weights=self.inner.item_weights(rows, items_per_user))
        busy = np.maximum(items_per_user, 1.0) ** -self.user_balance
        popular = np.repeat(np.maximum(like_counts(rows), 1.0) ** -self.item_balance, np.diff(rows.indptr))
        found = _raw(rows) * popular * busy[rows.indices] / self.norm
        return _signed(np.clip(found, *RANGE).astype(np.float32), rows)

    def user_factor(self, items_per_user: NDArray[np.integer]) -> NDArray[np.float64]:
        """See Weighting."""
        own: NDArray[np.float64] = np.maximum(items_per_user, 1.0) ** -self.user_balance
        shared = None if self.inner is None else self.inner.user_factor(items_per_user)
        return own if shared is None else own * shared

    def with_items(self, where: NDArray[np.integer], rows: Rows) -> Balance:
        """See Weighting. z stays, because otherwise all weights would change."""
        counts = put(self.item_counts, where, like_counts(rows))
        inner = None if self.inner is None else self.inner.with_items(where, rows)
        return replace(self, item_counts=counts, inner=inner)

    def _products(self, rows: Rows) -> NDArray[np.float64]:
        """Return r f^-b_I a^-b_U of every entry, for rows with few entries."""
        found = self._popular[rows.indices] * np.repeat(self._shares(rows), np.diff(rows.indptr))
        if rows.weights is not None:
            found *= np.abs(rows.weights)
        return found

    def _factors(self, rows: Rows) -> row_kernels.Products:
        """Return what these products are computed from, for rows with many entries."""
        return row_kernels.Products(*rows, self._popular, self._shares(rows))

    def _shares(self, rows: Rows) -> NDArray[np.float64]:
        """Return a_i^-b_U of every row."""
        counts = np.diff(rows.indptr) if rows.weights is None else like_counts(rows)
        shares: NDArray[np.float64] = np.maximum(counts, 1.0) ** -self.user_balance
        return shares

    @cached_property
    def _popular(self) -> NDArray[np.float64]:
        """f_j^-b_I of every item."""
        return frozen(np.maximum(self.item_counts, 1.0) ** -self.item_balance)

    @cached_property
    def _busy(self) -> list[float]:
        """a^-b_U of a user with a items, for a up to SHORT."""
        factors: list[float] = (np.maximum(np.arange(SHORT + 1), 1.0) ** -self.user_balance).tolist()
        return factors

    @cached_property
    def is_plain(self) -> bool:
        """Whether f_j^-b_I a_i^-b_U / z is the confidence of any short history of ones."""
        return self.inner is None and self._in_range

    @cached_property
    def _in_range(self) -> bool:
        """Whether the confidences of all short binary histories are in RANGE, so that none has to be clipped."""
        popular, busy = self._popular, self._busy
        lowest, highest = popular.min(initial=1.0) * min(busy), popular.max(initial=1.0) * max(busy)
        return bool(RANGE[0] <= lowest / self.norm and highest / self.norm <= RANGE[1])


def weighted_like(data: Interactions, weighting: Weighting | None) -> Interactions:
    """Apply a model's weighting (None: nothing) to raw interactions; return those that have it as they are."""
    if weighting is None or data.weighting == weighting:
        return data
    if isinstance(weighting, Balance) and data.weighting is not None and data.weighting == weighting.inner:
        return data.with_weights(weighting.balanced(data.by_user), weighting)
    if data.weighting is not None:
        how, inner = data.weighting.how, weighting.inner if isinstance(weighting, Balance) else None
        own = [weighting.how] if inner is None else [inner.how, weighting.how]
        raise InvalidData(
            f"These interactions were weighted by {how!r}, the model's data by {' and '.join(map(repr, own))}"
            f"{' of other data' if how in own else ''}.",
            hint="give the raw ones, which the model weights itself",
        )
    return data.with_weights(weighting.weights(data.by_user), weighting)


def likes_only(data: Interactions, owner: str) -> Interactions:
    """Return data without dislikes as they are; raise InvalidData for a model (`owner`) that cannot use dislikes."""
    if data.n_dislikes:
        raise InvalidData(
            f"{owner} cannot use dislikes, and {data.n_dislikes:,} weights are below 0.",
            hint="give it data.liked(), without them",
        )
    return data


def put(old: Array, where: NDArray[np.integer], new: ArrayLike) -> Array:
    """Return a copy of `old` with `new` at the given places, longer if they go beyond its end."""
    out = np.empty((max(len(old), int(where.max(initial=-1)) + 1), *old.shape[1:]), dtype=old.dtype)
    out[: len(old)] = old
    out[where] = new
    return out


def _raw(rows: Rows) -> NDArray[np.float64]:
    """Return the confidence of every entry, |w| for a dislike, as a new array."""
    return np.ones(rows.nnz) if rows.weights is None else np.abs(rows.weights.astype(np.float64))


def _lengths(rows: Rows) -> NDArray[np.float64]:
    """Return the sum of the likes in every row, added in the order of `item_sums`, so that it has the same bits."""
    likes = liked(rows)
    return np.bincount(likes.row_of_entry(), _raw(likes), rows.count).astype(np.float64)


def _signed(confidences: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
    """Give the confidences of dislikes their minus back."""
    return confidences if rows.weights is None else np.copysign(confidences, rows.weights)
