"""Evaluate a model on held-out users: accuracy for users, exposure for items, with bootstrap intervals.

Lists come in blocks of users and are counted as they come: memory is O(users * K), never users x items.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.groups import GroupLabels
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData
from fairmf.metrics.accuracy import ACCURACY, find_hits
from fairmf.metrics.bootstrap import ListMatrices, draw_weights, interval, list_matrices, weighted_means
from fairmf.metrics.exposure import add_up, exposure
from fairmf.metrics.plan import Plan, check_resampling, make_plan

# Where ranked lists come from: a model that is asked block by block, or an array that is there already.


Blocks = Iterable[tuple[int, NDArray[np.integer]]]


class Ranker(Protocol):
    """What `evaluate` needs of a model."""

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        ...

    def rank(
        self, history: Interactions, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield (first row, items rows x N, best first, -1 if none) for consecutive blocks of users."""
        ...


def ranked_by(model: Ranker, held_out: HeldOut, N: int, options: Mapping[str, Any]) -> Blocks:
    """The model's top-N lists of the held-out users; `options` go to its `rank`."""
    n_items = held_out.fold_in.n_items
    if model.n_items != n_items:
        raise InvalidData(
            f"The model knows {model.n_items:,} items, the held-out data has {n_items:,}.",
            hint="use the split that the model was trained on",
        )
    return model.rank(held_out.fold_in, N, known_users=held_out.known_users, **options)


def given_lists(items: NDArray[np.integer]) -> Blocks:
    """Lists that were made elsewhere, as one block, if they can be lists at all."""
    lists = np.asarray(items)
    if lists.ndim != 2 or lists.dtype.kind not in "iu":
        raise InvalidData("Lists must be a two-dimensional array of item positions, one row per held-out user.")
    ordered = np.sort(lists, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise InvalidData("A list holds the same item twice.")
    return [(0, lists)]


# Evaluation: the numbers that `evaluate` found.


Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Metric values by full name ("ndcg@100"), with intervals, and the vectors they were computed from.

    `exposure[K][j]` is the number of users whose first K slots hold item j; `group_exposure` the same, added
    up over groups. `per_user["ndcg@100"][i]` is NaN for users without targets. `intervals` is empty when
    bootstrap=0.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    exposure: dict[int, Values]
    per_user: dict[str, Values]
    n_users: int
    n_scored: int
    group_names: tuple[Hashable, ...] = ()
    group_exposure: dict[int, Values] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        if name not in self.values:
            raise KeyError(f"{name!r} was not evaluated; there are {', '.join(self.values)}")
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def group_shares(self, K: int) -> dict[Hashable, float]:
        """Each group's share of the exposure in the first K slots."""
        exposure = self.group_exposure[K]
        total = exposure.sum()
        shares = exposure / total if total > 0 else np.full(len(exposure), np.nan)
        return dict(zip(self.group_names, shares.tolist(), strict=True))

    def table(self) -> list[dict[str, Any]]:
        """One row per metric name and cut-off: metric, K, value, low, high (None without bootstrap)."""
        rows = []
        for label, value in self.values.items():
            name, _, K = label.partition("@")
            low, high = self.intervals.get(label, (None, None))
            rows.append({"metric": name, "K": int(K), "value": value, "low": low, "high": high})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Values, intervals and sizes as plain Python, ready for JSON (NaN becomes None)."""
        return {
            "n_users": self.n_users,
            "n_scored": self.n_scored,
            "values": {label: _plain(value) for label, value in self.values.items()},
            "intervals": {label: [_plain(low), _plain(high)] for label, (low, high) in self.intervals.items()},
        }

    def __repr__(self) -> str:
        lines = [f"Evaluation({self.n_users:,} users, {self.n_scored:,} with targets)"]
        names = list(dict.fromkeys(label.partition("@")[0] for label in self.values))
        cutoffs = sorted({int(label.partition("@")[2]) for label in self.values})
        width = max(map(len, names), default=0)
        lines.append(" " * (width + 2) + "".join(f"{f'@{K}':>10}" for K in cutoffs))
        for name in names:
            cells = (self.values.get(f"{name}@{K}") for K in cutoffs)
            lines.append(f"  {name:<{width}}" + "".join(f"{'' if v is None else f'{v:.4f}':>10}" for v in cells))
        return "\n".join(lines)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# From blocks of ranked lists to numbers: one pass over the lists, one over the resampled users.


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


def evaluate(
    model: Ranker,
    held_out: HeldOut,
    *,
    at: int | Sequence[int] = (20, 50, 100),
    metrics: Sequence[str] | None = None,
    groups: GroupLabels | None = None,
    train: Interactions | None = None,
    merit: ArrayLike | None = None,
    bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int = 0,
    **rank_options: Any,
) -> Evaluation:
    """Rank all items for every held-out user and measure the lists.

    `metrics` are names with a cut-off ("ndcg@100") or without, which means at every K of `at`; None means all
    that can be computed (docs/metrics.md defines each). `train` allows those that need popularity, `merit`
    (one non-negative number per item, default popularity) what exposure is held against, `groups` (a label
    per item, or a mapping from item id) adds the exposure of groups. `bootstrap` resamples of the users give
    the intervals; 0 gives none and keeps no lists. Further arguments go to the model's `rank`, such as
    fairness=.
    """
    plan = make_plan(held_out, at, metrics, groups, train, merit)
    check_resampling("evaluate", bootstrap, confidence, random_state)
    blocks = ranked_by(model, held_out, plan.longest, rank_options)
    return measure_lists(blocks, held_out, plan, bootstrap, confidence, random_state)


def evaluate_lists(
    items: NDArray[np.integer],
    held_out: HeldOut,
    *,
    at: int | Sequence[int] = (20, 50, 100),
    metrics: Sequence[str] | None = None,
    groups: GroupLabels | None = None,
    train: Interactions | None = None,
    merit: ArrayLike | None = None,
    bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Evaluation:
    """As `evaluate`, for lists that are there already: users x N item positions, best first, -1 for none."""
    plan = make_plan(held_out, at, metrics, groups, train, merit)
    check_resampling("evaluate", bootstrap, confidence, random_state)
    return measure_lists(given_lists(items), held_out, plan, bootstrap, confidence, random_state)
