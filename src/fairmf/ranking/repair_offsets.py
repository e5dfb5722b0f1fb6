"""Move the last items inside the exposure bounds, from learned offsets: exact counts, and moves by what is just missed.

Learned prices leave many items a little below the floor, since counts of a batch of users scatter. A pass of `repair`
makes the lists of all users with K further places and counts. For an item that lacks q users, the q-th smallest gap to
the last place of a list, over the users who nearly get it, is how far its price has to rise, if all others stay. They
do not, so it rises by RELAX times that. Raised items with more than they need come down in the same way. For an item
that nobody nearly gets the gaps are computed from the scores of all users: guessed steps brought such items into
thousands of lists (docs/decisions/0012-offset-steps.md).

1. `places` makes the lists, and gives each item's gaps (users who nearly get it) and leads (users who have it).
2. `moved` turns counts, gaps and leads into new prices.
3. `far_moves` moves a few items that nobody nearly gets.
4. `repair` repeats all this, and returns the prices with the least exposure outside the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, ItemScale, Vector
from fairmf.data.csr import Rows
from fairmf.ranking.learn_offsets import Bounds
from fairmf.ranking.top_n import empty_lists

PASSES = 30  # over all users, at most
PATIENCE = 5  # passes without fewer violations after which it ends
RELAX = 1.5  # how far beyond the gap a price moves, since the prices of rivals rise too
AIM, ENOUGH = 0.02, 0.2  # items outside aim beyond the bound by this share; more than ENOUGH beyond it is given back
FAR_AT_ONCE = 256  # items that nobody nearly gets and that are moved in one pass
USERS_AT_ONCE = 8192


@dataclass(frozen=True)
class Ranked:
    """Hold what is ranked: users, items, the items each user must not get, and the length K of lists."""

    backend: Backend
    users: Factors
    items: Factors
    exclude: Rows | None
    K: int
    base: Vector
    """Numbers that are added to the scores in any case: the item dial's own offsets."""

    @property
    def equal(self) -> float:
        """Number of users who see each item if all are shown equally often."""
        return self.K * len(self.users) / len(self.items)


