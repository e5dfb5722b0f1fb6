"""How `recommend` answers: vectors, what is left out, the N best, and what users without history are given."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories
from fairmf.io.values import plain
from fairmf.models.dial import dialled_users
from fairmf.models.fitted import positions
from fairmf.ranking.top_n import empty_lists, list_length, merged, popular_n, top_n

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel


# What `recommend` is asked: its arguments checked, and every name turned into a position.


@dataclass(frozen=True)
class Request:
    """A checked question for `count` users, everything by position."""

    count: int
    users: NDArray[np.int64] | None
    """Their rows in the model; None for users who need not be in it."""
    given: Interactions | None
    """Their histories as the caller has them (user_items)."""
    N: int
    """Slots of each list: as asked for, and no more than there are items."""
    filter_liked: bool
    filtered: Rows | None
    """What each user must not be given besides."""
    allowed: NDArray[np.int64] | None
    """The items that may be given at all, ascending; None for all."""
    recalculate: bool
    dial_only: bool
    """Whether only the dial asks for other vectors: then stored sensitivities will do."""
    fairness: float | None
    no_history: str


def read_request(
    model: FactorModel,
    users: Sequence[Hashable] | NDArray[Any],
    user_items: Interactions | Any | None,
    *,
    N: int,
    filter_already_liked_items: bool,
    filter_items: Any,
    recalculate_user: bool,
    items: Sequence[Hashable] | NDArray[Any] | None,
    fairness: float | None,
    no_history: str,
    by: str,
) -> Request:
    """Check the arguments of `recommend` and turn every name into a position."""
    length = list_length(N, model.n_items)
    check_choice("no_history", no_history, ("popular", "error"))
    check_choice("by", by, ("id", "row"))
    user_ids, item_ids = names_of(model, by)
    count = len(users)
    given = None if user_items is None else read_user_items(model, user_items, count, recalculate_user)
    # A vector made from the given rows needs no stored one: such users need not be known.
    made = given is not None and (recalculate_user or fairness is not None)
    rows = None if made else positions(users, user_ids, model.n_users, "user")
    everyone, each = read_filter(filter_items, item_ids, model.n_items, count)
    return Request(
        count=count,
        users=rows,
        given=given,
        N=length,
        filter_liked=bool(filter_already_liked_items),
        filtered=each,
        allowed=allowed_items(items, everyone, item_ids, model.n_items),
        recalculate=bool(recalculate_user) or fairness is not None,
        dial_only=fairness is not None and not recalculate_user,
        fairness=fairness,
        no_history=no_history,
    )


def names_of(model: FactorModel, by: str) -> tuple[Ids | None, Ids | None]:
    """The ids of users and items that a call speaks of; None where it speaks of row numbers."""
    return (None, None) if by == "row" else (model.fitted.user_ids, model.fitted.item_ids)


def read_user_items(model: FactorModel, user_items: Any, count: int, values_matter: bool) -> Interactions:
    """The histories of the call: one row per user asked for, columns as in training."""
    if isinstance(user_items, (int, np.integer)) and not isinstance(user_items, bool):
        raise InvalidParameter(
            "The second argument of recommend is user_items, as in implicit.",
            hint=f"write N={user_items} if you meant N",
        )
    if sp.issparse(user_items):
        matrix: Any = user_items
        if len(matrix.shape) == 1:  # what indexing a csr_array by one user gives
            user_items = matrix.reshape(1, -1).tocsr()
        if not values_matter:  # as_interactions would warn of values that nobody is going to use
            user_items = Interactions.from_csr(user_items, allow_empty=True)
    given = model._aligned(user_items)
    if given.n_users != count:
        raise InvalidData(
            f"user_items must have one row per user asked for, in their order: {count:,} users, "
            f"{given.n_users:,} rows. For users of training, pass user_items[users]."
        )
    return given


def read_filter(
    filter_items: Any, item_ids: Ids | None, n_items: int, count: int
) -> tuple[NDArray[np.int64] | None, Rows | None]:
    """filter_items as (positions for everyone, rows for each user): it is one of the two."""
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
    listed = list(filter_items)
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
    items: Sequence[Hashable] | NDArray[Any] | None,
    without: NDArray[np.int64] | None,
    item_ids: Ids | None,
    n_items: int,
) -> NDArray[np.int64] | None:
    """Candidates less what is filtered for everyone, ascending and without repeats; None for the whole catalogue."""
    if items is not None and not _is_list(items):
        raise InvalidParameter(f"items must be a list of items. Got {items!r} instead.")
    chosen = None if items is None else np.unique(positions(list(items), item_ids, n_items, "item"))
    if without is None or len(without) == 0:
        return chosen
    return np.setdiff1d(np.arange(n_items) if chosen is None else chosen, without)


def _is_list(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes))


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise InvalidParameter unless the value is one of the words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameter(f"{name} must be {' or '.join(map(repr, choices))}. Got {value!r} instead.")


USERS_AT_ONCE = 4096  # users answered per block: bounds memory at block x N, whatever the number of users
Names = Sequence[Hashable] | NDArray[Any]
Lists = tuple[NDArray[np.int32], NDArray[np.float32]]


def answer(model: FactorModel, request: Request, start: int, stop: int, who: Names) -> Lists:
    """The lists of users start..stop of a request; `who` names them if one has to be named in an error."""
    given = None if request.given is None else request.given.take_users(np.arange(start, stop))
    rows = None if request.users is None else request.users[start:stop]
    stored = stored_histories(model, request, rows, given)
    history = given if given is not None else stored
    users, items = serving_vectors(model, request, rows, history)
    liked = history.by_user if request.filter_liked and history is not None else None
    filtered = None if request.filtered is None else request.filtered.block(start, stop)
    backend = model._backend()
    with backend.threads(model.num_threads):
        lists, scores = top_n(backend, users, items, request.N, merged(liked, filtered), request.allowed)
    new = np.flatnonzero(~has_history(request, given, stored, users))
    if len(new):
        if request.no_history == "error":
            raise InvalidData(
                f"{len(new):,} of {stop - start:,} users have no history, the first is {plain(who[start + new[0]])!r}.",
                hint="no_history='popular' gives them the most popular items",
            )
        barred = None if filtered is None else filtered.take(new)
        lists[new] = popular_n(model.fitted.most_popular, len(new), request.N, barred, request.allowed)
        scores[new] = np.nan
    return lists, scores


def serving_vectors(
    model: FactorModel, request: Request, rows: NDArray[np.int64] | None, history: Interactions | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The user and item vectors whose inner products are the scores."""
    fitted = model.fitted
    if from_sensitivity(model, request):
        users = dialled_users(model, rows, request.fairness)
    elif request.recalculate:
        options = {} if request.fairness is None else {"fairness": request.fairness}
        users = model.fold_in(history, **options)
    else:
        users = model.user_factors[rows]
    return fitted.serving_users(users), fitted.serving_items


