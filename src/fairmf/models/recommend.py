"""Answer `recommend`: check its arguments, find the N best items of every user, and fill in for users without history.

Order of calls: `read_request` turns names into rows; `answer` makes the lists of a block of users, from their vectors
(`serving_vectors`) and what they must not be given; users without history get popular items.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, ItemScale
from fairmf.data.csr import Rows, like_counts
from fairmf.data.ids import Ids, Names, as_list, is_one, positions
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories
from fairmf.io.values import plain
from fairmf.models.evenness import Level
from fairmf.ranking.top_n import Lists, empty_lists, list_length, merged, popular_n, top_n
from fairmf.types import Record, SparseMatrix

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

USERS_AT_ONCE = 4096  # users answered per block: bounds memory at block x N, for any number of users
PAIRS_AT_ONCE = 65_536  # pairs scored per block, to bound the memory of their vectors
Items: TypeAlias = "Names | Iterable[Names] | Interactions | SparseMatrix"
"""Items for everyone, or some for each user."""


@dataclass(frozen=True)
class Choice:
    """The arguments of `recommend` beside users and N, as they are given; see there."""

    user_items: Interactions | SparseMatrix | None = None
    filter_already_liked_items: bool = True
    filter_items: Items | None = None
    recalculate_user: bool = False
    items: Names | None = None
    fairness: float | None = None
    evenness: float | Level | None = None
    no_history: str = "popular"
    by: str = "id"


@dataclass(frozen=True)
class Request:
    """The arguments of `recommend`, checked, with rows instead of names."""

    count: int
    """Number of users."""
    users: NDArray[np.int64] | None
    """Their rows in the model; None for users who need not be in it."""
    given: Interactions | None
    """Their histories, if the caller gives them (user_items)."""
    N: int
    """Slots of each list: as asked for, and no more than there are items."""
    filter_liked: bool
    """Leave out items of the user's history."""
    filtered: Rows | None
    """Further items that each user must not be given."""
    allowed: NDArray[np.int64] | None
    """The items that may be given at all, ascending; None for all."""
    recalculate: bool
    """Solve the users again from their histories."""
    by_sensitivity: bool
    """Change stored users to another fairness by their stored sensitivity, because the model has no histories."""
    fairness: float | None
    """Fold the users in at this fairness; None leaves them as they are."""
    dial: ItemScale | None
    """What is done to the scores of each item."""
    no_history: str
    item_ids: Ids | None
    """The ids in which the answer names items; None for row numbers."""


def read_request(model: FactorModel, users: Names, N: int, choice: Choice) -> Request:
    """Check the arguments of `recommend` and turn every name into a row."""
    fitted = model.fitted
    level = fitted.served(choice.evenness, choice.fairness)
    fairness = level.fairness
    length = list_length(N, model.n_items)
    check_choice("no_history", choice.no_history, ("popular", "error"))
    check_choice("by", choice.by, ("id", "row"))
    user_ids, item_ids = (None, None) if choice.by == "row" else (fitted.user_ids, fitted.item_ids)
    given = None if choice.user_items is None else read_user_items(model, choice, len(users))
    # A vector made from the given rows needs no stored one: such users need not be known.
    made = given is not None and (choice.recalculate_user or fairness is not None)
    if given is not None and made and fitted.user_features is not None and user_ids is not None:
        # Features are found by id. A user who is not known has none.
        given = Interactions(given.by_user, given.n_items, Ids(as_list(users)), given.item_ids, given.weighting)
    everyone, each = read_filter(choice.filter_items, item_ids, model.n_items, len(users))
    return Request(
        count=len(users),
        users=None if made else positions(users, user_ids, model.n_users, "user"),
        given=given,
        N=length,
        filter_liked=bool(choice.filter_already_liked_items),
        filtered=each,
        allowed=allowed_items(choice.items, everyone, item_ids, model.n_items),
        recalculate=bool(choice.recalculate_user) or fairness is not None,
        by_sensitivity=fairness is not None
        and not choice.recalculate_user
        and given is None
        and fitted.interactions is None
        and fitted.user_sensitivity is not None,
        fairness=fairness,
        dial=fitted.item_scale(level),
        no_history=choice.no_history,
        item_ids=item_ids,
    )


def read_user_items(model: FactorModel, choice: Choice, count: int) -> Interactions:
    """Return the histories that the caller gives: one row per user asked for, columns as in training."""
    user_items: Any = choice.user_items
    if isinstance(user_items, (int, np.integer)) and not isinstance(user_items, bool):
        raise InvalidParameter(
            "The second argument of recommend is user_items, as in implicit.",
            hint=f"write N={user_items} if you meant N",
        )
    if sp.issparse(user_items):
        matrix: Any = user_items
        if len(matrix.shape) == 1:  # indexing a csr_array by one user gives one dimension
            user_items = matrix.reshape(1, -1).tocsr()
        if not choice.recalculate_user:  # as_interactions would warn of values, which do not matter here
            user_items = Interactions.from_csr(user_items, allow_empty=True)
    given = model._aligned(user_items)
    if given.n_users != count:
        raise InvalidData(
            f"user_items must have one row per user asked for, in their order: {count:,} users, "
            f"{given.n_users:,} rows. For users of training, pass user_items[users]."
        )
    return given


