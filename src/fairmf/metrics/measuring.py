"""From blocks of ranked lists to an Evaluation: one pass over the lists, one over the resampled users."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Interactions
from fairmf.metrics.accuracy import ACCURACY, find_hits
from fairmf.metrics.bootstrap import draw_weights, interval, list_matrices, weighted_means
from fairmf.metrics.evaluation import Evaluation
from fairmf.metrics.exposure import add_up, exposure
from fairmf.metrics.groups import GroupLabels, Groups, read_groups
from fairmf.metrics.registry import Background, Wanted, parse_metrics
from fairmf.splitting import HeldOut, Split
from fairmf.splitting.split import check_same_items

Values = NDArray[np.float64]
Blocks = Iterable[tuple[int, NDArray[np.integer]]]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be measured, and against what."""

    wanted: list[Wanted]
    n_items: int
    of_items: Background
    of_groups: Background
    groups: Groups | None

    @property
    def cutoffs(self) -> list[int]:
        """Every K that is asked for, ascending."""
        return sorted({w.K for w in self.wanted})

    @property
    def accuracy(self) -> list[Wanted]:
        """The metrics that are means over users."""
        return [w for w in self.wanted if w.is_accuracy]

    @property
    def by_weighting(self) -> dict[str, list[Wanted]]:
        """Exposure metrics by the worth they give to a slot; plain counts are always part of the result."""
        found: dict[str, list[Wanted]] = {"count": []}
        for w in self.wanted:
            if not w.is_accuracy:
                found.setdefault(w.exposure.weighting, []).append(w)
        return found

    def measure(self, w: Wanted, o: Values) -> Values:
        """One exposure metric of exposure vectors over items (along the last axis)."""
        if w.of_groups and self.groups is not None:
            o = add_up(o, self.groups.codes, len(self.groups.names))
        return w.exposure.measure(o, self.of_groups if w.of_groups else self.of_items)


def make_plan(
    held_out: HeldOut,
    at: int | Iterable[int],
    metrics: Iterable[str] | None,
    groups: GroupLabels | None,
    train: Interactions | None,
    merit: ArrayLike | None,
) -> Plan:
    """Read the arguments of `evaluate`: what is wrong with them is found before anything is ranked."""
    check_held_out(held_out)
    m = held_out.fold_in.n_items
    popularity = None
    if train is not None:
        if not isinstance(train, Interactions):
            raise InvalidData(f"train must be Interactions, such as split.train. Got {type(train).__name__} instead.")
        check_same_items("train", train, "the held-out data", held_out.fold_in)
        popularity = np.bincount(train.by_user.indices, minlength=m).astype(np.float64)
    worth = popularity if merit is None else _check_merit(merit, m)
    there = {"train": popularity is not None, "merit": worth is not None, "groups": groups is not None}
    wanted = parse_metrics(metrics, at, [name for name, given in there.items() if given])
    of_items = of_groups = Background(held_out.n_users, popularity, worth)
    found = None if groups is None else read_groups(groups, m, held_out.fold_in.item_ids)
    if found is not None:
        sums = [None if x is None else add_up(x, found.codes, len(found.names)) for x in of_items[1:]]
        of_groups = Background(held_out.n_users, *sums)
    return Plan(wanted, m, of_items, of_groups, found)


def check_held_out(held_out: Any) -> None:
    """Raise InvalidData for what is not one held-out set, a whole split above all."""
    if not isinstance(held_out, HeldOut):
        hint = ": choose split.validation or split.test" if isinstance(held_out, Split) else ""
        raise InvalidData(f"A model is evaluated on a HeldOut, not on {type(held_out).__name__}{hint}.")


def _check_merit(merit: ArrayLike, n_items: int) -> Values:
    try:
        worth = np.asarray(merit, dtype=np.float64)
    except (TypeError, ValueError):
        worth = np.empty(0)
    if worth.shape != (n_items,) or not np.isfinite(worth).all() or (worth < 0).any() or not worth.any():
        raise InvalidData(f"merit must be {n_items:,} finite numbers >= 0, not all 0, one per item.")
    return worth