def from_sensitivity(model: FactorModel, request: Request) -> bool:
    """Whether stored users are dialled by what the model holds of them instead of their histories."""
    fitted = model.fitted
    return (
        request.dial_only
        and request.given is None
        and fitted.interactions is None
        and fitted.user_sensitivity is not None
    )


def stored_histories(
    model: FactorModel, request: Request, rows: NDArray[np.int64] | None, given: Interactions | None
) -> Interactions | None:
    """The training histories of these users; None where the model has none and none are needed."""
    if rows is None:
        return None
    stored = model.fitted.interactions
    solved = request.recalculate and not from_sensitivity(model, request)
    if stored is None and given is None and (request.filter_liked or solved):
        asked = "recalculate a user or turn the dial" if solved else "leave out liked items"
        remedy = "" if solved else " or filter_already_liked_items=False"
        raise MissingHistories(
            f"This model was stored without its users' histories, which are needed to {asked}: pass user_items{remedy}."
        )
    return None if stored is None else stored.take_users(rows)


def has_history(
    request: Request, given: Interactions | None, stored: Interactions | None, users: NDArray[Any]
) -> NDArray[np.bool_]:
    """Which users the model can score: those with any interaction, in the call or in training."""
    known = [np.diff(h.by_user.indptr) > 0 for h in (given, stored) if h is not None]
    if given is not None and request.recalculate:
        return known[0]
    if not known:  # nothing tells; only a vector of zeros betrays a user without history
        nonzero: NDArray[np.bool_] = (users != 0).any(axis=1)
        return nonzero
    return known[0] if len(known) == 1 else known[0] | known[1]


def answer_all(model: FactorModel, request: Request, who: Names) -> Lists:
    """The lists of all users of a request."""
    lists, scores = empty_lists(request.count, request.N)
    for start in range(0, request.count, USERS_AT_ONCE):
        stop = min(start + USERS_AT_ONCE, request.count)
        lists[start:stop], scores[start:stop] = answer(model, request, start, stop, who)
    return lists, scores


def ranked(
    model: FactorModel, users: NDArray[Any], history: Interactions, N: int
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Top-N of each user vector without its history, in blocks: (first row, rows x N)."""
    backend, fitted = model._backend(), model.fitted
    for start in range(0, history.n_users, USERS_AT_ONCE):
        stop = min(start + USERS_AT_ONCE, history.n_users)
        rows = history.by_user.block(start, stop)
        with backend.threads(model.num_threads):
            lists, _ = top_n(backend, fitted.serving_users(users[start:stop]), fitted.serving_items, N, rows)
        empty = np.flatnonzero(np.diff(rows.indptr) == 0)
        lists[empty] = popular_n(fitted.most_popular, len(empty), N)
        yield start, lists
