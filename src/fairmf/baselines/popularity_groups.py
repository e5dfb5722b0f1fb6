"""Re-rank a user's best items by popularity groups: xQuAD and calibrated popularity.

Both divide the catalogue into groups of popularity and build a list greedily from the user's best `candidates`. With
p_g the share of group g in the user's history, s scores scaled to 0..1 over the user's candidates, and n_g the items of
group g among the n that are in the list already, the next item of group g has the value

    xQuAD (Abdollahpouri, Burke, Mobasher, FLAIRS 2019):     (1 - lambda) s + lambda p_g c_g
        c_g = 1 - n_g / n  ("smooth"),  or 1 where n_g = 0 and 0 elsewhere  ("binary")
    calibrated popularity (Abdollahpouri et al., UMAP 2021): (1 - lambda) s - lambda J(p, q)
        J is the Jensen-Shannon divergence in bits, q_g the share of group g in the list with that item

The value depends on the item's group and score alone, so the next item is the best one left of some group, and a slot
costs as many comparisons as there are groups. Both equal plain lists when lambda = 0.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Vector
from fairmf.baselines.cohort import Blocks, Cohort, CohortRanker
from fairmf.baselines.score_model import ScoreModel
from fairmf.data.csr import Rows
from fairmf.lazy import lazy_module
from fairmf.models.factor_model import FactorModel
from fairmf.params import setting

if TYPE_CHECKING:
    from fairmf.baselines import group_kernels
else:
    group_kernels = lazy_module("fairmf.baselines.group_kernels")  # imports Numba

SMOOTH, BINARY, CALIBRATED = 0, 1, 2  # as in the kernel


class GroupRanker(CohortRanker):
    """Re-rank candidates by groups of popularity: the base of both re-rankers."""

    strength: float
    candidates: int

    @abc.abstractmethod
    def _cuts(self) -> tuple[float, ...]:
        """Return the shares of all interactions at which one group ends and the next begins."""

    @abc.abstractmethod
    def _rule(self) -> int:
        """Return the number of the rule in the kernel."""

    def _blocks(self, cohort: Cohort, N: int) -> Blocks:
        groups = popularity_groups(cohort.item_counts, self._cuts())
        count = len(self._cuts()) + 1
        for users in cohort.blocks():
            found, scores = cohort.best(users, max(N, min(self.candidates, cohort.n_items)))
            wanted = group_shares(cohort.rows.by_user.take(users), groups, count)
            lists = np.full((len(users), N), -1, dtype=np.int32)
            group_kernels.choose(
                found, unit_scores(found, scores), groups[found], wanted, float(self.strength), self._rule(), lists
            )
            yield int(users[0]), lists


@dataclass(eq=False)
class XQuAD(GroupRanker):
    """xQuAD for popularity: give users as many unpopular items as their own histories have (docs/rivals.md).

    Parameters
    ----------
    model
        A fitted model.
    strength
        lambda, from 0 (plain lists) to 1 (groups alone).
    cover
        "smooth" or "binary": how much a group still counts that is in the list already.
    candidates
        Number of a user's best items that are re-ranked.
    head
        Share of all interactions that the most popular items, the head, hold together.

    Examples
    --------
    >>> from fairmf import XQuAD, IALS, synthetic
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> XQuAD(model, 0.5).lists(data, N=5).shape
    (60, 5)
    """

    model: FactorModel | ScoreModel
    strength: float = setting(0.5, "Weight of groups.", symbol="lambda", low=0, high=1)
    cover: str = setting("smooth", "How much a group counts that is there.", choices=("smooth", "binary"))
    candidates: int = setting(100, "Best items that are re-ranked.", low=1, integer=True)
    head: float = setting(0.8, "Share of interactions in the head.", above=0, high=1)

    def _cuts(self) -> tuple[float, ...]:
        return (self.head,)

    def _rule(self) -> int:
        return SMOOTH if self.cover == "smooth" else BINARY


@dataclass(eq=False)
class CalibratedPopularity(GroupRanker):
    """Give every user popular, middling and unpopular items in the proportions of the own history (docs/rivals.md).

    Parameters
    ----------
    model
        A fitted model.
    strength
        lambda, from 0 (plain lists) to 1 (proportions alone).
    candidates
        Number of a user's best items that are re-ranked.
    head, tail
        Shares of all interactions of the most and of the least popular items.

    Examples
    --------
    >>> from fairmf import CalibratedPopularity, IALS, synthetic
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> CalibratedPopularity(model, 0.5).lists(data, N=5).shape
    (60, 5)
    """

    model: FactorModel | ScoreModel
    strength: float = setting(0.5, "Weight of proportions.", symbol="lambda", low=0, high=1)
    candidates: int = setting(100, "Best items that are re-ranked.", low=1, integer=True)
    head: float = setting(0.2, "Share of interactions in the head.", above=0, high=0.5)
    tail: float = setting(0.2, "Share of interactions in the tail.", above=0, high=0.5)

    def _cuts(self) -> tuple[float, ...]:
        return self.head, 1 - self.tail

    def _rule(self) -> int:
        return CALIBRATED


def popularity_groups(counts: Vector, cuts: tuple[float, ...]) -> NDArray[np.int64]:
    """Return the group of every item, 0 for the most popular ones.

    Items by falling count (ties to the lower position) belong to the group in which the share of all interactions that
    come before them lies.
    """
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    groups = np.empty(len(counts), dtype=np.int64)
    groups[order] = np.searchsorted(np.asarray(cuts) * counts.sum(), before, side="right")
    return groups


def group_shares(history: Rows, groups: NDArray[np.int64], count: int) -> Vector:
    """Return the share of each group in every history; zeros where a history is empty."""
    user = np.repeat(np.arange(history.count), np.diff(history.indptr))
    cells = np.bincount(user * count + groups[history.indices], minlength=history.count * count)
    shares: Vector = cells.reshape(history.count, count) / np.maximum(np.diff(history.indptr), 1)[:, None]
    return shares


def unit_scores(lists: NDArray[np.int32], scores: NDArray[np.float32]) -> Vector:
    """Scale the scores of every list to 0..1; 0 where all are equal, and in missing slots."""
    value = np.where(lists < 0, np.nan, scores).astype(np.float64)
    filled = np.where(lists < 0, np.inf, value)
    low = filled.min(axis=1, keepdims=True)
    high = np.where(lists < 0, -np.inf, value).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # lists without any item
        width = np.where(high > low, high - low, 1.0)
        units: Vector = np.nan_to_num((value - low) / width, nan=0.0)
    return units
