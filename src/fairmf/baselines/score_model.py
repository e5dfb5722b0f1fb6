"""Rank with models that compute dense blocks of scores instead of inner products: the base of EASE and GraphFilter.

A block has `users_at_once` x items numbers, which bounds memory for any number of users. Users are never part of the
model: a history in, a row of scores out.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.backends.contract import Vector
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.data.weighting import likes_only
from fairmf.errors import InvalidData, NotFitted
from fairmf.lazy import lazy_module
from fairmf.params import check_settings
from fairmf.ranking.top_n import Lists, list_length, popular_n
from fairmf.types import SparseMatrix

if TYPE_CHECKING:
    from fairmf import threads
    from fairmf.ranking import level_kernels
else:  # both import Numba
    threads, level_kernels = lazy_module("fairmf.threads"), lazy_module("fairmf.ranking.level_kernels")

SCORES_AT_ONCE = 1 << 24  # numbers in a block of scores: 64 MiB
Self = TypeVar("Self", bound="ScoreModel")


class ScoreModel(abc.ABC):
    """A model that scores all items for a block of histories; it runs on the CPU and has no files."""

    num_threads: int
    _items: Interactions | None = None

    @abc.abstractmethod
    def _learn(self, data: sp.csr_array) -> None:
        """Learn from the training matrix, users x items; called inside `threads`."""

    @abc.abstractmethod
    def score_rows(self, history: sp.csr_array) -> NDArray[np.float32]:
        """Return the scores of all items for every row of a block of histories."""

    def fit(self: Self, data: Interactions | SparseMatrix) -> Self:
        """Learn from interactions and return the model itself.

        Parameters
        ----------
        data
            Interactions, or a SciPy sparse matrix with users as rows. Confidences are not used: every entry counts 1.

        Raises
        ------
        InvalidData
            If there are no interactions, or the model would not fit into memory.
        """
        check_settings(self)
        data = likes_only(as_interactions(data), type(self).__name__)
        if data.nnz == 0:
            raise InvalidData("There are no interactions to learn from.")
        with get_backend("cpu").threads(self.num_threads):
            self._learn(_ones(data.by_user, data.n_items))
        self._items = data
        return self

    @property
    def trained_on(self) -> Interactions:
        """The training data; raise NotFitted before `fit`."""
        if self._items is None:
            raise NotFitted(f"This {type(self).__name__} is not fitted: call fit first.")
        return self._items

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.trained_on.n_items

    @property
    def item_counts(self) -> Vector:
        """Number of training users of each item."""
        return self.trained_on.by_user.column_counts(self.n_items)

    @property
    def most_popular(self) -> NDArray[np.int32]:
        """All items by falling popularity, ties to the lower position."""
        return np.argsort(-self.item_counts, kind="stable").astype(np.int32)

    @property
    def users_at_once(self) -> int:
        """Number of users in a block of scores."""
        return max(1, SCORES_AT_ONCE // self.n_items)

    def rank(
        self, history: Interactions | SparseMatrix, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Return the top-N items of every row of `history` in blocks, without the items of the row.

        A user without any history gets the most popular items. `known_users` changes nothing: a user is a history.
        """
        length = list_length(N, self.n_items)
        return self._ranked(self.histories(history, known_users, options), length)

    def histories(self, history: Interactions | SparseMatrix, known_users: bool, options: Any) -> Interactions:
        """Check the arguments of `rank`, and return the histories."""
        if options:
            raise TypeError(f"{type(self).__name__} has no option {next(iter(options))!r}: it has no dial.")
        rows = likes_only(as_interactions(history, allow_empty=True), type(self).__name__)
        if rows.n_items != self.n_items:
            raise InvalidData(f"The history has {rows.n_items:,} items (columns), the model {self.n_items:,}.")
        if known_users and rows.n_users != self.trained_on.n_users:
            raise InvalidData(
                f"known_users needs all {self.trained_on.n_users:,} training users; got {rows.n_users:,}."
            )
        return rows

    def _ranked(self, rows: Interactions, N: int) -> Iterator[tuple[int, NDArray[np.int32]]]:
        for start in range(0, rows.n_users, self.users_at_once):
            block = rows.by_user.block(start, min(start + self.users_at_once, rows.n_users))
            lists, _ = self.best(block, N)
            new = np.flatnonzero(np.diff(block.indptr) == 0)
            lists[new] = popular_n(self.most_popular, len(new), N)
            yield start, lists

    def best(self, rows: Rows, k: int, offset: Vector | None = None, weight: Vector | None = None) -> Lists:
        """Return the k best items of every row by weight_i s_ij + offset_j without its own, and their s_ij."""
        m = self.n_items
        k = min(k, m)
        with get_backend("cpu").threads(self.num_threads):
            scores = np.ascontiguousarray(self.score_rows(_ones(rows, m)), dtype=np.float32)
            ordered = scores.copy() if weight is None else scores * weight[:, None].astype(np.float32)
            ordered[np.repeat(np.arange(rows.count), np.diff(rows.indptr)), rows.indices] = -np.inf
            added = np.zeros(m, dtype=np.float32) if offset is None else offset.astype(np.float32)
            lists = np.empty((rows.count, k), dtype=np.int32)
            bounds = threads.even(rows.count, 16)
            threads.run(
                level_kernels.rank_rows, len(bounds) - 1, ordered, np.ones(m, dtype=np.float32), added, bounds,
                out=(lists,), work=20.0 * scores.size,
            )  # fmt: skip
        values = np.take_along_axis(scores, np.maximum(lists, 0), axis=1)
        values[lists < 0] = np.nan
        return lists, values


def _ones(rows: Rows, n_columns: int) -> sp.csr_array:
    """Return rows as a matrix of ones."""
    return rows.to_csr(np.ones(rows.nnz, dtype=np.float32), n_columns)
