"""Split events by user or by time.

Splitting by user tests strong generalisation: whole users are held out, and the model sees part of their history. The
protocol "public" repeats, bit for bit, the preprocessing of Liang et al. (2018), which the published numbers for
MovieLens-20M and the Million Song Dataset use (docs/splitting.md lists its steps).
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import TIME_UNITS, since_1970, time_unit
from fairmf.data.events import Events, liked_rows
from fairmf.data.interactions import Interactions
from fairmf.data.split import (
    HeldOut,
    Split,
    ascending,
    events_of,
    first_appearance,
    matrix_of,
    positions_in,
    times_of,
    wanted,
)  # fmt: skip
from fairmf.data.split_known import FEWEST_ITEMS, draw_parts
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.params import check_count, check_seed, check_share
from fairmf.types import Array

PUBLIC_SEED = 98765  # that of the published code
PUBLIC_SHARE = 0.2


def split_by_user(
    data: Events | Interactions,
    heldout: int,
    *,
    min_user: int = 5,
    min_item: int = 0,
    rating_above: float | None = None,
    protocol: Literal["public", "seeded"] = "public",
    target_share: float = PUBLIC_SHARE,
    random_state: int = 0,
) -> Split:
    """Hold out whole users: `heldout` for validation and as many for test.

    Of a repeated (user, item) pair the first row counts: otherwise an item could be both shown and asked for.

    Parameters
    ----------
    data : Events or Interactions
        The public protocol needs Events, because it depends on the order of the file's rows.
    heldout : int
        Users each for validation and test.
    min_user, min_item : int
        Drop items with fewer users, then users with fewer items.
    rating_above : float, optional
        The weights are ratings: drop rows at or below this, and count the rest as 1.
    protocol : "public" or "seeded"
        "public" repeats the published draw: it fixes the seed and the share, and makes binary matrices. "seeded" keeps
        weights and uses `target_share` and `random_state`.
    target_share : float
        Share of a held-out user's items that are targets.
    random_state : int
        Seed of the draw, for "seeded".

    Returns
    -------
    Split

    Raises
    ------
    InvalidParameter
        If a parameter is out of range, or the public protocol is given a share or a seed.
    InvalidData
        If too few users are left to hold out so many.

    Examples
    --------
    >>> from fairmf import synthetic_events
    >>> split = split_by_user(synthetic_events(n_users=60, n_items=50, n_interactions=900), heldout=10)
    >>> split.train.n_users, split.test.n_users
    (40, 10)
    """
    check_count("split_by_user", "heldout", heldout, 1)
    check_share("split_by_user", "target_share", target_share)
    check_seed("split_by_user", random_state)
    if protocol not in ("public", "seeded"):
        raise InvalidParameter(
            f"The 'protocol' parameter of split_by_user must be 'public' or 'seeded'. Got {protocol!r} instead."
        )
    if protocol == "public":
        _check_public(data, target_share, random_state)
    events = events_of(data)
    if protocol == "public" and rating_above is None:
        events = liked_rows(events)  # binary matrices have no place for dislikes
    events = _kept(events, min_user, min_item, rating_above)
    users = np.unique(events.users).astype(np.int64)
    if 2 * heldout >= len(users):
        raise InvalidData(
            f"Holding out {heldout:,} users each for validation and test leaves nobody to train on: "
            f"{len(users):,} users remain with {min_user} items or more, of items with {min_item} users or more.",
            hint="lower {parameter}",
            parameter="heldout",
        )
    if protocol == "public":
        return _public(events, ascending(events.user_ids, users), heldout)
    return _seeded(events, users, heldout, target_share, np.random.default_rng(random_state), rating_above is None)


def _check_public(data: Events | Interactions, target_share: float, random_state: int) -> None:
    if isinstance(data, Interactions):
        raise InvalidData(
            "The public protocol depends on the order of the file's rows, which Interactions no longer has. "
            "Pass Events, or use protocol='seeded'."
        )
    if target_share != PUBLIC_SHARE or random_state != 0:
        raise InvalidParameter(
            "The public protocol fixes target_share and the seed.", hint="use protocol='seeded' to choose them"
        )


def _kept(events: Events, min_user: int, min_item: int, rating_above: float | None) -> Events:
    check_count("split_by_user", "min_user", min_user, 0)
    check_count("split_by_user", "min_item", min_item, 0)
    if rating_above is not None:
        if events.weights is None:
            raise InvalidData("rating_above was given, but the events have no weights to compare it with.")
        events = events.select(events.weights > rating_above)
    return events.without_duplicates().at_least(min_user, min_item)


def _public(events: Events, users: NDArray[np.int64], heldout: int) -> Split:
    # The published code seeds NumPy's global generator. A RandomState of our own draws the same numbers.
    permuted = users[np.random.RandomState(PUBLIC_SEED).permutation(len(users))]
    train, validation, test = np.split(permuted, [len(users) - 2 * heldout, len(users) - heldout])
    in_train = positions_in(train, len(events.user_ids))[events.users] >= 0
    # The published code numbers items in the order in which train has them.
    items, _ = first_appearance(events.items[in_train], len(events.item_ids))
    return Split(
        matrix_of(events, in_train, train, items, weighted=False),
        _public_part(events, validation, items),
        _public_part(events, test, items),
        "by_user",
    )


def _public_part(events: Events, part: NDArray[np.int64], items: NDArray[np.int64]) -> HeldOut:
    rows = _rows_of(events, part, items)
    # The published code draws user by user, in ascending order of the ids.
    order = ascending(events.user_ids, np.unique(events.users[rows]).astype(np.int64))
    by_user = rows[np.argsort(positions_in(order, len(events.user_ids))[events.users[rows]], kind="stable")]
    counts = np.bincount(events.users[rows], minlength=len(events.user_ids))[order]
    random = np.random.RandomState(PUBLIC_SEED)
    is_target = np.zeros(len(by_user), dtype=bool)
    start = 0
    for k in counts.tolist():
        if k >= FEWEST_ITEMS:
            # int(0.2 * k) in floating point, as published.
            is_target[start + random.choice(k, size=int(PUBLIC_SHARE * k), replace=False)] = True
        start += k
    return _held_out(events, by_user, is_target, part, items, weighted=False)


def _seeded(
    events: Events,
    users: NDArray[np.int64],
    heldout: int,
    share: float,
    random: np.random.Generator,
    weighted: bool,
) -> Split:
    permuted = random.permutation(users)
    train, validation, test = np.split(permuted, [len(users) - 2 * heldout, len(users) - heldout])
    in_train = positions_in(train, len(events.user_ids))[events.users] >= 0
    items = np.unique(events.items[in_train]).astype(np.int64)
    # One generator draws validation, then test: swapping them would change both.
    parts = []
    for part in (validation, test):
        rows = _rows_of(events, part, items)
        is_target = draw_parts(events.users[rows], share, 1, random.random(len(rows))) == 1
        parts.append(_held_out(events, rows, is_target, part, items, weighted=weighted))
    return Split(matrix_of(events, in_train, train, items, weighted=weighted), parts[0], parts[1], "by_user")


def _rows_of(events: Events, part: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row numbers, in file order, of these users with these items."""
    user_in = positions_in(part, len(events.user_ids)) >= 0
    item_in = positions_in(items, len(events.item_ids)) >= 0
    return np.flatnonzero(user_in[events.users] & item_in[events.items])


