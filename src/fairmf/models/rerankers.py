"""Wrap a model so that its lists come from a nearest-neighbour index (AnnRanker) or from FairRec (FairRecRanker)."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors
from fairmf.data.ids import Ids, Names, as_list, is_one, named
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.evenness import Level
from fairmf.models.recommend import to_rank
from fairmf.ranking.ann import AnnIndex
from fairmf.ranking.fairrec import Certificate, FairLists, RunOptions, fair_rec
from fairmf.ranking.top_n import Lists, list_length, popular_n
from fairmf.types import Array, SparseMatrix

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

USERS_AT_ONCE = 4096  # users per block


class AnnRanker:
    """A model that answers through a nearest-neighbour index instead of scoring every item.

    It has `rank` and `recommend`, and `evaluate` takes it as it takes the model.
    """

    def __init__(self, model: FactorModel, index: AnnIndex):
        fitted = model.fitted
        self._level = fitted.served()
        items, given = fitted.dialled_items(self._level)
        if not np.array_equal(index.item_vectors, np.asarray(items, dtype=np.float32)):
            raise InvalidData(
                "This index was built from other item vectors than the model's, or at another evenness: build it with "
                "model.to_ann(), or serve it with model.with_evenness(...)."
            )
        held = index.offsets
        same = given is held if given is None or held is None else np.array_equal(given, held)
        if not same:
            raise InvalidData("This index was built with other item offsets than the model's: build it with to_ann().")
        if index.ids != fitted.item_ids:
            raise InvalidData("The index names its items otherwise than the model: build it with to_ann().")
        self.model, self.index = model, index
        self._items = fitted.item_factors

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.index.n_items

    def rank(
        self, history: Interactions | SparseMatrix, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield the top-N items of every row of `history`, in blocks, as the model's `rank` does."""
        model = self._unchanged()
        rows, users, level = to_rank(model, history, known_users, options)
        self._check(level)
        for start in range(0, rows.n_users, USERS_AT_ONCE):
            stop = min(start + USERS_AT_ONCE, rows.n_users)
            block = rows.take_users(np.arange(start, stop))
            yield start, self._lists(model, users[start:stop], block, N, exclude=True)[0]

    def recommend(
        self,
        users: Hashable | Names,
        N: int = 10,
        *,
        filter_already_liked_items: bool = True,
        evenness: float | Level | None = None,
        fairness: float | None = None,
    ) -> tuple[Array, NDArray[np.float32]]:
        """Recommend to training users, as the model's `recommend` does: (ids, scores), best first."""
        model = self._unchanged()
        single = is_one(users)
        rows = model._user_rows(as_list(users))
        history = model.fitted.histories("recommend").take_users(rows)
        level = model.fitted.served(evenness, fairness)
        self._check(level)
        vectors = model.user_factors[rows] if level.fairness is None else model._at_fairness(rows, level.fairness)
        items, scores = self._lists(model, vectors, history, N, exclude=filter_already_liked_items)
        ids = self.index.named(items)
        return (ids[0], scores[0]) if single else (ids, scores)

    def _lists(self, model: FactorModel, users: Factors, history: Interactions, N: int, *, exclude: bool) -> Lists:
        N = list_length(N, self.n_items)
        items, scores = self.index.search(
            users, N, exclude=history.by_user if exclude else None, num_threads=model.num_threads
        )
        empty = np.flatnonzero(np.diff(history.by_user.indptr) == 0)  # as in the model: popular items, without scores
        items[empty], scores[empty] = popular_n(model.fitted.most_popular, len(empty), N), np.nan
        return items, scores

    def _check(self, level: Level) -> None:
        """Raise InvalidParameter unless the index holds the items at this level."""
        if level.on_items != self._level.on_items:
            raise InvalidParameter(
                "An index ranks items at the evenness it was built for.",
                hint="build one for another level: model.with_evenness(...).with_ann()",
            )

    def _unchanged(self) -> FactorModel:
        """Return a copy of the model, which a fit in another thread does not change; check that the index fits it."""
        model = copy.copy(self.model)
        if model.item_factors is not self._items:
            raise InvalidData("The model has other item vectors since this index was built: build it again.")
        return model


@dataclass(frozen=True)
class FairRecommendations:
    """Lists for many users, as `recommend` returns them, and a certificate of how often each item is shown."""

    users: Array
    ids: Array
    scores: NDArray[np.float32]
    certificate: Certificate


class FairRecRanker:
    """A model with FairRec on top of its scores; `evaluate` takes it as it takes the model.

    Parameters
    ----------
    model
        A fitted model.
    share
        Part of the uniform exposure K n / m that every item is owed.
    K
        Length of the lists that FairRec makes; by default as many items as are asked for. Of longer lists the first
        items are given: with order="allocation" those that were allocated first, as in the paper's figure 3.
    order
        "score" sorts each list by score, "allocation" by when an item was allocated.
    random_state
        Seed of the order in which users take turns.
    """

    def __init__(
        self,
        model: FactorModel,
        share: float,
        *,
        K: int | None = None,
        order: str = "score",
        random_state: int | None = 0,
    ):
        if K is not None:
            list_length(K, model.n_items, "K")
        self.model, self.share, self.K, self.order, self.random_state = model, share, K, order, random_state

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.model.n_items

    def rank(
        self, history: Interactions | SparseMatrix, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield the top-N items of every row of `history`, in blocks; `options` are those of the model's `fold_in`."""
        ranker = copy.copy(self)
        ranker.model = copy.copy(self.model)  # a fit in another thread does not change this copy
        rows, users, level = to_rank(ranker.model, history, known_users, options)
        lists = ranker.lists(users, rows, N, level).items[:, : list_length(N, ranker.n_items)]
        for start in range(0, rows.n_users, USERS_AT_ONCE):
            yield start, lists[start : start + USERS_AT_ONCE]

    def lists(self, users: Factors, history: Interactions, N: int, level: Level | None = None) -> FairLists:
        """Run FairRec on these user vectors, and leave out the items of their histories.

        It starts from scores at this level; None takes the one the model serves with.
        """
        model = self.model
        N = list_length(N, self.n_items)
        K = N if self.K is None else list_length(self.K, self.n_items, "K")
        if K < N:
            raise InvalidParameter(f"FairRec makes lists of K = {K}; {N} items cannot be asked for.")
        fitted = model.fitted
        items, offset = fitted.dialled_items(fitted.served() if level is None else level)
        return fair_rec(
            users, items, K, self.share, exclude=history.by_user, offsets=offset, order=self.order,
            run=RunOptions(self.random_state, model.backend, model.num_threads),
        )  # fmt: skip


def recommend_fairly(ranker: FairRecRanker, users: Names | None, N: int, level: Level) -> FairRecommendations:
    """Make the lists of these users of training together (None: of all), at a level; see `recommend_fairly`."""
    model, fitted = ranker.model, ranker.model.fitted
    length = list_length(N, model.n_items)
    everyone = np.arange(model.n_users) if fitted.user_ids is None else fitted.user_ids.values
    who: Names = everyone if users is None else users
    rows = model._user_rows(who)
    history = fitted.histories("recommend_fairly").take_users(rows)
    vectors = fitted.user_factors[rows] if level.fairness is None else model._at_fairness(rows, level.fairness)
    made = ranker.lists(vectors, history, length, level)
    names = who if isinstance(who, np.ndarray) else Ids(who).values
    return FairRecommendations(names, named(made.items, fitted.item_ids), made.scores, made.certificate)
