"""Evaluation: the numbers that `evaluate` found."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Metric values by full name ("ndcg@100"), with intervals, and the vectors they were computed from.

    `exposure[K][j]` is the number of users whose first K slots hold item j; `group_exposure` the same, added
    up over groups. `per_user["ndcg@100"][i]` is NaN for users without targets. `intervals` is empty when
    bootstrap=0.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    exposure: dict[int, Values]
    per_user: dict[str, Values]
    n_users: int
    n_scored: int
    group_names: tuple[Hashable, ...] = ()
    group_exposure: dict[int, Values] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        if name not in self.values:
            raise KeyError(f"{name!r} was not evaluated; there are {', '.join(self.values)}")
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def group_shares(self, K: int) -> dict[Hashable, float]:
        """Each group's share of the exposure in the first K slots."""
        exposure = self.group_exposure[K]
        total = exposure.sum()
        shares = exposure / total if total > 0 else np.full(len(exposure), np.nan)
        return dict(zip(self.group_names, shares.tolist(), strict=True))

    def table(self) -> list[dict[str, Any]]:
        """One row per metric name and cut-off: metric, K, value, low, high (None without bootstrap)."""
        rows = []
        for label, value in self.values.items():
            name, _, K = label.partition("@")
            low, high = self.intervals.get(label, (None, None))
            rows.append({"metric": name, "K": int(K), "value": value, "low": low, "high": high})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Values, intervals and sizes as plain Python, ready for JSON (NaN becomes None)."""
        return {
            "n_users": self.n_users,
            "n_scored": self.n_scored,
            "values": {label: _plain(value) for label, value in self.values.items()},
            "intervals": {label: [_plain(low), _plain(high)] for label, (low, high) in self.intervals.items()},
        }

    def __repr__(self) -> str:
        lines = [f"Evaluation({self.n_users:,} users, {self.n_scored:,} with targets)"]
        names = list(dict.fromkeys(label.partition("@")[0] for label in self.values))
        cutoffs = sorted({int(label.partition("@")[2]) for label in self.values})
        width = max(map(len, names), default=0)
        lines.append(" " * (width + 2) + "".join(f"{f'@{K}':>10}" for K in cutoffs))
        for name in names:
            cells = (self.values.get(f"{name}@{K}") for K in cutoffs)
            lines.append(f"  {name:<{width}}" + "".join(f"{'' if v is None else f'{v:.4f}':>10}" for v in cells))
        return "\n".join(lines)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
