"""Answer `recommend_for`: many histories, each with its own level, filters and length, ranked together.

Order of calls: `read` checks a request and turns names into rows; `user_vectors` solves the histories; `ranked` finds
the best items at each request's own level, and requests without a history get popular items (`popular_list`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.backends.contract import Factors, ItemScale, Vector
from fairmf.data.csr import Rows, summed_weights
from fairmf.data.ids import Ids, Names, as_list, named
from fairmf.data.interactions import Interactions
from fairmf.errors import FairmfError, InvalidData, InvalidParameter, NotFinite, UnknownItems
from fairmf.io.values import plain
from fairmf.models import fold_in_systems as systems
from fairmf.models.evenness import Level
from fairmf.models.fitted import Fitted, check_fairness
from fairmf.models.history_request import HistoryAnswer, HistoryModel, HistoryRequest
from fairmf.models.recommend import check_choice
from fairmf.ranking.top_n import Lists, list_length, popular_n, top_n

if TYPE_CHECKING:
    from fairmf.models.serving_state import ServingState

List: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float32]]
Search: TypeAlias = Callable[[Factors, Sequence["Asked"], Rows, Vector | None], Lists]
"""Ranks items for user vectors, without the items of each row: an index in place of `ServingState.rank`."""
NO_LIST: List = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
NO_ITEMS = np.empty(0, dtype=np.int64)
PLAIN_TYPES = frozenset((int, str))  # of ids that need no conversion
TINY = 1e-30
LARGEST = float(np.finfo(np.float32).max)
NAMED_IN_ERRORS = 10  # unknown items that a message lists


def answers_or_errors(
    model: HistoryModel,
    requests: Sequence[HistoryRequest],
    errors: str,
    prices: ArrayLike | None,
    search: Search | None = None,
) -> list[HistoryAnswer | FairmfError]:
    """Return an answer for each request, or with errors="return" the error that it raises."""
    check_choice("errors", errors, ("raise", "return"))
    added = None if prices is None else check_prices(prices, len(model.item_factors))
    if errors == "raise":
        return list(answers(model, requests, added, search))
    found: list[HistoryAnswer | FairmfError | None] = [None] * len(requests)
    good = []
    for at, request in enumerate(requests):
        try:
            good.append((at, _asked(model, request)))
        except FairmfError as error:
            found[at] = error
    for (at, _), answer in zip(good, _answers(model, [asked for _, asked in good], added, search), strict=True):
        found[at] = answer
    return [answer for answer in found if answer is not None]


def answers(
    model: HistoryModel,
    requests: Sequence[HistoryRequest],
    prices: Vector | None = None,
    search: Search | None = None,
) -> list[HistoryAnswer]:
    """Return the answers of all requests; raise the first error."""
    return _answers(model, [_asked(model, request) for request in requests], prices, search)


def check_prices(prices: ArrayLike, n_items: int) -> Vector:
    """Return prices as float64; raise InvalidData unless there is a finite one for each item."""
    found = np.ascontiguousarray(prices, dtype=np.float64)
    if found.shape != (n_items,) or not np.isfinite(found).all():
        raise InvalidData(f"prices must be {n_items:,} finite numbers, one per item.", parameter="prices")
    return found


def _asked(model: HistoryModel, request: HistoryRequest) -> Asked:
    """Read a request; a stored user's history takes the place of a given one."""
    asked = read(model.fitted, request)
    if asked.user is None:
        return asked
    held = model.fitted.interactions
    if held is None and asked.filter_liked:
        model.fitted.histories("leaving out liked items")  # raises
    columns = np.empty(0, dtype=np.int32) if held is None else held.by_user.row(asked.user)[0]
    return asked._replace(columns=columns)


def _answers(
    model: HistoryModel, asked: Sequence[Asked], prices: Vector | None, search: Search | None
) -> list[HistoryAnswer]:
    fitted = model.fitted
    vectors, known = user_vectors(model, asked)
    lists: list[List] = [NO_LIST] * len(asked)
    together = []
    for place, one in enumerate(asked):
        if not known[place]:
            rows = popular_list(fitted, one, prices)
            lists[place] = rows, np.full(len(rows), np.nan, dtype=np.float32)
        elif on_cpu(model) and fitted.serving.ranks(one.level):
            together.append(place)
        else:
            lists[place] = ranked_alone(model, vectors[place : place + 1], one, prices)
    for restricted in (False, True):
        chosen = [place for place in together if (asked[place].allowed is not None) == restricted]
        if chosen:
            found = ranked_together(fitted.serving, vectors[chosen], [asked[p] for p in chosen], prices, search)
            for place, rows, scores in zip(chosen, *found, strict=True):
                lists[place] = rows[: asked[place].N], scores[: asked[place].N]
    return [
        HistoryAnswer(named(rows, fitted.item_ids), scores, one.level, not has, one.unknown, one.unknown_user)
        for one, has, (rows, scores) in zip(asked, known.tolist(), lists, strict=True)
    ]


