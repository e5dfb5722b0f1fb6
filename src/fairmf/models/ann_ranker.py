"""A model that answers through a nearest-neighbour index instead of scoring every item."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Interactions
from fairmf.models import naming
from fairmf.models.dial import dialled_users
from fairmf.ranking import list_length, popular_n
from fairmf.ranking.ann import AnnIndex

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

USERS_AT_ONCE = 4096


class AnnRanker:
    """`rank` and `recommend` of a model, through its index; `evaluate` takes it as it takes the model."""

    def __init__(self, model: FactorModel, index: AnnIndex):
        fitted = model.fitted
        if not np.array_equal(index.item_vectors, np.asarray(fitted.item_factors, dtype=np.float32)):
            raise InvalidData("This index was built from other item vectors than the model's: build it with to_ann().")
        given, held = fitted.item_offsets, index.offsets
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
        self, history: Interactions | Any, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """As the model's `rank`: top-N item positions for every row of `history`, in blocks."""
        model = self._unchanged()
        history, users = model._to_rank(history, known_users, options)
        for start in range(0, history.n_users, USERS_AT_ONCE):
            stop = min(start + USERS_AT_ONCE, history.n_users)
            block = history.take_users(np.arange(start, stop))
            yield start, self._lists(model, users[start:stop], block, N, exclude=True)[0]

    def recommend(
        self,
        users: Hashable | Sequence[Hashable] | NDArray[Any],
        N: int = 10,
        *,
        filter_already_liked_items: bool = True,
        fairness: float | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """As the model's `recommend`: (ids, scores) of training users, best first."""
        model = self._unchanged()
        single = naming.is_one(users)
        rows = model._user_rows(naming.as_list(users))
        history = model.fitted.histories("recommend").take_users(rows)
        vectors = model.user_factors[rows] if fairness is None else dialled_users(model, rows, fairness)
        items, scores = self._lists(model, vectors, history, N, exclude=filter_already_liked_items)
        ids = self.index.named(items)
        return (ids[0], scores[0]) if single else (ids, scores)

    def _lists(
        self, model: FactorModel, users: NDArray[Any], history: Interactions, N: int, *, exclude: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        N = list_length(N, self.n_items)
        items, scores = self.index.search(
            users, N, exclude=history.by_user if exclude else None, num_threads=model.num_threads
        )
        empty = np.flatnonzero(np.diff(history.by_user.indptr) == 0)  # as in the model: popular items, without scores
        items[empty], scores[empty] = popular_n(model.fitted.most_popular, len(empty), N), np.nan
        return items, scores

    def _unchanged(self) -> FactorModel:
        """The model as it is now: a fit in another thread does not change this one."""
        model = copy.copy(self.model)
        if model.item_factors is not self._items:
            raise InvalidData("The model has other item vectors since this index was built: build it again.")
        return model
