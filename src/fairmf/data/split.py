"""Hold training data with a validation and a test set, and check that they do not overlap."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fairmf import html
from fairmf.data.csr import Rows
from fairmf.data.events import Events
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData
from fairmf.lazy import lazy_module
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.data import split_io
    from fairmf.data.weighting import Weighting
else:
    split_io = lazy_module("fairmf.data.split_io")  # it imports this module

# -- from rows of events (parallel arrays) to the matrices of a split -----------------------------------------------

Codes = NDArray[np.integer]
Method = Literal["by_user", "by_interaction", "by_time", "by_item"]


def build_matrix(
    users: Codes,
    items: Codes,
    n_users: int,
    n_items: int,
    *,
    weights: NDArray[np.float32] | None = None,
    user_ids: Ids | None = None,
    item_ids: Ids | None = None,
    weighting: Weighting | None = None,
) -> Interactions:
    """Build the matrix with an entry at every given (user, item) position. The pairs must be distinct."""
    # Sort by user, then item.
    order = np.argsort(users.astype(np.int64) * n_items + items, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(users, minlength=n_users)))).astype(np.int64)
    values = None if weights is None else weights[order].astype(np.float32)
    rows = Rows(indptr, items[order].astype(np.int32), values)
    return Interactions(rows, n_items, user_ids, item_ids, weighting)


def matrix_of(
    events: Events,
    rows: NDArray[np.int64] | NDArray[np.bool_] | slice,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    *,
    weighted: bool,
) -> Interactions:
    """Build the matrix of some events, whose row k is users[k] and whose column k is items[k].

    With `weighted` it keeps the events' weights; targets have none, because a target is found or not.
    """
    return build_matrix(
        positions_in(users, len(events.user_ids))[events.users[rows]],
        positions_in(items, len(events.item_ids))[events.items[rows]],
        len(users),
        len(items),
        weights=events.weights[rows] if weighted and events.weights is not None else None,
        user_ids=events.user_ids.take(users),
        item_ids=events.item_ids.take(items),
        weighting=events.weighting if weighted else None,
    )


def wanted(events: Events) -> NDArray[np.bool_]:
    """Return which events can be targets: all but dislikes."""
    return np.ones(len(events), dtype=bool) if events.weights is None else events.weights >= 0


def first_appearance(codes: Codes, n_codes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct codes in order of first appearance, and each code's place in that list (-1 if absent)."""
    # `unique` sorts; the first positions restore the order of appearance.
    distinct, first = np.unique(codes, return_index=True)
    listed = distinct[np.argsort(first)].astype(np.int64)
    return listed, positions_in(listed, n_codes)


def positions_in(listed: NDArray[np.int64], n_codes: int) -> NDArray[np.int64]:
    """Return for every code 0..n_codes-1 its place in `listed`, -1 where it is not there."""
    place = np.full(n_codes, -1, dtype=np.int64)
    place[listed] = np.arange(len(listed))
    return place


def events_of(data: Events | Interactions) -> Events:
    """Return events as they are, and a matrix as events: user by user, items ascending."""
    if isinstance(data, Events):
        return data
    if not isinstance(data, Interactions):
        raise InvalidData(f"A split needs Events or Interactions. Got {type(data).__name__} instead.")
    rows = data.by_user
    users = np.repeat(np.arange(rows.count, dtype=np.int32), np.diff(rows.indptr))
    # Users and items without ids are named by position, so that a row of a split can be traced back to the data.
    user_ids = Ids(np.arange(data.n_users)) if data.user_ids is None else data.user_ids
    item_ids = Ids(np.arange(data.n_items)) if data.item_ids is None else data.item_ids
    half_life = data.weighting if data.weighting is not None and data.weighting.how == "half_life" else None
    return Events(users, rows.indices, user_ids, item_ids, rows.weights, None, weighting=half_life)


def times_of(events: Events, owner: str) -> Array:
    """Return the times of events; raise InvalidData, in the name of a split, if there are none."""
    if not isinstance(events, Events):
        raise InvalidData(f"{owner} needs Events with times. Got {type(events).__name__} instead.")
    if events.times is None:
        raise InvalidData(f"{owner} needs events with times: name the time column when reading them.")
    if not len(events):
        raise InvalidData("There are no events to split.")
    return events.times


