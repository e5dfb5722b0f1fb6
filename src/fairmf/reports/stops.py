"""Choose the stops of a report's slider: levels along the model's path of evenness, or values of fairness for experts.

A model without a path gets a quick one (control/quick_path.py), on validation users where there are some, so that the
users of the report did not choose it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fairmf.control.calibrate import LEVELS
from fairmf.control.quick_path import on_path
from fairmf.control.trade_off import EXPECTED
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidParameter
from fairmf.metrics.sentences import title
from fairmf.models.base import IterativeModel
from fairmf.models.evenness import EvennessPath, Level, check_evenness
from fairmf.models.fitted import Fitted, check_fairness
from fairmf.reports.content import MODERATE
from fairmf.types import Record

MOST_STOPS = 25  # limits, with the number of examples, how many items the page names
FLAT = "No level was more even than the most accurate one, so every evenness gives the same lists."
NEAR = 1e-6  # strengths that differ by less are the same level


@dataclasses.dataclass(frozen=True)
class Stop:
    """One stop: its name, its place on the slider, and the options of the model's `rank`."""

    name: str
    value: float
    options: Record
    level: Level | None = None
    """The level of an evenness; None for a stop of fairness."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stops:
    """The stops in rising order, all of one knob, and the one that the summary describes."""

    knob: str
    """"evenness" or "fairness"."""
    stops: tuple[Stop, ...]
    chosen: int

    def __len__(self) -> int:
        return len(self.stops)

    @property
    def picked(self) -> Stop:
        """The stop that the summary describes."""
        return self.stops[self.chosen]


# -- evenness ---------------------------------------------------------------------------------------------------------


def with_path(
    model: IterativeModel,
    split: Split | HeldOut,
    held_out: HeldOut,
    axes: tuple[int, str],
    advance: Callable[[str], None],
) -> IterativeModel:
    """Return the model without exposure offsets, which hold for one level alone, and with a path of evenness.

    `axes` are the length of the lists whose Gini is to fall and the quality to keep, for a model without a path.
    """
    chosen_on = split.validation if isinstance(split, Split) and split.validation.n_users else held_out
    found = on_path(model, chosen_on, *axes, advance)
    if found.fitted.item_offsets is None:
        return found
    plain = copy.copy(found)
    plain._fitted = dataclasses.replace(found.fitted, item_offsets=None)
    return plain


def note_on(path: EvennessPath, calibrated: bool, chosen_on: str) -> str:
    """Say where a path comes from, and for how many users."""
    users = f" on {path.n_users:,} {chosen_on}users" if path.n_users else ""
    found = (
        f"What each evenness stands for was calibrated{users}, for {title(path.quality)} against Gini@{path.at}."
        if calibrated
        else f"The model was not calibrated, so a quick path of evenness was found{users}; calibrate finds a finer one."
    )
    return found if len(path.knots) > 1 else f"{found} {FLAT}"


def expected_levels(model: IterativeModel) -> int:
    """Return how many levels the search for a path measures, for a progress bar."""
    return 0 if model.fitted.path is not None else EXPECTED


def read_evenness(evenness: Iterable[float] | None, chosen: float | None) -> tuple[list[float] | None, float | None]:
    """Return the values of evenness and the chosen one, checked; None where they are left open."""
    values = None if evenness is None else sorted({check_evenness(value) for value in evenness})
    if values == []:
        raise InvalidParameter("evenness holds no values: leave it out to have them chosen.")
    picked = None if chosen is None else _chosen_evenness(chosen)
    if values is not None:
        values = sorted({*values, *([] if picked is None else [picked])})
        _check_number_of(values if len(values) > 1 else sorted({0.0, *values}), "evenness")
    return values, picked


def _chosen_evenness(chosen: float) -> float:
    try:
        return check_evenness(chosen)
    except InvalidParameter as error:
        raise InvalidParameter(
            f"chosen is an evenness from 0 to 1. Got {chosen!r} instead.",
            hint="fairness=[...] gives a slider of fairness, and chosen is then one of its values",
            parameter="chosen",
        ) from error


def evenness_stops(fitted: Fitted, values: Sequence[float] | None, picked: float | None) -> Stops:
    """Return stops along the model's path. Without a `picked` one, the summary describes what the model serves with."""
    path = fitted.path
    if path is None:
        raise ValueError("the model has no path of evenness")
    own = place_on(path, served_level(fitted))
    if values is None:
        picked = picked if picked is not None else (own or MODERATE)
        stops = sorted({*LEVELS, picked})
    else:
        stops = sorted({*values, 0.0}) if len(values) == 1 else list(values)
        if picked is None:
            # The first stop is what others are compared with: the summary describes another one.
            picked = own if own in stops[1:] else min(stops[1:], key=lambda value: abs(value - MODERATE))
    made = tuple(
        Stop(f"evenness {value:g}", value, {"evenness": path.level(value)}, path.level(value)) for value in stops
    )
    return Stops("evenness", made, stops.index(picked))


def served_level(fitted: Fitted) -> Level:
    """Return the level at which a model serves, with its fairness."""
    return Level(fitted.fairness, fitted.flatten, fitted.discount, fitted.lift)


def place_on(path: EvennessPath, level: Level) -> float | None:
    """Return the evenness of a level on the path; None if the level is not on it."""
    ginis, wanted = [knot.gini for knot in path.knots], np.array(level.strengths)
    places = [np.array(knot.level.strengths) for knot in path.knots]
    for k, after in enumerate(places):
        before = places[max(k - 1, 0)]
        along = after - before
        share = float(np.clip((wanted - before) @ along / (along @ along), 0, 1)) if along.any() else 1.0
        if np.abs(before + share * along - wanted).max() <= NEAR:
            reached = ginis[max(k - 1, 0)] * (1 - share) + ginis[k] * share
            total = ginis[0] - ginis[-1]
            return round((ginis[0] - reached) / total, 6) if total else 0.0
    return None


# -- fairness, for experts --------------------------------------------------------------------------------------------


def fairness_stops(fitted: Fitted, fairness: Iterable[float], chosen: float | None) -> Stops:
    """Return stops of the users' dial (psi), at least two."""
    stops = {check_fairness(psi) for psi in fairness}
    if not stops:
        raise InvalidParameter("fairness holds no values: leave it out for a slider of evenness.")
    picked = check_fairness(chosen) if chosen is not None else (fitted.fairness or 1.0)
    if chosen is None and picked not in stops:
        picked = max(stops)
    stops.add(picked)
    if len(stops) == 1:
        stops.add(0.0)  # a baseline to compare with
    values = sorted(stops)
    _check_number_of(values, "fairness")
    made = tuple(Stop(f"fairness {psi:g}", psi, {"fairness": psi}) for psi in values)
    return Stops("fairness", made, values.index(picked))


def _check_number_of(stops: Sequence[float], knob: str) -> None:
    if len(stops) == 1:
        raise InvalidParameter(f"A report compares stops of its slider: give at least one {knob} above 0.")
    if len(stops) > MOST_STOPS:
        raise InvalidParameter(f"A report has at most {MOST_STOPS} stops. Got {len(stops)} instead.")
