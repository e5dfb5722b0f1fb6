"""Make the lists of a cohort of users together: what all rivals that re-rank share.

A rival wraps a fitted model, as FairRecRanker does: it has `n_items` and `rank`, so `evaluate` takes it, and `lists`
returns one array of positions, which `evaluate_lists` takes. A `Cohort` answers the one question that they all ask: the
best items of some users by score plus a number per item. Scores come from factors (any FactorModel) or in dense blocks
(ScoreModel); nothing of size users x items is ever held.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import ItemScale, Vector
from fairmf.baselines.score_model import ScoreModel
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidParameter
from fairmf.models.factor_model import FactorModel
from fairmf.models.recommend import to_rank
from fairmf.params import check_settings
from fairmf.ranking.top_n import Lists, empty_lists, list_length, popular_n, top_n
from fairmf.types import Array, SparseMatrix

USERS_AT_ONCE = 4096  # users per block of lists
Blocks = Iterator[tuple[int, NDArray[np.int32]]]


class CohortRanker(abc.ABC):
    """A model with a method on top that makes its lists; subclasses are dataclasses with a `model` and settings."""

    model: FactorModel | ScoreModel

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.model.n_items

    def rank(
        self, history: Interactions | SparseMatrix, N: int, *, known_users: bool = False, **options: Any
    ) -> Blocks:
        """Return the top-N items of every row of `history` in blocks: (first row, rows x N positions, -1 if missing).

        Parameters
        ----------
        history
            One row per user of the cohort; items of a row are not given to its user.
        N
            Length of the lists.
        known_users
            Row i is training user i, whose stored vector is used. Otherwise users are folded in.
        **options
            `evenness` of the scores to start from, or options of the model's `fold_in`.
        """
        check_settings(self)
        length = list_length(N, self.n_items)
        return self._ranked(cohort_of(copy.copy(self.model), history, known_users, options), length)

    def lists(
        self, history: Interactions | SparseMatrix, N: int, *, known_users: bool = False, **options: Any
    ) -> NDArray[np.int32]:
        """Return what `rank` yields as one array, users x N."""
        blocks = [items for _, items in self.rank(history, N, known_users=known_users, **options)]
        return np.concatenate(blocks or [np.empty((0, list_length(N, self.n_items)), dtype=np.int32)])

    def _ranked(self, cohort: Cohort, N: int) -> Blocks:
        """Yield lists in blocks; users without any history get the most popular items, as in `model.rank`."""
        for start, made in self._blocks(cohort, N):
            stop = start + len(made)
            new = np.flatnonzero(cohort.is_new[start:stop])
            made[new] = popular_n(cohort.most_popular, len(new), N)
            yield start, made

    @abc.abstractmethod
    def _blocks(self, cohort: Cohort, N: int) -> Blocks:
        """Yield the lists of all users in blocks. Those of users without history are replaced afterwards."""


class Cohort(abc.ABC):
    """The users of one call, and how the best items of some of them are found."""

    rows: Interactions
    """Their histories, one row per user."""
    most_popular: NDArray[np.int32]
    """All items by falling popularity."""

    @property
    def n_users(self) -> int:
        """Number of users."""
        return self.rows.n_users

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.rows.n_items

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """A mask of the users without history."""
        new: NDArray[np.bool_] = np.diff(self.rows.by_user.indptr) == 0
        return new

    @property
    @abc.abstractmethod
    def item_counts(self) -> Vector:
        """Number of training users of each item."""

    @abc.abstractmethod
    def best(
        self, users: NDArray[np.integer], k: int, offset: Vector | None = None, weight: Vector | None = None
    ) -> Lists:
        """Return the k best items of these users without their histories, best first: positions, and their scores.

        Items are ordered by weight_i s_ij + offset_j (1 and 0 where None), ties to the lower item; the scores that are
        returned are s_ij. With neither, the lists are those of `model.rank`, bit for bit.
        """

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """Yield all users in order, in blocks."""
        for start in range(0, self.n_users, USERS_AT_ONCE):
            yield np.arange(start, min(start + USERS_AT_ONCE, self.n_users))


class FactorCohort(Cohort):
    """Users of a factor model: the backend finds the best items by inner products."""

    def __init__(self, model: FactorModel, history: Interactions | SparseMatrix, known_users: bool, options: Any):
        self.model = model
        self.rows, self.users, level = to_rank(model, history, known_users, options)
        self.dial = model.fitted.item_scale(level)
        self.most_popular = model.fitted.most_popular

    @property
    def item_counts(self) -> Vector:
        """Number of training users of each item."""
        return self.model.fitted.item_dial.counts

    def best(
        self, users: NDArray[np.integer], k: int, offset: Vector | None = None, weight: Vector | None = None
    ) -> Lists:
        """See Cohort."""
        vectors, items, dial = self.users[users], self.model.fitted.item_factors, self.dial
        changed = offset is not None or weight is not None
        if changed:
            vectors, items, dial = self._changed(vectors, items, offset, weight)
        backend = self.model._backend()
        with backend.threads(self.model.num_threads):
            lists, scores = top_n(backend, vectors, items, k, self.rows.by_user.take(users), dial=dial)
        return lists, self._scores(users, lists) if changed else scores

    def _scores(self, users: NDArray[np.integer], lists: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return s_ij of listed items; NaN in missing slots."""
        scale, own = self.dial or ItemScale()
        found = np.empty(lists.shape, dtype=np.float32)
        items = self.model.fitted.item_factors
        at_once = max(1, (1 << 22) // max(1, lists.shape[1] * items.shape[1]))  # numbers that are gathered at a time
        for start in range(0, len(users), at_once):
            part = slice(start, start + at_once)
            np.einsum("id,ikd->ik", self.users[users[part]], items[lists[part]], out=found[part])
        if scale is not None:
            found *= scale[lists]
        if own is not None:
            found += own[lists]
        found[lists < 0] = np.nan
        return found

    def _changed(
        self, vectors: Array, items: Array, offset: Vector | None, weight: Vector | None
    ) -> tuple[Array, Array, ItemScale]:
        """Return vectors of users and items, and a dial, that give weight_i s_ij + offset_j."""
        scale, own = self.dial or ItemScale()
        added = None if offset is None else offset.astype(np.float32)
        if weight is not None:
            if own is not None:
                # The dial's own offsets belong to the score: a further column lets the weight act on them too.
                vectors = np.column_stack((vectors, np.ones(len(vectors), dtype=vectors.dtype)))
                items = np.column_stack((items if scale is None else items * scale[:, None], own.astype(items.dtype)))
                scale = own = None
            vectors = vectors * weight[:, None].astype(vectors.dtype)
        if own is not None:
            added = own if added is None else own + added
        return vectors, items, ItemScale(scale, added)


class ScoreCohort(Cohort):
    """Users of a model that computes dense blocks of scores."""

    def __init__(self, model: ScoreModel, history: Interactions | SparseMatrix, known_users: bool, options: Any):
        self.model = model
        self.rows = model.histories(history, known_users, options)
        self.most_popular = model.most_popular

    @property
    def item_counts(self) -> Vector:
        """Number of training users of each item."""
        return self.model.item_counts

    def best(
        self, users: NDArray[np.integer], k: int, offset: Vector | None = None, weight: Vector | None = None
    ) -> Lists:
        """See Cohort."""
        lists, scores = empty_lists(len(users), k)
        for start in range(0, len(users), self.model.users_at_once):
            part = slice(start, start + self.model.users_at_once)
            own = None if weight is None else weight[part]
            lists[part], scores[part] = self.model.best(self.rows.by_user.take(users[part]), k, offset, own)
        return lists, scores


def cohort_of(
    model: FactorModel | ScoreModel, history: Interactions | SparseMatrix, known_users: bool, options: Any
) -> Cohort:
    """Return the cohort of these histories; raise InvalidParameter for what is not a model."""
    if isinstance(model, ScoreModel):
        return ScoreCohort(model, history, known_users, options)
    if isinstance(model, FactorModel):
        return FactorCohort(model, history, known_users, options)
    raise InvalidParameter(
        f"A re-ranker needs a fitted model with factors or scores. Got {type(model).__name__} instead.",
        parameter="model",
    )


@dataclasses.dataclass
class Slots:
    """Count the exposure that the slots of lists give to items or groups."""

    weights: Vector

    def of_items(self, lists: NDArray[np.int32], n_items: int) -> Vector:
        """Return the exposure of every item in these lists."""
        first = lists[:, : len(self.weights)]
        shown = first >= 0
        worth = np.broadcast_to(self.weights[: first.shape[1]], first.shape)[shown]
        return np.bincount(first[shown], weights=worth, minlength=n_items).astype(np.float64)

    def of_users(self, scores: NDArray[np.float32]) -> Vector:
        """Return the utility of every user: scores in the order of the list, weighted by slot."""
        first = scores[:, : len(self.weights)].astype(np.float64)
        values: Vector = np.where(np.isfinite(first), first, 0.0) @ self.weights[: first.shape[1]]
        return values
