"""Define the space that `tune` searches: for every setting a range, a doubling range or a choice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from fairmf.errors import InvalidParameter
from fairmf.models.base import IterativeModel
from fairmf.params import check_number, check_settings
from fairmf.types import Record, Settings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Value: TypeAlias = bool | int | float | str
"""A value that a setting can be given."""
DIAL, EVENNESS = "dial", "evenness"
"""Parts of the space that are no settings: the fairness that is used after training, or the evenness of the lists (by
the rule for models that are not calibrated: flatten = discount = evenness)."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, drawn evenly on a logarithmic scale unless `log` is False."""

    low: float
    high: float
    log: bool = True
    integer: bool = False

    def distribution(self, optuna: ModuleType) -> BaseDistribution:
        """Return the Optuna distribution."""
        kind = optuna.distributions.IntDistribution if self.integer else optuna.distributions.FloatDistribution
        return kind(self.low, self.high, log=self.log)

    def value(self, drawn: float) -> float:
        """Convert a drawn number to the value of the setting."""
        return int(drawn) if self.integer else float(drawn)

    def drawn(self, value: object) -> float | None:
        """Return the draw that gives this value; None if it is outside the range."""
        return value if _is_number(value) and self.low <= value <= self.high else None

    def ends(self) -> tuple[Value, ...]:
        """Return the smallest and the largest value, which are checked before the search."""
        return self.value(self.low), self.value(self.high)

    def problem(self) -> str:
        """Say what is wrong with this part; return "" if nothing is."""
        if not (_is_number(self.low) and _is_number(self.high) and self.low < self.high):
            return "low must be a number below high"
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            return "an integer range has integer ends"
        return "low must be > 0 on a logarithmic scale" if self.log and self.low <= 0 else ""


@dataclasses.dataclass(frozen=True)
class Doubling:
    """The values low, 2 low, 4 low, ... up to `high`: for dimensions, where only the order of magnitude matters."""

    low: int
    high: int

    @property
    def steps(self) -> int:
        """The number of times that `low` can be doubled without exceeding `high`."""
        return (self.high // self.low).bit_length() - 1

    def distribution(self, optuna: ModuleType) -> BaseDistribution:
        """Return the distribution of the number of doublings, an integer, so that the sampler knows the order."""
        return optuna.distributions.IntDistribution(0, self.steps)

    def value(self, drawn: float) -> int:
        """Return the value after this many doublings."""
        return self.low << int(drawn)

    def drawn(self, value: object) -> int | None:
        """Return the number of doublings that gives this value; None if there is none."""
        return next((k for k in range(self.steps + 1) if self.value(k) == value), None)

    def ends(self) -> tuple[Value, ...]:
        """Return the smallest and the largest value."""
        return self.low, self.value(self.steps)

    def problem(self) -> str:
        """Say what is wrong with this part; return "" if nothing is."""
        good = all(isinstance(x, int) and not isinstance(x, bool) for x in (self.low, self.high))
        return "" if good and 1 <= self.low <= self.high else "low and high must be integers with 1 <= low <= high"


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice among values without an order."""

    values: tuple[Value, ...]

    def distribution(self, optuna: ModuleType) -> BaseDistribution:
        """Return the Optuna distribution."""
        return optuna.distributions.CategoricalDistribution(self.values)

    def value(self, drawn: Value) -> Value:
        """Return the value itself."""
        return drawn

    def drawn(self, value: object) -> Value | None:
        """Return the value itself; None if it is not among the choices."""
        return value if value in self.values else None

    def ends(self) -> tuple[Value, ...]:
        """Return all values."""
        return self.values

    def problem(self) -> str:
        """Say what is wrong with this part; return "" if nothing is."""
        good = all(isinstance(x, (bool, int, float, str)) for x in self.values) and len(self.values) > 0
        return "" if good else "it needs at least one value; values are numbers, words or booleans"


Part = Range | Doubling | Choice
Space = dict[str, Part]


def read_space(space: Settings | None, model: IterativeModel, several: bool, features: bool = False) -> Space:
    """Read the space to search: as given ((low, high) is a Range, a list a Choice), or the default for this model."""
    if space is None:
        return default_space(model, several, features)
    found = {name: _read_part(name, part) for name, part in space.items()}
    if not found:
        raise InvalidParameter("The 'space' parameter of tune is empty: name at least one setting.")
    fields = {field.name for field in dataclasses.fields(model)}
    if DIAL in found and EVENNESS in found:
        raise InvalidParameter("The space names both 'dial' and 'evenness': lists are made with one of them.")
    for name, part in found.items():
        if name not in (DIAL, EVENNESS, *fields):
            raise InvalidParameter(f"The space names {name!r}, which {type(model).__name__} does not have.")
        if part.problem():
            raise InvalidParameter(f"The space of {name!r} is wrong: {part.problem()}. Got {part!r}.")
        for value in part.ends():
            _check_value(model, name, value)
    return found


def default_space(model: IterativeModel, several: bool, features: bool = False) -> Space:
    """Return the default space: both weights, the exponent, both balances and the number of factors; with several
    objectives also the evenness that lists are made with, and with features how little these matter.
    """
    fields = {field.name for field in dataclasses.fields(model)}
    found: Space = {
        "regularization": Range(1e-3, 1e-1),
        "regularization_exponent": Choice((1.0, 0.75, 0.5)),
        "unobserved_weight": Range(1e-4, 1.0),
        "item_balance": Range(0.0, 0.6, log=False),
        "user_balance": Range(0.0, 0.6, log=False),
        "factors": Doubling(16, 256),
    }
    if features:
        found["feature_regularization"] = Range(1e-2, 10.0)
    if several:
        found[EVENNESS] = Range(0.0, 0.3, log=False)  # beyond, the rule for models without a path overshoots
    return {name: part for name, part in found.items() if name == EVENNESS or name in fields}


def _read_part(name: str, part: object) -> Part:
    if isinstance(part, (Range, Doubling, Choice)):
        return part
    if isinstance(part, tuple) and len(part) == 2:
        return Range(*part)
    if isinstance(part, Sequence) and not isinstance(part, (str, bytes, tuple)):
        return Choice(tuple(part))
    raise InvalidParameter(
        f"The space of {name!r} must be (low, high), a list of values, Range, Doubling or Choice. Got {part!r} instead."
    )


def _check_value(model: IterativeModel, name: str, value: Value) -> None:
    if name in (DIAL, EVENNESS):
        check_number("the search space", name, value, low=0, high=1 if name == EVENNESS else None)
    else:
        changed: Record = {name: value}
        check_settings(dataclasses.replace(model, **changed))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
