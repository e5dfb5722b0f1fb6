"""Answer `recommend_for` from a part of the catalogue, at any level of evenness (docs/ann.md).

Items are in groups that serve every level (ranking/level_groups.py). A request looks into the groups with the largest
estimates for its user and its level, and ranks their items by exact scores: what is approximate is which items are
looked at. How many groups that takes differs from level to level, so it is measured when the groups are made: for some
users of training the exact lists are computed, and at each level as many groups are looked into as find `GOAL` of them.
A level at which even a quarter of the groups finds less than that is ranked exactly.

Order of calls: `level_groups` once per model; `AnnRequests.rank` for each batch of requests.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.backends.contract import Factors, Vector
from fairmf.data.csr import Rows
from fairmf.data.ids import Names
from fairmf.errors import FairmfError, InvalidData
from fairmf.models.evenness import Level
from fairmf.models.history_request import HistoryAnswer, HistoryRequest
from fairmf.models.recommend_for import Asked, answers_or_errors, joined, on_cpu
from fairmf.params import check_number
from fairmf.ranking import ann
from fairmf.ranking.ann import AnnIndex
from fairmf.ranking.level_groups import LevelGroups, default_groups
from fairmf.ranking.top_n import Lists, empty_lists
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel
    from fairmf.models.serving_state import Singles

log = logging.getLogger("fairmf")
GOAL = 0.95  # share of the exact lists that the groups have to find where they are made
LEAST = 0.9  # share below which groups are measured anew when a model is served with them
STOPS = tuple(k / 8 for k in range(9))  # values of evenness at which the share of groups is measured
FEWEST = 1 / 1024  # share of the groups that is tried first; then it is doubled
MOST = 1 / 4  # largest share of the groups; looking into more takes longer than ranking every item
SAMPLE, CHECKED = 48, 16  # users who are sampled when groups are made, and when they are checked
LENGTH = 20  # of their lists


class AnnRequests:
    """A model that answers requests from groups of items in place of scoring every item.

    Parameters
    ----------
    model
        A fitted model on the cpu.
    index
        An index of its items, `model.to_ann(levels=True)`, or the groups alone. Without `levels` they are made here.
    share
        Share of the groups that every request looks into; None takes what was measured at the level of the request.

    Examples
    --------
    >>> from fairmf import IALS, synthetic
    >>> from fairmf.models.ann_requests import AnnRequests
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> served = AnnRequests(model, model.to_ann(levels=True))
    >>> ids, scores = served.recommend_for(data.item_ids.values[:3], N=5, evenness=0.4)
    >>> ids.shape
    (5,)
    """

    def __init__(self, model: FactorModel, index: AnnIndex | LevelGroups, *, share: float | None = None):
        if share is not None:
            check_number("AnnRequests", "share", share, above=0, high=1)
        fitted = model.fitted
        if not on_cpu(model):
            raise InvalidData("Requests through an index need a model on the cpu.", hint="set model.backend = 'cpu'")
        groups = index if isinstance(index, LevelGroups) else index.levels
        if isinstance(index, AnnIndex) and (
            index.item_vectors.shape != fitted.item_factors.shape or index.ids != fitted.item_ids
        ):
            raise InvalidData("This index has other items than the model: build it with model.to_ann(levels=True).")
        self.model, self.share = model, share
        self.groups = level_groups(model) if groups is None else groups
        self._added: tuple[Any, Any, Vector | None] = (None, None, None)
        self._packed: tuple[LevelGroups, Vector | None, Singles] | None = None

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.model.n_items

    def recommend_for(
        self, items: Hashable | Names, weights: ArrayLike | None = None, N: int = 20, **options: Any
    ) -> tuple[Array, NDArray[np.float32]]:
        """Recommend to a history, as the model's `recommend_for` with the same options."""
        answer = self.recommend_histories([HistoryRequest(items, weights, N, **options)])[0]
        assert isinstance(answer, HistoryAnswer)  # errors are raised
        return answer.ids, answer.scores

    def recommend_histories(
        self, requests: Sequence[HistoryRequest], *, errors: str = "raise", prices: ArrayLike | None = None
    ) -> list[HistoryAnswer | FairmfError]:
        """Answer many requests, as the model's `recommend_histories` does."""
        return answers_or_errors(self.model, requests, errors, prices, self.rank)

    def rank(self, users: Factors, asked: Sequence[Asked], barred: Rows, prices: Vector | None) -> Lists:
        """Return the best items of each user vector at its own level, without the items of its row of `barred`."""
        levels, lengths = [one.level for one in asked], np.array([one.N for one in asked])
        lists, scores = empty_lists(len(users), int(lengths.max()))
        probes = np.array([self._probes(level) for level in levels])
        everything = probes >= self.groups.n_groups
        for rows in (np.flatnonzero(everything), np.flatnonzero(~everything)):
            if len(rows):
                own = [levels[row] for row in rows]
                found = self._ranked(users[rows], own, lengths[rows], barred.take(rows), prices, probes[rows])
                wide = found[0].shape[1]
                lists[rows, :wide], scores[rows, :wide] = found
        short = (lists >= 0).sum(axis=1) < np.minimum(lengths, self.n_items - np.diff(barred.indptr))
        for row in np.flatnonzero(short & (probes < self.groups.n_groups)):  # its groups hold too few items
            one = slice(row, row + 1)
            found = self.model.fitted.serving.rank(
                users[one], levels[one], lengths[one], barred.take(np.array([row])), prices
            )
            lists[row, : lengths[row]], scores[row, : lengths[row]] = found[0][0], found[1][0]
        return lists, scores

    def _probes(self, level: Level) -> int:
        share = self.groups.share(level.on_items) if self.share is None else self.share
        return max(1, round(share * self.groups.n_groups))

    def _ranked(
        self, users: Factors, levels: list[Level], lengths: NDArray[np.int64], barred: Rows, prices: Vector | None,
        probes: NDArray[np.int64],
    ) -> Lists:  # fmt: skip
        """Return the lists of `rank` for requests that all look into every group, or that all look into some."""
        serving, groups = self.model.fitted.serving, self.groups
        if probes[0] >= groups.n_groups:
            return serving.rank(users, levels, lengths, barred, prices)
        strengths = np.array([serving.strength(*level.on_items)[:3] for level in levels])
        chosen = groups.choose(users, strengths, probes, self._largest_added(prices))
        packed = self._packed_for(prices)
        return serving.rank_in_groups(users, levels, lengths, barred, prices, (chosen, *groups.by_group), packed)

    def _packed_for(self, prices: Vector | None) -> Singles:
        """Return vectors and dial of all items, group by group; kept until the prices change."""
        known, serving, members = self._packed, self.model.fitted.serving, self.groups.by_group[0]
        if known is None or known[0] is not self.groups:
            known = (self.groups, prices, serving.pack(members, prices))
        elif known[1] is not prices:
            known = (self.groups, prices, serving.pack(members, prices, known[2]))
        self._packed = known  # one assignment: other threads may be reading
        return known[2]

    def _largest_added(self, prices: Vector | None) -> Vector | None:
        """Return the largest sum of offset and price in each group; kept until the prices change."""
        offsets = self.model.fitted.item_offsets
        if prices is None and offsets is None:
            return None
        known = self._added
        if known[0] is not prices or known[1] is not offsets:
            both = np.zeros(self.n_items) if offsets is None else offsets.astype(np.float64)
            known = (prices, offsets, self.groups.largest(both if prices is None else both + prices))
            self._added = known
        return known[2]

    def check(self) -> dict[float | None, float]:
        """Measure the recall of each level, and look into more groups where it is too low; return the recalls.

        The groups may be of an older model with the same items: then they fit this one less well.
        """
        users, found = _sample(self.model, CHECKED), {}
        for evenness, level in _levels(self.model)[::2]:
            found[evenness] = recall(self, users, level, LENGTH)
        if min(found.values(), default=1.0) < LEAST:
            log.warning(
                "The index finds %.0f %% of the exact lists at its worst level: it may be of another model. "
                "More groups are looked into from now on; build a new index to be fast again.",
                100 * min(found.values()),
            )  # fmt: skip
            self.groups = measured(self.model, self.groups)
        return found


