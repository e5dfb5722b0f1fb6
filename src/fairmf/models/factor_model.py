"""What a fit yields: factors, ids and history, and what can be asked of them. No training here."""

from __future__ import annotations

import abc
import os
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend
from fairmf.backends.registry import get_backend
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions, as_interactions, weighted_like
from fairmf.errors import InvalidData, NotFitted
from fairmf.models import batches
from fairmf.models import fitted as naming
from fairmf.models.batches import Batch
from fairmf.models.dial import dialled_users
from fairmf.models.fitted import Fitted, History, named, on_snapshot, positions
from fairmf.models.recommend import USERS_AT_ONCE, answer_all, names_of, ranked, read_request
from fairmf.params import settings_of, store_settings
from fairmf.ranking.top_n import list_length

if TYPE_CHECKING:
    import pyarrow

    from fairmf.models.rerankers import AnnRanker, FairRecommendations, FairRecRanker
    from fairmf.ranking.ann import AnnIndex

Self = TypeVar("Self", bound="FactorModel")

PAIRS_AT_ONCE = 65_536  # pairs scored per block: their vectors are gathered


class FactorModel(abc.ABC):
    """A model whose score is the inner product of a user and an item vector."""

    _fitted: Fitted | None = None
    backend: str = "cpu"
    num_threads: int = 0

    # -- what was fitted --------------------------------------------------------------------------------------------

    @property
    def fitted(self) -> Fitted:
        """All results of `fit`; NotFitted before it.

        Each `fit` puts another one in its place: read it once, and everything in it belongs together.
        """
        fitted = self._fitted
        if fitted is None:
            name = type(self).__name__
            raise NotFitted(f"This {name} is not fitted yet: call fit(interactions) first.")
        return fitted

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

    # -- settings, as scikit-learn asks for them ---------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - no setting is an estimator itself
        """The settings by name: with `set_params`, what scikit-learn's `clone` needs."""
        return settings_of(self)

    def set_params(self: Self, **params: Any) -> Self:
        """Store settings for the next `fit`, which checks them; what is fitted stays as it is. Returns the model."""
        store_settings(self, params)
        return self

    # -- keeping ----------------------------------------------------------------------------------------------------

    @on_snapshot
    def save(
        self, path: str | os.PathLike[str], *, interactions: bool = True, user_sensitivity: bool | None = None
    ) -> None:
        """Write the fitted model to one file, which `fairmf.load_model` reads (docs/persistence.md).

        An existing file is replaced in one step, so that a crash leaves the old one. With the `interactions` (4 bytes
        each, 8 if weighted) stored users can be filtered and dialled after loading; without them the file is smaller
        and holds nobody's history. `user_sensitivity=True` adds an array as large as the user factors, from which
        stored users can be dialled without their histories; None keeps the one the model has, if any.
        """
        from fairmf.models.model_file import save_model

        save_model(self, path, interactions=interactions, user_sensitivity=user_sensitivity)

    # -- ranking ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def fold_in(self, history: Interactions | Any, **options: Any) -> NDArray[Any]:
        """User vectors for the given histories (rows; columns are the training items)."""

    @on_snapshot
    def rank(
        self, history: Interactions | Any, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Top-N item positions for every row of `history`, in blocks: yields (first row, rows x N).

        Items of a user's history are left out; -1 fills what is missing. With `known_users`, row i is training user i
        and the stored vector is used; otherwise, or with `options` for `fold_in`, users are folded in. A user without
        any history is given the most popular items.
        """
        length = list_length(N, self.n_items)
        history, users = self._to_rank(history, known_users, options)
        yield from ranked(self, users, history, length)

    def _to_rank(
        self, history: Interactions | Any, known_users: bool, options: dict[str, Any]
    ) -> tuple[Interactions, NDArray[Any]]:
        """The histories as the model's, and a vector for each: what every way of ranking starts from."""
        history = self._aligned(history)
        if known_users and history.n_users != self.n_users:
            raise InvalidData(f"known_users needs all {self.n_users:,} training users; got {history.n_users:,} rows.")
        return history, self.user_factors if known_users and not options else self.fold_in(history, **options)

    @on_snapshot
    def recommend(
        self,
        userid: Hashable | Sequence[Hashable] | NDArray[Any],
        user_items: Interactions | Any | None = None,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Sequence[Hashable] | NDArray[Any] | None = None,
        *,
        fairness: float | None = None,
        no_history: str = "popular",
        by: str = "id",
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The N best items of one user or many, best first, ties to the lower item: (ids, scores).

        One user gives two 1-d arrays, a sequence two 2-d arrays. Users and items are called by their original ids where
        the data had ids; with `by="row"` (or without ids) by row number, in the arguments as in the answer. A list has
        min(N, items of the catalogue) slots; missing ones hold id -1 (None where ids are not integers) and score NaN.
        See docs/recommending.md.

        * `user_items`: the users' histories, one row per user asked for (SciPy sparse or Interactions). They say what
          is liked; by default the training histories do.
        * `recalculate_user`: fold the users in from their histories instead of using stored vectors. With `user_items`
          they may be new: the model need not know them.
        * `filter_items`: never these: a list of items, or for each user one (list of lists, or a sparse matrix).
        * `items`: only these. Repeats count once.
        * `fairness` turns the dial for this call: users are folded in with it, nothing is trained.
        * `no_history`: users without any are given the `"popular"` items that the filters allow, with score NaN, or
          are an `"error"`.

        >>> from fairmf import IALS, synthetic
        >>> data = synthetic(n_users=300, n_items=200, n_interactions=6000)
        >>> ids, scores = IALS(factors=8, epochs=2).fit(data).recommend(data.user_ids.values[:2], N=3)
        >>> ids.shape
        (2, 3)
        """
        single = naming.is_one(userid)
        who: Any = [userid] if single else userid
        request = read_request(
            self, who, user_items, N=N, filter_already_liked_items=filter_already_liked_items,
            filter_items=filter_items, recalculate_user=recalculate_user, items=items, fairness=fairness,
            no_history=no_history, by=by,
        )  # fmt: skip
        lists, scores = answer_all(self, request, who)
        ids = named(lists, names_of(self, by)[1])
        return (ids[0], scores[0]) if single else (ids, scores)

    @on_snapshot
    def recommend_batches(
        self,
        users: Sequence[Hashable] | NDArray[Any] | None = None,
        N: int = 10,
        *,
        batch_size: int = USERS_AT_ONCE,
        progress: bool | None = None,
        **options: Any,
    ) -> Iterator[Batch]:
        """Lists for many users, a batch at a time: an iterator of (users, ids, scores).

        `users=None` asks for all of training. Memory holds one batch, however many users there are. `options` are those
        of `recommend`; `user_items` and per-user `filter_items` have one row for each of all the users. `progress=None`
        shows a bar on a terminal.
        """
        return batches.stream(self, users, N, batch_size, progress, options)

    @on_snapshot
    def recommend_table(
        self, users: Sequence[Hashable] | NDArray[Any] | None = None, N: int = 10, **options: Any
    ) -> pyarrow.Table:
        """Lists for many users as one Arrow table with columns user, item, score and rank (from 1).

        `options` are those of `recommend_batches`.
        Missing slots have no row; the score of an item that is given for its popularity is null.
        """
        return batches.table(self, users, N, options)

    @on_snapshot
    def recommend_to_parquet(
        self,
        path: str | os.PathLike[str],
        users: Sequence[Hashable] | NDArray[Any] | None = None,
        N: int = 10,
        **options: Any,
    ) -> int:
        """Write what `recommend_table` gives to a Parquet file, a batch at a time; returns the number of rows.

        The file appears when it is complete: an older one of that name stays whole until then.
        """
        return batches.to_parquet(self, path, users, N, options)

    # -- nearest-neighbour search (docs/ann.md) ---------------------------------------------------------------------

    @on_snapshot
    def to_ann(self, *, groups: int | None = None, probes: int | None = None) -> AnnIndex:
        """The item vectors in a nearest-neighbour index that knows the model's item ids (extra `[ann]`)."""
        from fairmf.ranking.ann import AnnIndex  # models that score every item do without

        fitted = self.fitted
        return AnnIndex.build(
            fitted.item_factors, fitted.item_ids, offsets=fitted.item_offsets, groups=groups, probes=probes,
            num_threads=self.num_threads,
        )  # fmt: skip

    def with_ann(self, index: AnnIndex | None = None) -> AnnRanker:
        """This model answering through an index (by default a new one): has `rank`, `recommend`, can be evaluated."""
        from fairmf.models.rerankers import AnnRanker

        return AnnRanker(self, self.to_ann() if index is None else index)

    # -- FairRec (docs/fairrec.md) ----------------------------------------------------------------------------------

    def with_fairrec(self, share: float, **options: Any) -> FairRecRanker:
        """This model with FairRec on top: has `rank`, can be evaluated. Options: K, order, random_state."""
        from fairmf.models.rerankers import FairRecRanker

        return FairRecRanker(self, share, **options)

    @on_snapshot
    def recommend_fairly(
        self,
        users: Sequence[Hashable] | NDArray[Any] | None = None,
        N: int = 10,
        *,
        share: float = 0.5,
        order: str = "score",
        random_state: int | None = 0,
        fairness: float | None = None,
    ) -> FairRecommendations:
        """Lists of N for all of these training users at once (None: all), by FairRec (Patro et al. 2020).

        Every item is owed `share` of the exposure it had if all were shown equally often; the `certificate` says what
        each got. Users get their best items that still have to be shown, then their best of all.
        """
        length = list_length(N, self.n_items)
        fitted = self.fitted
        everyone = np.arange(self.n_users) if fitted.user_ids is None else fitted.user_ids.values
        who: Any = everyone if users is None else naming.as_list(users)
        rows = self._user_rows(who)
        history = fitted.histories("recommend_fairly").take_users(rows)
        vectors = self.user_factors[rows] if fairness is None else dialled_users(self, rows, fairness)
        from fairmf.models.rerankers import FairRecommendations

        ranker = self.with_fairrec(share, order=order, random_state=random_state)
        made = ranker.lists(vectors, history, length)
        names = who if isinstance(who, np.ndarray) else Ids(who).values
        return FairRecommendations(names, named(made.items, fitted.item_ids), made.scores, made.certificate)

    def _user_rows(self, users: Sequence[Hashable] | NDArray[Any]) -> NDArray[np.int64]:
        return positions(users, self.fitted.user_ids, self.n_users, "user")

    def _aligned(self, history: Interactions | Any) -> Interactions:
        """Return the histories as Interactions over exactly the training items, weighted like the training data."""
        history = as_interactions(history, allow_empty=True)
        if history.n_items != self.n_items:
            transposed = history.n_users == self.n_items
            raise InvalidData(
                f"The history has {history.n_items:,} items (columns), the model {self.n_items:,}."
                + (" It looks transposed: users must be rows." if transposed else ""),
                hint=None if transposed else "use data that were split or encoded like those the model was trained on",
            )
        trained, given = self.fitted.item_ids, history.item_ids
        if trained is not None and given is not None and trained is not given and trained != given:
            raise InvalidData(
                "The history's items are not the model's, or in another order: column j must be item j of training."
            )
        return weighted_like(history, self.fitted.weighting)

    # -- neighbours and single scores -------------------------------------------------------------------------------

    @on_snapshot
    def similar_items(
        self, itemid: Any, N: int = 10, *, filter_items: Any = None, items: Any = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The N items whose vectors point most in the direction of the given item's: (ids, cosine similarities).

        The item itself comes first, as in implicit; ties go to the lower row. One item gives two 1-d arrays, a sequence
        two 2-d arrays. `items` are the only candidates, `filter_items` are left out. An item without interactions is
        similar to nothing: its slots are missing (id -1, or None where ids are not integers, and NaN), and it is
        nobody's neighbour.
        """
        return self._similar(self.item_factors, self.fitted.item_ids, "item", itemid, N, filter_items, items)

    @on_snapshot
    def similar_users(
        self, userid: Any, N: int = 10, *, filter_users: Any = None, users: Any = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The N users whose vectors point most in the direction of the given user's; see `similar_items`.

        A user without history is similar to nobody.
        """
        return self._similar(self.user_factors, self.fitted.user_ids, "user", userid, N, filter_users, users)

    def _similar(
        self, factors: NDArray[Any], ids: Ids | None, kind: str, asked: Any, N: int, leave_out: Any, among: Any
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        from fairmf.models.similar import nearest  # lists are made without

        def rows(names: Any) -> NDArray[np.int64]:
            return naming.positions(naming.as_list(names), ids, len(factors), kind)

        candidates = np.arange(len(factors)) if among is None else np.unique(rows(among))
        if leave_out is not None:
            candidates = np.setdiff1d(candidates, rows(leave_out))
        backend, queries = self._backend(), rows(asked)
        with backend.threads(self.num_threads):
            found, cosines = nearest(backend, factors, queries, N, candidates, self._directed(kind))
        names = naming.named(found, ids)
        return (names[0], cosines[0]) if naming.is_one(asked) else (names, cosines)

    def _directed(self, kind: str) -> NDArray[np.bool_]:
        """Whose vector says something: only those with interactions, as far as that is known.

        Users without any share the one vector that fairness gives them; of items without any, a little of the random
        start may be left.
        """
        if kind == "item":
            return self.fitted.popularity > 0
        held = self.fitted.interactions
        return np.ones(self.n_users, dtype=bool) if held is None else np.diff(held.by_user.indptr) > 0

    @on_snapshot
    def score(self, users: Any, items: Any, *, fairness: float | None = None) -> Any:
        """Predicted scores of pairs of users and items, named as in `recommend`: u.v and the item's offset, if any.

        Two sequences of one length are pairs: one score each. One user with many items, or one item with many users,
        gives one score for each of the many; one with one gives a number. `fairness` turns the dial, as in `recommend`.
        """
        fitted = self.fitted
        rows = self._user_rows(naming.as_list(users))
        columns = naming.positions(naming.as_list(items), fitted.item_ids, self.n_items, "item")
        single = naming.is_one(users), naming.is_one(items)
        if not any(single) and len(rows) != len(columns):
            raise InvalidData(f"Pairs need as many users as items; got {len(rows):,} users and {len(columns):,} items.")
        vectors, which = self.user_factors, rows
        if fairness is not None:
            distinct, which = np.unique(rows, return_inverse=True)
            vectors = dialled_users(self, distinct, fairness)
        which, columns = np.broadcast_arrays(which, columns)
        scores = np.empty(len(which), dtype=np.float32)
        for start in range(0, len(which), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            np.einsum("ij,ij->i", vectors[which[part]], self.item_factors[columns[part]], out=scores[part])
        if fitted.item_offsets is not None:
            scores += fitted.item_offsets[columns]
        return scores[0] if all(single) else scores
