"""A global cut in time: train on the past, validate on what came next, test on what came last."""

from __future__ import annotations

import datetime
import math
import re
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions import Events, Interactions
from fairmf.interactions.values import TIME_UNITS, time_unit
from fairmf.splitting.assembly import build_matrix, first_appearance, positions_in
from fairmf.splitting.checks import check_share
from fairmf.splitting.split import HeldOut, Split


def split_by_time(
    events: Events,
    *,
    validation_from: Any = None,
    test_from: Any = None,
    validation_share: float = 0.1,
    test_share: float = 0.1,
) -> Split:
    """Train before `validation_from`, validate from there to `test_from`, test from there on.

    A moment not given is placed so that its share of the rows (with all rows of the same moment) lies after
    it. A moment is a number like the events' times, or a date (text, `datetime`, `np.datetime64`; UTC unless it has a
    zone), which is understood in the unit of the times: `events.time_unit`, or the one that their size tells. Items
    first seen after train are dropped. Targets are never items the user had met before.

    Validation: rows are train's users with train as history, so stored factors are used (`known_users=True`).
    Test: the history is everything before `test_from`. It has grown since training, so users are folded in
    from it (`known_users=False`). Train's users come first, in train's order, then those who arrived during
    validation.
    """
    times = _times(events)
    start, end = _cuts(events, validation_from, test_from, validation_share, test_share)
    in_train, before_test = times < start, times < end
    for what, some in (("train", in_train), ("validation", before_test & ~in_train), ("test", ~before_test)):
        if not some.any():
            raise InvalidData(f"The cuts at {start} and {end} leave no event for {what}.")
    items, item_place = first_appearance(events.items[in_train], len(events.item_ids))
    known_item = item_place[events.items] >= 0
    train_users, _ = first_appearance(events.users[in_train], len(events.user_ids))
    history_users, _ = first_appearance(events.users[before_test & known_item], len(events.user_ids))
    newcomers = history_users[positions_in(train_users, len(events.user_ids))[history_users] < 0]
    test_users = np.concatenate((train_users, newcomers))

    def matrix(rows: NDArray[np.bool_], users: NDArray[np.int64], weighted: bool) -> Interactions:
        user_place = positions_in(users, len(events.user_ids))
        chosen = events.select(rows & known_item & (user_place[events.users] >= 0)).without_duplicates()
        return build_matrix(
            user_place[chosen.users],
            item_place[chosen.items],
            len(users),
            len(items),
            weights=chosen.weights if weighted else None,
            user_ids=events.user_ids.take(users),
            item_ids=events.item_ids.take(items),
        )

    train = matrix(in_train, train_users, True)
    validation = matrix(before_test & ~_met(events, in_train), train_users, False)
    test = matrix(~before_test & ~_met(events, before_test), test_users, False)
    history = matrix(before_test, test_users, True)
    return Split(train, HeldOut(train, validation, True), HeldOut(history, test, False), "by_time")


def _times(events: Events) -> NDArray[Any]:
    if not isinstance(events, Events):
        raise InvalidData(f"split_by_time needs Events with times. Got {type(events).__name__} instead.")
    if events.times is None:
        raise InvalidData("split_by_time needs events with times: name the time column when reading them.")
    if not len(events):
        raise InvalidData("There are no events to split.")
    return events.times


def _cuts(
    events: Events, validation_from: Any, test_from: Any, validation_share: float, test_share: float
) -> tuple[Any, Any]:
    """The two moments, as values of the same kind as the times."""
    check_share("split_by_time", "validation_share", validation_share)
    check_share("split_by_time", "test_share", test_share)
    ordered = np.sort(_times(events))
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


def _quantile(ordered: NDArray[Any], share: float) -> Any:
    return ordered[min(len(ordered) - 1, round(share * len(ordered)))]


def _moment(events: Events, name: str, value: Any) -> Any:
    """A number as it is; a date in the unit that the times have."""
    if isinstance(value, Real) and value is not True and value is not False and not math.isnan(value):
        return value
    times = _times(events)
    nanoseconds = _since_1970(value)
    if nanoseconds is None:
        raise InvalidParameter(
            f"The {name!r} parameter of split_by_time must be a number like the events' times ({times.dtype}), "
            f"or a date such as '2024-01-31'. Got {value!r} instead."
        )
    unit = events.time_unit or time_unit(times)
    if unit is None:
        raise InvalidParameter(
            f"The {name!r} parameter of split_by_time is a date, but it is not clear which unit the times have (they "
            f"go from {times.min():,} to {times.max():,}, which are not seconds, milliseconds, microseconds or "
            f"nanoseconds since 1970); give a number like these. Got {value!r} instead."
        )
    step = 10**9 // TIME_UNITS[unit]
    if times.dtype.kind == "f":
        return nanoseconds / step
    return -(-nanoseconds // step)  # the first whole step that is not before


def _since_1970(value: Any) -> int | None:
    """A date as nanoseconds since 1970, UTC; None for what is no date."""
    if isinstance(value, str) and (zoned := _date_with_zone(value)) is not None:
        value = zoned
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if not isinstance(value, (str, datetime.date, np.datetime64)):
        return None
    try:
        moment = np.datetime64(value)
    except ValueError:
        return None
    if np.isnat(moment):
        return None
    if np.datetime_data(moment.dtype)[0] in ("ns", "ps", "fs", "as"):
        return int(moment.astype("datetime64[ns]").astype(np.int64))
    return 1000 * int(moment.astype("datetime64[us]").astype(np.int64))


def _date_with_zone(text: str) -> datetime.datetime | None:
    """A date that says its zone, such as 2024-01-31T12:00:00Z, which NumPy does not take; None for others."""
    try:
        found = datetime.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _met(events: Events, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For every event: had its user met its item in the given rows?"""
    keys = events.users.astype(np.int64) * len(events.item_ids) + events.items
    return np.isin(keys, keys[rows])
