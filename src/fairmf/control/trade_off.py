"""Measure curves of quality against exposure: `trade_off` for one trained model, `fit_path` by training again.

`trade_off` measures a model at one evenness after another on the same users, along the path of `calibrate` or a quick
one (quick_path.py). Functions for Pareto fronts are at the end.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf import html
from fairmf.control.calibrate import validation_of
from fairmf.control.quick_path import on_path
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.metrics.evaluate import evaluate
from fairmf.metrics.registry import is_accuracy
from fairmf.models.als import FairALS
from fairmf.models.base import IterativeModel
from fairmf.models.evenness import Level, check_evenness, requested
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
LEVEL = ("evenness", "fairness", "flatten", "discount", "lift")
"""Columns that say at which level a row was measured."""
EXPECTED = 85  # levels that the search for a path measures, as a rule: for the progress bar
# A fit that starts from a neighbour ends when an epoch lowers F relatively by less than this. Its F is then about that
# of a fit from scratch (docs/trade-off.md).
TOLERANCE = 5e-4


def trade_off(
    model: IterativeModel,
    split: Split | HeldOut,
    *,
    evenness: Iterable[float] | None = None,
    fairness: Iterable[float] | None = None,
    points: int = 12,
    metrics: Sequence[str] = METRICS,
    progress: bool | None = None,
) -> Curve:
    """Measure a fitted model on the validation users at several values of evenness. Nothing is trained.

    The values run along the model's path of evenness, from the best quality to the most even lists. A model that was
    not calibrated gets a path first, found on a sample of the same users in about a second; the model itself is not
    changed. For a finer path, call `calibrate` before.

    Parameters
    ----------
    model
        A fitted FairALS, IALS or FiADMM.
    split
        A Split, of which the validation users are used, or a HeldOut.
    evenness
        The values to measure at, from 0 to 1; None takes `points` of them.
    fairness
        Instead of evenness: values of the users' dial (psi), for experts. The items' dials stay as the model serves.
    points
        How many values of evenness to take: at equal distances from 0 to 1, so Gini falls in about equal steps.
    metrics
        Full names. The first accuracy metric and the first Gini are the axes of the curve, and what a path is found
        for.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Curve
        One row per value: the evenness and its level (fairness, flatten, discount, lift), the metrics, the number of
        users.

    Raises
    ------
    InvalidParameter
        If the model has no dial, values are out of range, evenness and fairness are both given, or the model is not
        calibrated and `metrics` has no accuracy or no Gini.

    Examples
    --------
    >>> from fairmf import FairALS, split_by_user, synthetic, trade_off
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> curve = trade_off(FairALS(factors=8, epochs=4).fit(split.train), split, points=6)
    >>> len(curve), curve.table().column_names[:6]
    (6, ['way', 'evenness', 'fairness', 'flatten', 'discount', 'lift'])
    """
    held_out, axes = validation_of(split), Curve((), tuple(metrics))
    if evenness is not None and fairness is not None:
        raise InvalidParameter("Give evenness or fairness, not both: a level of evenness has its own fairness.")
    if not isinstance(model, IterativeModel):
        raise InvalidParameter(f"A {type(model).__name__} has no dial: use FairALS, IALS or FiADMM.")
    if fairness is not None:
        values = _given("fairness", [check_fairness(psi) for psi in fairness])
        with progress_bar("trade-off", len(values), progress) as advance:
            meter = Meter(model, held_out, metrics, advance)
            return Curve(tuple(meter.dialled(psi) for psi in values), axes.metrics)
    if evenness is None:
        check_count("trade_off", "points", points, 2)
        chosen = [round(k / (points - 1), 4) for k in range(points)]
    else:
        chosen = _given("evenness", [check_evenness(value) for value in evenness])
    calibrated = model.fitted.path is not None
    if not calibrated:
        _check_axes(axes)
    with progress_bar("trade-off", len(chosen) + (0 if calibrated else EXPECTED), progress) as advance:
        turned = model if calibrated else on_path(model, held_out, axes.at, axes.quality, advance)
        meter = Meter(turned, held_out, metrics, advance)
        return Curve(tuple(meter(value) for value in chosen), axes.metrics)


def _given(name: str, values: list[float]) -> list[float]:
    if not values:
        raise InvalidParameter(f"{name} holds no values: leave it out to have values of evenness chosen.")
    return values


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
        One row per value, in the column `trained_fairness`, with the objective that training reached and its epochs.

    Raises
    ------
    InvalidParameter
        If the model cannot be trained with fairness, or there are no values.

    Examples
    --------
    >>> from fairmf import FairALS, fit_path, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> curve = fit_path(FairALS(factors=8, epochs=4), split, fairness=[0, 1])
    >>> curve.column("way"), curve.column("trained_fairness")
    (['re-trained', 're-trained'], [0.0, 1.0])
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
                "way": "re-trained", "trained_fairness": phi, **{name: found[name] for name in metrics},
                "objective": objective, "epochs": len(trained.history), "n_users": split.validation.n_users,
                "seconds": seconds,
            })  # fmt: skip
            previous = trained
            advance(f"fairness {phi:g}")
    return Curve(tuple(rows), tuple(metrics))


def level_of(row: Row) -> Level:
    """Return the level that a row of way "evenness" was measured at."""
    return Level(row["fairness"], row["flatten"], row["discount"], row["lift"])


def place_of(row: Row) -> tuple[float, str]:
    """Return where a row lies on its curve, and which column says so: evenness, else fairness, else the trained one."""
    for name in ("evenness", "fairness", "trained_fairness"):
        if row.get(name) is not None:
            return float(row[name]), name
    return 0.0, ""


@dataclass(frozen=True)
class Curve:
    """Quality and exposure at several values of evenness (or of fairness), one row each. `+` joins two curves.

    Attributes
    ----------
    rows
        Dictionaries with `way` (how the row was made: "evenness", "dial", "re-trained", "offsets" or "FairRec"),
        `fairness` (psi, with which lists were made), the metrics, `n_users` and `seconds`; rows of way "evenness" also
        with `evenness`, `flatten`, `discount` and `lift`. Rows of way "re-trained" have `trained_fairness` (phi)
        instead of `fairness`: each is a model of its own, which makes lists as it was trained.
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

    @property
    def at(self) -> int:
        """Length of the lists whose Gini is the metric of inequality."""
        return int(self.inequality.partition("@")[2])

    @property
    def n_users(self) -> int | None:
        """Number of users whose lists were measured, on which Gini depends; None if rows differ or do not say it."""
        counts = {row.get("n_users") for row in self.rows}
        return counts.pop() if len(counts) == 1 else None

    def __repr__(self) -> str:
        columns = (
            "way",
            *LEVEL,
            "trained_fairness",
            *self.metrics,
            *(() if self.n_users is not None else ("n_users",)),
        )
        names = [name for name in columns if any(name in row for row in self.rows)]
        widths = [max(len(name), 12) for name in names]
        lines = ["  ".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))]
        for row in self.rows:
            cells = ["" if row.get(name) is None else row[name] for name in names]
            told = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
            lines.append("  ".join(f"{cell:>{width}}" for cell, width in zip(told, widths, strict=True)))
        return "\n".join(lines + ([] if self.n_users is None else [f"(lists of {self.n_users:,} users)"]))

    def _repr_html_(self) -> str:
        ways = {row.get("way") for row in self.rows}
        columns = (*(("way",) if len(ways) > 1 else ()), "evenness", "fairness", "trained_fairness", *self.metrics)
        names = [name for name in columns if any(row.get(name) is not None for row in self.rows)]
        rows = [["" if row.get(name) is None else row[name] for name in names] for row in self.rows]
        note = "" if self.n_users is None else f"lists of {self.n_users:,} users"
        return html.title("Curve", note) + html.table(names, rows, most=40)