def on_cpu(model: HistoryModel) -> bool:
    """Return whether the kernels for single requests can be used: they are for the cpu, in float32."""
    return model.item_factors.dtype == np.float32 and model._backend().name == "cpu"


def user_vectors(model: HistoryModel, asked: Sequence[Asked]) -> tuple[Factors, NDArray[np.bool_]]:
    """Return a vector for each request, and which of them have a history."""
    fitted = model.fitted
    vectors = np.zeros((len(asked), fitted.item_factors.shape[1]), dtype=fitted.item_factors.dtype)
    known, together = np.zeros(len(asked), dtype=bool), []
    for place, one in enumerate(asked):
        options = {} if one.level.fairness is None else {"fairness": one.level.fairness}
        if one.user is not None:
            row = np.array([one.user])
            vectors[place] = model._at_fairness(row, **options)[0] if options else fitted.user_factors[one.user]
            held = fitted.interactions
            known[place] = vectors[place].any() if held is None else likes_some(*held.by_user.row(one.user))
        elif len(one.columns):
            known[place] = likes_some(one.columns, one.weights)
            dislikes = one.weights is not None and bool((one.weights < 0).any())
            if on_cpu(model) and fitted.serving.folds and not dislikes:
                together.append(place)
            else:
                rows = Rows(np.array([0, len(one.columns)]), one.columns, one.weights)
                history = Interactions(rows, len(fitted.item_factors), None, fitted.item_ids)
                vectors[place] = model.fold_in(history, **options)[0]
    if together:
        vectors[together] = folded(model, [asked[place] for place in together])
    return vectors, known


def likes_some(columns: NDArray[np.int32], weights: NDArray[np.float32] | None) -> bool:
    """Return whether a history has an item that is no dislike: dislikes alone rank nothing."""
    return len(columns) > 0 if weights is None else bool((weights > 0).any())


def folded(model: HistoryModel, asked: Sequence[Asked]) -> Factors:
    """Return the vectors of histories, all in one call, where `ServingState.folds`."""
    fitted = model.fitted
    rows = joined([one.columns for one in asked])
    if any(one.weights is not None for one in asked):
        own = [np.ones(len(one.columns), dtype=np.float32) if one.weights is None else one.weights for one in asked]
        rows = rows._replace(weights=np.concatenate(own))
    psi = [fitted.fairness if one.level.fairness is None else one.level.fairness for one in asked]
    return _solved(model, rows, psi)


def _solved(model: HistoryModel, rows: Rows, psi: list[float]) -> Factors:
    vectors = systems.few(model, systems.weighted(model.fitted, rows), np.array(psi, dtype=np.float64))
    if not systems.solved(vectors):
        raise NotFinite(f"{type(model).__name__}: a history has no finite vector.")
    return vectors


def fold_one(
    model: HistoryModel, items: Hashable | Names, weights: ArrayLike | None, fairness: float | None
) -> Factors | None:
    """Return the vector of one history at a fairness; None for models whose `ServingState` does not fold."""
    fitted, missing = model.fitted, {}  # type: ignore[var-annotated]
    psi = fitted.fairness if fairness is None else check_fairness(fairness)
    if not on_cpu(model) or not fitted.serving.folds:
        return None
    columns, own = _history(items, weights, fitted.item_ids, len(fitted.item_factors), missing)
    if missing:
        raise unknown_items(tuple(missing))
    if own is not None and bool((own < 0).any()):
        return None  # the kernels for few histories know no dislikes
    found = None if own is not None else fitted.serving.fold_ones(columns, psi)
    return (
        found
        if found is not None and systems.solved(found)
        else _solved(model, Rows(np.array([0, len(columns)]), columns, own), [psi])
    )