# -- groups of a model ------------------------------------------------------------------------------------------------


def build_index(
    model: FactorModel, groups: int | None, probes: int | None, evenness: float | Level | None, levels: bool
) -> AnnIndex:
    """Build the index of `to_ann`: of one level of evenness and, if asked, with groups for requests at any level."""
    fitted = model.fitted
    items, offset = fitted.dialled_items(fitted.served(evenness))
    index = AnnIndex.build(
        items, fitted.item_ids, offsets=offset, groups=groups, probes=probes, num_threads=model.num_threads
    )
    if levels:
        index.levels = level_groups(model, groups)
    return index


def level_groups(model: FactorModel, groups: int | None = None) -> LevelGroups:
    """Group the items of a model for all levels of evenness, and measure how many groups each level needs."""
    fitted = model.fitted
    users = np.asarray(fitted.user_factors, dtype=np.float64)
    d = fitted.item_factors.shape[1]
    covariance = np.cov(users, rowvar=False, bias=True).reshape(d, d) if len(users) else np.eye(d)
    made = LevelGroups.build(
        fitted.item_factors, fitted.item_dial, covariance, groups or default_groups(model.n_items),
        lambda points, count: ann.cluster(points, count, model.num_threads),
    )  # fmt: skip
    return measured(model, made)