def measure_lists(
    blocks: Blocks, held_out: HeldOut, plan: Plan, bootstrap: int, confidence: float, random_state: int
) -> Evaluation:
    """Go through blocks of lists (first user, users x N items) and compute what the plan asks for."""
    counted, per_user, lists = _count(blocks, held_out, plan, keep_lists=bootstrap > 0)
    values = {w.label: _mean(per_user[w.label]) for w in plan.accuracy}
    for weighting, chosen in plan.by_weighting.items():
        values |= {w.label: float(plan.measure(w, counted[weighting, w.K])) for w in chosen}
    values = {w.label: values[w.label] for w in plan.wanted}
    exposures = {K: counted["count", K] for K in plan.cutoffs}
    groups = plan.groups
    return Evaluation(
        values=values,
        intervals=_intervals(lists, plan, values, per_user, bootstrap, confidence, random_state) if lists else {},
        exposure=exposures,
        per_user=per_user,
        n_users=held_out.n_users,
        n_scored=held_out.n_scored,
        group_names=groups.names if groups else (),
        group_exposure={K: add_up(o, groups.codes, len(groups.names)) for K, o in exposures.items()} if groups else {},
    )


def _count(
    blocks: Blocks, held_out: HeldOut, plan: Plan, keep_lists: bool
) -> tuple[dict[tuple[str, int], Values], dict[str, Values], list[NDArray[np.integer]]]:
    """Exposure by weighting and cut-off, per-user accuracy, and the lists themselves if wanted."""
    m, n = plan.n_items, held_out.n_users
    counted: dict[tuple[str, int], Values]
    counted = {(weighting, K): np.zeros(m) for weighting in plan.by_weighting for K in plan.cutoffs}
    per_user: dict[str, Values] = {w.label: np.full(n, np.nan) for w in plan.accuracy}
    lists: list[NDArray[np.integer]] = []
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
            per_user[w.label][first:stop] = ACCURACY[w.name](hits, n_targets, w.K)
        for (weighting, K), total in counted.items():
            total += exposure(items, m, K, weighting)
        if keep_lists:
            lists.append(np.array(items, dtype=np.int32))  # a copy: the model may reuse its block
        done = stop
    if done != n:
        raise InvalidData(f"Only {done:,} of {n:,} held-out users were given a list.")
    return counted, per_user, lists


def _intervals(
    lists: list[NDArray[np.integer]],
    plan: Plan,
    values: dict[str, float],
    per_user: dict[str, Values],
    bootstrap: int,
    confidence: float,
    random_state: int,
) -> dict[str, tuple[float, float]]:
    items = np.concatenate(lists)
    matrices = {
        weighting: list_matrices(items, plan.n_items, plan.cutoffs, weighting)
        for weighting, chosen in plan.by_weighting.items()
        if chosen
    }
    found: dict[str, list[Values]] = {w.label: [] for w in plan.wanted}
    for weights in draw_weights(len(items), bootstrap, plan.n_items, random_state):
        for label, each in per_user.items():
            found[label].append(weighted_means(each, weights))
        for weighting, matrix in matrices.items():
            for K, exposures in matrix.exposures(weights):
                for w in plan.by_weighting[weighting]:
                    if w.K == K:
                        found[w.label].append(plan.measure(w, exposures))
    result = {}
    for w in plan.wanted:
        replicates = np.concatenate(found[w.label])
        shift = {} if w.is_accuracy else {"centre": values[w.label], "highest": w.exposure.highest}
        result[w.label] = interval(replicates, confidence, **shift)
    return result


def _mean(per_user: Values) -> float:
    scored = per_user[np.isfinite(per_user)]
    return float(scored.mean()) if len(scored) else float("nan")