def ranked_together(
    serving: ServingState,
    users: Factors,
    asked: Sequence[Asked],
    prices: Vector | None,
    search: Search | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the best items of each user vector at its own level; all requests have candidates, or none has."""
    levels, lengths = [one.level for one in asked], np.array([one.N for one in asked])
    hidden = [_hidden(one) for one in asked]
    if asked[0].allowed is None:
        barred = joined(hidden)
        if search is not None:
            return search(users, asked, barred, prices)
        return serving.rank(users, levels, lengths, barred, prices)
    left = [_without(one.allowed, own) for one, own in zip(asked, hidden, strict=True)]
    return serving.rank_candidates(users, levels, lengths, joined(left), prices)


def _hidden(asked: Asked) -> NDArray[np.int32]:
    """Return the items that a request must not be given, ascending."""
    if not asked.filter_liked:
        return np.sort(asked.barred)
    return np.sort(np.concatenate((asked.barred, asked.columns))) if len(asked.barred) else asked.columns


def _without(allowed: NDArray[np.int64] | None, barred: NDArray[np.int32]) -> NDArray[np.int64]:
    return NO_ITEMS if allowed is None else np.setdiff1d(allowed, barred.astype(np.int64))


def joined(columns: Sequence[NDArray[np.integer]]) -> Rows:
    """Return sparse rows of these columns."""
    if len(columns) == 1:
        return Rows(np.array([0, len(columns[0])]), columns[0].astype(np.int32, copy=False), None)
    indptr = np.zeros(len(columns) + 1, dtype=np.int64)
    np.cumsum([len(own) for own in columns], out=indptr[1:])
    return Rows(indptr, np.concatenate(columns).astype(np.int32, copy=False), None)


def ranked_alone(model: HistoryModel, users: Factors, asked: Asked, prices: Vector | None) -> List:
    """Return the best items of one user vector at a request's level, on any backend."""
    fitted, backend = model.fitted, model._backend()
    hidden = np.concatenate([asked.barred, asked.columns]) if asked.filter_liked else asked.barred
    exclude = joined([hidden])
    with backend.threads(model.num_threads):
        dial = priced(fitted.item_scale(asked.level), prices)
        lists, scores = top_n(backend, users, fitted.item_factors, asked.N, exclude, asked.allowed, dial)
    return lists[0], scores[0]


def priced(dial: ItemScale | None, prices: Vector | None) -> ItemScale | None:
    """Return the dial with prices added to its offsets."""
    if prices is None:
        return dial
    scale, offset = dial or ItemScale()
    return ItemScale(scale, (prices if offset is None else prices + offset).astype(np.float32))


def popular_list(fitted: Fitted, asked: Asked, prices: Vector | None = None) -> NDArray[np.int32]:
    """Return the list of somebody without history: popular items, evened by the level of the request.

    Their popularity, in the units of the items' mean scores, is dialled like any score; without a level these are the
    most popular items.
    """
    order, dial = fitted.most_popular, priced(fitted.item_scale(asked.level), prices)
    if dial is not None:
        scores = fitted.popularity * (fitted.item_dial.mean.std() / max(float(fitted.popularity.std()), TINY))
        scores = scores if dial.scale is None else scores * dial.scale
        scores = scores if dial.offset is None else scores + dial.offset
        order = np.argsort(-scores, kind="stable").astype(np.int32)
    own = asked.barred
    if asked.filter_liked and len(asked.columns):  # dislikes alone
        own = np.union1d(own, asked.columns).astype(np.int32)
    barred = Rows(np.array([0, len(own)]), own, None)
    found: NDArray[np.int32] = popular_n(order, 1, asked.N, barred, asked.allowed)[0]
    return found


# -- reading requests -------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A request that was checked, with rows in place of names."""

    N: int
    level: Level
    columns: NDArray[np.int32]
    """Items of the history, ascending, no repeats."""
    weights: NDArray[np.float32] | None
    """Their raw confidences; None where all are 1."""
    barred: NDArray[np.int32]
    """Items that must not be given, without those of the history."""
    allowed: NDArray[np.int64] | None
    """The items that may be given, ascending, no repeats; None for all."""
    filter_liked: bool
    user: int | None
    """The row of a stored user."""
    unknown: tuple[Hashable, ...] = ()
    unknown_user: bool = False


def read(fitted: Fitted, request: HistoryRequest) -> Asked:
    """Check a request and turn its names into rows."""
    m, ids, skip = len(fitted.item_factors), fitted.item_ids, request.unknown == "skip"
    if not skip and request.unknown != "error":
        raise InvalidParameter(f"unknown must be 'error' or 'skip'. Got {request.unknown!r} instead.")
    level = fitted.served(request.evenness, request.fairness)
    N = list_length(request.N, m)
    missing: dict[Hashable, None] = {}
    columns, values = _history(request.items, request.weights, ids, m, missing)
    barred = NO_LIST[0]
    if request.exclude is not None:
        barred = np.array(_rows(request.exclude, ids, m, missing, "exclude"), dtype=np.int32)
    allowed = None
    if request.candidates is not None:  # an empty list has to become an array of integers too
        allowed = np.unique(np.array(_rows(request.candidates, ids, m, missing, "candidates"), dtype=np.int64))
    if missing and not skip:
        raise unknown_items(tuple(missing))
    row = None if request.user is None else _user_row(fitted, request, skip, len(columns))
    return Asked(
        N, level, columns, values, barred, allowed, bool(request.filter_liked),
        None if row is None or row < 0 else row, tuple(missing), row == -1,
    )  # fmt: skip


def unknown_items(names: tuple[Hashable, ...]) -> UnknownItems:
    """Return the error that names unknown items."""
    shown = ", ".join(map(repr, names[:NAMED_IN_ERRORS])) + (", ..." if len(names) > NAMED_IN_ERRORS else "")
    return UnknownItems(
        f"{len(names):,} items are unknown to the model: {shown}.",
        hint="unknown='skip' leaves them out", parameter="items", unknown=names,
    )  # fmt: skip


def _history(
    items: Hashable | Names,
    weights: ArrayLike | None,
    ids: Ids | None,
    m: int,
    missing: dict[Hashable, None],
) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
    rows = _rows(items, ids, m, missing, "items", drop=weights is None)
    if weights is None:
        return np.array(sorted(set(rows)), dtype=np.int32), None
    columns, given = np.array(rows, dtype=np.int64), np.atleast_1d(np.asarray(weights, dtype=np.float64))
    if given.shape != columns.shape:
        raise InvalidData(f"There must be one weight for each of the {len(columns):,} items; got {given.size:,}.")
    if not (np.abs(given) <= LARGEST).all():
        raise InvalidData("An interaction's weight must be finite.")
    return summed_weights(columns[columns >= 0], given[columns >= 0])


def _rows(
    names: Hashable | Names | None, ids: Ids | None, m: int, missing: dict[Hashable, None], what: str, drop: bool = True
) -> list[int]:
    """Return the rows of items, and add unknown names to `missing`: these are dropped, or -1 without `drop`."""
    if names is None or (isinstance(names, tuple) and not names):  # any other tuple is an id
        return []
    listed = names.tolist() if isinstance(names, np.ndarray) and names.ndim == 1 else names
    if not isinstance(listed, (list, set, frozenset, range)):
        listed = list(as_list(listed))
    known = None if ids is None else ids._positions
    try:
        if known is not None:
            if not PLAIN_TYPES.issuperset(map(type, listed)):
                listed = [plain(x) for x in listed]
            rows = list(map(known.get, listed, itertools.repeat(-1)))
        else:
            rows = [_row_number(x, m, what) for x in listed]
    except TypeError as error:
        raise InvalidData(f"An item is named by a number, a string or a tuple: {error}.", parameter=what) from error
    if -1 in rows:
        missing.update((plain(x), None) for x, row in zip(listed, rows, strict=True) if row < 0)
        rows = [row for row in rows if row >= 0] if drop else rows
    return rows


def _row_number(name: Hashable, m: int, what: str) -> int:
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return int(name) if 0 <= name < m else -1
    raise InvalidData(f"Items are named by row number in a model without item ids. Got {name!r} in {what}.")


def _user_row(fitted: Fitted, request: HistoryRequest, skip: bool, history: int) -> int:
    """Return the row of the stored user; -1 for an unknown one that is skipped."""
    if history or request.weights is not None:
        raise InvalidParameter("Give a user or the items of a history, not both.", parameter="user")
    user, ids = plain(request.user), fitted.user_ids
    try:
        row = _row_number(user, len(fitted.user_factors), "user") if ids is None else ids._positions.get(user, -1)
    except TypeError as error:
        raise InvalidData(f"A user is named by a number, a string or a tuple: {error}.", parameter="user") from error
    if row < 0 and not skip:
        raise InvalidData(
            f"The user {user!r} is unknown to the model.",
            hint="give a history, or unknown='skip' for popular items", parameter="user",
        )  # fmt: skip
    return row
