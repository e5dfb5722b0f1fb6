"""Compute the numbers of an audit: changes of metrics with their intervals, and what changes for users."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from fairmf.metrics.bootstrap import interval, weighted_means

Values = NDArray[np.float64]
# 0 and 1 are the users who lose and gain most.
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and the ends of its bootstrap interval (None without bootstrap)."""

    value: float
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return plain Python values for JSON."""
        return {"value": finite(self.value), "low": finite(self.low), "high": finite(self.high)}


@dataclasses.dataclass(frozen=True)
class Change:
    """A metric before and after, for the same users; `low` and `high` are the interval of the *difference*."""

    before: float
    after: float
    low: float | None = None
    high: float | None = None
    before_ends: tuple[float, float] | None = None
    """The interval of the value before; None without bootstrap, and for shares of groups."""
    after_ends: tuple[float, float] | None = None
    """The interval of the value after."""

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before

    @property
    def relative(self) -> float:
        """The difference as a share of the value before; NaN if that is 0."""
        return self.difference / self.before if self.before else math.nan

    @property
    def beyond_chance(self) -> bool | None:
        """Whether the interval of the difference excludes 0; None without an interval."""
        if self.low is None or self.high is None or math.isnan(self.low) or math.isnan(self.high):
            return None
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, object]:
        """Return plain Python values for JSON."""
        numbers = {"before": self.before, "after": self.after, "difference": self.difference}
        return {name: finite(x) for name, x in (numbers | {"low": self.low, "high": self.high}).items()}


@dataclasses.dataclass(frozen=True)
class UserChange:
    """The change of one quality metric (after minus before) over the users with targets.

    `quantiles` maps 0.05 to the difference that 5 % of users do not exceed. `worst_decile` is the mean difference of
    the tenth of users who lose most. `worse_off` and `better_off` are the shares of users whose quality fell or rose.
    """

    metric: str
    n_scored: int
    quantiles: dict[float, float]
    worst_decile: Estimate
    worse_off: Estimate
    better_off: Estimate

    @property
    def unchanged(self) -> float:
        """Share of users whose quality is exactly the same."""
        return 1.0 - self.worse_off.value - self.better_off.value

    def to_dict(self) -> dict[str, object]:
        """Return plain Python values for JSON."""
        return {
            "n_scored": self.n_scored,
            "quantiles": {f"{share:g}": finite(value) for share, value in self.quantiles.items()},
            "worst_decile": self.worst_decile.to_dict(),
            "worse_off": self.worse_off.to_dict(),
            "better_off": self.better_off.to_dict(),
            "unchanged": finite(self.unchanged),
        }


class UserStatistics:
    """Compute the figures of `UserChange` from weights of the users, so that users can be resampled."""

    def __init__(self, metric: str, before: Values, after: Values):
        self.metric = metric
        self.difference = after - before  # NaN for users without targets
        self.scored = np.flatnonzero(np.isfinite(self.difference))
        # Sorted once: resampling changes the weights of the users, not their differences.
        self.order = self.scored[np.argsort(self.difference[self.scored], kind="stable")]

    def __call__(self, weights: Values) -> dict[str, Values]:
        """Return the worst decile and the shares for weights (users x replicates)."""
        # Users without targets are NaN in both, so that means leave them out.
        worse = np.where(np.isnan(self.difference), np.nan, self.difference < 0)
        better = np.where(np.isnan(self.difference), np.nan, self.difference > 0)
        return {
            self._key("worst_decile"): worst_tenth(self.difference[self.order], weights[self.order]),
            self._key("worse_off"): weighted_means(worse, weights),
            self._key("better_off"): weighted_means(better, weights),
        }

    def change(self, replicates: dict[str, Values], confidence: float) -> UserChange:
        """Return the figures with every user counted once, and their intervals if there are replicates."""
        once = self(np.ones((len(self.difference), 1)))
        found = {}
        for name in ("worst_decile", "worse_off", "better_off"):
            key = self._key(name)
            ends = interval(replicates[key], confidence) if key in replicates else (None, None)
            found[name] = Estimate(float(once[key][0]), *ends)
        seen = self.difference[self.scored]
        values = np.quantile(seen, QUANTILES) if len(seen) else np.full(len(QUANTILES), np.nan)
        return UserChange(self.metric, len(seen), dict(zip(QUANTILES, values.tolist(), strict=True)), **found)

    def _key(self, name: str) -> str:
        return f"users.{self.metric}.{name}"


def worst_tenth(ascending: Values, weights: Values) -> Values:
    """Return the weighted mean of the lowest tenth of the values, for each replicate.

    `weights` is values x replicates. The value at the edge of the tenth counts in part.
    """
    # Fill the tenth from the lowest value up: each gives its whole weight until the tenth is full.
    wanted = weights.sum(axis=0) / 10
    already = np.cumsum(weights, axis=0) - weights  # weight of all lower values
    taken = np.clip(wanted - already, 0.0, weights)
    mean: Values = np.divide(ascending @ taken, wanted, out=np.full(len(wanted), np.nan), where=wanted > 0)
    return mean


def finite(value: float | None) -> float | None:
    """Return the number for JSON: None if it is missing or not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def plain_id(value: Hashable) -> object:
    """Return an id or a label for JSON: numbers, strings and lists unchanged, everything else as text."""
    if isinstance(value, (tuple, list)):
        return [plain_id(part) for part in value]
    # JSON has neither NaN nor infinity, so these become text as well.
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
