"""Let old interactions count less: their weights halve with every half-life that has passed since.

    c = w 2^(-(as_of - time) / half_life),     never more than w

The half-life is a `Weighting`: models and splits remember it and store it in their files. Histories without times are
taken to be recent, and count in full. Histories with times (`Events`) decay from the model's date, or from their own
newest event where that is later, so that the history of a training user gives the vector that training gave.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import TIME_UNITS, since_1970, time_unit
from fairmf.data.csr import Rows
from fairmf.data.events import Events, first_of_pairs
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.weighting import Weighting
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.params import check_number

DAY = 86_400 * 10**9  # nanoseconds
SMALLEST = float(np.finfo(np.float32).tiny)  # of a weight, so that no interaction vanishes


@dataclass(frozen=True)
class HalfLife:
    """Say how fast interactions lose their weight (a `Weighting`).

    Parameters
    ----------
    days : float
        An interaction that is this many days older counts half as much.
    as_of : date, optional
        From when on the age is counted (text, `datetime`, `np.datetime64`; UTC unless it has a zone). Later events
        count in full. By default the time of the newest event.

    Raises
    ------
    InvalidParameter
        If `days` is not above 0, or `as_of` is no date.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from fairmf import HalfLife, Interactions
    >>> plays = pa.table({"user": ["ann", "ann"], "item": ["x", "y"], "day": ["2024-01-01", "2024-01-31"]})
    >>> data = Interactions.from_frame(plays, time="day", half_life=HalfLife(30, as_of="2024-01-31"))
    >>> data.to_csr().toarray().tolist()
    [[0.5, 1.0]]
    """

    how: ClassVar[str] = "half_life"
    days: float
    as_of: str | None = field(default=None, compare=False)  # of two dates the weights differ by a constant factor

    def __post_init__(self) -> None:
        check_number("HalfLife", "days", self.days, above=0)
        object.__setattr__(self, "days", float(self.days))
        if self.as_of is not None:
            moment = since_1970(self.as_of)
            if moment is None:
                raise InvalidParameter(
                    f"The 'as_of' parameter of HalfLife must be a date such as '2024-01-31'. Got {self.as_of!r} "
                    "instead.",
                    parameter="as_of",
                )
            object.__setattr__(self, "as_of", _written(moment))

    @classmethod
    def of(cls, given: float | HalfLife) -> HalfLife:
        """Return a half-life as it is, and a number of days as a half-life."""
        return given if isinstance(given, HalfLife) else cls(given)

    # -- weights from times -----------------------------------------------------------------------------------------

    def dated(self, events: Events) -> HalfLife:
        """Return the half-life with a date: its own, or that of the newest event."""
        return self if self.as_of is not None else self.not_before(events)

    def not_before(self, events: Events) -> HalfLife:
        """Return the half-life with its own date or that of the newest event, whichever is later."""
        return self.until(int(_nanoseconds(events).max(initial=0)))

    def until(self, newest: int) -> HalfLife:
        """Return the half-life with its own date or this moment (nanoseconds since 1970), whichever is later."""
        own = None if self.as_of is None else since_1970(self.as_of)
        return self if own is not None and own >= newest else replace(self, as_of=_written(newest))

    def factors(self, events: Events) -> NDArray[np.float64]:
        """Return 2^(-age / half_life) of every event, at most 1."""
        return self.dated(events)._factors(_nanoseconds(events))

    def _factors(self, moments: NDArray[np.int64]) -> NDArray[np.float64]:
        age = (since_1970(self.as_of) or 0) - moments.astype(np.float64)
        factors: NDArray[np.float64] = np.exp2(-np.maximum(age, 0.0) / (self.days * DAY))
        return factors

    def weights_of(self, weights: NDArray[np.float32] | None, moments: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return decayed weights of events at these moments (nanoseconds since 1970). The half-life needs a date."""
        raw = 1.0 if weights is None else weights.astype(np.float64)
        decayed = raw * self._factors(moments)
        decayed = np.where(raw == 0, 0.0, np.copysign(np.maximum(np.abs(decayed), SMALLEST), decayed))
        return decayed.astype(np.float32)

    def decayed(self, events: Events) -> Events:
        """Return the events with decayed weights: those they have, or 1."""
        if events.weighting is not None:
            raise InvalidData("The weights of these events have decayed already.", hint="give the raw events")
        dated = self.dated(events)
        return replace(events, weights=dated.weights_of(events.weights, _nanoseconds(events)), weighting=dated)

    def merged(self, events: Events, weights: str | None) -> Events:
        """Return the events with the weights that are to be added up: of every row, or of the newest of each pair.

        `weights` is that of `Interactions.from_events`; with None a pair counts once, as of its newest event.
        """
        decayed = self.decayed(events if weights == "column" else replace(events, weights=None))
        if weights is not None:
            return decayed
        return decayed.select(newest_of_pairs(events.users, events.items, len(events.item_ids), _nanoseconds(events)))

    # -- a weighting, as models keep it -----------------------------------------------------------------------------

    def weights(self, rows: Rows) -> NDArray[np.float32] | None:
        """Return the weights of raw rows as they are: without times they count as recent."""
        return rows.weights

    def item_weights(self, rows: Rows, items_per_user: NDArray[np.integer]) -> NDArray[np.float32] | None:  # noqa: ARG002
        """See Weighting."""
        return rows.weights

    def user_factor(self, items_per_user: NDArray[np.integer]) -> None:
        """See Weighting."""

    def with_items(self, where: NDArray[np.integer], rows: Rows) -> HalfLife:  # noqa: ARG002
        """See Weighting."""
        return self


