"""Calibrate evenness: find the cheapest path from the best quality to the most even lists, on validation users.

1. Learn the prices of items, on the lists of training users (ranking/learn_offsets.py).
2. Measure quality and Gini on a grid of levels, and find the best chain through it (level_grid.py); if there are very
   many users, on a sample of them.
3. Measure the knots of the chain on all validation users: these are the knots of the path.
4. Measure eleven levels along the path on the test users, with intervals.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairmf import html
from fairmf.control.level_grid import Cohort, Point, learned_prices, measure_grid, refined_chain, thinned, undialled
from fairmf.data.popularity import gini
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.metrics.evaluate import Evaluation, evaluate
from fairmf.metrics.registry import parse_metric
from fairmf.models.evenness import EvennessPath, Knot, Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_number
from fairmf.ranking.learn_offsets import PRICE_ITERATIONS
from fairmf.types import Record

if TYPE_CHECKING:
    import pyarrow
else:
    pyarrow = lazy_module("pyarrow")


EXPECTED = 200  # points of the grid, as a rule: for the progress bar
LEVELS = tuple(x / 10 for x in range(11))  # of evenness, in the table


def calibrate(
    model: FactorModel,
    split: Split | HeldOut,
    *,
    at: int = 20,
    quality: str = "ndcg@100",
    min_quality: float = 0.5,
    users: int | None = None,
    bootstrap: int = 200,
    progress: bool | None = None,
) -> Calibration:
    """Find what each `evenness` from 0 to 1 stands for, on validation users, and store it with the model.

    Evenness 0 is the most accurate level that was measured, 1 the most even one (or the one that costs half the
    quality); in between Gini falls in proportion. Nothing is trained. Afterwards `model.recommend(users, evenness=.4)`
    runs along this path, also after `save` and `load_model`.

    Parameters
    ----------
    model
        A fitted model; its path is replaced.
    split
        A Split, whose validation users choose the path and whose test users, if there are any, show what it costs;
        or one HeldOut for both.
    at
        Length of the lists whose Gini counts.
    quality
        The accuracy that is kept as high as possible.
    min_quality
        The path ends where quality falls below this share of the best.
    users
        Number of validation users on which the grid is measured; None takes all, or a sample that bounds the time.
        The path itself is measured on all of them.
    bootstrap
        Resamples for the intervals of the table; 0 for none.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Calibration
        The path, and what each level costs: print it, or see `table()` and `fairmf.reports.plots.evenness_path`.

    Raises
    ------
    InvalidData
        If no validation user has a history and targets.
    InvalidParameter
        If `quality` is not an accuracy with a cut-off, or a number is out of its range.

    Examples
    --------
    >>> from fairmf import FairALS, calibrate, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> model = FairALS(factors=8, epochs=4).fit(split.train)
    >>> found = calibrate(model, split)
    >>> ids, scores = model.recommend(split.train.user_ids.values[:2], N=5, evenness=0.4)
    >>> ids.shape
    (2, 5)
    """
    held_out = validation_of(split)
    check_count("calibrate", "at", at)
    check_number("calibrate", "min_quality", min_quality, low=0, high=1)
    wanted = parse_metric(quality)
    if not wanted.is_accuracy:
        raise InvalidParameter(f"quality must be an accuracy such as 'ndcg@100'. Got {quality!r} instead.")
    plain = undialled(model)
    with progress_bar("calibrate", EXPECTED + 50 + PRICE_ITERATIONS, progress) as advance:
        cohort = Cohort.of(plain, held_out, at, wanted, users)
        plain._fitted = dataclasses.replace(plain.fitted, item_prices=learned_prices(plain, at, advance, cohort))
        points = measure_grid(cohort, min_quality, advance)
        best = max(point.quality for point in points)
        chain = thinned(refined_chain(cohort, points, min_quality * best, advance))
        knots = _knots(cohort, held_out, chain, advance)
        path = EvennessPath(tuple(knots), at, wanted.label, held_out.n_users)
        shown_on = held_out if isinstance(split, HeldOut) or split.test.n_users == 0 else split.test
        names = dict.fromkeys((f"ndcg@{at}", f"recall@{at}", wanted.label, f"gini@{at}", f"coverage@{at}"))
        rows = []
        for evenness in LEVELS:
            level = path.level(evenness)
            found = evaluate(plain, shown_on, metrics=list(names), bootstrap=bootstrap, evenness=level)
            rows.append(LevelCost(evenness, level, found))
            advance(f"evenness {evenness:g}")
    prices = plain.fitted.item_prices if _uses_prices(path) or model.fitted.lift > 0 else None
    model._fitted = dataclasses.replace(model.fitted, path=path, item_prices=prices)
    return Calibration(path, tuple(rows), len(points), "validation" if shown_on is held_out else "test")


def _uses_prices(path: EvennessPath) -> bool:
    """Tell whether a path needs the prices of items; files need not hold them otherwise."""
    return any(knot.level.lift > 0 for knot in path.knots)


def validation_of(split: Split | HeldOut) -> HeldOut:
    """Return the users to choose settings on: the validation users of a split, never its test users."""
    if isinstance(split, Split):
        return split.validation
    if isinstance(split, HeldOut):
        return split
    raise InvalidData(f"Expected a Split or a HeldOut, got {type(split).__name__}.")


@dataclass(frozen=True)
class LevelCost:
    """One evenness, the level it stands for, and what was measured there."""

    evenness: float
    level: Level
    found: Evaluation


@dataclass(frozen=True)
class Calibration:
    """The result of `calibrate`. Printing it shows what each evenness costs.

    Attributes
    ----------
    path
        What each evenness stands for; also stored with the model.
    rows
        Eleven levels of evenness, and what was measured there.
    points
        Number of levels that the grid measured.
    shown_on
        Which users `rows` were measured on: "test" or, without test users, "validation".

    Examples
    --------
    >>> from fairmf import FairALS, calibrate, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = calibrate(FairALS(factors=8, epochs=4).fit(split.train), split)
    >>> [row.evenness for row in found.rows[:3]], found.shown_on
    ([0.0, 0.1, 0.2], 'test')
    """

    path: EvennessPath
    rows: tuple[LevelCost, ...]
    points: int
    shown_on: str

    def table(self) -> pyarrow.Table:
        """Return a row per evenness: its level, and every metric with its interval."""
        columns: dict[str, list[float | None]] = {}
        for row in self.rows:
            values: Record = {"evenness": row.evenness, **dataclasses.asdict(row.level)}
            for name, value in row.found.values.items():
                low, high = row.found.intervals.get(name, (None, None))
                values |= {name: value, f"{name}_low": low, f"{name}_high": high}
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        return pyarrow.table(columns)

    def _repr_html_(self) -> str:
        names = list(self.rows[0].found.values)
        rows = [[f"{row.evenness:.1f}", *(row.found.values[name] for name in names)] for row in self.rows]
        note = f"measured on {self.rows[0].found.n_users:,} {self.shown_on} users"
        return html.title("What each evenness costs", note) + html.table(["evenness", *names], rows)

    def __repr__(self) -> str:
        first = self.rows[0].found
        names = list(first.values)
        lines = [
            f"Calibration({self.points} levels measured on {self.path.n_users:,} validation users; "
            f"below: {first.n_users:,} {self.shown_on} users)",
            "  evenness" + "".join(f"{name:>14}" for name in names),
        ]
        for row in self.rows:
            lines.append(f"  {row.evenness:>8g}" + "".join(f"{row.found[name]:>14.4f}" for name in names))
        return "\n".join(lines)


def _knots(cohort: Cohort, held_out: HeldOut, chain: Sequence[Point], advance: Callable[[str], None]) -> list[Knot]:
    """Return the knots of a chain, measured on all held-out users."""
    if cohort.history.n_users == held_out.n_users:
        return [Knot(point.level, point.gini, point.quality) for point in chain]
    knots: list[Knot] = []
    unequal, quality = f"gini@{cohort.at}", cohort.wanted.label
    for point in chain:
        found = evaluate(cohort.model, held_out, metrics=[quality, unequal], bootstrap=0, evenness=point.level)
        # On all users, Gini may not fall everywhere: such levels are left out.
        if not knots or found[unequal] < knots[-1].gini:
            knots.append(Knot(point.level, found[unequal], found[quality]))
        advance(f"knot {len(knots)}")
    return knots


def recalibrate(model: FactorModel, path: EvennessPath, *, progress: bool | None = None) -> EvennessPath:
    """Give a model the path of another fit of the same data, with Gini measured on the lists of its own users.

    Quality needs held-out interactions, Gini does not. So choose the path on a model that was trained without them,
    then train on everything and serve that model with this path.

    Parameters
    ----------
    model
        A fitted model with the histories of its users; its path is replaced.
    path
        The path of a `calibrate`.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    EvennessPath
        The path with the Gini of this model.

    Examples
    --------
    >>> from fairmf import FairALS, calibrate, recalibrate, split_by_user, synthetic
    >>> data = synthetic(400, 200, 9000)
    >>> split = split_by_user(data, heldout=60, protocol="seeded")
    >>> found = calibrate(FairALS(factors=8, epochs=4).fit(split.train), split)
    >>> model = FairALS(factors=8, epochs=4).fit(data)
    >>> recalibrate(model, found.path) is model.fitted.path
    True
    """
    history, knots = model.fitted.histories("recalibrate"), list[Knot]()
    with progress_bar("recalibrate", len(path.knots) + PRICE_ITERATIONS, progress) as advance:
        prices = learned_prices(model, path.at, advance) if _uses_prices(path) or model.fitted.lift > 0 else None
        turned = copy.copy(model)
        turned._fitted = dataclasses.replace(model.fitted, item_prices=prices)
        for knot in path.knots:
            exposure = np.zeros(model.n_items, dtype=np.int64)
            for _, lists in turned.rank(history, path.at, known_users=True, evenness=knot.level):
                exposure += np.bincount(lists[lists >= 0], minlength=model.n_items)
            value = float(gini(exposure))
            if not knots or value < knots[-1].gini:
                knots.append(dataclasses.replace(knot, gini=value))
            advance(f"Gini {value:.3f}")
    found = EvennessPath(tuple(knots), path.at, path.quality, model.n_users)
    model._fitted = dataclasses.replace(model.fitted, path=found, item_prices=prices)
    return found
