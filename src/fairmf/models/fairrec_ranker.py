"""A model whose lists go through FairRec: a cohort is served at once, and every item is shown to enough of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidParameter
from fairmf.interactions import Interactions
from fairmf.ranking import list_length
from fairmf.ranking.certificate import Certificate

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel
    from fairmf.ranking.fairrec import FairLists

USERS_AT_ONCE = 4096


@dataclass(frozen=True)
class FairRecommendations:
    """Lists for a cohort, as `recommend` gives them, and what they guarantee to items."""

    users: NDArray[Any]
    ids: NDArray[Any]
    scores: NDArray[np.float32]
    certificate: Certificate


class FairRecRanker:
    """FairRec on top of a model's scores; `evaluate` takes it as it takes the model.

    `share` of the uniform exposure K n / m is what every item is owed. Lists have K items (by default as many as are
    asked for); of longer lists than asked for the first are given, which with order="allocation" are those that were
    allocated first, as in the paper's figure 3.
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
        self, history: Interactions | Any, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Top-N item positions for every row of `history`, in blocks; `options` go to the model's fold-in."""
        ranker = copy.copy(self)
        ranker.model = copy.copy(self.model)  # as it is now: a fit in another thread does not change this one
        history, users = ranker.model._to_rank(history, known_users, options)
        lists = ranker.lists(users, history, N).items[:, : list_length(N, ranker.n_items)]
        for start in range(0, history.n_users, USERS_AT_ONCE):
            yield start, lists[start : start + USERS_AT_ONCE]

    def lists(self, users: NDArray[Any], history: Interactions, N: int) -> FairLists:
        """FairRec on these user vectors, without the items of their histories."""
        from fairmf.ranking.fairrec import fair_rec  # imports Numba, which a model that only loads can do without

        model = self.model
        N = list_length(N, self.n_items)
        K = N if self.K is None else list_length(self.K, self.n_items, "K")
        if K < N:
            raise InvalidParameter(f"FairRec makes lists of K = {K}; {N} items cannot be asked for.")
        return fair_rec(
            users, model.item_factors, K, self.share, exclude=history.by_user, offsets=model.fitted.item_offsets,
            order=self.order, random_state=self.random_state, backend=model.backend, num_threads=model.num_threads,
        )  # fmt: skip
