"""The small numbers an audit is made of: a value with its interval, and a metric before and after."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and the ends of its bootstrap interval (None without bootstrap)."""

    value: float
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain Python, ready for JSON."""
        return {"value": finite(self.value), "low": finite(self.low), "high": finite(self.high)}


@dataclasses.dataclass(frozen=True)
class Change:
    """A metric before and after, for the same users; `low` and `high` are the interval of the *difference*."""

    before: float
    after: float
    low: float | None = None
    high: float | None = None

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before

    @property
    def relative(self) -> float:
        """The difference as a share of the value before; NaN where that is 0."""
        return self.difference / self.before if self.before else math.nan

    @property
    def beyond_chance(self) -> bool | None:
        """Whether the interval of the difference leaves 0 out; None without an interval."""
        if self.low is None or self.high is None or math.isnan(self.low) or math.isnan(self.high):
            return None
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, Any]:
        """Plain Python, ready for JSON."""
        numbers = {"before": self.before, "after": self.after, "difference": self.difference}
        return {name: finite(x) for name, x in (numbers | {"low": self.low, "high": self.high}).items()}


def finite(value: float | None) -> float | None:
    """The number as JSON can hold it: None for what is missing or undefined."""
    return float(value) if value is not None and math.isfinite(value) else None


def plain_id(value: Hashable) -> Any:
    """An id or a label as JSON can hold it: numbers, strings and lists as they are, anything else in its own words."""
    if isinstance(value, (tuple, list)):
        return [plain_id(part) for part in value]
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
