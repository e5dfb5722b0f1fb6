"""Measure curves of quality against exposure: `trade_off` for one trained model, `fit_path` by training again.

`trade_off` measures a model at one fairness after another on the same users, each fairness once. Functions for Pareto
fronts are at the end.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.metrics.evaluate import evaluate
from fairmf.metrics.registry import is_accuracy
from fairmf.models.als import FairALS
from fairmf.models.base import IterativeModel
from fairmf.models.fiadmm import FiADMM
from fairmf.models.fitted import check_fairness
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_number
from fairmf.types import Record

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")

Row = Record
METRICS = ("ndcg@100", "recall@20", "gini@20", "coverage@20")
LIMIT = 1e4  # largest fairness tried, as a multiple of the trained fairness
# A fit that starts from a neighbour ends when an epoch lowers F relatively by less than this. Its F is then about that
# of a fit from scratch (docs/trade-off.md).
TOLERANCE = 5e-4


def trade_off(
    model: IterativeModel,
    split: Split | HeldOut,
    *,
    fairness: Iterable[float] | None = None,
    points: int = 12,
    metrics: Sequence[str] = METRICS,
    progress: bool | None = None,
) -> Curve:
    """Measure a fitted model on the validation users at several fairness values. Nothing is trained.

    Unless values are given, they start at 0 and double until the Gini rises again: beyond that point everyone gets the
    same unpopular items. The remaining values fill the widest gaps of the curve. Rows past the lowest Gini are marked
    `past_minimum`.

    Parameters
    ----------
    model
        A fitted FairALS, IALS or FiADMM.
    split
        A Split, of which the validation users are used, or a HeldOut.
    fairness
        The values to measure at; None chooses them.
    points
        How many values to choose.
    metrics
        Full names. The first accuracy metric and the first Gini are the axes of the curve.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Curve
        One row per fairness value.

    Raises
    ------
    InvalidParameter
        If the fairness of the model cannot be changed, or `metrics` has no accuracy or no Gini to choose values by.

    Examples
    --------
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


