"""Curve: quality and exposure at several fairness values, one row each. Curves add up to one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fairmf.errors import InvalidParameter

Row = dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """Measured points. Every row has `way` ("dial", "re-trained", "offsets", "FairRec"), `fairness`, the metrics and
    `seconds`.
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __add__(self, other: Curve) -> Curve:
        """Both in one table; they must have measured the same."""
        if set(self.metrics) != set(other.metrics):
            raise InvalidParameter(
                f"The curves have different metrics: {', '.join(self.metrics)} and {', '.join(other.metrics)}."
            )
        return Curve(self.rows + other.rows, self.metrics)

    def column(self, name: str) -> list[Any]:
        """One quantity, row by row; None where a row does not have it."""
        if self.rows and not any(name in row for row in self.rows):
            raise KeyError(f"{name!r} is not a column; there are {', '.join(self.rows[0])}")
        return [row.get(name) for row in self.rows]

    def table(self) -> pa.Table:
        """An Arrow table; `.to_pandas()` on it gives a data frame."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        return pa.table({name: [row.get(name) for row in self.rows] for name in names})

    def front(self, quality: str | None = None, inequality: str | None = None) -> Curve:
        """The rows that no other beats: at least as good a quality and as low an inequality, one of them better."""
        up, down = quality or self.quality, inequality or self.inequality
        kept = [
            row
            for row in self.rows
            if not any(
                other[up] >= row[up] and other[down] <= row[down] and (other[up] > row[up] or other[down] < row[down])
                for other in self.rows
            )
        ]
        return Curve(tuple(sorted(kept, key=lambda row: row[down])), self.metrics)

    @property
    def quality(self) -> str:
        """The metric that is up: the first of accuracy."""
        return next(name for name in self.metrics if name.startswith(("ndcg", "recall")))

    @property
    def inequality(self) -> str:
        """The metric that is down: the first Gini."""
        return next(name for name in self.metrics if name.startswith("gini"))

    def __repr__(self) -> str:
        names = [name for name in ("way", "fairness", *self.metrics) if any(name in row for row in self.rows)]
        lines = ["  ".join(f"{name:>12}" for name in names)]
        for row in self.rows:
            cells = (row.get(name) for name in names)
            lines.append("  ".join(f"{cell:>12.4g}" if isinstance(cell, float) else f"{cell!s:>12}" for cell in cells))
        return "\n".join(lines)