def measured(model: FactorModel, groups: LevelGroups) -> LevelGroups:
    """Return the groups with the share of them that each level has to look into."""
    users, rows, trial = _sample(model, SAMPLE), [], AnnRequests(model, groups)
    for _, level in _levels(model):
        trial.share = FEWEST
        while trial.share <= MOST and recall(trial, users, level, LENGTH) < GOAL:
            trial.share *= 2
        rows.append((*level.on_items, trial.share if trial.share <= MOST else 1.0))
    return dataclasses.replace(groups, effort=np.array(rows, dtype=np.float32))


def recall(served: AnnRequests, users: Factors, level: Level, length: int) -> float:
    """Return the share of the exact lists of some user vectors that is found."""
    n = min(length, served.n_items)
    nobody = joined([np.empty(0, dtype=np.int32)] * len(users))
    asked = [Asked(n, level, nobody.indices, None, nobody.indices, None, False, None)] * len(users)
    exact = served.model.fitted.serving.rank(users, [level] * len(users), np.full(len(users), n), nobody)[0]
    found = served.rank(users, asked, nobody, None)[0]
    return float(np.mean([len(np.intersect1d(a, b)) / n for a, b in zip(exact, found, strict=True)]))


def _levels(model: FactorModel) -> list[tuple[float | None, Level]]:
    """Return levels along the path of evenness; the model's own one where it has offsets, which hold for it alone."""
    if model.fitted.item_offsets is not None:
        return [(None, model.fitted.served())]
    return [(stop, model.fitted.served(stop)) for stop in STOPS]


def _sample(model: FactorModel, count: int) -> Factors:
    """Return vectors of some users: of training, or where none are stored of users who have had one item."""
    fitted, draw = model.fitted, np.random.default_rng(0)
    n = len(fitted.user_factors)
    rows = draw.choice(n, min(count, n), replace=False) if n else np.empty(0, dtype=np.int64)
    users = np.ascontiguousarray(fitted.user_factors[np.sort(rows)])
    users = users[np.einsum("ij,ij->i", users, users) > 0]
    return users if len(users) else np.ascontiguousarray(fitted.item_factors[fitted.most_popular[:count]])