def fit_path(
    model: FairALS | FiADMM,
    split: Split,
    *,
    fairness: Iterable[float],
    tolerance: float = TOLERANCE,
    metrics: Sequence[str] = METRICS,
    progress: bool | None = None,
) -> Curve:
    """Train at every fairness and measure on the validation users, to compare with `trade_off` of one model.

    The lowest fairness is trained for `model.epochs` epochs. Every other fit starts from the fit before it and ends
    when an epoch lowers the objective F relatively by less than `tolerance`. The given model is not changed.

    Parameters
    ----------
    model
        A FairALS or FiADMM with the settings to train with.
    split
        Training data and validation users.
    fairness
        The values to train at.
    tolerance
        Relative fall of F per epoch below which a fit ends.
    metrics
        Full names of what to measure.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Curve
        One row per fairness value, with the objective that training reached and its epochs.

    Raises
    ------
    InvalidParameter
        If the model cannot be trained with fairness, or there are no values.

    Examples
    --------
    >>> from fairmf import FairALS, fit_path, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> curve = fit_path(FairALS(factors=8, epochs=4), split, fairness=[0, 1])
    >>> curve.column("way")
    ['re-trained', 're-trained']
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
            # Evaluation folds users in, so the final half-step for the stored users is not needed (settle=False).
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


@dataclass(frozen=True)
class Curve:
    """Quality and exposure at several fairness values, one row each. `+` joins two curves.

    Attributes
    ----------
    rows
        Dictionaries with `way` (how the row was made: "dial", "re-trained", "offsets" or "FairRec"), `fairness`, the
        metrics and `seconds`.
    metrics
        Full names of the metrics in every row.

    Examples
    --------
    >>> from fairmf import Curve
    >>> first = {"way": "dial", "fairness": 0, "ndcg@100": 0.4, "gini@20": 0.9}
    >>> second = {"way": "dial", "fairness": 1, "ndcg@100": 0.3, "gini@20": 0.95}
    >>> curve = Curve((first, second), ("ndcg@100", "gini@20"))
    >>> curve.column("fairness"), len(curve.front())  # the second row is worse in both
    ([0, 1], 1)
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __add__(self, other: Curve) -> Curve:
        """Join two curves that measured the same metrics."""
        if set(self.metrics) != set(other.metrics):
            raise InvalidParameter(
                f"The curves have different metrics: {', '.join(self.metrics)} and {', '.join(other.metrics)}."
            )
        return Curve(self.rows + other.rows, self.metrics)

    def column(self, name: str) -> list[Any]:
        """Return one column as a list, with None for rows that lack it."""
        if self.rows and not any(name in row for row in self.rows):
            raise KeyError(f"{name!r} is not a column; there are {', '.join(self.rows[0])}")
        return [row.get(name) for row in self.rows]

    def table(self) -> pa.Table:
        """Return an Arrow table; `.to_pandas()` on it gives a data frame."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        return pa.table({name: [row.get(name) for row in self.rows] for name in names})

    def front(self, quality: str | None = None, inequality: str | None = None) -> Curve:
        """Return the Pareto front, sorted by inequality: the rows that no other row beats in both metrics."""
        up, down = quality or self.quality, inequality or self.inequality
        kept = front_positions([(row[up], row[down]) for row in self.rows], (False, True))
        return Curve(tuple(sorted((self.rows[i] for i in sorted(kept)), key=lambda row: row[down])), self.metrics)

    @property
    def quality(self) -> str:
        """The metric of quality: the first accuracy metric."""
        return next(name for name in self.metrics if is_accuracy(name))

    @property
    def inequality(self) -> str:
        """The metric of inequality: the first Gini."""
        return next(name for name in self.metrics if name.startswith("gini"))

    def __repr__(self) -> str:
        names = [name for name in ("way", "fairness", *self.metrics) if any(name in row for row in self.rows)]
        lines = ["  ".join(f"{name:>12}" for name in names)]
        for row in self.rows:
            cells = (row.get(name) for name in names)
            lines.append("  ".join(f"{cell:>12.4g}" if isinstance(cell, float) else f"{cell!s:>12}" for cell in cells))
        return "\n".join(lines)


# -- one model at many values of fairness -----------------------------------------------------------------------------


def validation_of(split: Split | HeldOut) -> HeldOut:
    """Return the users to choose settings on: the validation users of a split, never its test users."""
    if isinstance(split, Split):
        return split.validation
    if isinstance(split, HeldOut):
        return split
    raise InvalidData(f"Expected a Split or a HeldOut, got {type(split).__name__}.")


class Dial:
    """Measure the metrics of a fitted model at any fairness, and remember the results."""

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
        """Return the row of one fairness."""
        if fairness not in self.rows:
            began = time.perf_counter()
            found = evaluate(self.model, self.held_out, metrics=self.metrics, bootstrap=0, fairness=fairness)
            values: Record = {name: found[name] for name in self.metrics}
            self.rows[fairness] = {
                "way": "dial", "fairness": fairness, **values, "seconds": time.perf_counter() - began,
            }  # fmt: skip
            self._advance(f"fairness {fairness:g}")
        return self.rows[fairness]

    def first_steps(self) -> list[float]:
        """Return the values of a search upwards: 0, then doubling from a quarter of the trained fairness (or of 1)."""
        unit = self.model.fitted.trained_fairness or 1.0
        steps, psi = [0.0], unit / 4
        while psi <= LIMIT * unit:
            steps.append(psi)
            psi *= 2
        return steps


def rounded(value: float) -> float:
    """Round to three digits, so that people can read and type the fairness."""
    return float(f"{value:.3g}")


def cover(dial: Dial, points: int, quality: str, inequality: str) -> None:
    """Measure `points` values of fairness: upwards to the lowest Gini, then in the middle of the widest gap."""
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
        # Gaps are distances in the plane of quality and Gini, each scaled to its range on the curve.
        spread = np.ptp(values, axis=0)
        gaps = np.linalg.norm(np.diff(values, axis=0) / np.where(spread > 0, spread, 1), axis=1)
        for k in np.argsort(-gaps, kind="stable"):
            low, high = positions[k], positions[k + 1]
            middle = rounded(np.sqrt(low * high) if low > 0 else high / 2)  # fairness acts on a logarithmic scale
            if middle not in dial.rows:
                dial(middle)
                break
        else:
            return  # no three-digit number is left between any two values


def marked(dial: Dial, inequality: str) -> list[dict[str, object]]:
    """Return the rows sorted by fairness; those past the lowest Gini are marked."""
    rows = [dial.rows[psi] for psi in sorted(dial.rows)]
    end = int(np.argmin([row[inequality] for row in rows]))
    return [{**row, "past_minimum": k > end} for k, row in enumerate(rows)]


def _check_axes(curve: Curve) -> None:
    if not any(is_accuracy(name) for name in curve.metrics) or not any(
        name.startswith("gini") for name in curve.metrics
    ):
        raise InvalidParameter(
            "To choose fairness values, metrics must hold an accuracy (ndcg@K or recall@K) and a gini@K. "
            f"Got {', '.join(curve.metrics) or 'none'} instead."
        )


# -- Pareto fronts. A point has one number per objective; `lower` says for each objective whether less is better ------


def dominates(a: Sequence[float], b: Sequence[float], lower: Sequence[bool]) -> bool:
    """Return whether a is at least as good as b in every objective and better in one."""
    gains = [y - x if less else x - y for x, y, less in zip(a, b, lower, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


def front_positions(points: Sequence[Sequence[float]], lower: Sequence[bool]) -> list[int]:
    """Return the positions of points that no other dominates, best in the first objective first. Keep equal points."""
    kept = [i for i, p in enumerate(points) if not any(dominates(q, p, lower) for q in points)]
    return sorted(kept, key=lambda i: (points[i][0] if lower[0] else -points[i][0], i))


def hypervolume(points: ArrayLike, worst: tuple[float, float], lower: Sequence[bool]) -> float:
    """Return the area between the point `worst` and the front of the points (two objectives).

    Points worse than `worst` add nothing. A larger area means a better front as a whole, though not everywhere.
    """
    values: NDArray[np.float64] = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    if len(lower) != 2:
        raise InvalidParameter(f"hypervolume is for two objectives. Got {len(lower)} instead.")
    sign = np.where(np.asarray(lower), -1.0, 1.0)
    gains = sign * (values - np.asarray(worst))  # how much better than `worst`, in each objective
    inside = gains[(gains > 0).all(axis=1)]
    area, height = 0.0, 0.0
    for x, y in inside[np.lexsort((-inside[:, 1], -inside[:, 0]))]:
        if y > height:  # add the strip that no point further right covers
            area += float(x * (y - height))
            height = float(y)
    return area
