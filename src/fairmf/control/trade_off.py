"""`fit_path`: re-trained models along a list of fairness values, each started from its neighbour."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import FairALS
from fairmf.models.base import IterativeModel
from fairmf.models.fiadmm import FiADMM
from fairmf.models.fold_in import check_fairness
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_number

# Fronts: which points no other point beats, and how much a set of points beats.
#
# A point has one number per objective. `lower` says of each objective whether less is better.


def dominates(a: Sequence[float], b: Sequence[float], lower: Sequence[bool]) -> bool:
    """Whether a is at least as good as b everywhere and better somewhere."""
    gains = [y - x if less else x - y for x, y, less in zip(a, b, lower, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


def front_positions(points: Sequence[Sequence[float]], lower: Sequence[bool]) -> list[int]:
    """Positions of the points that no other dominates, best in the first objective first; equal points all stay."""
    kept = [i for i, p in enumerate(points) if not any(dominates(q, p, lower) for q in points)]
    return sorted(kept, key=lambda i: (points[i][0] if lower[0] else -points[i][0], i))


def hypervolume(points: ArrayLike, worst: tuple[float, float], lower: Sequence[bool]) -> float:
    """Area that the points (two objectives) dominate inside the rectangle up to `worst`; points beyond it count for 0.

    One front with a larger area than another is better on the whole, though not everywhere.
    """
    values: NDArray[np.float64] = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    if len(lower) != 2:
        raise InvalidParameter(f"hypervolume is for two objectives. Got {len(lower)} instead.")
    sign = np.where(np.asarray(lower), -1.0, 1.0)
    gains = sign * (values - np.asarray(worst))  # how far inside the rectangle, in each direction
    inside = gains[(gains > 0).all(axis=1)]
    area, height = 0.0, 0.0
    for x, y in inside[np.lexsort((-inside[:, 1], -inside[:, 0]))]:
        if y > height:  # a strip that nothing further right covers
            area += float(x * (y - height))
            height = float(y)
    return area


# Curve: quality and exposure at several fairness values, one row each. Curves add up to one table.


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


# One model asked at one dial position after another; what was measured is never measured again.


LIMIT = 1e4  # no dial is worth turning further


def validation_of(split: Split | HeldOut) -> HeldOut:
    """The users that choices are made on: a split's validation part, never its test part."""
    if isinstance(split, Split):
        return split.validation
    if isinstance(split, HeldOut):
        return split
    raise InvalidData(f"Expected a Split or a HeldOut, got {type(split).__name__}.")


class Dial:
    """Measures `metrics` of a fitted model at any fairness on the same users."""

    def __init__(
        self,
        model: IterativeModel,
        held_out: HeldOut,
        metrics: Sequence[str],
        advance: Callable[[str], None] = lambda _: None,
    ):
        if not isinstance(model, IterativeModel):
            raise InvalidParameter(f"A {type(model).__name__} has no dial: use FairALS, IALS or FiADMM.")
        self.model = model
        self.held_out = held_out
        self.metrics = tuple(metrics)
        self.rows: dict[float, Row] = {}
        self._advance = advance

    def __call__(self, fairness: float) -> Row:
        """The row of one position."""
        if fairness not in self.rows:
            began = time.perf_counter()
            found = evaluate(self.model, self.held_out, metrics=self.metrics, bootstrap=0, fairness=fairness)
            values: dict[str, Any] = {name: found[name] for name in self.metrics}
            self.rows[fairness] = {
                "way": "dial", "fairness": fairness, **values, "seconds": time.perf_counter() - began,
            }  # fmt: skip
            self._advance(f"fairness {fairness:g}")
        return self.rows[fairness]

    def first_steps(self) -> list[float]:
        """Where a search upwards begins: 0, then doubling from a quarter of the trained fairness (or of 1)."""
        unit = self.model.fitted.trained_fairness or 1.0
        steps, psi = [0.0], unit / 4
        while psi <= LIMIT * unit:
            steps.append(psi)
            psi *= 2
        return steps


def rounded(value: float) -> float:
    """Three digits: a dial position that can be read and typed again."""
    return float(f"{value:.3g}")


# `trade_off`: quality and exposure along the dial of one trained model. Nothing is trained.


METRICS = ("ndcg@100", "recall@20", "gini@20", "coverage@20")


