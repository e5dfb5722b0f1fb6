"""The arguments of a report on a model, read and checked before anything is ranked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairmf.control.dial import rounded
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions import Interactions
from fairmf.metrics.audit.arguments import read_part, read_quality
from fairmf.metrics.plan import check_held_out
from fairmf.models.fitted import Fitted
from fairmf.models.iterative import IterativeModel, check_fairness
from fairmf.reporting.measuring import STEPS
from fairmf.splitting import HeldOut, Split
from fairmf.splitting.checks import check_count

MOST_STOPS, MOST_EXAMPLES = 25, 12  # so that all items they name fit into the page


def with_dial(model: Any) -> IterativeModel:
    """The model, if it has a dial to turn."""
    if not isinstance(model, IterativeModel):
        raise InvalidParameter(
            f"A {type(model).__name__} has no dial: use FairALS, IALS or FiADMM, or compare two rankings with audit()."
        )
    return model


def read_users(split: Split | HeldOut, part: str, fitted: Fitted) -> tuple[HeldOut, Interactions | None]:
    """The users to report on, and the training data that popularity is counted in, where there are any."""
    if part not in ("validation", "test"):
        raise InvalidParameter(f"The 'part' parameter of report must be 'validation' or 'test'. Got {part!r} instead.")
    held_out, train = read_part(split, part, None if isinstance(split, Split) else fitted.interactions)
    check_held_out(held_out)
    if not held_out.n_users:
        raise InvalidData("There are no held-out users to report on.")
    return held_out, train


def read_lists(at: int, quality: str) -> tuple[int, tuple[str, ...]]:
    """The length of lists whose exposure counts, and the accuracy metrics, the one of the axes first."""
    K = check_count("report", "at", at, 1)
    return K, tuple(dict.fromkeys([*read_quality([quality], K), f"recall@{K}"]))


def check_examples(examples: int) -> None:
    """Refuse more example users than a page can hold."""
    if check_count("report", "examples", examples, 0) > MOST_EXAMPLES:
        raise InvalidParameter(
            f"The 'examples' parameter of report must be at most {MOST_EXAMPLES}. Got {examples} instead."
        )


def read_stops(
    model: IterativeModel, fairness: Iterable[float] | None, chosen: float | None
) -> tuple[list[float], float]:
    """The stops in rising order, at least two of them, and the one the summary speaks of."""
    fitted = model.fitted
    picked = check_fairness(chosen) if chosen is not None else (fitted.fairness or 1.0)
    if fairness is None:
        unit = fitted.trained_fairness or 1.0
        stops = {rounded(step * unit) for step in STEPS} | {picked}
    else:
        stops = {check_fairness(psi) for psi in fairness}
        if not stops:
            raise InvalidParameter("fairness holds no values: leave it out to have them chosen.")
        if chosen is None and picked not in stops:
            picked = max(stops)
        stops.add(picked)
    if picked == 0 or len(stops) == 1:
        stops.add(0.0)
    if len(stops) == 1:
        raise InvalidParameter("A report compares stops of the dial: give at least one fairness above 0.")
    if len(stops) > MOST_STOPS:
        raise InvalidParameter(f"A report has at most {MOST_STOPS} stops. Got {len(stops)} instead.")
    return sorted(stops), picked