def _held_out(
    events: Events,
    rows: NDArray[np.int64],
    is_target: NDArray[np.bool_],
    part: NDArray[np.int64],
    items: NDArray[np.int64],
    *,
    weighted: bool,
) -> HeldOut:
    fold_in = matrix_of(events, rows[~is_target], part, items, weighted=weighted)
    targets = rows[is_target & wanted(events)[rows]]
    return HeldOut(fold_in, matrix_of(events, targets, part, items, weighted=False))


def split_by_time(
    events: Events,
    *,
    validation_from: Any = None,
    test_from: Any = None,
    validation_share: float = 0.1,
    test_share: float = 0.1,
) -> Split:
    """Train before `validation_from`, validate from there to `test_from`, test from there on.

    Items that first appear after train are dropped. A user's targets are items that the user had not met before.

    In validation, the users and their histories are those of train, so stored factors are used (`known_users=True`). In
    test, a history is everything before `test_from`: it has grown since training, so users are folded in
    (`known_users=False`). Train's users come first, in train's order, then those who arrived during validation.

    Parameters
    ----------
    events : Events
        With times.
    validation_from, test_from : number or date, optional
        A number like the events' times, or a date (text, `datetime`, `np.datetime64`; UTC unless it has a zone). A date
        is converted to the unit of the times: `events.time_unit`, or the one that fits their size.
    validation_share, test_share : float
        Share of the rows in a part whose beginning is not given. Rows of the same time are kept together.

    Returns
    -------
    Split

    Raises
    ------
    InvalidData
        If there are no times, or a part would be empty.
    InvalidParameter
        If a moment cannot be understood, or validation would not begin before test.

    Examples
    --------
    >>> from fairmf import synthetic_events
    >>> events = synthetic_events(n_users=60, n_items=50, n_interactions=900)
    >>> split_by_time(events, test_from="2021-09-01").method
    'by_time'
    """
    times = times_of(events, "split_by_time")
    start, end = _cuts(events, validation_from, test_from, validation_share, test_share)
    in_train, before_test = times < start, times < end
    for what, some in (("train", in_train), ("validation", before_test & ~in_train), ("test", ~before_test)):
        if not some.any():
            raise InvalidData(f"The cuts at {start} and {end} leave no event for {what}.")
    # The catalogue is what train knows: a model cannot rank other items.
    items, item_place = first_appearance(events.items[in_train], len(events.item_ids))
    known_item = item_place[events.items] >= 0
    train_users, _ = first_appearance(events.users[in_train], len(events.user_ids))
    history_users, _ = first_appearance(events.users[before_test & known_item], len(events.user_ids))
    # Train's users come first, so that their rows have the same numbers as in train.
    newcomers = history_users[positions_in(train_users, len(events.user_ids))[history_users] < 0]
    test_users = np.concatenate((train_users, newcomers))

    def matrix(rows: NDArray[np.bool_], users: NDArray[np.int64], weighted: bool) -> Interactions:
        user_place = positions_in(users, len(events.user_ids))
        chosen = events.select(rows & known_item & (user_place[events.users] >= 0)).without_duplicates()
        return matrix_of(chosen, slice(None), users, items, weighted=weighted)

    train = matrix(in_train, train_users, True)
    validation = matrix(before_test & ~_met(events, in_train) & wanted(events), train_users, False)
    test = matrix(~before_test & ~_met(events, before_test) & wanted(events), test_users, False)
    history = matrix(before_test, test_users, True)
    return Split(train, HeldOut(train, validation, True), HeldOut(history, test, False), "by_time")


