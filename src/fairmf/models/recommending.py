"""How `recommend` answers: vectors, what is left out, the N best, and what users without history are given."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData, MissingHistories
from fairmf.interactions import Interactions
from fairmf.interactions.ids import plain
from fairmf.models.dial import dialled_users
from fairmf.models.requests import Request
from fairmf.ranking import merged, popular_n, top_n
from fairmf.ranking.top_n import empty_lists

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

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
                f"{len(new):,} of {stop - start:,} users have no history, the first is {plain(who[start + new[0]])!r}; "
                "no_history='popular' gives them the most popular items."
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
