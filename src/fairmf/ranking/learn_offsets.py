"""Learn exposure offsets: one number per item that keeps its exposure between a floor and a cap.

    maximise  the sum of the recommended items' scores, K per user,   subject to   floor <= exposure_j <= cap

The dual of this linear programme has one price o_j per item. At its optimum every user gets the top K by the score plus
o_j, with o_j >= 0 where the floor binds, o_j <= 0 where the cap binds, and 0 elsewhere. The prices are learned by
projected subgradient steps on the exposure among given users. New users are served with the same prices, one at a time.
Equals plain top-K where neither bound binds. `repair_offsets.repair` then moves the last items inside the bounds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, ItemScale, Vector
from fairmf.data.csr import Rows
from fairmf.errors import InvalidParameter
from fairmf.params import check_number
from fairmf.ranking.top_n import empty_lists

# Prices must first move far (the best K scores are many standard deviations above the rest) and then be adjusted finely
# (unpopular items have nearly equal scores), so steps shrink by a constant factor: docs/decisions/0012-offset-steps.md.
FIRST_STEP, LAST_STEP = 0.3, 0.0003  # in standard deviations of the scores
SETTLED = 0.75  # after this share of the iterations prices are averaged, which is steadier than the last ones
LOOKS = 20  # how often held-out users are looked at while prices are learned
PRICE_FLOOR, PRICE_ITERATIONS, PRICE_USERS = 0.6, 100, (512, 4096)  # of `item_prices`
MARGIN = 0.12  # prices are learned for bounds tighter by this share, so that counts that scatter still keep the bounds


@dataclass(frozen=True)
class Bounds:
    """Hold the least and greatest exposure of an item; 1 means equal exposure of all items."""

    floor: float = 0.0
    cap: float = float("inf")

    def check(self, K: int, n_items: int) -> None:
        """Raise InvalidParameter for bounds that no lists can satisfy."""
        check_number("fit_offsets", "min_exposure", self.floor, low=0, high=1)
        if math.isnan(self.cap) or self.cap < 1:
            raise InvalidParameter(f"max_exposure must be at least 1 (equal exposure). Got {self.cap!r} instead.")
        if self.floor == 0 and self.cap == float("inf"):
            raise InvalidParameter("Give min_exposure, max_exposure, or both.")
        if n_items <= K:
            raise InvalidParameter(f"K must be below the number of items, {n_items:,}. Got {K} instead.")

    def tightened(self, margin: float) -> Bounds:
        """Return bounds that are tighter by this share, but leave room between them and an equal share."""
        floor = min(self.floor * (1 + margin), (self.floor + 1) / 2)
        return Bounds(floor, self.cap if math.isinf(self.cap) else max(self.cap * (1 - margin), (self.cap + 1) / 2))

    def violations(self, share: Vector) -> dict[str, float]:
        """Return how many items are outside the bounds, and how far."""
        # Shares are computed from whole numbers of users: rounding must not put an item just at a bound outside.
        below, above = share < self.floor * (1 - 1e-9), share > self.cap * (1 + 1e-9)
        return {
            "items_below_floor": int(below.sum()),
            "items_above_cap": int(above.sum()),
            "least_share": float(share.min()),
            "greatest_share": float(share.max()),
            "missing_exposure": float(np.maximum(self.floor - share, 0).mean()),
            "excess_exposure": float(np.maximum(share - self.cap, 0).mean()) if np.isfinite(self.cap) else 0.0,
        }


@dataclass(frozen=True)
class Schedule:
    """Hold the settings of learning: every iteration ranks `users_at_once` random users (or all)."""

    iterations: int = 300
    users_at_once: int = 8192
    random_state: int = 0
    gains: Callable[[Vector], bool] = lambda _: True
    """Tell whether users who are held out still gain with these prices; where they do not, learning ends."""
    advance: Callable[[str], None] = lambda _: None
    """Called after every iteration with a text for the progress bar."""


def learn(
    backend: Backend,
    users: Factors,
    items: Factors,
    exclude: Rows | None,
    K: int,
    bounds: Bounds,
    schedule: Schedule | None = None,
    base: Vector | float = 0.0,
) -> NDArray[np.float32]:
    """Learn the offsets, which are added to the scores and to `base` (the item dial's own offsets).

    In the last quarter, where only small steps are left, `schedule.gains` is asked five times whether to go on: False
    ends the learning.
    """
    schedule = Schedule() if schedule is None else schedule
    iterations = schedule.iterations
    n, m = len(users), len(items)
    bounds.check(K, m)
    generator = np.random.default_rng(schedule.random_state)
    batch = min(schedule.users_at_once, n)
    spread = score_spread(backend, users, items)
    prices = np.zeros(m)
    settled, weight = np.zeros(m), 0.0
    share = np.zeros(m)
    # position = n: the first batch begins a new pass.
    order, position = np.arange(n), n
    for number in range(iterations):
        if batch < n and position + batch > n:  # a new pass over all users, in a new order
            order, position = generator.permutation(n), 0
        chosen = order[position : position + batch] if batch < n else order
        position += batch
        fresh = exposure_share(backend, users, items, base + prices, exclude, chosen, K)
        # The counts of one batch are noisy, so use their running mean over about one pass of the users.
        share = fresh if number == 0 else share + max(batch / n, 0.2) * (fresh - share)
        # Geometric, from FIRST_STEP in the first iteration to LAST_STEP in the last.
        step = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (number / max(iterations - 1, 1))
        prices = moved(prices, share, bounds, step * spread, math.sqrt(FIRST_STEP * step) * spread)
        if number >= SETTLED * iterations:
            settled, weight = settled + prices, weight + 1
        schedule.advance(f"{int((share < bounds.floor).sum()):,} items short")
        look = number >= SETTLED * iterations and (number + 1) % max(iterations // LOOKS, 1) == 0
        if look and not schedule.gains(settled / weight):
            break
    return (settled / max(weight, 1)).astype(np.float32)


def item_prices(
    backend: Backend,
    users: Factors,
    items: Factors,
    history: Rows,
    K: int,
    schedule: Schedule,
) -> Vector | None:
    """Return what each item's scores lack to bring it into PRICE_FLOOR of an equal share of the lists, in spreads.

    This is a direction rather than an answer: `Level.lift` says how far to go along it, and `calibrate` measures where
    that leads. So few users at a time are enough. None if all scores are equal, or nobody has a history. Call it inside
    `backend.threads`.
    """
    some = np.flatnonzero(np.diff(history.indptr))
    if len(some) == 0:
        return None
    users, rows = (users, history) if len(some) == len(users) else (users[some], history.take(some))
    here, there = backend.array(users), backend.array(items)
    spread = score_spread(backend, here, there)
    if not (np.isfinite(spread) and spread > 0):
        return None
    # So many that each item is expected in at least one of their lists, as long as that is cheap.
    at_once = min(int(np.clip(len(items) // K, *PRICE_USERS)), schedule.users_at_once)
    schedule = dataclasses.replace(schedule, users_at_once=at_once)
    prices: Vector = learn(backend, here, there, rows, K, Bounds(PRICE_FLOOR), schedule).astype(np.float64) / spread
    return prices


def moved(prices: Vector, share: Vector, bounds: Bounds, step: float, level_step: float) -> Vector:
    """Take one subgradient step: up below the floor, down above the cap, otherwise towards 0 but not past it."""
    floor, cap = bounds.floor, bounds.cap
    up = lift(prices, share, floor, step, level_step) if floor > 0 else np.full_like(share, -step)
    down = np.clip((share - cap) / cap, -1, 1) if np.isfinite(cap) else np.full_like(share, -1.0)
    # Floor and cap have a multiplier each, both >= 0; the price is their difference.
    raised = np.maximum(np.maximum(prices, 0) + up, 0)
    lowered = np.maximum(np.maximum(-prices, 0) + step * down, 0)
    return raised - lowered


def lift(prices: Vector, share: Vector, floor: float, step: float, level_step: float) -> Vector:
    """Return how far each price rises for the floor.

    The mean of all raised prices moves with the exposure that these items lack on average (`level_step`). Each price
    moves relative to that mean with what its own item lacks (at most `step`). With bounded moves of single prices
    alone, a few items with far too much exposure would count less than many items with none, and all prices would rise
    until raised items fill the lists. The average varies little between batches, so its steps can be longer.
    """
    lacking = 1 - share / floor
    lifted = (prices > 0) | (lacking > 0)
    up: Vector = np.clip(lacking, -1, 1) * step
    if lifted.any():
        up[lifted] += level_step * np.clip(lacking[lifted].mean(), -1, 1) - up[lifted].mean()
    return up


def exposure_share(
    backend: Backend,
    users: Factors,
    items: Factors,
    offsets: NDArray[np.floating],
    exclude: Rows | None,
    chosen: NDArray[np.integer],
    K: int,
) -> Vector:
    """Count the exposure of every item among the chosen users' top K, divided by K * users / items."""
    m = len(items)
    lists, scores = empty_lists(len(chosen), K)
    rows = None if exclude is None else exclude.take(chosen)
    added = ItemScale(None, offsets.astype(np.float32))
    backend.top_k(backend.array(backend.host(users)[chosen]), items, K, rows, lists, scores, added)
    counts = np.bincount(lists[lists >= 0], minlength=m)
    share: Vector = counts.astype(np.float64) * (m / (K * len(chosen)))
    return share


def score_spread(backend: Backend, users: Factors, items: Factors) -> float:
    """Return the standard deviation of all scores u_i.v_j, from two Gramians and two means."""
    # The sum of all squared scores is trace(U'U V'V), so the scores themselves are not needed.
    squares = float((backend.gramian(users) * backend.gramian(items)).sum()) / (len(users) * len(items))
    mean = float(backend.mean(users) @ backend.mean(items))
    return float(np.sqrt(max(squares - mean**2, 0.0)))