def _cuts(
    events: Events, validation_from: object, test_from: object, validation_share: float, test_share: float
) -> tuple[Any, Any]:
    """Return the times at which validation and test begin, as numbers like the events' times."""
    check_share("split_by_time", "validation_share", validation_share)
    check_share("split_by_time", "test_share", test_share)
    ordered = np.sort(times_of(events, "split_by_time"))
    end = _quantile(ordered, 1 - test_share) if test_from is None else _moment(events, "test_from", test_from)
    if validation_from is not None:
        start = _moment(events, "validation_from", validation_from)
    elif validation_share + test_share >= 1:
        raise InvalidParameter(
            f"validation_share={validation_share!r} and test_share={test_share!r} leave nothing to train on."
        )
    else:
        # Counted from the test cut, so that the share holds wherever that cut was put.
        rows_before = int(np.searchsorted(ordered, end))
        start = ordered[max(0, rows_before - round(validation_share * len(ordered)))] if rows_before else end
    if not start < end:
        raise InvalidParameter(f"validation_from={start} must be earlier than test_from={end}.")
    return start, end


def _quantile(ordered: Array, share: float) -> Any:
    return ordered[min(len(ordered) - 1, round(share * len(ordered)))]


def _moment(events: Events, name: str, value: object) -> Any:
    """Return a number as it is, and a date as a number in the unit of the times."""
    if not isinstance(value, bool) and isinstance(value, Real) and not math.isnan(value):
        return value
    times = times_of(events, "split_by_time")
    nanoseconds = since_1970(value)
    if nanoseconds is None:
        raise InvalidParameter(
            f"The {name!r} parameter of split_by_time must be a number like the events' times ({times.dtype}), "
            f"or a date such as '2024-01-31'. Got {value!r} instead.",
            parameter=name,
        )
    unit = events.time_unit or time_unit(times)
    if unit is None:
        raise InvalidParameter(
            f"The {name!r} parameter of split_by_time is a date, but it is not clear which unit the times have (they "
            f"go from {times.min():,} to {times.max():,}, which are not seconds, milliseconds, microseconds or "
            f"nanoseconds since 1970). Got {value!r} instead.",
            hint="set {parameter} to a number like these",
            parameter=name,
        )
    step = 10**9 // TIME_UNITS[unit]
    if times.dtype.kind == "f":
        return nanoseconds / step
    return -(-nanoseconds // step)  # round up: the first whole unit that is not before the date


def _met(events: Events, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for every event whether the given rows contain the same user and item."""
    keys = events.users.astype(np.int64) * len(events.item_ids) + events.items
    return np.isin(keys, keys[rows])