def read_filter(
    filter_items: Items | None, item_ids: Ids | None, n_items: int, count: int
) -> tuple[NDArray[np.int64] | None, Rows | None]:
    """Return filter_items as (rows of items for everyone, items for each user); one of the two is None."""
    if filter_items is None:
        return None, None
    if isinstance(filter_items, Interactions) or sp.issparse(filter_items):
        rows = (
            filter_items
            if isinstance(filter_items, Interactions)
            else Interactions.from_csr(filter_items, allow_empty=True)
        )
        if rows.shape != (count, n_items):
            raise InvalidData(
                f"filter_items must be {count:,} users x {n_items:,} items. Got {rows.n_users:,} x {rows.n_items:,}."
            )
        return None, rows.by_user
    if not _is_list(filter_items):
        raise InvalidParameter(f"filter_items must be a list of items, or one per user. Got {filter_items!r} instead.")
    listed: list[Any] = list(filter_items)
    if not any(isinstance(entry, (list, set, frozenset, range, np.ndarray)) for entry in listed):
        return positions(listed, item_ids, n_items, "item"), None
    if len(listed) != count:
        raise InvalidData(
            f"filter_items holds {len(listed):,} lists for {count:,} users.", hint="give one list per user"
        )
    each = [np.unique(positions(list(entry), item_ids, n_items, "item")) for entry in listed]
    indptr = np.concatenate(([0], np.cumsum([len(entry) for entry in each]))).astype(np.int64)
    return None, Rows(indptr, np.concatenate(each).astype(np.int32), None)


def allowed_items(
    items: Names | None, without: NDArray[np.int64] | None, item_ids: Ids | None, n_items: int
) -> NDArray[np.int64] | None:
    """Return the candidates without those filtered for everyone, ascending, no repeats; None for all items."""
    if items is not None and not _is_list(items):
        raise InvalidParameter(f"items must be a list of items. Got {items!r} instead.")
    chosen = None if items is None else np.unique(positions(list(items), item_ids, n_items, "item"))
    if without is None or len(without) == 0:
        return chosen
    return np.setdiff1d(np.arange(n_items) if chosen is None else chosen, without)


def _is_list(value: object) -> TypeGuard[Iterable[Hashable]]:
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes))


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise InvalidParameter unless the value is one of the words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameter(f"{name} must be {' or '.join(map(repr, choices))}. Got {value!r} instead.")


# -- answers ----------------------------------------------------------------------------------------------------------


def answer_all(model: FactorModel, request: Request, who: Names) -> Lists:
    """Return the lists of all users of a request."""
    lists, scores = empty_lists(request.count, request.N)
    backend = model._backend()
    with backend.threads(model.num_threads):  # around all parts, so that a device keeps its memory from part to part
        items = backend.array(model.fitted.item_factors)
        for start in range(0, request.count, USERS_AT_ONCE):
            stop = min(start + USERS_AT_ONCE, request.count)
            lists[start:stop], scores[start:stop] = answer(model, request, start, stop, who, items)
    return lists, scores


def answer(
    model: FactorModel, request: Request, start: int, stop: int, who: Names, items: Factors | None = None
) -> Lists:
    """Return the lists of users start..stop of a request; `who` are their names, for messages.

    `items` are the items' factors as an array of the backend, if there is one already.
    """
    given = None if request.given is None else request.given.take_users(np.arange(start, stop))
    rows = None if request.users is None else request.users[start:stop]
    stored = None if rows is None else stored_histories(model, request, rows)
    history = given if given is not None else stored  # the caller's histories go before those of training
    users = serving_vectors(model, request, rows, history)
    liked = history.by_user if request.filter_liked and history is not None else None
    filtered = None if request.filtered is None else request.filtered.block(start, stop)
    backend = model._backend()
    with backend.threads(model.num_threads):
        excluded = merged(liked, filtered)
        items = model.fitted.item_factors if items is None else items
        lists, scores = top_n(backend, users, items, request.N, excluded, request.allowed, request.dial)
    # A user without history has scores too (fairness alone gives a vector), but they say nothing: replace them.
    known = has_history(request, given, stored, users)
    side = model.fitted.user_features
    if side is not None and rows is not None:  # features predict the vector of a user without history
        known = known | (np.diff(side.rows.indptr)[rows] > 0)
    new = np.flatnonzero(~known)
    if len(new):
        if request.no_history == "error":
            raise InvalidData(
                f"{len(new):,} of {stop - start:,} users have no history, the first is {plain(who[start + new[0]])!r}.",
                hint="no_history='popular' gives them the most popular items",
            )
        barred = None if excluded is None else excluded.take(new)  # they may have dislikes
        lists[new] = popular_n(model.fitted.most_popular, len(new), request.N, barred, request.allowed)
        scores[new] = np.nan
    return lists, scores


