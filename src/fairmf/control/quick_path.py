"""Find a path of evenness in about a second, for `trade_off` and `fit_to_target` of a model without one: `on_path`.

As `calibrate`, with four differences that bound the time:

1. A coarse grid is measured, on a sample of the users; then the levels halfway between its best chain and its
   neighbours on the grid.
2. The knots keep what was measured on the sample: they are not measured again on all users.
3. There is no table of costs.
4. The prices of items are learned in fewer steps.

For a finer path call `calibrate` first: a model that has a path keeps it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

from fairmf.control.level_grid import (
    Cohort,
    Grid,
    Point,
    learned_prices,
    measure_grid,
    monotone_chain,
    refined_chain,
    thinned,
    undialled,
)
from fairmf.data.split import HeldOut
from fairmf.metrics.registry import parse_metric
from fairmf.models.evenness import EvennessPath, Knot, Level
from fairmf.models.factor_model import FactorModel
from fairmf.ranking.learn_offsets import Schedule
from fairmf.types import Record

COARSE = Grid((0.0, 1.0, 4.0), (0.0, 0.25, 0.5, 0.75, 1.0, 1.5), (0.0, 0.1, 0.2, 0.4, 0.8, 1.6), (0.3, 0.6, 0.9, 1.2))
PRICES = Schedule(iterations=40, users_at_once=512)  # fewer steps on fewer users than in `calibrate`: coarser prices
PAIRS = 2_400_000  # users of the sample times items: a level then takes about 10 ms on two cores
FEWEST = 200  # users of the sample, whatever the number of items
GAP = 0.05  # of Gini between knots above which a level halfway is measured
MIN_QUALITY = 0.5  # the path ends at this share of the best quality, as that of `calibrate` does

ModelT = TypeVar("ModelT", bound=FactorModel)


def on_path(
    model: ModelT, held_out: HeldOut, at: int, quality: str, advance: Callable[[str], None] = lambda _: None
) -> ModelT:
    """Return the model if it has a path of evenness, else a copy with one that was found on the held-out users.

    The copy has no exposure offsets: they hold for one level alone.
    """
    if model.fitted.path is not None:
        return model
    turned = undialled(model)
    path = quick_path(turned, held_out, at, quality, advance)
    served: Record = {"flatten": model.fitted.flatten, "discount": model.fitted.discount}
    turned._fitted = dataclasses.replace(turned.fitted, path=path, **served)
    return turned  # type: ignore[return-value]


def quick_path(
    plain: FactorModel, held_out: HeldOut, at: int, quality: str, advance: Callable[[str], None] = lambda _: None
) -> EvennessPath:
    """Find a path on a sample of the held-out users, in two rounds: a coarse grid, then around its best chain.

    `plain` gets the prices of items that the path needs.
    """
    wanted = parse_metric(quality)
    users = max(PAIRS // max(plain.n_items, 1), FEWEST)
    cohort = Cohort.of(plain, held_out, at, wanted, users)
    prices = learned_prices(plain, at, advance, cohort, PRICES)
    plain._fitted = dataclasses.replace(plain.fitted, item_prices=prices)
    points = measure_grid(cohort, MIN_QUALITY, advance, COARSE)
    for level in neighbours(best_chain(points), points):
        points.append(cohort.measure(level))
        advance(f"{len(points)} levels")
    least = MIN_QUALITY * max(point.quality for point in points)
    chain = thinned(refined_chain(cohort, points, least, advance, GAP))
    knots = tuple(Knot(point.level, point.gini, point.quality) for point in chain)
    return EvennessPath(knots, at, wanted.label, cohort.history.n_users)


def best_chain(points: Sequence[Point]) -> list[Point]:
    """Return the chain of `monotone_chain` down to MIN_QUALITY of the best quality."""
    return monotone_chain(points, MIN_QUALITY * max(point.quality for point in points))


def neighbours(chain: Sequence[Point], points: Sequence[Point]) -> list[Level]:
    """Return levels that were not measured, in order of fairness: halfway between knots, and half a step around them.

    A step leads from a knot to the next smaller or larger strength on the same axis of the measured points.
    """
    axes = [sorted({point.level.strengths[k] for point in points}) for k in range(len(points[0].level.strengths))]
    found: list[tuple[float, ...]] = []
    for before, after in itertools.pairwise(chain):
        pairs = zip(before.level.strengths, after.level.strengths, strict=True)
        found.append(tuple((a + b) / 2 for a, b in pairs))
    for point in chain:
        here = point.level.strengths
        for k, axis in enumerate(axes):
            place = axis.index(here[k])
            for other in (place - 1, place + 1):
                if 0 <= other < len(axis):
                    found.append((*here[:k], (here[k] + axis[other]) / 2, *here[k + 1 :]))
    measured = {point.level.strengths for point in points}
    return [Level(*strengths) for strengths in sorted(set(found) - measured)]  # the scores of a fairness are kept
