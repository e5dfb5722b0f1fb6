"""Match lists, test and training data of any form by their ids, so that they can be evaluated (`evaluate_lists`).

1. `match_lists` reads the tables and finds the catalogue and the users.
2. Lists become an array of item positions, test and train become Interactions over the same items.
3. Everything that does not fit is named in an error or a warning: how many, and the first of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids, is_missing
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split, build_matrix
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.list_tables import Codes, Pairs, named_examples, names_of, read_lists, read_pairs
from fairmf.types import Array

MISSING = ("error", "zero", "drop")
UNION = "union"


@dataclass(frozen=True)
class ListOptions:
    """Hold the arguments of `evaluate_lists` that say how to read lists and match ids."""

    items: Iterable[Hashable] | str | None = None
    users: Sequence[Hashable] | Array | None = None
    by: str | None = None
    missing: str = "error"
    columns: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise InvalidParameter(
                f"The 'missing' parameter of evaluate_lists must be one of {MISSING}. Got {self.missing!r} instead."
            )
        if self.by not in (None, "position", "id"):
            raise InvalidParameter(
                f"The 'by' parameter of evaluate_lists must be 'position' or 'id'. Got {self.by!r} instead."
            )
        if isinstance(self.items, str) and self.items != UNION:
            raise InvalidParameter(
                f"The 'items' parameter of evaluate_lists must be a list of item ids or 'union'. Got {self.items!r}."
            )


class Matched(NamedTuple):
    """Lists as item positions, a row per user of `held_out`, and the training data over the same items."""

    lists: NDArray[np.integer]
    held_out: HeldOut
    train: Interactions | None


class _Given(NamedTuple):
    """Lists before they are matched: the ids of their users, and item positions."""

    user_ids: list[Hashable]
    items: NDArray[np.int64]


def match_lists(lists: Any, test: Any, train: Any, longest: int, options: ListOptions) -> Matched:
    """Match lists with test and training data by ids; keep the first `longest` items of every list."""
    if isinstance(test, Split):
        raise InvalidData("Lists are evaluated on a HeldOut, not on Split: choose split.validation or split.test.")
    if isinstance(test, HeldOut):
        return _match_held_out(lists, test, train, longest, options)
    targets = read_pairs(test, "test", options.columns)
    past = None if train is None else read_pairs(train, "train", options.columns)
    read = None if _is_array(lists) else read_lists(lists, options.columns)
    catalogue = _Catalogue.of(_catalogue(targets, past, read, lists, options))
    if read is not None:
        given = _ragged(read, catalogue, longest)
    else:
        # The rows of Interactions have an order that a caller knows; users of a table do not.
        rows = targets.user_ids if isinstance(test, Interactions) else []
        given = _array(lists, options, catalogue, rows)
        if _by_position(lists, options) and names_of(catalogue.ids, 0)[: len(targets.item_ids)] != targets.item_ids:
            raise InvalidData("Lists hold positions, but train and test have other items.", hint="give ids: by='id'")
    target_items = catalogue.places(targets.item_ids, "Test")[targets.items]
    known = _users_of(targets, given, options.missing)
    place = {user: k for k, user in enumerate(known)}
    n, m, ids, user_ids = len(known), len(catalogue.ids), catalogue.ids, Ids(known)
    wanted = _matrix(_places(targets.user_ids, place)[targets.users], target_items, (n, m), user_ids, ids)
    seen = _matrix(*(np.empty(0, dtype=np.int64),) * 2, (n, m), user_ids, ids)
    training = None
    if past is not None:
        past_items = catalogue.places(past.item_ids, "Training data", needed=np.unique(past.items))[past.items]
        trained = (len(past.user_ids), m)
        training = _matrix(past.users, past_items, trained, Ids(past.user_ids), ids)
        seen = _matrix(_places(past.user_ids, place)[past.users], past_items, (n, m), user_ids, ids, without=wanted)
    return Matched(_aligned(given, place, n), HeldOut(seen, wanted), training)


def _match_held_out(lists: Any, held_out: HeldOut, train: Any, longest: int, options: ListOptions) -> Matched:
    if options.items is not None:
        raise InvalidParameter("'items' is for test data without a catalogue; a HeldOut has its own.")
    seen = held_out.fold_in
    if train is not None and not isinstance(train, Interactions):
        train = _training(train, seen, options)
    if _is_array(lists) and options.users is None and _by_position(lists, options):
        return Matched(lists, held_out, train)  # as `evaluate` ranks them: checked there
    catalogue = _Catalogue.of(names_of(seen.item_ids, seen.n_items))
    users = names_of(seen.user_ids, seen.n_users)
    place = {user: k for k, user in enumerate(users)}
    if _is_array(lists):
        given = _array(lists, options, catalogue, users)
    else:
        given = _ragged(read_lists(lists, options.columns), catalogue, longest)
    rows = _places(given.user_ids, place)
    if (rows < 0).any():
        others = [user for user, row in zip(given.user_ids, rows.tolist(), strict=True) if row < 0]
        if len(others) == len(rows):
            raise InvalidData(
                f"None of the {len(rows):,} users with lists is in the held-out data: lists have users such as "
                f"{named_examples(others, 2)}, the held-out data {named_examples(users, 2)}."
            )
        warnings.warn(
            f"Lists of {len(others):,} users who are not in the held-out data are left out: {named_examples(others)}",
            UserWarning,
            stacklevel=4,
        )
        given = _Given([given.user_ids[k] for k in np.flatnonzero(rows >= 0)], given.items[rows >= 0])
    n_targets = np.diff(held_out.targets.by_user.indptr)
    there = np.zeros(len(users), dtype=bool)
    there[rows[rows >= 0]] = True
    _check_missing([users[k] for k in np.flatnonzero(~there & (n_targets > 0))], options.missing)
    # Users with neither a list nor targets do not count; those with targets count unless they are dropped.
    keep = there if options.missing == "drop" else there | (n_targets > 0)
    if keep.all():
        return Matched(_aligned(given, place, len(users)), held_out, train)
    chosen = np.flatnonzero(keep)
    kept = [users[k] for k in chosen]
    fold_in, targets = (
        Interactions(part.by_user.take(chosen), part.n_items, Ids(kept), part.item_ids)
        for part in (held_out.fold_in, held_out.targets)
    )
    return Matched(_aligned(given, {u: k for k, u in enumerate(kept)}, len(kept)), HeldOut(fold_in, targets), train)


class _Catalogue(NamedTuple):
    ids: Ids
    place: dict[Hashable, int]

    @classmethod
    def of(cls, names: Sequence[Hashable]) -> _Catalogue:
        ids = Ids(names).check("item")
        return cls(ids, {item: k for k, item in enumerate(ids.values.tolist())})

    def places(self, names: Sequence[Hashable], what: str, needed: Codes | None = None) -> Codes:
        """Return the positions of item ids; raise InvalidData if `what` holds items that are not in the catalogue."""
        found = _places(names, self.place)
        asked = np.arange(len(names)) if needed is None else needed
        unknown = [names[k] for k in asked.tolist() if found[k] < 0]
        if unknown:
            kinds = {type(x).__name__ for x in unknown}, {type(x).__name__ for x in self.ids.values[:100].tolist()}
            of_kind, known = (", ".join(sorted(kind)) for kind in kinds)
            other = "" if kinds[0] & kinds[1] else f" (ids of type {of_kind}; the catalogue has {known})"
            raise InvalidData(
                f"{what}: {len(unknown):,} of {len(asked):,} items are not in the catalogue of {len(self.ids):,} "
                f"items, such as {named_examples(unknown)}{other}.",
                hint="name the whole catalogue with {parameter}; 'union' stands for the items of lists, test and train",
                parameter="items",
            )
        return found


def _catalogue(
    targets: Pairs, past: Pairs | None, read: Pairs | None, lists: Any, options: ListOptions
) -> list[Hashable]:
    """Return the ids of all items: as given, else those of train and test; with "union" those of lists too."""
    if options.items is not None and not isinstance(options.items, str):
        given = options.items.values if isinstance(options.items, Ids) else options.items
        return list(given.tolist() if isinstance(given, np.ndarray) else given)
    names = dict.fromkeys([*([] if past is None else past.item_ids), *targets.item_ids])
    if options.items == UNION:
        own = read.item_ids if read is not None else np.asarray(lists).ravel().tolist()
        names |= dict.fromkeys(item for item in own if not (is_missing(item) or (read is None and item == -1)))
    return list(names)


def _users_of(targets: Pairs, given: _Given, missing: str) -> list[Hashable]:
    """Return the users: those with targets, then those with lists alone."""
    with_targets = [targets.user_ids[k] for k in np.unique(targets.users)]
    listed = dict.fromkeys(given.user_ids)
    lacking = [user for user in with_targets if user not in listed]
    _check_missing(lacking, missing)
    kept = with_targets if missing != "drop" else [user for user in with_targets if user in listed]
    return list(dict.fromkeys([*kept, *listed]))


def _check_missing(lacking: list[Hashable], missing: str) -> None:
    if lacking and missing == "error":
        raise InvalidData(
            f"{len(lacking):,} users with test items have no list: {named_examples(lacking)}.",
            hint="{parameter}='zero' scores them 0, {parameter}='drop' leaves them out",
            parameter="missing",
        )


def _ragged(read: Pairs, catalogue: _Catalogue, longest: int) -> _Given:
    """Turn sorted pairs into an array users x slots, -1 where a list is shorter."""
    positions = catalogue.places(read.item_ids, "Lists")
    order = np.argsort(read.users, kind="stable")  # sorted already, except where a mapping gave them
    users = read.users[order]
    lengths = np.bincount(users, minlength=len(read.user_ids))
    slot = np.arange(len(users)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    items = np.full((len(read.user_ids), min(int(lengths.max(initial=0)), longest)), -1, dtype=np.int64)
    inside = slot < items.shape[1]
    items[users[inside], slot[inside]] = positions[read.items[order]][inside]
    return _Given(read.user_ids, items)


def _array(lists: Any, options: ListOptions, catalogue: _Catalogue, rows: list[Hashable]) -> _Given:
    """Turn an array of lists into positions; its rows are the users= given, else `rows`."""
    array = np.asarray(lists)
    if array.ndim != 2 or array.dtype.kind == "f":
        raise InvalidData("Lists must be a two-dimensional array of item ids or positions, one row per user.")
    if options.users is not None:
        named = options.users.tolist() if isinstance(options.users, np.ndarray) else list(options.users)
    else:
        named = rows
    if len(named) != len(array):
        raise InvalidData(
            f"There are {len(array):,} lists and {len(named):,} users.",
            hint="name the users of the rows with users=",
            parameter="users",
        )
    if len(dict.fromkeys(named)) != len(named):
        raise InvalidData("users names a user twice.", parameter="users")
    if _by_position(lists, options):
        return _Given(named, array)
    names, codes = _distinct(array)
    empty = np.array([is_missing(name) or (name == -1 and -1 not in catalogue.place) for name in names], dtype=bool)
    places = np.full(len(names), -1, dtype=np.int64)
    filled = np.flatnonzero(~empty)
    places[filled] = catalogue.places([names[k] for k in filled], "Lists")
    return _Given(named, places[codes].reshape(array.shape))


def _distinct(array: Array) -> tuple[list[Hashable], Codes]:
    place: dict[Hashable, int] = {}
    flat = array.ravel().tolist()
    codes = np.fromiter((place.setdefault(value, len(place)) for value in flat), np.int64, len(flat))
    return list(place), codes


def _aligned(given: _Given, place: dict[Hashable, int], n: int) -> NDArray[np.int64]:
    """Return the lists in the order of the users; users without a list get an empty one."""
    result = np.full((n, given.items.shape[1]), -1, dtype=np.int64)
    rows = _places(given.user_ids, place)
    result[rows[rows >= 0]] = given.items[rows >= 0]
    return result


def _training(train: Any, like: Interactions, options: ListOptions) -> Interactions:
    past = read_pairs(train, "train", options.columns)
    catalogue = _Catalogue.of(names_of(like.item_ids, like.n_items))
    items = catalogue.places(past.item_ids, "Training data")[past.items]
    found = _matrix(past.users, items, (len(past.user_ids), like.n_items), Ids(past.user_ids), catalogue.ids)
    return Interactions(found.by_user, found.n_items, found.user_ids, like.item_ids)


def _matrix(
    users: Codes,
    items: Codes,
    shape: tuple[int, int],
    user_ids: Ids,
    item_ids: Ids,
    without: Interactions | None = None,
) -> Interactions:
    """Build the matrix of the pairs, each once; pairs of users at -1, and those of `without`, are left out."""
    keys = np.unique((users * shape[1] + items)[users >= 0])
    if without is not None:
        rows: Rows = without.by_user
        own = np.repeat(np.arange(rows.count, dtype=np.int64) * shape[1], np.diff(rows.indptr)) + rows.indices
        keys = keys[~np.isin(keys, own)]
    row, column = np.divmod(keys, max(shape[1], 1))
    return build_matrix(row, column, *shape, user_ids=user_ids, item_ids=item_ids)


def _places(names: Iterable[Hashable], place: Mapping[Hashable, int]) -> Codes:
    listed = list(names)
    return np.fromiter((place.get(name, -1) for name in listed), np.int64, len(listed))


def _is_array(lists: Any) -> bool:
    return isinstance(lists, np.ndarray) or (
        isinstance(lists, list | tuple) and all(isinstance(row, list | tuple | np.ndarray) for row in lists)
    )


def _by_position(lists: Any, options: ListOptions) -> bool:
    """Return whether an array holds positions: if so asked, or by default integers without named users."""
    if options.by is not None:
        return options.by == "position"
    return options.users is None and np.asarray(lists).dtype.kind in "iuf"
