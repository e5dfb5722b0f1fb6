"""Hold events: interactions as rows of users, items, weights and times, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import TIME_UNITS, check_weights
from fairmf.data.csr import frozen
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.params import check_count
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.data.weighting import Weighting

# Rows per step where NumPy needs temporary arrays of 8 bytes a row: keeps these at a few MB.
_CHUNK = 1 << 18


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """Hold one row per interaction event, including repeated pairs. Arrays are read-only.

    Parameters
    ----------
    users, items : arrays of int
        The codes of each row: positions in `user_ids` and `item_ids`. Stored as int32.
    user_ids, item_ids : Ids or sequence
        The ids by code. Readers number them in order of first appearance.
    weights : array of float, optional
        A confidence per row, finite; below 0 it is that of a dislike. Stored as float32.
    times : array of int or float, optional
        The time of each row.
    time_unit : {"s", "ms", "us", "ns"}, optional
        The unit of the times since 1970: "us" where they were read from dates, None where it is not known.
    weighting : HalfLife, optional
        The half-life that the weights contain already (`HalfLife.decayed`).

    Raises
    ------
    InvalidData
        If arrays differ in length, codes are out of range, or weights or times are not numbers that can be used.

    Examples
    --------
    >>> events = Events([0, 0, 1, 1], [0, 1, 1, 1], ["ann", "bob"], ["tea", "rum"])
    >>> events
    Events(4 rows, 2 users, 2 items)
    >>> len(events.without_duplicates())
    3
    """

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    user_ids: Ids
    item_ids: Ids
    weights: NDArray[np.float32] | None = None
    times: NDArray[np.int64] | NDArray[np.float64] | None = None
    time_unit: str | None = None
    weighting: Weighting | None = None

    def __post_init__(self) -> None:
        for kind in ("user", "item"):
            ids = getattr(self, f"{kind}_ids")
            # Ids objects were checked when they were made; checking them at every `select` would be slow.
            object.__setattr__(self, f"{kind}_ids", ids if isinstance(ids, Ids) else Ids(ids).check(kind))
        self._set("users", _codes(self.users, len(self.user_ids), "users", "user_ids"))
        self._set("items", _codes(self.items, len(self.item_ids), "items", "item_ids"))
        if self.weights is not None:
            with np.errstate(over="ignore"):
                weights = np.asarray(self.weights, dtype=np.float32)
            check_weights(weights, "The weights of these events")
            self._set("weights", weights)
        if self.times is not None:
            self._set("times", _as_times(self.times))
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            raise InvalidParameter(
                f"The 'time_unit' parameter of Events must be one of {', '.join(map(repr, TIME_UNITS))} or None. "
                f"Got {self.time_unit!r} instead."
            )

    def _set(self, name: str, array: Array) -> None:
        if array.shape != np.shape(self.users):
            raise InvalidData(
                f"{name!r} has shape {array.shape}, but there are {len(self.users):,} rows.",
                hint="give one value per row",
            )
        object.__setattr__(self, name, frozen(array))

    def _release(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Hand users and items over to a caller that overwrites them; these events are empty afterwards."""
        # The arrays behind the read-only views; a view of a part of an array is copied.
        users, items = (
            x.base
            if isinstance(x.base, np.ndarray) and x.base.shape == x.shape and x.base.dtype == x.dtype
            else x.copy()
            for x in (self.users, self.items)
        )
        for name in ("users", "items"):
            object.__setattr__(self, name, np.empty(0, dtype=np.int32))
        return users, items

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        extras = [name for name in ("weights", "times") if getattr(self, name) is not None]
        more = f", with {' and '.join(extras)}" if extras else ""
        return f"Events({len(self):,} rows, {len(self.user_ids):,} users, {len(self.item_ids):,} items{more})"

    # -- fewer rows ---------------------------------------------------------------------------------------------

    def select(self, rows: NDArray[Any]) -> Events:
        """Return some of the rows; codes and ids stay as they are.

        Parameters
        ----------
        rows : boolean mask, or array of positions in the wanted order

        Returns
        -------
        Events

        Raises
        ------
        InvalidParameter
            If the mask has another length, or positions are out of range.
        """
        rows = np.asarray(rows)
        if rows.dtype.kind == "b":
            if rows.shape != self.users.shape:
                raise InvalidParameter(f"The mask has shape {rows.shape}, but there are {len(self):,} rows.")
        elif rows.size == 0:
            rows = np.zeros(0, dtype=np.int64)
        elif rows.dtype.kind not in "iu" or rows.ndim != 1:
            raise InvalidParameter("Rows are selected by a boolean mask or by a list of integer positions.")
        elif rows.min() < 0 or rows.max() >= len(self):
            raise InvalidParameter(f"Positions must be from 0 to {len(self) - 1:,}.")
        return replace(
            self,
            users=self.users[rows],
            items=self.items[rows],
            weights=None if self.weights is None else self.weights[rows],
            times=None if self.times is None else self.times[rows],
        )

    def without_duplicates(self) -> Events:
        """Return the first row of every user-item pair, in the same order.

        Returns
        -------
        Events
        """
        first = first_of_pairs(self.users, self.items, len(self.item_ids))
        return self if first is None else self.select(first)

    def at_least(self, min_user: int = 0, min_item: int = 0) -> Events:
        """Drop items with fewer than `min_item` interactions, then users with fewer than `min_user` of what is left.

        This is one pass, as in the public protocol (docs/splitting.md), so an item may fall below its minimum again
        when users are dropped. Repeated pairs count once.

        Parameters
        ----------
        min_user, min_item : int
            0 and 1 drop nothing.

        Returns
        -------
        Events

        Raises
        ------
        InvalidParameter
            If a minimum is not an integer >= 0.
        """
        for name, value in (("min_user", min_user), ("min_item", min_item)):
            check_count("at_least", name, value, 0)
        if min_user <= 1 and min_item <= 1:  # every id in the rows has at least one interaction
            return self
        first = first_of_pairs(self.users, self.items, len(self.item_ids))
        counted = np.ones(len(self), dtype=bool) if first is None else first
        kept = np.ones(len(self), dtype=bool)
        if min_item > 1:
            kept = (count_rows(self.items, counted, len(self.item_ids)) >= min_item)[self.items]
        if min_user > 1:
            kept &= (count_rows(self.users, counted & kept, len(self.user_ids)) >= min_user)[self.users]
        return self if kept.all() else self.select(kept)

    def compact(self) -> Events:
        """Drop ids that do not occur in any row, and number the others in order of first appearance.

        Returns
        -------
        Events
        """
        users, user_order = number_by_appearance(self.users, len(self.user_ids))
        items, item_order = number_by_appearance(self.items, len(self.item_ids))
        user_ids, item_ids = self.user_ids.take(user_order), self.item_ids.take(item_order)
        return replace(self, users=users, items=items, user_ids=user_ids, item_ids=item_ids)


