"""Calibrate evenness: find the cheapest path from the best quality to the most even lists, on validation users.

1. `measure_grid` measures quality and Gini on a grid of levels (fairness, flatten, discount); if there are very many
   users, on a sample of them.
2. `monotone_chain`: of all chains of measured points that start at the best quality, along which no strength falls and
   Gini falls strictly, take the one with the largest area under quality as a function of Gini, where a Gini between two
   knots counts with the quality of the more even one.
3. `thinned`: drop knots whose quality does not differ from the knot before by more than its standard error.
4. Measure the knots and the points halfway between them on all validation users: these are the knots of the path.
5. Measure eleven levels along the path on the test users, with intervals.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, ItemScale
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.popularity import gini
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.metrics.accuracy import find_hits
from fairmf.metrics.evaluate import Evaluation, evaluate
from fairmf.metrics.registry import Wanted, parse_metric
from fairmf.models.evenness import EvennessPath, Knot, Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_number
from fairmf.ranking.top_n import popular_n
from fairmf.types import Floats, Record

if TYPE_CHECKING:
    import pyarrow

    from fairmf.backends.cpu import threads
    from fairmf.ranking import level_kernels
else:  # Numba and PyArrow are imported when they are needed
    threads, level_kernels = lazy_module("fairmf.backends.cpu.threads"), lazy_module("fairmf.ranking.level_kernels")
    pyarrow = lazy_module("pyarrow")


@dataclass(frozen=True)
class Grid:
    """The levels to measure. Each axis is followed until Gini rises or quality is too low, so not all are measured."""

    fairness: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    flatten: tuple[float, ...] = tuple(x / 8 for x in range(17))
    discount: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.3, 1.7, 2.2)


PAIRS = 40_000_000  # users of the sample times items: the grid takes about 15 s per 100 million scores and core
FEWEST = 1000  # users of the sample, whatever the number of items
KEPT = 1 << 26  # scores that are kept for all levels of one fairness (256 MB); more are computed again for each level
EXPECTED = 300  # points of the grid, as a rule: for the progress bar
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
    with progress_bar("calibrate", EXPECTED + 50, progress) as advance:
        points = measure_grid(Cohort.of(plain, held_out, at, wanted, users), min_quality, advance)
        best = max(point.quality for point in points)
        chain = thinned(monotone_chain(points, min_quality * best))
        path = EvennessPath(
            tuple(_knots(plain, held_out, chain, at, wanted.label, advance)), at, wanted.label, held_out.n_users
        )
        shown_on = held_out if isinstance(split, HeldOut) or split.test.n_users == 0 else split.test
        names = dict.fromkeys((f"ndcg@{at}", f"recall@{at}", wanted.label, f"gini@{at}", f"coverage@{at}"))
        rows = []
        for evenness in LEVELS:
            level = path.level(evenness)
            found = evaluate(plain, shown_on, metrics=list(names), bootstrap=bootstrap, evenness=level)
            rows.append(LevelCost(evenness, level, found))
            advance(f"evenness {evenness:g}")
    model._fitted = dataclasses.replace(model.fitted, path=path)
    return Calibration(path, tuple(rows), len(points), "validation" if shown_on is held_out else "test")


def validation_of(split: Split | HeldOut) -> HeldOut:
    """Return the users to choose settings on: the validation users of a split, never its test users."""
    if isinstance(split, Split):
        return split.validation
    if isinstance(split, HeldOut):
        return split
    raise InvalidData(f"Expected a Split or a HeldOut, got {type(split).__name__}.")


def undialled(model: FactorModel) -> FactorModel:
    """Return a copy with plain scores (no item dial, offsets or path), from which a search for a path starts."""
    plain = copy.copy(model)
    plain._fitted = dataclasses.replace(model.fitted, item_offsets=None, path=None, flatten=0.0, discount=0.0)
    return plain


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


# -- the grid ---------------------------------------------------------------------------------------------------------


class Cohort:
    """Users whose lists are made at many levels: their scores are computed once for each fairness."""

    def __init__(self, model: FactorModel, history: Interactions, targets: Rows, at: int, wanted: Wanted):
        self.model, self.history, self.targets, self.at, self.wanted = model, history, targets, at, wanted
        self.length = min(max(at, wanted.K), model.n_items)
        self.n_targets = np.diff(targets.indptr)
        self.scored = (self.n_targets > 0) & (np.diff(history.by_user.indptr) > 0)
        if not self.scored.any():
            raise InvalidData("No validation user has both a history and targets: nothing can be calibrated on them.")
        # u(psi) is linear in psi, so two fold-ins give the vectors at any fairness.
        self.has_fairness = hasattr(model, "with_fairness")
        options: Record = {"fairness": 0.0} if self.has_fairness else {}
        self._users = model.fold_in(history, **options)
        self._slopes = self._users - model.fold_in(history, fairness=1.0) if self.has_fairness else None
        self._fairness: float | None = -1.0
        self._scores: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, model: FactorModel, held_out: HeldOut, at: int, wanted: Wanted, users: int | None) -> Cohort:
        """Return the held-out users, or a random sample of them."""
        history, targets = model._aligned(held_out.fold_in), held_out.targets.by_user
        if users is not None:
            check_count("calibrate", "users", users)
        size = max(PAIRS // max(model.n_items, 1), FEWEST) if users is None else int(users)
        if size < held_out.n_users:
            rows = np.sort(np.random.default_rng(0).choice(held_out.n_users, size, replace=False))
            history, targets = history.take_users(rows), targets.take(rows)
        return cls(model, history, targets, at, wanted)

    def measure(self, level: Level) -> Point:
        """Return quality and Gini of the lists at this level."""
        model, m = self.model, self.model.n_items
        scale, offset = model.fitted.item_scale(level) or ItemScale()
        scale = np.ones(m, dtype=np.float32) if scale is None else scale
        offset = np.zeros(m, dtype=np.float32) if offset is None else offset
        exposure, quality = np.zeros(m, dtype=np.int64), np.full(self.history.n_users, np.nan)
        with model._backend().threads(model.num_threads):
            for start, scores in self._blocks(level.fairness):
                stop = start + len(scores)
                lists = np.empty((len(scores), self.length), dtype=np.int32)
                bounds = threads.even(len(scores), 16)
                work = 20.0 * scores.size
                threads.run(
                    level_kernels.rank_rows, len(bounds) - 1, scores, scale, offset, bounds, out=(lists,), work=work
                )
                new = np.flatnonzero(np.diff(self.history.by_user.indptr[start : stop + 1]) == 0)
                lists[new] = popular_n(model.fitted.most_popular, len(new), self.length)
                hits = find_hits(lists, self.targets.block(start, stop), m)
                quality[start:stop] = self.wanted.accuracy.per_user(hits, self.n_targets[start:stop], self.wanted.K)
                shown = lists[:, : self.at]
                exposure += np.bincount(shown[shown >= 0], minlength=m)
            unequal = float(gini(exposure))  # in here, where BLAS has one thread: waking more takes longer than the sum
        own = quality[self.scored]
        return Point(level, unequal, float(own.mean()), own)

    def _blocks(self, fairness: float | None) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield (first user, scores of a block of users): kept for one fairness if there is room, else made anew."""
        n, m = self.history.n_users, self.model.n_items
        if n * m > KEPT:
            size = max(KEPT // 4 // m, 1)
            yield from ((a, self._scored(fairness, a, min(a + size, n))) for a in range(0, n, size))
            return
        if self._scores is None or fairness != self._fairness:
            self._fairness, self._scores = fairness, self._scored(fairness, 0, n)
        yield 0, self._scores

    def _scored(self, fairness: float | None, start: int, stop: int) -> NDArray[np.float32]:
        """Return the scores of users start..stop, -inf for items of their histories."""
        users: Factors = self._users[start:stop]
        if self._slopes is not None and fairness:
            users = users - self._slopes[start:stop] * users.dtype.type(fairness)
        scores = np.asarray(users @ self.model.item_factors.T, dtype=np.float32)
        liked = self.history.by_user.block(start, stop)
        scores[np.repeat(np.arange(stop - start), np.diff(liked.indptr)), liked.indices] = -np.inf
        return scores


def measure_grid(
    cohort: Cohort, min_quality: float, advance: Callable[[str], None], grid: Grid | None = None
) -> list[Point]:
    """Measure the levels of the grid. An axis ends where Gini rises, or quality is below `min_quality` of the best."""
    points, grid = list[Point](), grid or Grid()

    def goes_on(before: Point | None, point: Point) -> bool:
        least = min_quality * max(p.quality for p in points)
        return point.quality >= least and (before is None or point.gini < before.gini)

    trained = cohort.model.fitted.trained_fairness
    before_psi: Point | None = None
    for psi in sorted({*grid.fairness, trained}) if cohort.has_fairness else [0.0]:
        before_g: Point | None = None
        for g in grid.flatten:
            before_h: Point | None = None
            for h in grid.discount:
                points.append(cohort.measure(Level(psi, g, h)))
                advance(f"{len(points)} levels")
                if not goes_on(before_h, points[-1]):
                    break
                before_h = points[-1]
            first = next(p for p in reversed(points) if p.level.discount == 0)
            if not goes_on(before_g, first):
                break
            before_g = first
        first = next(p for p in points if p.level == Level(psi))
        if not goes_on(before_psi, first):
            break
        before_psi = first
    return points


@dataclass(frozen=True)
class Point:
    """A level, and what was measured there."""

    level: Level
    gini: float
    quality: float
    per_user: Floats
    """The quality of each user, for paired standard errors."""


def monotone_chain(points: Sequence[Point], min_quality: float) -> list[Point]:
    """Return the chain of points that encloses most area under quality(Gini).

    It starts at the point of the best quality (of equal ones at the lowest Gini). From knot to knot no strength falls
    and Gini falls strictly. Points below `min_quality` are left out. Between two knots the area counts the quality of
    the more even one, which is sure to be there. (With straight lines instead, a chain would gain by leaving out every
    point below the line from its start to its end, and then not be on that line.) Dynamic programming over points by
    falling Gini.
    """
    start = max(points, key=lambda point: (point.quality, -point.gini))
    allowed = [p for p in points if p.gini < start.gini and p.quality >= min_quality and _beyond(start, p)]
    order = [start, *sorted(allowed, key=lambda point: -point.gini)]
    area, before = np.full(len(order), -np.inf), np.zeros(len(order), dtype=int)
    area[0] = 0.0
    for b, after in enumerate(order):
        for a in range(b):
            if area[a] > -np.inf and order[a].gini > after.gini and _beyond(order[a], after):
                gained = area[a] + (order[a].gini - after.gini) * after.quality
                if gained > area[b]:
                    area[b], before[b] = gained, a
    at = int(np.argmax(area))
    chain = [order[at]]
    while at != 0:
        at = int(before[at])
        chain.append(order[at])
    return chain[::-1]


def _beyond(a: Point, b: Point) -> bool:
    return all(y >= x for x, y in zip(a.level.strengths, b.level.strengths, strict=True))


def thinned(chain: Sequence[Point]) -> list[Point]:
    """Drop inner knots whose quality is within one paired standard error of the last kept knot's."""
    kept = [chain[0]]
    for point in chain[1:-1]:
        difference = kept[-1].per_user - point.per_user
        error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0.0
        if abs(difference.mean()) > error:
            kept.append(point)
    return [*kept, chain[-1]] if len(chain) > 1 else kept


def _knots(
    model: FactorModel, held_out: HeldOut, chain: Sequence[Point], at: int, quality: str, advance: Callable[[str], None]
) -> list[Knot]:
    """Measure the knots of a chain, and the levels halfway between them, on all held-out users."""
    levels = [chain[0].level]
    for before, after in itertools.pairwise(chain):
        halves = zip(before.level.strengths, after.level.strengths, strict=True)
        levels += [Level(*((a + b) / 2 for a, b in halves)), after.level]
    knots: list[Knot] = []
    for level in levels:
        found = evaluate(model, held_out, metrics=[quality, f"gini@{at}"], bootstrap=0, evenness=level)
        # On all users, Gini may not fall everywhere: such levels are left out.
        if not knots or found[f"gini@{at}"] < knots[-1].gini:
            knots.append(Knot(level, found[f"gini@{at}"], found[quality]))
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
    """
    history, knots = model.fitted.histories("recalibrate"), list[Knot]()
    with progress_bar("recalibrate", len(path.knots), progress) as advance:
        for knot in path.knots:
            exposure = np.zeros(model.n_items, dtype=np.int64)
            for _, lists in model.rank(history, path.at, known_users=True, evenness=knot.level):
                exposure += np.bincount(lists[lists >= 0], minlength=model.n_items)
            value = float(gini(exposure))
            if not knots or value < knots[-1].gini:
                knots.append(dataclasses.replace(knot, gini=value))
            advance(f"Gini {value:.3f}")
    found = EvennessPath(tuple(knots), path.at, path.quality, model.n_users)
    model._fitted = dataclasses.replace(model.fitted, path=found)
    return found
