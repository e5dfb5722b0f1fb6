"""Levels of evenness: how far a request spreads exposure, from 0 (the best quality) to 1 (the most even lists).

A level is four strengths: `fairness` (psi, acts on users: dial.py), and `flatten` (g), `discount` (h) and `lift` (t),
which act on items (ranking/item_dial.py). A model that was calibrated (control/calibrate.py) holds a path through these
four, along which Gini falls at the least cost in quality; evenness runs along it, linearly in Gini.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from fairmf.errors import InvalidParameter
from fairmf.lazy import cached_property
from fairmf.params import check_not_negative, check_number
from fairmf.types import Array, Record


@dataclass(frozen=True)
class Level:
    """One setting of the four dials, for experts: `model.recommend(users, evenness=Level(flatten=0.3))`.

    Examples
    --------
    >>> from fairmf import IALS, Level, synthetic
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> ids, scores = model.recommend(data.user_ids.values[:2], N=3, evenness=Level(flatten=0.5, discount=0.1))
    >>> ids.shape
    (2, 3)
    """

    fairness: float | None = None
    """psi, which acts on users; None keeps the fairness that the model serves with."""
    flatten: float = 0.0
    """g: the scores of each item are divided by the g-th power of their spread."""
    discount: float = 0.0
    """h: popular items lose this multiple of the log of their popularity, in units of the spread of all scores."""
    lift: float = 0.0
    """t: items that are in few lists gain this multiple of their price, which `calibrate` learns."""

    def __post_init__(self) -> None:
        for name in ("fairness", "flatten", "discount", "lift"):
            value = getattr(self, name)
            if type(value) is float and 0.0 <= value < math.inf:
                continue  # the rule, and requests make levels all the time
            if value is not None:
                object.__setattr__(self, name, check_not_negative("", name, value))

    @property
    def strengths(self) -> tuple[float, float, float, float]:
        """(psi, g, h, t); psi is 0 where the level leaves it to the model."""
        return self.fairness or 0.0, *self.on_items

    @property
    def on_items(self) -> tuple[float, float, float]:
        """(g, h, t), the strengths that act on items."""
        return self.flatten, self.discount, self.lift

    def halfway(self, other: Level) -> Level:
        """Return the level halfway between this one and another."""
        return Level(*((a + b) / 2 for a, b in zip(self.strengths, other.strengths, strict=True)))


@dataclass(frozen=True)
class Knot:
    """One measured point of a path: a level, and what it gave on the users of the calibration."""

    level: Level
    gini: float
    quality: float


@dataclass(frozen=True)
class EvennessPath:
    """Hold the level of each evenness: knots from the best quality to the most even lists, Gini falling strictly.

    Examples
    --------
    >>> from fairmf import EvennessPath
    >>> from fairmf.models.evenness import Knot, Level
    >>> plain, even = Knot(Level(), gini=0.9, quality=0.30), Knot(Level(flatten=0.8), gini=0.5, quality=0.25)
    >>> path = EvennessPath((plain, even), at=20, quality="ndcg@20")
    >>> round(path.level(0.5).flatten, 3), round(path.expected(0.5)[0], 3)
    (0.4, 0.7)
    """

    knots: tuple[Knot, ...]
    at: int
    """Length of the lists whose Gini counts."""
    quality: str
    """The metric that quality stands for, such as "ndcg@100"."""
    n_users: int = 0
    """Number of users whose lists were counted; Gini depends on it."""

    def __post_init__(self) -> None:
        ginis = [knot.gini for knot in self.knots]
        if not ginis or any(after >= before for before, after in itertools.pairwise(ginis)):
            raise InvalidParameter("A path needs at least one knot, and a Gini that falls from knot to knot.")

    def level(self, evenness: float) -> Level:
        """Return the level of an evenness: the point of the path where Gini has fallen by that share."""
        ginis, columns = self._arrays
        wanted = (1.0 - check_evenness(evenness)) * ginis[0] + evenness * ginis[-1]
        # np.interp wants rising positions, and Gini falls along the path.
        return Level(*(float(np.interp(-wanted, -ginis, column)) for column in columns))

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        """(Gini of every knot, its strengths as columns)."""
        places = np.array([knot.level.strengths for knot in self.knots])
        return np.array([knot.gini for knot in self.knots]), np.ascontiguousarray(places.T)

    def to_dict(self) -> Record:
        """Return plain values, for files."""
        knots = [[*knot.level.strengths, knot.gini, knot.quality] for knot in self.knots]
        return {"knots": knots, "at": self.at, "quality": self.quality, "n_users": self.n_users}

    @classmethod
    def from_dict(cls, values: object) -> EvennessPath:
        """Rebuild a path; raise InvalidParameter if these are not its values."""
        try:
            at, quality, n_users = values["at"], values["quality"], values["n_users"]  # type: ignore[index]
            knots = tuple(Knot(Level(*row[:-2]), *map(float, row[-2:])) for row in values["knots"])  # type: ignore[index]
            return cls(knots, int(at), str(quality), int(n_users))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidParameter("These are not the values of a path of evenness.") from error

    def expected(self, evenness: float) -> tuple[float, float]:
        """Return Gini and quality of an evenness, between those of the knots around it."""
        ginis = np.array([knot.gini for knot in self.knots])
        wanted = float((1.0 - check_evenness(evenness)) * ginis[0] + evenness * ginis[-1])
        return wanted, float(np.interp(-wanted, -ginis, [knot.quality for knot in self.knots]))


def requested(path: EvennessPath | None, evenness: float | Level) -> Level:
    """Return the level that a caller asks for.

    Without a path, a number is both g and h, at the fairness that the model serves with.
    """
    if isinstance(evenness, Level):
        return evenness
    if path is not None:
        return path.level(evenness)
    strength = check_evenness(evenness)
    return Level(None, strength, strength)


def check_evenness(value: object) -> float:
    """Return an evenness as a float; raise InvalidParameter unless it is a number from 0 to 1."""
    check_number("", "evenness", value, low=0, high=1)
    return float(value)  # type: ignore[arg-type]
