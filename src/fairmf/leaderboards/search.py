"""Choose settings of a model for a board within a budget, on validation data only.

Sizes (numbers of factors) are searched in ascending order by `tune`, which stops the worse half of the fits early
(successive halving). The smallest size is searched in a wide space. Every further size starts from the best settings of
the one before and looks around them, with half as many trials (or equal seconds): its fits cost more, and less is left
to find. Trials are stored, so that a killed run continues.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairmf.control.search_space import Range
from fairmf.control.tuning import tune
from fairmf.errors import InvalidParameter
from fairmf.leaderboards.boards import Board
from fairmf.models.als import IALS, FairALS
from fairmf.models.base import IterativeModel
from fairmf.params import check_count
from fairmf.types import Record

MODELS = ("ials", "fair-als")
TITLES = {"ials": "IALS", "fair-als": "FairALS"}
WEIGHTS = {"regularization": Range(0.0003, 0.03), "unobserved_weight": Range(0.001, 1.0)}
BALANCES = {"item_balance": Range(0.0, 0.6, log=False), "user_balance": Range(0.0, 0.6, log=False)}
FACTOR, STEP = 3.0, 0.15
"""Bounds of the search at a further size, around the best settings so far: a factor, and a step for balances."""
MOST_TRIALS = 1000  # of a budget in seconds
RANDOM = 4  # trials of a size that are drawn at random, before the sampler learns from them


@dataclass(frozen=True)
class Budget:
    """Limit the search for each model: a number of trials, or seconds after which no trial starts."""

    trials: int | None = 24
    seconds: float | None = None

    @classmethod
    def read(cls, given: int | str | Budget) -> Budget:
        """Read "24" as trials and "600s" as seconds."""
        if isinstance(given, Budget):
            return given
        text = str(given).strip()
        try:
            if text.endswith("s") and math.isfinite(seconds := float(text[:-1])) and seconds > 0:
                return cls(None, seconds)
            number = int(text)
        except ValueError:
            number = 0
        if number < 1:
            raise InvalidParameter(
                f"The 'budget' must be a number of trials such as 24, or seconds such as 600s. Got {given!r} instead.",
                parameter="budget",
            )
        return cls(number)

    def shares(self, sizes: int) -> list[tuple[int, float | None]]:
        """Return the trials and seconds of each size. In trials, each size gets half as many as the one before."""
        parts = [2.0**-k / (2 - 2.0 ** (1 - sizes)) for k in range(sizes)]
        if self.trials is None:
            return [(MOST_TRIALS, (self.seconds or 0.0) / sizes)] * sizes
        return [(max(1, round(part * self.trials)), None) for part in parts]

    def __str__(self) -> str:
        return f"{self.trials} trials" if self.trials is not None else f"{self.seconds:g} seconds"


@dataclass(frozen=True)
class Chosen:
    """The settings of one size, and what it took to choose them."""

    model: str
    settings: Record
    quality: float
    """Of the best trial, on the validation data."""
    trials: int
    seconds: float
    """Trials and seconds of this size and of the sizes before it."""

    def build(self) -> IterativeModel:
        """Return a new model with these settings."""
        return build(self.model, self.settings)


def build(model: str, settings: Record) -> IterativeModel:
    """Return an unfitted model. FairALS has no trained fairness here: its balances are what is tuned."""
    return IALS(**settings) if model == "ials" else FairALS(**{"fairness": 0.0, **settings})


def search(
    board: Board,
    model: str,
    sizes: Sequence[int],
    budget: Budget,
    *,
    storage: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    progress: bool | None = None,
) -> list[Chosen]:
    """Return the best settings of every size, by `board.chosen_by` on the validation data."""
    split, done, trials_done, spent = board.for_search(), list[Chosen](), 0, 0.0
    settings: Record = {}
    for size, (trials, seconds) in zip(sizes, budget.shares(len(sizes)), strict=True):
        space = around(settings) if settings else whole_space(model)
        start = settings or {name: middle(part) for name, part in space.items()}
        fixed: Record = {"factors": size, "random_state": random_state}
        found = tune(
            build(model, {**start, **fixed}), split, metric=board.chosen_by, trials=trials, timeout=seconds,
            space=space, also=("gini@20",), storage=None if storage is None else Path(storage),
            study_name=f"{model}-{size}-{_digest(space, start)}", random_state=random_state,
            startup_trials=RANDOM, progress=progress,
        )  # fmt: skip
        best = found.best()
        spent += sum(trial.seconds for trial in found.trials)
        trials_done += len(found.trials)
        settings = {name: float(best.settings[name]) for name in space}
        done.append(Chosen(model, {**settings, **fixed}, best.metrics[board.chosen_by], trials_done, spent))
    return done


def checked_sizes(factors: Sequence[int]) -> list[int]:
    """Return the numbers of factors in ascending order, each once."""
    for size in factors:
        check_count("leaderboard", "factors", size, 1)
    if not factors:
        raise InvalidParameter("The 'factors' of a leaderboard must be at least one number.", parameter="factors")
    return sorted(set(factors))


def whole_space(model: str) -> dict[str, Range]:
    """Return the space of the first size."""
    return {**WEIGHTS, **BALANCES} if model == "fair-als" else dict(WEIGHTS)


def around(settings: Record) -> dict[str, Range]:
    """Return the space around settings: a factor to both sides for weights, a step for balances."""
    space: dict[str, Range] = {}
    for name, value in settings.items():
        if name in WEIGHTS:
            space[name] = Range(value / FACTOR, value * FACTOR)
        else:
            space[name] = Range(max(0.0, value - STEP), value + STEP, log=False)
    return space


def middle(part: Range) -> float:
    """Return the middle of a range, on its own scale."""
    return math.sqrt(part.low * part.high) if part.log else (part.low + part.high) / 2


def _digest(space: dict[str, Range], start: Record) -> str:
    """Return a name for a space and its first trial: with another one, the search is another study."""
    return hashlib.sha256(repr((sorted(space.items()), sorted(start.items()))).encode()).hexdigest()[:12]
