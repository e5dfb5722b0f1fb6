"""Recommend with a fitted model, to some users or to all; find nearest neighbours and score pairs."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.data.ids import Names, as_list, is_one, named
from fairmf.data.interactions import Interactions
from fairmf.lazy import lazy_module
from fairmf.models.evenness import Level
from fairmf.models.fitted import on_snapshot
from fairmf.models.history_request import HistoryModel
from fairmf.models.recommend import USERS_AT_ONCE, Choice, Items, answer_all, ranked, read_request, score_pairs, to_rank
from fairmf.ranking.top_n import list_length
from fairmf.types import Array, Record, SparseMatrix

if TYPE_CHECKING:
    import pyarrow

    from fairmf.models import ann_requests, batches, rerankers, similar
    from fairmf.models.batches import Batch
    from fairmf.models.rerankers import AnnRanker, FairRecommendations, FairRecRanker
    from fairmf.ranking.ann import AnnIndex
else:  # models that only recommend do without
    rerankers, similar = lazy_module("fairmf.models.rerankers"), lazy_module("fairmf.models.similar")
    ann_requests, batches = lazy_module("fairmf.models.ann_requests"), lazy_module("fairmf.models.batches")

Self = TypeVar("Self", bound="FactorModel")


class FactorModel(HistoryModel):
    """A model whose score is the inner product of a user and an item vector."""

    @on_snapshot
    def with_evenness(self: Self, evenness: float | Level) -> Self:
        """Return the same model at another level of evenness, without training: it serves with that level by default.

        Parameters
        ----------
        evenness
            From 0 (as accurate as possible) to 1 (as even as possible); see `recommend`.

        Returns
        -------
        A new model, which shares the item vectors; this one stays as it is.

        Raises
        ------
        MissingHistories
            If the level changes the users' vectors, and the model was stored with neither histories nor
            `user_sensitivity`.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> model = FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
        >>> model.with_evenness(0.3).fitted.flatten
        0.3
        """
        fitted = self.fitted
        level, turned = fitted.served(evenness), copy.copy(self)
        changes: Record = {"flatten": level.flatten, "discount": level.discount, "lift": level.lift}
        if level.fairness is not None:
            changes |= {"fairness": level.fairness, "user_factors": self._at_fairness(None, level.fairness)}
        turned._fitted = dataclasses.replace(fitted, **changes)
        return turned

    takes_items = True  # `rank` can be told the only candidates

    @on_snapshot
    def rank(
        self, history: Interactions | SparseMatrix, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield the top-N items of every row of `history`, in blocks of users.

        Items of a user's history are left out. A user without any history gets the most popular items, unless it is a
        user of training with features.

        Parameters
        ----------
        history
            One row per user; columns are the training items.
        N
            Length of the lists.
        known_users
            Row i is training user i, whose stored vector is used. Otherwise, or with `options`, users are folded in.
        **options
            `evenness`, as in `recommend`; `items`, the positions of the only candidates; options of `fold_in`.

        Yields
        ------
        (first row, rows of items): the second has a row per user of the block, with -1 in missing slots.
        """
        length = list_length(N, self.n_items)
        some = options.pop("items", None)
        rows, users, level = to_rank(self, history, known_users, options)
        yield from ranked(self, users, rows, length, self.fitted.item_scale(level), some, known_users)

    @on_snapshot
    def recommend(
        self,
        userid: Hashable | Names,
        user_items: Interactions | SparseMatrix | None = None,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Items | None = None,
        recalculate_user: bool = False,
        items: Names | None = None,
        *,
        evenness: float | Level | None = None,
        fairness: float | None = None,
        no_history: str = "popular",
        by: str = "id",
    ) -> tuple[Array, NDArray[np.float32]]:
        """Recommend the N best items to one user or many, best first; ties go to the lower item.

        See docs/recommending.md.

        Parameters
        ----------
        userid
            One user, or a sequence of users.
        user_items
            The users' histories, one row per user asked for (SciPy sparse or Interactions). They say which items are
            liked; by default the training histories do.
        N
            Length of the lists; no list is longer than the catalogue.
        filter_already_liked_items
            Leave out the items of the user's history.
        filter_items
            Items to leave out: a list for everyone, or one for each user (a list of lists, or a sparse matrix).
        recalculate_user
            Fold the users in from their histories instead of using stored vectors. With `user_items` they need not be
            in the model.
        items
            The only candidates; repeats count once.
        evenness
            How evenly to spread exposure over the catalogue, from 0 (as accurate as possible) to 1 (as even as
            possible), along the path that `calibrate` found. Without one, popular items are held back by a rule of
            thumb. None serves as the model does by default. See docs/evenness.md.
        fairness
            For experts: fold the users in at this fairness (psi), for this call; nothing is trained.
        no_history
            Users without any history get the "popular" items that the filters allow, with score NaN, or are an
            "error".
        by
            "id" names users and items by their original ids, where the data had ids; "row" by row number. The answer
            uses the same names.

        Returns
        -------
        (ids, scores): two 1-d arrays for one user, two 2-d arrays for a sequence. Missing slots hold id -1 (None where
        ids are not integers) and score NaN.

        Raises
        ------
        InvalidData
            If a user or item is not in the model, or rows and users do not match.
        MissingHistories
            If histories are needed that the model was stored without.

        Examples
        --------
        >>> from fairmf import IALS, synthetic
        >>> data = synthetic(n_users=300, n_items=200, n_interactions=6000)
        >>> ids, scores = IALS(factors=8, epochs=2).fit(data).recommend(data.user_ids.values[:2], N=3)
        >>> ids.shape
        (2, 3)
        """
        single = is_one(userid)
        who = as_list(userid)
        choice = Choice(
            user_items, filter_already_liked_items, filter_items, recalculate_user, items, fairness, evenness,
            no_history, by,
        )  # fmt: skip
        request = read_request(self, who, N, choice)
        lists, scores = answer_all(self, request, who)
        ids = named(lists, request.item_ids)
        return (ids[0], scores[0]) if single else (ids, scores)

    @on_snapshot
    def recommend_batches(
        self,
        users: Names | None = None,
        N: int = 10,
        *,
        batch_size: int = USERS_AT_ONCE,
        progress: bool | None = None,
        **options: Any,
    ) -> Iterator[Batch]:
        """Recommend to many users a batch at a time; memory holds one batch.

        Parameters
        ----------
        users
            The users; None takes all of training.
        N
            Length of the lists.
        batch_size
            Users per batch.
        progress
            Show a progress bar; None shows it on a terminal.
        **options
            Options of `recommend`. `user_items` and per-user `filter_items` have a row for each of all the users.

        Returns
        -------
        An iterator of (users, ids, scores).

        Examples
        --------
        >>> from fairmf import IALS, synthetic
        >>> model = IALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
        >>> [len(batch.users) for batch in model.recommend_batches(N=3, batch_size=40)]
        [40, 20]
        """
        return batches.stream(self, users, N, batch_size, progress, options)

    @on_snapshot
    def recommend_table(self, users: Names | None = None, N: int = 10, **options: Any) -> pyarrow.Table:
        """Recommend to many users; return one Arrow table with columns user, item, score and rank (from 1).

        Missing slots have no row. The score of an item that is given for its popularity is null.

        Parameters
        ----------
        users, N, **options
            As in `recommend_batches`.
        """
        return batches.table(self, users, N, options)

    @on_snapshot
    def recommend_to_parquet(
        self, path: str | os.PathLike[str], users: Names | None = None, N: int = 10, **options: Any
    ) -> int:
        """Write what `recommend_table` returns to a Parquet file, a batch at a time; return the number of rows.

        Parameters
        ----------
        path
            The file to write, in a folder that exists. It appears when it is complete, and replaces an older one then.
        users, N, **options
            As in `recommend_table`.
        """
        return batches.to_parquet(self, path, users, N, options)

    # -- nearest-neighbour search (docs/ann.md) ---------------------------------------------------------------------

    @on_snapshot
    def to_ann(
        self, *, groups: int | None = None, probes: int | None = None, evenness: float | Level | None = None,
        levels: bool = False,
    ) -> AnnIndex:  # fmt: skip
        """Build a nearest-neighbour index of the item vectors, with the model's item ids (extra `[ann]`).

        A level of evenness is part of the vectors: the index ranks items at that level alone. Search it with the users
        of `model.with_evenness(evenness)`.

        Parameters
        ----------
        groups
            Number of groups the items are clustered into; None chooses it from the number of items.
        probes
            Number of groups that a search looks at; more is more exact and slower. None chooses it.
        evenness
            As in `recommend`.
        levels
            Also group the items for requests at any level of evenness (`fairmf serve --ann`).
        """
        return ann_requests.build_index(self, groups, probes, evenness, levels)

    def with_ann(self, index: AnnIndex | None = None) -> AnnRanker:
        """Return this model with an index (by default a new one) in place of scoring every item.

        It has `rank` and `recommend`; `evaluate` takes it. Its level is the model's: `with_evenness(0.3).with_ann()`.
        """
        return rerankers.AnnRanker(self, self.to_ann() if index is None else index)

    # -- FairRec (docs/fairrec.md) ----------------------------------------------------------------------------------

    def with_fairrec(self, share: float, **options: Any) -> FairRecRanker:
        """Return this model with FairRec on top: it has `rank`, and `evaluate` takes it.

        Parameters
        ----------
        share
            Part of the uniform exposure that every item is owed, above 0 and at most 1, in whole users, at least one.
        **options
            K (length of the lists that FairRec makes), order, random_state.
        """
        return rerankers.FairRecRanker(self, share, **options)

    @on_snapshot
    def recommend_fairly(
        self,
        users: Names | None = None,
        N: int = 10,
        *,
        share: float = 0.5,
        order: str = "score",
        random_state: int | None = 0,
        evenness: float | Level | None = None,
        fairness: float | None = None,
    ) -> FairRecommendations:
        """Make the lists of all these users together, by FairRec (Patro et al. 2020).

        Users get their best items among those that still have to be shown, then of all.

        Parameters
        ----------
        users
            Users of training; None takes all.
        N
            Length of the lists.
        share
            Part of the uniform exposure (all items shown equally often) that every item is owed, above 0 and at most 1,
            rounded down to whole users, but to one user at least.
        order
            "score" sorts each list by score; "allocation" keeps the order in which items were allocated.
        random_state
            Seed of the order in which users take turns.
        evenness, fairness
            The level of the scores that FairRec starts from, as in `recommend`.

        Returns
        -------
        The lists, and a `certificate` that says what was guaranteed and how often each item is shown.

        Raises
        ------
        InvalidParameter
            If these users' lists have fewer places than there are items: then nothing can be guaranteed.
        """
        ranker = self.with_fairrec(share, order=order, random_state=random_state)
        who = None if users is None else as_list(users)
        return rerankers.recommend_fairly(ranker, who, N, self.fitted.served(evenness, fairness))

    # -- neighbours and single scores -------------------------------------------------------------------------------

    @on_snapshot
    def similar_items(
        self,
        itemid: Hashable | Names,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Interactions | SparseMatrix | None = None,
        filter_items: Names | None = None,
        items: Names | None = None,
    ) -> tuple[Array, NDArray[np.float32]]:
        """Find the N items whose vectors have the largest cosine similarity to the given item's.

        The item itself comes first; ties go to the lower row. An item without interactions is similar to nothing.

        Parameters
        ----------
        itemid
            One item, or a sequence of items.
        N
            Length of the lists.
        recalculate_item
            Compute the vectors of these items from `item_users` (their users, one row per item), as `fold_in_items`
            does. Without it, `item_users` is not used.
        filter_items, items
            Items to leave out, and the only candidates.

        Returns
        -------
        (ids, cosine similarities): two 1-d arrays for one item, two 2-d arrays for a sequence. Missing slots hold id
        -1 (None where ids are not integers) and NaN.

        Examples
        --------
        >>> from fairmf import IALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
        >>> ids, cosines = model.similar_items(data.item_ids.values[0], N=3)
        >>> bool(ids[0] == data.item_ids.values[0])
        True
        """
        again = similar.recalculated(self, item_users) if recalculate_item else None
        return similar.find(self, "item", itemid, N, filter_items, items, again)

    @on_snapshot
    def similar_users(
        self, userid: Hashable | Names, N: int = 10, *, filter_users: Names | None = None, users: Names | None = None
    ) -> tuple[Array, NDArray[np.float32]]:
        """Find the N users whose vectors have the largest cosine similarity to the given user's.

        A user without history is similar to nobody. See `similar_items` for the parameters and the result.
        """
        return similar.find(self, "user", userid, N, filter_users, users)

    @on_snapshot
    def score(
        self,
        users: Hashable | Names,
        items: Hashable | Names,
        *,
        evenness: float | Level | None = None,
        fairness: float | None = None,
    ) -> np.float32 | NDArray[np.float32]:
        """Predict the scores of pairs of users and items: u.v, times the item's scale, plus its offset.

        Parameters
        ----------
        users, items
            Two sequences of one length are pairs. One user with many items, or one item with many users, makes a pair
            with each of the many.
        evenness, fairness
            As in `recommend`.

        Returns
        -------
        One score per pair; a number for one user with one item.

        Raises
        ------
        InvalidData
            If the sequences have different lengths, or a user or item is not in the model.

        Examples
        --------
        >>> from fairmf import IALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
        >>> model.score(data.user_ids.values[0], data.item_ids.values[:3]).shape
        (3,)
        """
        scores = score_pairs(self, users, items, self.fitted.served(evenness, fairness))
        return scores[0] if is_one(users) and is_one(items) else scores
