"""Levels of evenness: how far a request spreads exposure, from 0 (the best quality) to 1 (the most even lists).

A level is three strengths: `fairness` (psi, acts on users: dial.py), `flatten` (g) and `discount` (h), which act on
items (ranking/item_dial.py). A model that was calibrated (control/calibrate.py) holds a path through these three, along
which Gini falls at the least cost in quality; evenness runs along it, linearly in Gini.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from fairmf.errors import InvalidParameter
from fairmf.params import check_not_negative, check_number


@dataclass(frozen=True)
class Level:
    """One setting of the dials; 0 everywhere is the plain ranking of the model without fairness."""

    fairness: float
    flatten: float = 0.0
    discount: float = 0.0

    def check(self) -> None:
        """Raise InvalidParameter unless all strengths are finite and at least 0."""
        for name in ("fairness", "flatten", "discount"):
            check_not_negative("", name, getattr(self, name))


@dataclass(frozen=True)
class Knot:
    """One measured point of a path: a level, and what it gave on the users of the calibration."""

    level: Level
    gini: float
    quality: float


@dataclass(frozen=True)
class EvennessPath:
    """What each evenness stands for: knots from the best quality to the most even lists, Gini falling strictly."""

    knots: tuple[Knot, ...]
    at: int
    """Length of the lists whose Gini counts."""
    quality: str
    """The metric that quality stands for, such as "ndcg@100"."""

    def __post_init__(self) -> None:
        ginis = [knot.gini for knot in self.knots]
        if not ginis or any(after >= before for before, after in itertools.pairwise(ginis)):
            raise InvalidParameter("A path needs at least one knot, and a Gini that falls from knot to knot.")

    def level(self, evenness: float) -> Level:
        """Return the level of an evenness: the point of the path where Gini has fallen by that share."""
        ginis = np.array([knot.gini for knot in self.knots])
        wanted = (1.0 - check_evenness(evenness)) * ginis[0] + evenness * ginis[-1]
        places = np.array([[k.level.fairness, k.level.flatten, k.level.discount] for k in self.knots])
        # np.interp wants rising positions, and Gini falls along the path.
        return Level(*(float(np.interp(-wanted, -ginis, column)) for column in places.T))

    def expected(self, evenness: float) -> tuple[float, float]:
        """Return Gini and quality of an evenness, between those of the knots around it."""
        ginis = np.array([knot.gini for knot in self.knots])
        wanted = float((1.0 - check_evenness(evenness)) * ginis[0] + evenness * ginis[-1])
        return wanted, float(np.interp(-wanted, -ginis, [knot.quality for knot in self.knots]))


def uncalibrated(evenness: float, fairness: float) -> Level:
    """Return the level of an evenness for a model without a path: g = h = evenness, at the fairness it serves with."""
    evenness = check_evenness(evenness)
    return Level(fairness, evenness, evenness)


def check_evenness(value: object) -> float:
    """Return an evenness as a float; raise InvalidParameter unless it is a number from 0 to 1."""
    check_number("", "evenness", value, low=0, high=1)
    return float(value)  # type: ignore[arg-type]