def ascending(ids: Ids, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort codes by the ids they stand for."""
    values = ids.values[codes]
    try:
        return codes[np.argsort(values, kind="stable")]
    except TypeError:
        kinds = sorted({type(v).__name__ for v in values.tolist()})
        raise InvalidData(
            f"The public protocol sorts the user ids, and these cannot be compared: they are of kinds "
            f"{', '.join(kinds)}. Give ids of one kind, or use protocol='seeded'."
        ) from None


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Hold the interactions of held-out users that a model may see (fold-in), and those it should find (targets).

    Parameters
    ----------
    fold_in, targets : Interactions
        Row i of both is the same user. A user's targets are not in the user's fold-in.
    known_users : bool
        Whether row i of `fold_in` is row i of the training data (weak generalisation). Then the user factors of the
        model are used; otherwise users are folded in.

    Raises
    ------
    InvalidData
        If users or items of the two differ, or they share interactions.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from fairmf import HeldOut, Interactions
    >>> seen = Interactions.from_csr(csr_array([[1, 0, 0], [0, 1, 1]]))
    >>> asked = Interactions.from_csr(csr_array([[0, 1, 1], [1, 0, 0]]))
    >>> HeldOut(seen, asked).n_scored
    2
    """

    fold_in: Interactions
    targets: Interactions
    known_users: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", self.targets.liked())  # a dislike is nothing to find
        if self.fold_in.n_users != self.targets.n_users:
            raise InvalidData(
                f"fold_in has {self.fold_in.n_users:,} users, targets has {self.targets.n_users:,}: "
                "both must have the same users as rows."
            )
        check_same_items("fold_in", self.fold_in, "targets", self.targets)
        if not _same_users(self.fold_in, self.targets):
            raise InvalidData("fold_in and targets have different user ids, or the same in another order.")
        _check_disjoint("fold_in", self.fold_in, "targets", self.targets)

    @property
    def n_users(self) -> int:
        """Number of users who get a list, including those without targets."""
        return self.fold_in.n_users

    @property
    def n_scored(self) -> int:
        """Number of users with at least one target: only they count in accuracy."""
        return int(np.count_nonzero(np.diff(self.targets.by_user.indptr)))

    def __repr__(self) -> str:
        return (
            f"HeldOut({self.n_users:,} users ({self.n_scored:,} with targets), "
            f"{self.fold_in.nnz:,} fold-in + {self.targets.nnz:,} targets"
            f"{', known users' if self.known_users else ''})"
        )


@dataclasses.dataclass(frozen=True)
class Split:
    """Hold training data with a validation and a test set over the same items.

    Parameters
    ----------
    train : Interactions
    validation, test : HeldOut
    method : "by_user", "by_interaction", "by_time" or "by_item"
        How users, interactions or items were divided. "by_user" means that no user is in two parts, which is checked
        where users have ids.

    Raises
    ------
    InvalidData
        If the parts have different items, or share what they must not share.

    Examples
    --------
    >>> from fairmf import split_by_interaction, synthetic
    >>> split = split_by_interaction(synthetic(n_users=60, n_items=50, n_interactions=900))
    >>> [row["part"] for row in split.summary()]
    ['train', 'validation', 'test']
    """

    train: Interactions
    validation: HeldOut
    test: HeldOut
    method: Method = "by_user"

    def __post_init__(self) -> None:
        for name, part in (("validation", self.validation), ("test", self.test)):
            check_same_items("train", self.train, f"{name}.fold_in", part.fold_in)
            if part.known_users:
                _check_known_users(name, self.train, part)
        if self.method == "by_user":
            _check_separate_users(self)
        elif self.method in ("by_interaction", "by_item"):
            _check_disjoint("validation.targets", self.validation.targets, "test.targets", self.test.targets)

    def summary(self) -> list[dict[str, str | int]]:
        """Count what each part holds.

        Returns
        -------
        list of dict
            A row for train, validation and test, with the numbers of users, users with targets ("scored"), items,
            interactions (of a held-out part: in the fold-in) and targets.
        """
        names = ("part", "users", "scored", "items", "interactions", "targets")
        train = self.train
        rows: list[tuple[str | int, ...]] = [("train", train.n_users, 0, train.n_items, train.nnz, 0)]
        for name, part in (("validation", self.validation), ("test", self.test)):
            sizes = (part.n_users, part.n_scored, part.fold_in.n_items, part.fold_in.nnz, part.targets.nnz)
            rows.append((name, *sizes))
        return [dict(zip(names, row, strict=True)) for row in rows]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the split, with ids and weights, to a folder that `Split.load` reads. Files have checksums.

        A split that the folder holds already is replaced in one step; other files are left alone.

        Parameters
        ----------
        folder : path
            It is created if it does not exist.

        Raises
        ------
        CannotWrite
            If the folder cannot be written.

        Examples
        --------
        >>> split.save("ml-20m-split")  # doctest: +SKIP
        """
        split_io.save_split(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Split:
        """Read a split that `save` wrote.

        Parameters
        ----------
        folder : path

        Returns
        -------
        Split

        Raises
        ------
        InvalidData
            If the folder does not hold a split.
        BrokenFile
            If a file is damaged, missing, or belongs to another split.

        Examples
        --------
        >>> Split.load("ml-20m-split")  # doctest: +SKIP
        """
        return split_io.load_split(folder)

    def _repr_html_(self) -> str:
        rows = self.summary()
        return html.title("Split", self.method) + html.table(list(rows[0]), [list(row.values()) for row in rows])

    def __repr__(self) -> str:
        parts = f"train={self.train!r},\n  validation={self.validation!r},\n  test={self.test!r}"
        return f"Split({self.method},\n  {parts})"


def pair_keys(data: Interactions) -> NDArray[np.int64]:
    """Return a number per interaction, user * n_items + item, ascending: a shared key is a shared pair."""
    rows = data.by_user
    users = np.repeat(np.arange(rows.count, dtype=np.int64), np.diff(rows.indptr))
    keys: NDArray[np.int64] = users * data.n_items + rows.indices
    return keys


def check_same_items(name: str, data: Interactions, other_name: str, other: Interactions) -> None:
    """Raise InvalidData unless both have the same items in the same order."""
    if data.n_items != other.n_items:
        raise InvalidData(
            f"{name} has {data.n_items:,} items, {other_name} has {other.n_items:,}: "
            "every part of a split must have the same items in the same order."
        )
    if data.item_ids is other.item_ids:
        return
    if data.item_ids is None or other.item_ids is None or data.item_ids != other.item_ids:
        raise InvalidData(
            f"{name} and {other_name} have different item ids, or the same in another order: "
            "every part of a split must have the same items in the same order."
        )


def _same_users(a: Interactions, b: Interactions) -> bool:
    return a.user_ids is b.user_ids or (a.user_ids is not None and b.user_ids is not None and a.user_ids == b.user_ids)


def _check_disjoint(name: str, data: Interactions, other_name: str, other: Interactions) -> None:
    if data.n_users != other.n_users:
        return  # rows are different users; nothing to compare
    keys, others = pair_keys(data), pair_keys(other)
    if not len(keys) or not len(others):
        return
    # Both are ascending, so a binary search finds shared pairs without a set.
    place = np.minimum(np.searchsorted(keys, others), len(keys) - 1)
    shared = np.flatnonzero(keys[place] == others)
    if len(shared):
        user, item = divmod(int(others[shared[0]]), data.n_items)
        raise InvalidData(
            f"{len(shared):,} interactions are both in {name} and in {other_name}, "
            f"the first is item {item} of user {user} (positions)."
        )


def _check_known_users(name: str, train: Interactions, part: HeldOut) -> None:
    rows, history = train.by_user, part.fold_in.by_user
    if part.fold_in is train:
        return
    same = np.array_equal(rows.indptr, history.indptr) and np.array_equal(rows.indices, history.indices)
    if not same or not _same_users(train, part.fold_in):
        raise InvalidData(f"{name} is marked known_users, but its fold_in is not the training data, row by row.")


def _check_separate_users(split: Split) -> None:
    parts = {"train": split.train, "validation": split.validation.fold_in, "test": split.test.fold_in}
    seen: dict[object, str] = {}
    for name, part in parts.items():
        if part.user_ids is None:
            continue
        listed = part.user_ids.values.tolist()
        twice = seen.keys() & set(listed)
        if twice:
            user = next(x for x in listed if x in twice)
            raise InvalidData(f"{len(twice):,} users are in two parts: {user!r} is in {seen[user]} and in {name}.")
        seen.update(dict.fromkeys(listed, name))