# -- one model at many levels -----------------------------------------------------------------------------------------


class Meter:
    """Measure the metrics of a fitted model with a path at any evenness, and remember the results."""

    def __init__(
        self,
        model: IterativeModel,
        held_out: HeldOut,
        metrics: Sequence[str],
        advance: Callable[[str], None] = lambda _: None,
    ):
        self.model, self.held_out, self.metrics, self._advance = model, held_out, tuple(metrics), advance
        self.rows: dict[float, Row] = {}

    def __call__(self, evenness: float) -> Row:
        """Return the row of one evenness."""
        if evenness not in self.rows:
            level = requested(self.model.fitted.path, evenness)
            place = {"way": "evenness", "evenness": evenness, **dataclasses.asdict(level)}
            self.rows[evenness] = place | self._measured(f"evenness {evenness:g}", evenness=level)
        return self.rows[evenness]

    def dialled(self, fairness: float) -> Row:
        """Return the row of one fairness of the users' dial."""
        return {"way": "dial", "fairness": fairness, **self._measured(f"fairness {fairness:g}", fairness=fairness)}

    def _measured(self, told: str, **options: Any) -> Row:
        began = time.perf_counter()
        found = evaluate(self.model, self.held_out, metrics=self.metrics, bootstrap=0, **options)
        self._advance(told)
        values: Record = {name: found[name] for name in self.metrics}
        return {**values, "n_users": self.held_out.n_users, "seconds": time.perf_counter() - began}


def rounded(value: float) -> float:
    """Round to three digits, so that people can read and type the fairness."""
    return float(f"{value:.3g}")


def _check_axes(curve: Curve) -> None:
    if not any(is_accuracy(name) for name in curve.metrics) or not any(
        name.startswith("gini") for name in curve.metrics
    ):
        raise InvalidParameter(
            "To find a path of evenness, metrics must hold an accuracy (ndcg@K or recall@K) and a gini@K. "
            f"Got {', '.join(curve.metrics) or 'none'} instead.",
            hint="or call calibrate(model, split) first",
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