def with_weight(events: Events) -> Events:
    """Return the rows with a weight other than 0; raise InvalidData if there are no weights, or none is above 0."""
    if events.weights is None:
        raise InvalidData("weights='column' needs events with weights.", hint="name their column when you read them")
    some = events.weights != 0
    if len(events) and not (events.weights > 0).any():
        what = "are 0 or dislikes" if some.any() else "are 0"
        raise InvalidData(
            f"All {len(events):,} weights {what}, so there are no interactions.", hint="check the weights' column"
        )
    return events if some.all() else events.select(some)


def liked_rows(events: Events) -> Events:
    """Return the rows that are no dislikes: those without a weight below 0."""
    if events.weights is None or not (events.weights < 0).any():
        return events
    return events.select(events.weights >= 0)


def frequent(events: Events, min_user: int, min_item: int) -> Events:
    """Apply `at_least` and drop ids that no longer occur; raise InvalidData if nothing is left."""
    kept = events.at_least(min_user=min_user, min_item=min_item)
    if len(kept) == 0:
        after_items = len(events.at_least(min_item=min_item))
        raise InvalidData(
            f"No interactions are left: of {len(events):,} rows min_item={min_item} removed "
            f"{len(events) - after_items:,} and then min_user={min_user} removed {after_items:,}.",
            hint="lower them",
        )
    return kept.compact()


def first_of_pairs(users: NDArray[np.int32], items: NDArray[np.int32], n_items: int) -> NDArray[np.bool_] | None:
    """Return a mask of the first row of every pair; None if no pair is repeated."""
    # One number per pair, computed in place to save memory.
    keys = users.astype(np.int64)
    keys *= n_items
    keys += items
    # Sorting takes less time and memory than argsort, and most data have no repeated pairs.
    ascending = np.sort(keys)
    if not (ascending[1:] == ascending[:-1]).any():
        return None
    del ascending
    # Stable: of equal pairs the first row comes first, and the others are marked below.
    order = np.argsort(keys, kind="stable")
    first = np.ones(len(keys), dtype=bool)
    for a, b in _chunks(len(keys) - 1):
        run = keys[order[a : b + 1]]
        first[order[a + 1 : b + 1][run[1:] == run[:-1]]] = False
    return first


def number_by_appearance(codes: NDArray[np.int32], count: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Renumber codes by first appearance; return the new codes, and the old code of every new one."""
    seen = np.zeros(count, dtype=bool)
    found = []
    for a, b in _chunks(len(codes)):
        chunk = codes[a:b]
        # np.unique sorts; the first positions (`where`) restore the order of appearance.
        new, where = np.unique(chunk[~seen[chunk]], return_index=True)
        seen[new] = True
        found.append(new[np.argsort(where)])
    order = np.concatenate(found) if found else np.zeros(0, dtype=np.int32)
    number = np.zeros(count, dtype=np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return number[codes], order.astype(np.int64)


def count_rows(codes: NDArray[np.int32], counted: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Count the rows of every code for which `counted` is true."""
    totals = np.zeros(count, dtype=np.int64)
    for a, b in _chunks(len(codes)):
        totals += np.bincount(codes[a:b][counted[a:b]], minlength=count)
    return totals


def _chunks(length: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + _CHUNK, length)) for start in range(0, length, _CHUNK))


def _codes(values: Array, count: int, name: str, ids_name: str) -> NDArray[np.int32]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidData(f"{name!r} must be one integer code per row, positions in {ids_name!r}.")
    if array.size and (array.min() < 0 or array.max() >= count):
        raise InvalidData(
            f"{name!r} holds codes from {array.min()} to {array.max()}, but {ids_name!r} has {count:,} ids.",
            hint="codes are positions in it, from 0",
        )
    return array.astype(np.int32, copy=False)


def _as_times(values: Array) -> NDArray[np.int64] | NDArray[np.float64]:
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "f":
        raise InvalidData(f"Times must be integers or floats, but they are {array.dtype}.", hint="convert them first")
    if np.isnan(array).any():
        raise InvalidData(f"{np.isnan(array).sum():,} times are NaN.", hint="remove or correct these rows")
    return array.astype(np.float64, copy=False)