def histories_of(
    events: Events, items: Ids, weighting: Weighting | None, merging: str | None = None
) -> tuple[Interactions, int]:
    """Return events as histories over a model's items, and how many events have other items and are left out.

    Where the model has a half-life and the events have times, their weights decay: from the model's date, or from the
    newest event where that is later. `merging` is `weights` of `Interactions.from_events`.
    """
    place = np.array([items.position(x) if x in items else -1 for x in events.item_ids.values.tolist()], dtype=np.int64)
    column = place[events.items]  # position of each event's item in the model, -1 if unknown
    known = column >= 0
    kept = replace(events, items=np.maximum(column, 0).astype(np.int32), item_ids=items).select(known)
    half_life = half_life_of(weighting) if kept.times is not None and len(kept) else None
    if half_life is not None:
        half_life = half_life.not_before(kept)
    found = Interactions.from_events(kept, weights=merging, half_life=half_life)
    return found, int(len(known) - known.sum())


def read_events(events: Events, items: Ids | None, weighting: Weighting | None) -> Interactions:
    """Return events as histories over a model's items; raise InvalidData if there are other items."""
    if items is None:
        raise InvalidData("This model has no item ids, so that events cannot be matched to its items.")
    found, others = histories_of(events, items, weighting, None if events.weights is None else "column")
    if others:
        raise InvalidData(f"{others:,} events have items that the model does not know.", hint="leave them out")
    return found


def half_life_of(weighting: object) -> HalfLife | None:
    """Return the half-life in a model's weighting; None if it has none."""
    own = getattr(weighting, "inner", weighting)
    return own if isinstance(own, HalfLife) else None


def newest_of_pairs(
    users: NDArray[np.int32], items: NDArray[np.int32], n_items: int, moments: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the row of the newest event of every pair, the newest first."""
    newest_first = np.argsort(-moments, kind="stable")
    first = first_of_pairs(users[newest_first], items[newest_first], n_items)
    return newest_first if first is None else newest_first[first]


def _nanoseconds(events: Events) -> NDArray[np.int64]:
    """Return the times in nanoseconds since 1970."""
    if events.times is None:
        raise InvalidData("A half-life needs events with times.", hint="name their column when you read them")
    return nanoseconds(events.times, events.time_unit or time_unit(events.times))


def nanoseconds(times: NDArray[np.int64] | NDArray[np.float64], unit: str | None) -> NDArray[np.int64]:
    """Return times of this unit in nanoseconds since 1970; raise InvalidData where the unit is not known (None)."""
    if unit is None:
        raise InvalidData(
            "It is not clear which unit the times have (they are not seconds, milliseconds, microseconds or "
            "nanoseconds since 1970), so a half-life in days does not apply.",
            hint='say it: dataclasses.replace(events, time_unit="s")',
        )
    moments: NDArray[np.int64] = (times * (10**9 // TIME_UNITS[unit])).astype(np.int64)
    return moments


def _written(nanoseconds: int) -> str:
    """Write a moment as a date and time in UTC, to the microsecond."""
    return str(np.datetime64(nanoseconds // 1000, "us")).removesuffix("T00:00:00.000000").removesuffix(".000000")