def trade_off(
    model: IterativeModel,
    split: Split | HeldOut,
    *,
    fairness: Iterable[float] | None = None,
    points: int = 12,
    metrics: Sequence[str] = METRICS,
    progress: bool | None = None,
) -> Curve:
    """Measure a fitted model on the validation users at the given fairness values, or at `points` chosen ones.

    Chosen values start at 0, double until the first Gini rises again (the dial's end: beyond it everybody is given the
    same unpopular items), and then fill the widest gaps, so that the curve is evenly covered. Rows beyond the Gini
    minimum are marked `past_minimum`. The first accuracy metric and the first Gini of `metrics` are the two axes.

    >>> from fairmf import FairALS, split_by_user, synthetic, trade_off
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> curve = trade_off(FairALS(factors=8, epochs=4).fit(split.train), split, points=6)
    >>> len(curve), curve.table().column_names[:3]
    (6, ['way', 'fairness', 'ndcg@100'])
    """
    held_out = validation_of(split)
    given = None if fairness is None else [check_fairness(psi) for psi in fairness]
    if given is not None and not given:
        raise InvalidParameter("fairness holds no values: leave it out to have them chosen.")
    if given is None:
        check_count("trade_off", "points", points, 2)
    axes = Curve((), tuple(metrics))
    if given is None:
        _check_axes(axes)
    with progress_bar("trade-off", len(given) if given is not None else points, progress) as advance:
        dial = Dial(model, held_out, metrics, advance)
        if given is not None:
            return Curve(tuple(dial(psi) for psi in given), axes.metrics)
        cover(dial, points, axes.quality, axes.inequality)
    return Curve(tuple(marked(dial, axes.inequality)), axes.metrics)


def cover(dial: Dial, points: int, quality: str, inequality: str) -> None:
    """Measure `points` positions: upwards to the Gini minimum, then in the middle of the widest gap."""
    last = np.inf
    for psi in dial.first_steps():
        if len(dial.rows) == points:
            return
        here = dial(psi)[inequality]
        if here > last:
            break
        last = here
    while len(dial.rows) < points:
        positions = sorted(dial.rows)
        values = np.array([[dial.rows[psi][quality], dial.rows[psi][inequality]] for psi in positions])
        spread = np.ptp(values, axis=0)
        gaps = np.linalg.norm(np.diff(values, axis=0) / np.where(spread > 0, spread, 1), axis=1)
        for k in np.argsort(-gaps, kind="stable"):
            low, high = positions[k], positions[k + 1]
            middle = rounded(np.sqrt(low * high) if low > 0 else high / 2)
            if middle not in dial.rows:
                dial(middle)
                break
        else:
            return  # no three-digit number is left between any two


def marked(dial: Dial, inequality: str) -> list[dict[str, object]]:
    """The rows by rising fairness; those past the Gini minimum say so."""
    rows = [dial.rows[psi] for psi in sorted(dial.rows)]
    end = int(np.argmin([row[inequality] for row in rows]))
    return [{**row, "past_minimum": k > end} for k, row in enumerate(rows)]


def _check_axes(curve: Curve) -> None:
    if not any(name.startswith(("ndcg", "recall")) for name in curve.metrics) or not any(
        name.startswith("gini") for name in curve.metrics
    ):
        raise InvalidParameter(
            "To choose fairness values, metrics must hold an accuracy (ndcg@K or recall@K) and a gini@K. "
            f"Got {', '.join(curve.metrics) or 'none'} instead."
        )


TOLERANCE = 5e-4  # relative fall of F per epoch at which a warm fit is about where a cold one ends (docs/trade-off.md)


def fit_path(
    model: FairALS | FiADMM,
    split: Split,
    *,
    fairness: Iterable[float],
    tolerance: float = TOLERANCE,
    metrics: Sequence[str] = METRICS,
    progress: bool | None = None,
) -> Curve:
    """Train at every fairness and measure on the validation users: what the dial's curve is to be compared with.

    The first (lowest) is a cold fit of `model.epochs` epochs; each next one starts from the one before and ends as soon
    as an epoch lowers F relatively by less than `tolerance`, which takes a few epochs unless the values lie far apart.
    The given model is left as it is. Rows also hold the objective F that training reached and its epochs.
    """
    if not isinstance(model, (FairALS, FiADMM)):
        raise InvalidParameter(f"A {type(model).__name__} has no fairness to train with: use FairALS or FiADMM.")
    if not isinstance(split, Split):
        raise InvalidParameter(f"fit_path trains, so it needs a whole Split. Got {type(split).__name__} instead.")
    check_number("fit_path", "tolerance", tolerance, low=0)
    values = sorted({check_fairness(phi) for phi in fairness})
    if not values:
        raise InvalidParameter("fairness holds no values.")
    rows: list[Row] = []
    previous: IterativeModel | None = None
    with progress_bar("path", len(values), progress) as advance:
        for phi in values:
            began = time.perf_counter()
            trained = copy.copy(model)
            trained.fairness = phi
            trained.tolerance = model.tolerance if previous is None else tolerance
            # Only folded-in users are asked, so that the last half-step of the stored ones would be wasted.
            trained.fit(split.train, init=previous, objective_every=model.epochs, progress=False, settle=False)
            seconds = time.perf_counter() - began
            found = evaluate(trained, split.validation, metrics=metrics, bootstrap=0)
            objective = trained.history.records[-1]["objective"]["total"]
            rows.append({
                "way": "re-trained", "fairness": phi, **{name: found[name] for name in metrics},
                "objective": objective, "epochs": len(trained.history), "seconds": seconds,
            })  # fmt: skip
            previous = trained
            advance(f"fairness {phi:g}")
    return Curve(tuple(rows), tuple(metrics))
