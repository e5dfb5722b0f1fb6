"""From blocks of ranked lists to numbers: one pass over the lists, one over the resampled users."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.metrics.accuracy import ACCURACY, find_hits
from fairmf.metrics.bootstrap import ListMatrices, draw_weights, interval, list_matrices, weighted_means
from fairmf.metrics.evaluation import Evaluation
from fairmf.metrics.exposure import add_up, exposure
from fairmf.metrics.lists import Blocks
from fairmf.metrics.plan import Plan
from fairmf.splitting import HeldOut

Values = NDArray[np.float64]
Statistics = Callable[[Values], dict[str, Values]]
"""Weights (users x replicates) to named numbers, one per replicate (or a row of them)."""


@dataclasses.dataclass(frozen=True)
class Counted:
    """Lists, counted: exposure by weighting and cut-off, accuracy per user, and the lists where they were kept."""

    plan: Plan
    exposure: dict[tuple[str, int], Values]
    per_user: dict[str, Values]
    lists: NDArray[np.int32] | None

    def values(self) -> dict[str, float]:
        """Every metric of the plan, by full name."""
        plan = self.plan
        found = {w.label: _mean(self.per_user[w.label]) for w in plan.accuracy}
        for weighting, chosen in plan.by_weighting.items():
            found |= {w.label: float(plan.measure(w, self.exposure[weighting, w.K])) for w in chosen}
        return {w.label: found[w.label] for w in plan.wanted}

    def matrices(self) -> dict[str, ListMatrices]:
        """The kept lists, ready to be counted for resampled users, by weighting."""
        if self.lists is None:
            raise ValueError("The lists were not kept: they cannot be resampled.")
        lists, plan = self.lists, self.plan
        chosen = [weighting for weighting, wanted in plan.by_weighting.items() if wanted]
        return {weighting: list_matrices(lists, plan.n_items, plan.cutoffs, weighting) for weighting in chosen}

    def statistics(self) -> Statistics:
        """Every metric of the plan as a function of the users' weights."""
        matrices, plan = self.matrices(), self.plan

        def measured(weights: Values) -> dict[str, Values]:
            found = {label: weighted_means(each, weights) for label, each in self.per_user.items()}
            for weighting, matrix in matrices.items():
                for K, exposures in matrix.exposures(weights):
                    chosen = (w for w in plan.by_weighting[weighting] if w.K == K)
                    found |= {w.label: plan.measure(w, exposures) for w in chosen}
            return found

        return measured


def measure_lists(
    blocks: Blocks, held_out: HeldOut, plan: Plan, bootstrap: int, confidence: float, random_state: int
) -> Evaluation:
    """Go through blocks of lists (first user, users x N items) and compute what the plan asks for."""
    counted = count_lists(blocks, held_out, plan, keep_lists=bootstrap > 0)
    exposures = {K: counted.exposure["count", K] for K in plan.cutoffs}
    groups = plan.groups
    return Evaluation(
        values=counted.values(),
        intervals=_intervals(counted, bootstrap, confidence, random_state)
        if bootstrap > 0 and held_out.n_users
        else {},
        exposure=exposures,
        per_user=counted.per_user,
        n_users=held_out.n_users,
        n_scored=held_out.n_scored,
        group_names=groups.names if groups else (),
        group_exposure={K: add_up(o, groups.codes, len(groups.names)) for K, o in exposures.items()} if groups else {},
    )


def count_lists(blocks: Blocks, held_out: HeldOut, plan: Plan, keep_lists: bool) -> Counted:
    """One pass over the lists. They are kept only if wanted, which resampling needs: users x N integers."""
    m, n = plan.n_items, held_out.n_users
    counted: dict[tuple[str, int], Values]
    counted = {(weighting, K): np.zeros(m) for weighting in plan.by_weighting for K in plan.cutoffs}
    per_user: dict[str, Values] = {w.label: np.full(n, np.nan) for w in plan.accuracy}
    lists: list[NDArray[np.int32]] = []
    targets, done = held_out.targets.by_user, 0
    for first, items in blocks:
        stop = first + len(items)
        if first != done or stop > n or (items.size and (items.max() >= m or items.min() < -1)):
            raise InvalidData(
                f"Lists of users {first:,} to {stop:,} (of {n:,}, {m:,} items): expected consecutive blocks "
                f"that start at user {done:,} and hold item positions, or -1 for none."
            )
        wanted = targets.block(first, stop)
        hits, n_targets = find_hits(items, wanted, m), np.diff(wanted.indptr)
        for w in plan.accuracy:
            per_user[w.label][first:stop] = ACCURACY[w.name](hits, n_targets, min(w.K, m))
        for (weighting, K), total in counted.items():
            total += exposure(items, m, K, weighting)
        if keep_lists:
            lists.append(np.array(items, dtype=np.int32))  # a copy: the model may reuse its block
        done = stop
    if done != n:
        raise InvalidData(f"Only {done:,} of {n:,} held-out users were given a list.")
    kept = np.concatenate(lists or [np.empty((0, 0), dtype=np.int32)]) if keep_lists else None
    return Counted(plan, counted, per_user, kept)


def resample(
    statistics: Statistics, n_users: int, n_items: int, bootstrap: int, random_state: int
) -> dict[str, Values]:
    """The statistics of `bootstrap` resamples of the users; the same seed draws the same users."""
    found: dict[str, list[Values]] = {}
    for weights in draw_weights(n_users, bootstrap, n_items, random_state):
        for label, replicates in statistics(weights).items():
            found.setdefault(label, []).append(replicates)
    return {label: np.concatenate(parts) for label, parts in found.items()}


def _intervals(
    counted: Counted, bootstrap: int, confidence: float, random_state: int
) -> dict[str, tuple[float, float]]:
    plan, values = counted.plan, counted.values()
    n_users = plan.of_items.n_lists
    replicates = resample(counted.statistics(), n_users, plan.n_items, bootstrap, random_state)
    result = {}
    for w in plan.wanted:
        shift = {} if w.is_accuracy else {"centre": values[w.label], "highest": w.exposure.highest}
        result[w.label] = interval(replicates[w.label], confidence, **shift)
    return result


def _mean(per_user: Values) -> float:
    scored = per_user[np.isfinite(per_user)]
    return float(scored.mean()) if len(scored) else float("nan")
