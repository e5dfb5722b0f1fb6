"""What a fit yields: factors, ids and history, and what can be asked of them. No training here."""

from __future__ import annotations

import abc
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import Backend, get_backend
from fairmf.errors import InvalidData, InvalidParameter, NotFitted
from fairmf.interactions import Interactions
from fairmf.models.ann_ranker import AnnRanker
from fairmf.models.fitted import Fitted
from fairmf.models.history import History
from fairmf.models.inputs import as_interactions
from fairmf.ranking.ann import AnnIndex

USERS_AT_ONCE = 4096  # users ranked per block: bounds memory at block x N, whatever the number of users


class FactorModel(abc.ABC):
    """A model whose score is the inner product of a user and an item vector."""

    _fitted: Fitted | None = None
    backend: str = "cpu"
    num_threads: int = 0

    # -- what was fitted --------------------------------------------------------------------------------------------

    @property
    def fitted(self) -> Fitted:
        """All results of `fit`; NotFitted before it."""
        if self._fitted is None:
            name = type(self).__name__
            raise NotFitted(f"This {name} is not fitted yet: call fit(interactions) first.")
        return self._fitted

    @property
    def user_factors(self) -> NDArray[Any]:
        """U, one row per user."""
        return self.fitted.user_factors

    @property
    def item_factors(self) -> NDArray[Any]:
        """V, one row per item."""
        return self.fitted.item_factors

    @property
    def history(self) -> History:
        """What the fit did, epoch by epoch."""
        return self.fitted.history

    @property
    def n_users(self) -> int:
        """Number of users in training."""
        return len(self.user_factors)

    @property
    def n_items(self) -> int:
        """Number of items in training."""
        return len(self.item_factors)

    def _backend(self) -> Backend:
        return get_backend(self.backend)

    # -- ranking ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def fold_in(self, history: Interactions | Any, **options: Any) -> NDArray[Any]:
        """User vectors for the given histories (rows; columns are the training items)."""

    def rank(
        self, history: Interactions | Any, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Top-N item positions for every row of `history`, in blocks: yields (first row, rows x N).

        Items of a user's history are left out; -1 fills what is missing. With `known_users`, row i is training user i
        and the stored vector is used; otherwise, or with `options` for `fold_in`, users are folded in. A user without
        any history is given the most popular items.
        """
        history = self._aligned(history)
        if known_users and history.n_users != self.n_users:
            raise InvalidData(f"known_users needs all {self.n_users:,} training users; got {history.n_users:,} rows.")
        users = self.user_factors if known_users and not options else self.fold_in(history, **options)
        for start in range(0, history.n_users, USERS_AT_ONCE):
            stop = min(start + USERS_AT_ONCE, history.n_users)
            items, _ = self._top_n(users[start:stop], history.take_users(np.arange(start, stop)), N, exclude=True)
            yield start, items

    def recommend(
        self,
        users: Hashable | Sequence[Hashable] | NDArray[Any],
        N: int = 10,
        *,
        filter_already_liked_items: bool = True,
        fairness: float | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The N best items of training users, best first: (ids, scores).

        Users and items are named by their original ids where the data had ids, else by position. One user gives two
        1-d arrays, a sequence two 2-d arrays. Missing slots hold id -1 (None where ids are not integers) and score NaN.
        `fairness` turns the dial for this call: the users are re-solved from their histories, nothing is trained.
        A user without history is given the most popular items, whose scores are NaN: the model has none for them.

        >>> from fairmf import IALS, synthetic
        >>> data = synthetic(n_users=300, n_items=200, n_interactions=6000)
        >>> ids, scores = IALS(factors=8, epochs=2).fit(data).recommend(data.user_ids.values[:2], N=3)
        >>> ids.shape
        (2, 3)
        """
        fitted = self.fitted
        single = isinstance(users, (str, bytes, tuple)) or np.ndim(users) == 0  # type: ignore[arg-type]
        wanted: Any = [users] if single else users
        rows = self._user_rows(wanted)
        history = fitted.histories("recommend").take_users(rows)
        vectors = self.user_factors[rows] if fairness is None else self.fold_in(history, fairness=fairness)
        items, scores = self._top_n(vectors, history, N, exclude=filter_already_liked_items)
        ids = items if fitted.item_ids is None else _named(items, fitted.item_ids.values)
        return (ids[0], scores[0]) if single else (ids, scores)

    # -- nearest-neighbour search (docs/ann.md) ---------------------------------------------------------------------

    def to_ann(self, *, groups: int | None = None, probes: int | None = None) -> AnnIndex:
        """The item vectors in a nearest-neighbour index that knows the model's item ids (extra `[ann]`)."""
        fitted = self.fitted
        return AnnIndex.build(
            fitted.item_factors, fitted.item_ids, groups=groups, probes=probes, num_threads=self.num_threads
        )

    def with_ann(self, index: AnnIndex | None = None) -> AnnRanker:
        """This model answering through an index (by default a new one): has `rank`, `recommend`, can be evaluated."""
        return AnnRanker(self, self.to_ann() if index is None else index)

    def _top_n(
        self, users: NDArray[Any], history: Interactions, N: int, *, exclude: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        if isinstance(N, bool) or not isinstance(N, (int, np.integer)) or N < 1:
            raise InvalidParameter(f"N must be an integer >= 1. Got {N!r} instead.")
        backend = self._backend()
        items = np.empty((len(users), N), dtype=np.int32)
        scores = np.empty((len(users), N), dtype=np.float32)
        k = min(N, self.n_items)
        items[:, k:], scores[:, k:] = -1, np.nan
        best, value = np.empty((len(users), k), dtype=np.int32), np.empty((len(users), k), dtype=np.float32)
        with backend.threads(self.num_threads):
            backend.top_k(
                backend.array(users), backend.array(self.item_factors), k, history.by_user if exclude else None,
                best, value,
            )  # fmt: skip
        empty = np.diff(history.by_user.indptr) == 0
        best[empty], value[empty] = self.fitted.most_popular[:k], np.nan
        items[:, :k], scores[:, :k] = best, value
        return items, scores

    def _user_rows(self, users: Sequence[Hashable] | NDArray[Any]) -> NDArray[np.int64]:
        ids = self.fitted.user_ids
        if ids is not None:
            return ids.positions(users, kind="user")
        rows = np.asarray(users) if len(users) else np.zeros(0, dtype=np.int64)
        if rows.dtype.kind not in "iu" or rows.ndim != 1:
            raise InvalidData("This model was fitted without user ids: name users by their row number.")
        if len(rows) and (rows.min() < 0 or rows.max() >= self.n_users):
            raise InvalidData(f"User rows go from 0 to {self.n_users - 1:,}; got {rows.min()}..{rows.max()}.")
        return rows.astype(np.int64)

    def _aligned(self, history: Interactions | Any) -> Interactions:
        """The histories as Interactions over exactly the training items."""
        history = as_interactions(history, allow_empty=True)
        if history.n_items != self.n_items:
            hint = " It looks transposed: users must be rows." if history.n_users == self.n_items else ""
            raise InvalidData(f"The history has {history.n_items:,} items (columns), the model {self.n_items:,}.{hint}")
        trained, given = self.fitted.item_ids, history.item_ids
        if trained is not None and given is not None and trained is not given and trained != given:
            raise InvalidData(
                "The history's items are not the model's, or in another order: column j must be item j of training."
            )
        return history


def _named(items: NDArray[np.int32], names: NDArray[Any]) -> NDArray[Any]:
    if names.dtype.kind == "u":  # unsigned integers cannot say -1; those beyond int64 are kept as Python integers
        names = names.astype(np.int64 if names.max(initial=0) < 2**63 else object)
    ids = names[items]  # position -1 reads the last name and is overwritten next
    ids[items < 0] = -1 if names.dtype.kind == "i" else None
    return ids