@dataclass(frozen=True)
class Sorted:
    """Hold numbers by item, ascending within each item: those of item j are values[start[j]:start[j + 1]]."""

    start: NDArray[np.int64]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, items: NDArray[np.int32], values: NDArray[np.float32], n_items: int) -> Sorted:
        """Sort the numbers by item and size."""
        order = np.lexsort((values, items))
        return cls(np.concatenate(([0], np.cumsum(np.bincount(items, minlength=n_items)))), values[order])

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of values that each item has."""
        return np.diff(self.start)

    def smallest(self, items: NDArray[np.int64], rank: NDArray[np.int64]) -> Vector:
        """Return the rank-th smallest number (from 1) of each of these items, or the largest; NaN if it has none."""
        have = self.counts[items]
        found = np.full(len(items), np.nan)
        some = have > 0
        at = self.start[items[some]] + np.minimum(rank[some], have[some]) - 1
        found[some] = self.values[at]
        return found

    def between(self, items: NDArray[np.int64], rank: NDArray[np.int64]) -> Vector:
        """Return the mean of the rank-th smallest number and the next: a price there makes no two scores equal."""
        return (self.smallest(items, rank) + self.smallest(items, rank + 1)) / 2


def repair(
    ranked: Ranked,
    prices: Vector,
    bounds: Bounds,
    advance: Callable[[str], None] = lambda _: None,
    passes: int = PASSES,
) -> Vector:
    """Return prices that leave less exposure outside the bounds."""
    low, high = whole_bounds(bounds, ranked.equal)
    best, least, waited = prices, math.inf, 0
    for _ in range(passes):
        gaps, leads, last = places(ranked, prices)
        counts = leads.counts
        outside = np.maximum(low - counts, 0) + np.maximum(counts - high, 0)
        missing = float(outside.sum())
        advance(f"{int((outside > 0).sum()):,} items outside")
        best, least, waited = (prices, missing, 0) if missing < least else (best, least, waited + 1)
        if missing == 0 or waited >= PATIENCE:
            break
        unseen = np.flatnonzero((counts < low) & (gaps.counts == 0))[:FAR_AT_ONCE]
        far = far_moves(ranked, prices, unseen, last, int(low))
        prices = moved(prices, low, high, gaps, leads)
        prices[unseen] += far
    return best


def whole_bounds(bounds: Bounds, equal: float) -> tuple[float, float]:
    """Return the least and greatest number of users who may see an item: exposure comes in whole users."""
    low = math.ceil(bounds.floor * equal * (1 - 1e-9))
    return float(low), math.inf if math.isinf(bounds.cap) else float(max(math.floor(bounds.cap * equal + 1e-9), low))


def places(ranked: Ranked, prices: Vector) -> tuple[Sorted, Sorted, Vector]:
    """Make all lists; return by item how far users' lists are from taking it (gaps) and from dropping it (leads).

    The last array has the score of the last place of each user's list.
    """
    n, m, K = len(ranked.users), len(ranked.items), ranked.K
    width = min(2 * K, m)
    added = ItemScale(None, (ranked.base + prices).astype(np.float32))
    host = ranked.backend.host(ranked.users)
    near: list[NDArray[np.int32]] = []
    gap: list[NDArray[np.float32]] = []
    had: list[NDArray[np.int32]] = []
    lead: list[NDArray[np.float32]] = []
    edge: list[NDArray[np.float32]] = []
    for start in range(0, n, USERS_AT_ONCE):
        chosen = np.arange(start, min(start + USERS_AT_ONCE, n))
        lists, scores = empty_lists(len(chosen), width)
        rows = None if ranked.exclude is None else ranked.exclude.take(chosen)
        ranked.backend.top_k(ranked.backend.array(host[chosen]), ranked.items, width, rows, lists, scores, added)
        last = scores[:, K - 1 : K]
        # Where a list has no further place, nothing displaces its items: their lead is infinite.
        following = scores[:, K : K + 1] if width > K else np.full_like(last, np.nan)
        here, there = lists[:, :K] >= 0, lists[:, K:] >= 0
        had.append(lists[:, :K][here])
        lead.append(np.where(np.isnan(following), np.inf, scores[:, :K] - following)[here].astype(np.float32))
        near.append(lists[:, K:][there])
        gap.append((last - scores[:, K:])[there])
        edge.append(last[:, 0])
    return (
        Sorted.of(np.concatenate(near), np.concatenate(gap), m),
        Sorted.of(np.concatenate(had), np.concatenate(lead), m),
        np.concatenate(edge).astype(np.float64),
    )


def moved(prices: Vector, low: float, high: float, gaps: Sorted, leads: Sorted) -> Vector:
    """Return the prices after one pass.

    Items outside the bounds move by RELAX times what brings them inside; items that are raised or lowered further than
    they need move back by what is too much, but not past 0.
    """
    counts = leads.counts
    change = np.zeros(len(prices))
    most = math.floor(high * (1 - AIM)) if math.isfinite(high) else math.inf
    short = np.flatnonzero(counts < low)
    wanted = np.minimum(np.ceil(low * (1 + AIM)), max(most, low)) - counts[short]
    up = gaps.smallest(short, wanted.astype(np.int64))
    change[short] = RELAX * _finite(up, np.zeros(len(short)))
    if math.isfinite(high):
        over = np.flatnonzero(counts > high)
        surplus = counts[over] - max(most, low)
        change[over] = -RELAX * _finite(leads.smallest(over, surplus.astype(np.int64)), np.zeros(len(over)))
    # Back towards 0: raised items that have more than enough, lowered ones that have less than they may.
    rich = np.flatnonzero((prices > 0) & (counts > np.ceil(low * (1 + ENOUGH))) & (change == 0))
    surplus = counts[rich] - np.ceil(low * (1 + ENOUGH))
    back = _finite(leads.between(rich, surplus.astype(np.int64)), prices[rich])
    change[rich] = -np.minimum(back, prices[rich])
    if math.isfinite(high):
        poor = np.flatnonzero((prices < 0) & (counts < np.floor(high * (1 - ENOUGH))) & (change == 0))
        wanted = np.floor(high * (1 - ENOUGH)) - counts[poor]
        back = _finite(gaps.between(poor, wanted.astype(np.int64)), -prices[poor])
        change[poor] = np.minimum(back, -prices[poor])
    return prices + change


def far_moves(ranked: Ranked, prices: Vector, items: NDArray[np.int64], last: Vector, wanted: int) -> Vector:
    """Return how far these items must rise to be in the lists of `wanted` users, if all others stay."""
    best = np.full((0, len(items)), np.inf)
    if len(items) == 0 or wanted == 0:
        return np.zeros(len(items))
    users, V = ranked.backend.host(ranked.users), ranked.backend.host(ranked.items)[items].astype(np.float64)
    column = np.full(len(ranked.items), -1)
    column[items] = np.arange(len(items))
    for start in range(0, len(users), USERS_AT_ONCE):
        block = users[start : start + USERS_AT_ONCE].astype(np.float64)
        gaps = last[start : start + len(block), None] - (block @ V.T + (ranked.base + prices)[items])
        if ranked.exclude is not None:
            rows = ranked.exclude.block(start, start + len(block))
            at = column[rows.indices]
            gaps[np.repeat(np.arange(len(block)), np.diff(rows.indptr))[at >= 0], at[at >= 0]] = np.inf
        # A list that is not full has room for any item: its last place has no score.
        best = np.sort(np.concatenate((best, np.nan_to_num(gaps, nan=np.inf, posinf=np.inf))), axis=0)[:wanted]
    reached = best[-1] if len(best) else np.zeros(len(items))
    return np.where(np.isfinite(reached), np.maximum(reached, 0), 0.0)


def _finite(values: Vector, otherwise: Vector) -> Vector:
    return np.where(np.isfinite(values), values, otherwise)
