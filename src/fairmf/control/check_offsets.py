"""Measure what exposure offsets do for users they were not learned on, and refuse those that do not help.

Offsets can fit the users they are learned on and do nothing for others: with few users per item, what is learned is
which of these users happens to be nearest to an item. So a part of the users is held out. Offsets are refused if

* Gini@K of the held-out users falls by less than LEAST_FALL, or by less than twice its standard error, or
* held-out targets are known, and nDCG@K loses a share WORST_TRADE times as large as the share by which Gini falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import ItemScale, Vector
from fairmf.data.csr import Rows
from fairmf.data.popularity import gini
from fairmf.errors import InvalidParameter
from fairmf.metrics.accuracy import find_hits, ndcg
from fairmf.metrics.bootstrap import draw_weights, list_matrices
from fairmf.ranking.repair_offsets import Ranked
from fairmf.ranking.top_n import empty_lists

HELD_OUT = 0.2  # share of the cohort that is held out
MOST_HELD_OUT = 10_000  # users: enough for a standard error far below LEAST_FALL
FEWEST = 50  # users that must be held out for a check to mean anything
LEAST_FALL = 0.01  # of Gini
WORST_TRADE = 5.0
RESAMPLES = 100
STILL = 0.001  # fall of Gini between two looks, below which held-out users gain no more


@dataclass(frozen=True)
class HeldOutCheck:
    """Compare the lists of users on whom no offsets were learned, without and with offsets.

    Attributes
    ----------
    n_users
        Number of these users. Gini depends on it: compare only lists of as many users.
    gini_before, gini_after
        Gini@K of their lists without and with the offsets.
    gini_error
        Standard error of the difference, from resampled users.
    ndcg_before, ndcg_after
        nDCG@K on their held-out targets; None if they have none.
    """

    n_users: int
    gini_before: float
    gini_after: float
    gini_error: float
    ndcg_before: float | None = None
    ndcg_after: float | None = None

    @property
    def fall(self) -> float:
        """The fall of Gini: before minus after."""
        return self.gini_before - self.gini_after

    @property
    def reason(self) -> str:
        """Why the offsets do not help these users; empty if they do."""
        if self.fall < 2 * self.gini_error:
            return f"its fall is not statistically significant (standard error {self.gini_error:.4f})"
        if self.fall < LEAST_FALL:
            return f"it falls by less than {LEAST_FALL:g}"
        if self.ndcg_before and self.ndcg_after is not None:
            lost = 1 - self.ndcg_after / self.ndcg_before
            gained = self.fall / self.gini_before
            if lost > WORST_TRADE * gained:
                return f"nDCG loses {lost:.1%} for a Gini that is {gained:.1%} lower"
        return ""

    def __str__(self) -> str:
        text = f"{self.n_users:,} users not learned on: Gini {self.gini_before:.3f} to {self.gini_after:.3f}"
        if self.ndcg_before is None or self.ndcg_after is None:
            return text
        return f"{text}, nDCG {self.ndcg_before:.3f} to {self.ndcg_after:.3f}"

    def refuse(self, K: int, name: str) -> None:
        """Raise InvalidParameter if the offsets do not help; `name` is the bound that was asked for."""
        if self.reason:
            quality = ""
            if self.ndcg_before is not None and self.ndcg_after is not None:
                quality = f", nDCG@{K} from {self.ndcg_before:.4f} to {self.ndcg_after:.4f}"
            raise InvalidParameter(
                f"These offsets do not help users they were not learned on: for {self.n_users:,} such users Gini@{K} "
                f"goes from {self.gini_before:.4f} to {self.gini_after:.4f}{quality}; {self.reason}.",
                hint="use recommend(..., evenness=) for new users or recommend_fairly(share=) for a fixed cohort, ask "
                "for a smaller {parameter}, or take these offsets without the check (check=False, --no-check)",
                parameter=name,
            )


class Checked:
    """Users whose lists are compared: vectors, items they must not get, and held-out targets if there are any."""

    def __init__(self, ranked: Ranked, targets: Rows | None):
        self.ranked, self.targets = ranked, targets
        self._plain = self._lists(np.zeros(len(ranked.items)))
        self._last = math.inf

    def still_gain(self, prices: Vector) -> bool:
        """Return whether Gini has fallen since the last look."""
        now = self._gini(self._lists(prices))
        gained, self._last = self._last - now > STILL, min(now, self._last)
        return gained

    def measure(self, prices: Vector) -> HeldOutCheck:
        """Compare the lists without and with these prices."""
        m, K = len(self.ranked.items), self.ranked.K
        fair = self._lists(prices)
        sides = [list_matrices(lists, m, [K], "count") for lists in (self._plain, fair)]
        falls: list[NDArray[np.float64]] = []
        for weights in draw_weights(len(fair), RESAMPLES, m, random_state=0):
            one, other = (np.array([gini(row) for row in next(side.exposures(weights))[1]]) for side in sides)
            falls.append(one - other)
        quality = [None if self.targets is None else self._ndcg(lists, self.targets) for lists in (self._plain, fair)]
        error = float(np.concatenate(falls).std())
        return HeldOutCheck(len(fair), self._gini(self._plain), self._gini(fair), error, *quality)

    def _gini(self, lists: NDArray[np.int32]) -> float:
        return float(gini(np.bincount(lists[lists >= 0], minlength=len(self.ranked.items))))

    def _ndcg(self, lists: NDArray[np.int32], targets: Rows) -> float | None:
        wanted = np.diff(targets.indptr)
        if not wanted.any():
            return None
        return float(np.nanmean(ndcg(find_hits(lists, targets, len(self.ranked.items)), wanted, self.ranked.K)))

    def _lists(self, prices: Vector) -> NDArray[np.int32]:
        ranked = self.ranked
        lists, scores = empty_lists(len(ranked.users), ranked.K)
        added = ItemScale(None, (ranked.base + prices).astype(np.float32))
        ranked.backend.top_k(ranked.users, ranked.items, ranked.K, ranked.exclude, lists, scores, added)
        return lists


def held_out_rows(n_users: int, random_state: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw users to learn on and users to check on; nobody is held out if these would be too few."""
    size = min(int(HELD_OUT * n_users), MOST_HELD_OUT)
    order = np.random.default_rng(random_state).permutation(n_users)
    size = size if size >= FEWEST else 0
    return np.sort(order[size:]), np.sort(order[:size])
