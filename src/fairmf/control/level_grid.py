"""Measure levels of evenness on a cohort of users, and find the best chain through them.

`measure_grid` measures quality and Gini on a grid of levels (fairness, flatten, discount, lift). Of all chains of
measured points that start at the best quality, along which no strength falls and Gini falls strictly, `monotone_chain`
takes the one with the largest area under quality as a function of Gini; `refined_chain` measures more points between
its knots. `thinned` drops knots whose quality does not differ from the knot before by more than its standard error.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, ItemScale, Vector
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.popularity import gini
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData
from fairmf.lazy import lazy_module
from fairmf.metrics.accuracy import find_hits
from fairmf.metrics.registry import Wanted
from fairmf.models.evenness import Level
from fairmf.models.factor_model import FactorModel
from fairmf.params import check_count
from fairmf.ranking.learn_offsets import PRICE_ITERATIONS, Schedule, item_prices
from fairmf.ranking.top_n import popular_n
from fairmf.types import Floats, Record

if TYPE_CHECKING:
    from fairmf import threads
    from fairmf.ranking import level_kernels
else:  # they import Numba
    threads, level_kernels = lazy_module("fairmf.threads"), lazy_module("fairmf.ranking.level_kernels")


@dataclass(frozen=True)
class Grid:
    """The levels to measure. Each axis is followed until Gini rises or quality is too low, so not all are measured."""

    fairness: tuple[float, ...] = (0.0, 1.0, 4.0)
    flatten: tuple[float, ...] = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 1.0, 1.25, 1.5, 2.0)
    discount: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 1.0, 1.5, 2.2)
    lift: tuple[float, ...] = (0.2, 0.4, 0.6, 0.75, 0.9, 1.05, 1.2, 1.4, 1.7)


PAIRS = 40_000_000  # users of the sample times items: the grid takes about 15 s per 100 million scores and core
FEWEST = 1000  # users of the sample, whatever the number of items
KEPT = 1 << 26  # scores that are kept for all levels of one fairness (256 MB); more are computed again for each level
NEAR = 0.01  # of Gini
ROUNDS = 6  # how often levels halfway between the knots of the best chain are measured


def undialled(model: FactorModel) -> FactorModel:
    """Return a copy with plain scores (no item dial, offsets, prices or path): where a search for a path starts."""
    plain = copy.copy(model)
    nothing: Record = {"item_offsets": None, "item_prices": None, "path": None}
    plain._fitted = dataclasses.replace(model.fitted, flatten=0.0, discount=0.0, lift=0.0, **nothing)
    return plain


class Cohort:
    """Users whose lists are made at many levels: their scores are computed once for each fairness."""

    def __init__(self, model: FactorModel, history: Interactions, targets: Rows, at: int, wanted: Wanted):
        self.model, self.history, self.targets, self.at, self.wanted = model, history, targets, at, wanted
        self.length = min(max(at, wanted.K), model.n_items)
        self.n_targets = np.diff(targets.indptr)
        self.scored = self.n_targets > 0
        if not (self.scored & (np.diff(history.by_user.indptr) > 0)).any():
            raise InvalidData("No validation user has both a history and targets: nothing can be calibrated on them.")
        # u(psi) is linear in psi, so two fold-ins give the vectors at any fairness.
        self.has_fairness = hasattr(model, "with_fairness")
        options: Record = {"fairness": 0.0} if self.has_fairness else {}
        self._users = model.fold_in(history, **options)
        self._slopes = self._users - model.fold_in(history, fairness=1.0) if self.has_fairness else None
        self._fairness: float | None = -1.0
        self._scores: NDArray[np.float32] | None = None
        self._wanted: NDArray[np.bool_] | None = None

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

    def users(self, fairness: float | None, rows: slice = slice(None)) -> Factors:
        """Return the vectors of some of the users at a fairness."""
        users: Factors = self._users[rows]
        if self._slopes is not None and fairness:
            users = users - self._slopes[rows] * users.dtype.type(fairness)
        return users

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
                hits = self._hits(lists, start, stop)
                quality[start:stop] = self.wanted.accuracy.per_user(hits, self.n_targets[start:stop], self.wanted.K)
                shown = lists[:, : self.at]
                exposure += np.bincount(shown[shown >= 0], minlength=m)
            unequal = float(gini(exposure))  # in here, where BLAS has one thread: waking more takes longer than the sum
        own = quality[self.scored]
        return Point(level, unequal, float(own.mean()), own)

    def _hits(self, lists: NDArray[np.int32], start: int, stop: int) -> NDArray[np.bool_]:
        """Mark the slots that hold a target."""
        n, m = self.history.n_users, self.model.n_items
        if n * m > KEPT:
            return find_hits(lists, self.targets.block(start, stop), m)
        if self._wanted is None:  # a flag for each user and item of a small cohort: faster than a search
            self._wanted = np.zeros((n, m + 1), dtype=np.bool_)  # the last column is for missing slots, -1
            self._wanted[np.repeat(np.arange(n), self.n_targets), self.targets.indices] = True
        found: NDArray[np.bool_] = np.take_along_axis(self._wanted[start:stop], lists.astype(np.int64), axis=1)
        return found

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
        users = self.users(fairness, slice(start, stop))
        scores = np.asarray(users @ self.model.item_factors.T, dtype=np.float32)
        liked = self.history.by_user.block(start, stop)
        scores[np.repeat(np.arange(stop - start), np.diff(liked.indptr)), liked.indices] = -np.inf
        return scores


def learned_prices(
    model: FactorModel,
    at: int,
    advance: Callable[[str], None],
    cohort: Cohort | None = None,
    schedule: Schedule | None = None,
) -> Vector | None:
    """Return the price of every item, learned on the training users, or on the cohort where the model holds none."""
    fitted = model.fitted
    users, history = fitted.user_factors, fitted.interactions
    if cohort is not None and (history is None or len(users) == 0):
        users, history = cohort.users(0.0), cohort.history
    if history is None or model.n_items <= at:
        return None
    backend = model._backend()
    with backend.threads(model.num_threads):
        how = dataclasses.replace(schedule or Schedule(PRICE_ITERATIONS), advance=advance)
        return item_prices(backend, users, model.item_factors, history.by_user, at, how)


def measure_grid(
    cohort: Cohort, min_quality: float, advance: Callable[[str], None], grid: Grid | None = None
) -> list[Point]:
    """Measure the levels of the grid. An axis ends where Gini rises, or quality is below `min_quality` of the best.

    Lift comes last: from plain scores on, and from the best level on. Strengths may not fall along a chain, so that
    only levels with at least the strengths of the best one can follow it.
    """
    points, grid = list[Point](), grid or Grid()

    def goes_on(before: Point | None, point: Point) -> bool:
        least = min_quality * max(p.quality for p in points)
        return point.quality >= least and (before is None or point.gini < before.gini)

    def follow(axis: Iterable[Level]) -> Point:
        """Measure levels in turn until one of them is the last; return the first."""
        start, before = len(points), None
        for level in axis:
            points.append(cohort.measure(level))
            advance(f"{len(points)} levels")
            if not goes_on(before, points[-1]):
                break
            before = points[-1]
        return points[start]

    fitted = cohort.model.fitted
    before_psi: Point | None = None
    for psi in sorted({*grid.fairness, fitted.trained_fairness}) if cohort.has_fairness else [0.0]:
        before_g: Point | None = None
        for g in grid.flatten:
            first = follow(Level(psi, g, h) for h in grid.discount)
            if not goes_on(before_g, first):
                break
            before_g = first
        first = next(p for p in points if p.level == Level(psi))
        if not goes_on(before_psi, first):
            break
        before_psi = first
    if fitted.item_prices is not None:
        best = max(points, key=lambda point: point.quality).level
        for base in dict.fromkeys((points[0].level, best)):
            for g in (base.flatten, *(g for g in grid.flatten[::2] if g > base.flatten)):
                first = follow(dataclasses.replace(base, flatten=g, lift=t) for t in grid.lift)
                if not goes_on(None, first):
                    break
    return points


@dataclass(frozen=True)
class Point:
    """A level, and what was measured there."""

    level: Level
    gini: float
    quality: float
    per_user: Floats
    """The quality of each user, for paired standard errors."""


def monotone_chain(points: Sequence[Point], min_quality: float, gap: float = 0.05) -> list[Point]:
    """Return the chain of points that encloses most area under quality(Gini).

    It starts at the point of the best quality (of equal ones at the lowest Gini). From knot to knot no strength falls
    and Gini falls strictly. Points below `min_quality` are left out. Between two knots the area is that under a line.
    If their Gini is further apart than `gap`, it counts the quality of the more even knot alone, which is sure to be
    there: a chain would otherwise gain by leaving out every point below the line from its start to its end, and then
    not be on that line. Dynamic programming over points by falling Gini.
    """
    start = max(points, key=lambda point: (point.quality, -point.gini))
    allowed = [p for p in points if p.gini < start.gini and p.quality >= min_quality]
    order = [start, *sorted(allowed, key=lambda point: -point.gini)]
    ginis, quality = np.array([p.gini for p in order]), np.array([p.quality for p in order])
    strengths = np.array([point.level.strengths for point in order])
    fall = ginis[:, None] - ginis
    gained = fall * np.where(fall > gap, quality, (quality[:, None] + quality) / 2)
    follows = (strengths >= strengths[:, None, :]).all(axis=2) & (fall > 0)
    gained[~follows] = -np.inf
    area, before = np.full(len(order), -np.inf), np.zeros(len(order), dtype=int)
    area[0] = 0.0
    for b in range(1, len(order)):
        reached = area[:b] + gained[:b, b]
        before[b] = int(np.argmax(reached))
        area[b] = reached[before[b]]
    at = int(np.argmax(area))
    chain = [order[at]]
    while at != 0:
        at = int(before[at])
        chain.append(order[at])
    return chain[::-1]


def refined_chain(
    cohort: Cohort, points: Sequence[Point], min_quality: float, advance: Callable[[str], None], gap: float = 0.02
) -> list[Point]:
    """Return the best chain, after measuring halfway between its knots as long as they are further apart than `gap`.

    The chain that hopes for straight lines over any distance is measured too: levels between distant knots mix the
    strengths as no level of the grid does, and are often better.
    """
    found, known = list(points), {point.level for point in points}
    for _ in range(ROUNDS):
        chains = [monotone_chain(found, min_quality), monotone_chain(found, min_quality, gap=1.0)]
        pairs = itertools.chain.from_iterable(map(itertools.pairwise, chains))
        wide = (a.level.halfway(b.level) for a, b in pairs if a.gini - b.gini > gap)
        new = [level for level in dict.fromkeys(wide) if level not in known]
        if not new:
            break
        for level in sorted(new, key=lambda level: level.strengths):  # by fairness: its scores are kept
            known.add(level)
            found.append(cohort.measure(level))
            advance(f"{len(found)} levels")
    chain = monotone_chain(found, min_quality)
    # Near the lowest Gini, quality is paid for next to nothing: end where only NEAR of Gini is left.
    near = next(k for k, point in enumerate(chain) if point.gini <= chain[-1].gini + NEAR)
    return chain[: near + 1]


def thinned(chain: Sequence[Point]) -> list[Point]:
    """Drop inner knots whose quality is within one paired standard error of the last kept knot's."""
    kept = [chain[0]]
    for point in chain[1:-1]:
        difference = kept[-1].per_user - point.per_user
        error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0.0
        if abs(difference.mean()) > error:
            kept.append(point)
    return [*kept, chain[-1]] if len(chain) > 1 else kept