def stored_histories(model: FactorModel, request: Request, rows: NDArray[np.int64]) -> Interactions | None:
    """Return the training histories of these users; None where the model has none and none are needed."""
    stored = model.fitted.interactions
    if stored is not None:
        return stored.take_users(rows)
    solved = request.recalculate and not request.by_sensitivity
    if request.given is None and (request.filter_liked or solved):
        asked = "recalculate a user or change the fairness" if solved else "leave out liked items"
        remedy = "" if solved else " or filter_already_liked_items=False"
        raise MissingHistories(
            f"This model was stored without its users' histories, which are needed to {asked}: pass user_items{remedy}."
        )
    return None


def serving_vectors(
    model: FactorModel, request: Request, rows: NDArray[np.int64] | None, history: Interactions | None
) -> Factors:
    """Return the vectors of a request's users: stored, folded in, or at another fairness."""
    if request.by_sensitivity and request.fairness is not None:
        return model._at_fairness(rows, request.fairness)
    if request.recalculate and history is not None:
        options: dict[str, Any] = {} if request.fairness is None else {"fairness": request.fairness}
        side = model.fitted.user_features
        if side is not None and rows is not None:
            options["features"] = side.rows.take(rows)
        return model.fold_in(history, **options)
    stored: Factors = model.user_factors[rows]
    return stored


def has_history(
    request: Request, given: Interactions | None, stored: Interactions | None, users: Factors
) -> NDArray[np.bool_]:
    """Return which users the model can score: those with any interaction, in the call or in training."""
    known = [like_counts(h.by_user) > 0 for h in (given, stored) if h is not None]  # dislikes alone rank nothing
    if given is not None and request.recalculate:  # the vector comes from the given history alone
        return known[0]
    if not known:  # no history to look at: a user without one has a vector of zeros
        nonzero: NDArray[np.bool_] = (users != 0).any(axis=1)
        return nonzero
    return known[0] if len(known) == 1 else known[0] | known[1]


def to_rank(
    model: FactorModel, history: Interactions | SparseMatrix, known_users: bool, options: Record
) -> tuple[Interactions, Factors, Level]:
    """Return the histories over the model's items, a vector for each, and the level at which to rank them."""
    fitted, rows, options = model.fitted, model._aligned(history), dict(options)
    if known_users and rows.n_users != model.n_users:
        raise InvalidData(f"known_users needs all {model.n_users:,} training users; got {rows.n_users:,} rows.")
    level = fitted.served(options.pop("evenness", None), options.pop("fairness", None))
    if level.fairness is not None:
        options["fairness"] = level.fairness
    if known_users and not options:
        return rows, model.user_factors, level
    if known_users and fitted.user_features is not None and options.get("method", "frozen") == "frozen":
        options.setdefault("features", fitted.user_features.rows)
    return rows, model.fold_in(rows, **options), level


def ranked(
    model: FactorModel,
    users: Factors,
    history: Interactions,
    N: int,
    dial: ItemScale | None,
    items: Names | None,
    known_users: bool,
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Yield the top-N items of each user vector without its history, in blocks: (first row, rows x N).

    `items` are the positions of the only candidates. Users without history get popular items, unless they are those of
    training (`known_users`) and their features predict a vector.
    """
    backend, fitted = model._backend(), model.fitted
    allowed = allowed_items(items, None, None, model.n_items)
    for start in range(0, history.n_users, USERS_AT_ONCE):
        stop = min(start + USERS_AT_ONCE, history.n_users)
        rows = history.by_user.block(start, stop)
        with backend.threads(model.num_threads):
            lists, _ = top_n(backend, users[start:stop], fitted.item_factors, N, rows, allowed, dial)
        new = like_counts(rows) == 0
        if known_users and fitted.user_features is not None:
            new &= np.diff(fitted.user_features.rows.indptr)[start:stop] == 0
        empty = np.flatnonzero(new)
        lists[empty] = popular_n(fitted.most_popular, len(empty), N, rows.take(empty), allowed)
        yield start, lists


def score_pairs(
    model: FactorModel, users: Hashable | Names, items: Hashable | Names, level: Level
) -> NDArray[np.float32]:
    """Return the score of each pair at a level; one user or one item makes a pair with each of the others."""
    fitted = model.fitted
    rows = model._user_rows(as_list(users))
    columns = positions(as_list(items), fitted.item_ids, model.n_items, "item")
    if len(rows) != len(columns) and not (is_one(users) or is_one(items)):
        raise InvalidData(f"Pairs need as many users as items; got {len(rows):,} users and {len(columns):,} items.")
    vectors, which = fitted.user_factors, rows
    if level.fairness is not None:
        distinct, which = np.unique(rows, return_inverse=True)
        vectors = model._at_fairness(distinct, level.fairness)
    which, columns = np.broadcast_arrays(which, columns)
    scores = np.empty(len(which), dtype=np.float32)
    for start in range(0, len(which), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        np.einsum("ij,ij->i", vectors[which[part]], fitted.item_factors[columns[part]], out=scores[part])
    scale, offset = fitted.item_scale(level) or ItemScale()
    if scale is not None:
        scores *= scale[columns]
    if offset is not None:
        scores += offset[columns]
    return scores
