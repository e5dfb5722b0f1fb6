"""Hold the result of `evaluate`: values, intervals, exposure of items and scores of users."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from fairmf import html
from fairmf.types import Record

Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`. `evaluation["ndcg@100"]` is one value.

    Attributes
    ----------
    values
        Metric values by full name ("ndcg@100").
    intervals
        (low, high) by full name; empty if bootstrap=0.
    exposure
        exposure[K][j] is the number of users whose first K slots hold item j.
    per_user
        per_user["ndcg@100"][i] is the score of user i, NaN for users without targets.
    n_users, n_scored
        Number of users with lists, and of those among them with targets.
    group_names, group_exposure
        The names of the groups, and their exposure by cut-off in the same order.
    n_cold
        Number of cold items, which nobody has in the training data; None if `train` was not given.

    Examples
    --------
    >>> import numpy as np
    >>> from fairmf import Evaluation
    >>> found = Evaluation({"gini@2": 0.5}, {}, {2: np.array([4.0, 0.0])}, {}, n_users=4, n_scored=0)
    >>> found["gini@2"], "ndcg@2" in found
    (0.5, False)
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    exposure: dict[int, Values]
    per_user: dict[str, Values]
    n_users: int
    n_scored: int
    group_names: tuple[Hashable, ...] = ()
    group_exposure: dict[int, Values] = dataclasses.field(default_factory=dict)
    n_cold: int | None = None

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return max(map(len, self.exposure.values()), default=0)

    def __getitem__(self, name: str) -> float:
        if name not in self.values:
            raise KeyError(f"{name!r} was not evaluated; there are {', '.join(self.values)}")
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def group_shares(self, K: int) -> dict[Hashable, float]:
        """Return each group's share of the exposure in the first K slots."""
        exposure = self.group_exposure[K]
        total = exposure.sum()
        shares = exposure / total if total > 0 else np.full(len(exposure), np.nan)
        return dict(zip(self.group_names, shares.tolist(), strict=True))

    def table(self) -> list[Record]:
        """Return a row per metric and cut-off: metric, K, value, low and high (None without bootstrap)."""
        rows = []
        for label, value in self.values.items():
            name, _, K = label.partition("@")
            low, high = self.intervals.get(label, (None, None))
            rows.append({"metric": name, "K": int(K), "value": value, "low": low, "high": high})
        return rows

    def to_dict(self) -> Record:
        """Return values, intervals and sizes as plain Python values for JSON; NaN becomes None."""
        return {
            "n_users": self.n_users,
            "n_scored": self.n_scored,
            **({} if self.n_cold is None else {"n_items": self.n_items, "n_cold": self.n_cold}),
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

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(label.partition("@")[0] for label in self.values))
        cutoffs = sorted({int(label.partition("@")[2]) for label in self.values})
        rows = [[name, *(self._cell(f"{name}@{K}") for K in cutoffs)] for name in names]
        note = f"{self.n_users:,} users, {self.n_scored:,} with held-out items"
        return html.title("Evaluation", note) + html.table(["metric", *(f"@{K}" for K in cutoffs)], rows, most=40)

    def _cell(self, label: str) -> str:
        if label not in self.values:
            return ""
        ends = self.intervals.get(label)
        value = html.number(self.values[label])
        return value if ends is None else f"{value} ± {html.number((ends[1] - ends[0]) / 2)}"


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
