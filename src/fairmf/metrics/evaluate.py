"""Evaluate a model on held-out users: accuracy for users, exposure for items, with bootstrap intervals.

Lists arrive in blocks of users and are counted block by block: memory is O(users * K), never users x items. Order of
calls:

1. `make_plan` reads the arguments: which metrics, at which cut-offs, with which inputs.
2. `ranked_by` asks the model for lists; `given_lists` takes lists that were made elsewhere.
3. `count_lists` goes through the lists once and computes the exposure of every item and the accuracy of every user.
   Metrics of lists among cold items alone need a second ranking: `count_ranked` does both.
4. `resample` resamples the users and recounts, for the intervals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from fairmf.data.groups import GroupLabels
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData
from fairmf.metrics.accuracy import find_hits
from fairmf.metrics.bootstrap import (
    Bootstrap,
    ListMatrices,
    draw_weights,
    interval,
    jackknife_interval,
    leave_out_weights,
    list_matrices,
    weighted_means,
)
from fairmf.metrics.evaluation import Evaluation as Evaluation
from fairmf.metrics.exposure import exposure
from fairmf.metrics.given import Extras, Features, ListBlock
from fairmf.metrics.list_case import ListOptions, match_lists
from fairmf.metrics.metric_kinds import UserMetric
from fairmf.metrics.plan import Merit, Plan, make_plan
from fairmf.metrics.registry import INPUTS, Wanted, parse_metrics
from fairmf.params import takes_keywords
from fairmf.types import Array, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

Values = NDArray[np.float64]
Blocks = Iterable[tuple[int, NDArray[np.integer]]]
"""Consecutive blocks of lists: (first user, users x N item positions)."""
AT = (20, 50, 100)
"""Cut-offs by default."""
Statistics = Callable[[Values], dict[str, Values]]
"""A function from weights (users x replicates) to named statistics, with one number or row per replicate."""


def evaluate(
    model: Ranker,
    held_out: HeldOut,
    *,
    at: int | Sequence[int] = AT,
    metrics: Sequence[str] | None = None,
    groups: GroupLabels | None = None,
    train: Interactions | None = None,
    merit: Merit | None = None,
    user_groups: GroupLabels | None = None,
    features: Features | None = None,
    group_target: Mapping[Hashable, float] | None = None,
    bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int = 0,
    **rank_options: object,
) -> Evaluation:
    """Rank all items for every held-out user and measure the lists (docs/metrics.md defines each metric).

    Parameters
    ----------
    model
        A fitted model, or anything with `n_items` and `rank`.
    held_out
        The users to rank for: `split.validation` or `split.test`.
    at
        Cut-offs K for metrics that are named without one.
    metrics
        Names with or without a cut-off ("ndcg@100", "ndcg"). None means the usual ones that can be computed, "all" all.
    groups
        A label per item, or a mapping from item id to label; adds the exposure of groups.
    train
        The training data, for metrics that need the items' popularity.
    merit
        One number >= 0 per item, or a mapping from item id (items that are not named have 0), with which exposure is
        compared; by default the popularity.
    user_groups
        A label per held-out user, or a mapping from user id to label, for metrics of groups of users (JME).
    features
        A vector per item (array or sparse matrix, items x features), or a mapping from item id, for diversity.
    group_target
        The share of attention that each group of items should have, for AWRF; by default its share of the items.
    bootstrap
        Number of resamples of the users for the intervals; 0 for no intervals, which needs less memory.
    confidence
        Confidence of the intervals.
    random_state
        Seed of the resamples.
    **rank_options
        Options of the model's `rank`, such as fairness= or items= (positions of the only candidates).

    Returns
    -------
    Evaluation
        Values and intervals by full name, and the arrays they were computed from.

    Raises
    ------
    InvalidData
        If the held-out data do not fit the model, or `held_out` is a whole Split.
    InvalidParameter
        If a metric is unknown or lacks an input that it needs.

    Examples
    --------
    >>> from fairmf import Popularity, evaluate, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = evaluate(Popularity().fit(split.train), split.test, metrics=["recall@20", "gini@20"])
    >>> found["gini@20"] > 0.5
    True
    """
    extras = Extras(user_groups, features, group_target)
    plan = make_plan(held_out, at, metrics, groups, train, merit, extras, [model])
    resamples = Bootstrap.checked("evaluate", bootstrap, confidence, random_state)
    intervals = resamples.count > 0 and held_out.n_users > 0
    counted = count_ranked(model, held_out, plan, rank_options, keep_lists=intervals)
    exposures = {K: counted.exposure["count", K] for K in plan.cutoffs}
    return Evaluation(
        values=counted.values(),
        intervals=_intervals(counted, resamples) if intervals else {},
        exposure=exposures,
        per_user=counted.per_user,
        n_users=held_out.n_users,
        n_scored=held_out.n_scored,
        n_cold=plan.n_cold,
        **plan.of_all_groups(exposures),
    )


class Measured(TypedDict, total=False):
    """The keywords of `evaluate` that say what is measured."""

    at: int | Sequence[int]
    metrics: Sequence[str] | None
    groups: GroupLabels | None
    merit: Merit | None


class MeasuredLists(Measured, total=False):
    """The keywords of `evaluate` for lists that are made already: all but those of a model's `rank`."""

    user_groups: GroupLabels | None
    features: Features | None
    group_target: Mapping[Hashable, float] | None
    bootstrap: int
    confidence: float
    random_state: int


@takes_keywords(MeasuredLists, of=evaluate, note="its lists are ranked already")
def evaluate_lists(
    lists: Any,
    test: Any,
    *,
    train: Any = None,
    items: Iterable[Hashable] | str | None = None,
    users: Sequence[Hashable] | Array | None = None,
    by: str | None = None,
    missing: str = "error",
    columns: Mapping[str, str] | None = None,
    **options: Unpack[MeasuredLists],
) -> Evaluation:
    """Evaluate lists that any program made, with the same numbers as `evaluate` (docs/metrics.md).

    Parameters
    ----------
    lists
        A table with columns user, item and rank or score (data frame, Arrow table, or the path of a Parquet, Arrow,
        CSV or JSON lines file), a table with one row per user and a column of lists, a mapping from user to items, or
        an array users x N. Best first; in an array, -1 or None is an empty slot.
    test
        A HeldOut, Interactions, or a table of users and items or its path.
    train
        Interactions or a table, for metrics that need popularity or histories.
    items
        The ids of the whole catalogue, if `test` is not a HeldOut; "union" stands for all items of lists, test and
        train. By default the items of train and test. Items of lists outside of the catalogue are an error.
    users
        The ids of the rows of an array; by default the users of `test` in its order.
    by
        Whether an array holds item "position"s (default for integers without `users`) or "id"s.
    missing
        Users with test items but without a list: "error", "zero" (they score 0) or "drop".
    columns
        Names of columns by role: {"user": ..., "item": ..., "rank": ..., "score": ...}.
    at, metrics, groups, merit, user_groups, features, group_target, bootstrap, confidence, random_state
        As in `evaluate`.

    Returns
    -------
    Evaluation
        Users with a list but without test items count in exposure only.

    Raises
    ------
    InvalidData
        If ids do not match, a list holds an item twice, or two items of a list have the same rank.

    Examples
    --------
    >>> from fairmf import evaluate_lists
    >>> lists = {"ann": ["tea", "rum"], "bob": ["tea", "gin"]}
    >>> test = {"user": ["ann", "bob"], "item": ["rum", "ale"]}
    >>> import pyarrow as pa
    >>> found = evaluate_lists(lists, pa.table(test), items=["tea", "rum", "gin", "ale"], at=2)
    >>> found["recall@2"], found["coverage@2"]
    (0.5, 0.75)
    """
    asked = parse_metrics(options.get("metrics"), options.get("at", AT), INPUTS)
    reading = ListOptions(items, users, by, missing, columns)
    case = match_lists(lists, test, train, max(w.K for w in asked), reading)
    ranker = GivenLists(case.lists, case.held_out)
    return evaluate(ranker, case.held_out, train=case.train, **options)


class GivenLists:
    """Wrap lists that were made elsewhere as a `Ranker` for their users; `model` made them, if it is known."""

    def __init__(self, items: NDArray[np.integer], held_out: HeldOut, model: Ranker | None = None):
        self.items, self.model = items, model
        self.n_items = held_out.fold_in.n_items

    def rank(self, history: Interactions, N: int, *, known_users: bool = False, **options: object) -> Blocks:  # noqa: ARG002
        """Return all lists as one block of at most N slots."""
        return [(first, items[:, :N]) for first, items in given_lists(self.items)]


class Ranker(Protocol):
    """The interface that `evaluate` needs of a model. Every fairmf model has it.

    A ranker with an attribute `takes_items` that is true can rank some items alone: its `rank` takes `items`, their
    positions, ascending.
    """

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        ...

    def rank(self, history: Interactions, N: int, *, known_users: bool = False, **options: object) -> Blocks:
        """Return consecutive blocks of lists: (first user, users x N item positions, best first, -1 if empty)."""
        ...


def ranked_by(model: Ranker, held_out: HeldOut, N: int, options: Settings) -> Blocks:
    """Ask the model for the top-N lists of the held-out users; `options` go to its `rank`."""
    n_items = held_out.fold_in.n_items
    if model.n_items != n_items:
        raise InvalidData(
            f"The model knows {model.n_items:,} items, the held-out data has {n_items:,}.",
            hint="use the split that the model was trained on",
        )
    return model.rank(held_out.fold_in, N, known_users=held_out.known_users, **options)


def given_lists(items: NDArray[np.integer]) -> Blocks:
    """Return lists that were made elsewhere as one block; raise InvalidData if they cannot be lists."""
    lists = np.asarray(items)
    if lists.ndim != 2 or lists.dtype.kind not in "iu":
        raise InvalidData("Lists must be a two-dimensional array of item positions, one row per held-out user.")
    # Sorted, equal items are neighbours. Only empty slots (-1) may be repeated.
    ordered = np.sort(lists, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise InvalidData("A list holds the same item twice.")
    return [(0, lists)]


@dataclasses.dataclass(frozen=True)
class Counted:
    """Counts of one pass over the lists: exposure by weighting and cut-off, scores per user, the lists if kept."""

    plan: Plan
    exposure: dict[tuple[str, int], Values]
    per_user: dict[str, Values]
    lists: NDArray[np.int32] | None
    block: ListBlock | None = None
    """All users, if a metric needs them together."""

    def values(self) -> dict[str, float]:
        """Return every metric of the plan, by full name."""
        plan = self.plan
        found = {w.label: _mean(self.per_user[w.label]) for w in plan.means}
        for weighting, chosen in plan.by_weighting.items():
            found |= {w.label: float(plan.measure(w, self.exposure[weighting, w.K])) for w in chosen}
        if plan.joint:
            everybody = np.ones((plan.of_items.n_lists, 1))
            found |= {label: float(measured(everybody)[0]) for label, measured in self.joint().items()}
        # In the order in which they were asked for, which is the order of tables.
        return {w.label: found[w.label] for w in plan.wanted}

    def joint(self) -> dict[str, Callable[[Values], Values]]:
        """Return a function of the users' weights for every metric of all lists together."""
        if self.block is None:
            return {}
        m, block = self.plan.n_items, self.block
        return {w.label: metric.prepare(block, min(w.K, m)) for w, metric in self.plan.joint}

    def matrices(self) -> dict[str, ListMatrices]:
        """Return the kept lists as matrices for resampling, by weighting."""
        if self.lists is None:
            raise ValueError("The lists were not kept: they cannot be resampled.")
        lists, plan = self.lists, self.plan
        chosen = [weighting for weighting, wanted in plan.by_weighting.items() if wanted]
        return {weighting: list_matrices(lists, plan.n_items, plan.cutoffs, weighting) for weighting in chosen}

    def statistics(self) -> Statistics:
        """Return a function that computes every metric of the plan from weights of the users."""
        matrices, joint, plan = self.matrices(), self.joint(), self.plan

        def measured(weights: Values) -> dict[str, Values]:
            found = {label: weighted_means(each, weights) for label, each in self.per_user.items()}
            for weighting, matrix in matrices.items():
                for K, exposures in matrix.exposures(weights):
                    chosen = (w for w in plan.by_weighting[weighting] if w.K == K)
                    found |= {w.label: plan.measure(w, exposures) for w in chosen}
            return found | {label: function(weights) for label, function in joint.items()}

        return measured


def count_ranked(model: Ranker, held_out: HeldOut, plan: Plan, options: Settings, keep_lists: bool) -> Counted:
    """Rank all items and count; then rank cold or warm items alone, for the metrics of such lists."""
    counted = count_lists(ranked_by(model, held_out, plan.longest, options), held_out, plan, keep_lists)
    for among in dict.fromkeys(w.among for w in plan.wanted if w.among):
        some = plan.only(among)
        items = np.flatnonzero(plan.given.is_cold == (among == "cold"))
        if "items" in options:
            items = np.intersect1d(items, np.asarray(options["items"]))
        blocks = ranked_by(model, held_out, some.longest, {**options, "items": items})
        counted.per_user.update(count_lists(blocks, held_out, some, keep_lists=False, among=among).per_user)
    return counted


def count_lists(blocks: Blocks, held_out: HeldOut, plan: Plan, keep_lists: bool, among: str = "") -> Counted:
    """Go through the lists once and count. `keep_lists` keeps them (users x N integers), for resampling.

    `among` says which items the lists were made of: only the metrics of such lists are computed.
    """
    m, n = plan.n_items, held_out.n_users
    means = [w for w in plan.means if w.among == among]
    counted: dict[tuple[str, int], Values]
    counted = {(weighting, K): np.zeros(m) for weighting in plan.by_weighting for K in plan.cutoffs}
    per_user: dict[str, Values] = {w.label: np.full(n, np.nan) for w in means}
    lists: list[NDArray[np.int32]] = []
    keep_lists = keep_lists or plan.needs_all
    done = 0
    for first, items in blocks:
        stop = first + len(items)
        # A ranker of another library may return anything: wrong blocks would give wrong numbers without an error.
        if first != done or stop > n or (items.size and (items.max() >= m or items.min() < -1)):
            raise InvalidData(
                f"Lists of users {first:,} to {stop:,} (of {n:,}, {m:,} items): expected consecutive blocks "
                f"that start at user {done:,} and hold item positions, or -1 for none."
            )
        block = list_block(items, held_out, plan, first, stop)
        for w in means:
            if not w.needs_all:
                per_user[w.label][first:stop] = _scores(w, block)
        for (weighting, K), total in counted.items():
            total += exposure(items, m, K, weighting)
        if keep_lists:
            lists.append(np.array(items, dtype=np.int32))  # a copy, because the model may reuse its array
        done = stop
    if done != n:
        raise InvalidData(f"Only {done:,} of {n:,} held-out users were given a list.")
    if not keep_lists:
        return Counted(plan, counted, per_user, None)
    kept = np.concatenate(lists or [np.empty((0, 0), dtype=np.int32)])
    if not plan.needs_all:
        return Counted(plan, counted, per_user, kept)
    everybody = list_block(kept, held_out, plan, 0, n)
    per_user |= {w.label: _scores(w, everybody) for w in means if w.needs_all}
    return Counted(plan, counted, per_user, kept, everybody)


def list_block(items: NDArray[np.integer], held_out: HeldOut, plan: Plan, first: int, stop: int) -> ListBlock:
    """Return the lists of users first to stop, with their hits, targets and histories."""
    targets = held_out.targets.by_user.block(first, stop)
    history = held_out.fold_in.by_user.block(first, stop)
    return ListBlock(items, find_hits(items, targets, plan.n_items), targets, history, plan.given)


def _scores(w: Wanted, block: ListBlock) -> Values:
    K = min(w.K, block.given.n_items)
    if isinstance(w.metric, UserMetric):
        return w.metric.per_user(block, K)
    return w.accuracy.per_user(block.hits, block.n_targets, K)


def resample(
    statistics: Statistics, n_users: int, n_items: int, resamples: Bootstrap, jackknifed: Collection[str] = ()
) -> dict[str, Values]:
    """Compute the statistics for resampled users, those of `jackknifed` without one group of users at a time.

    The same seed draws the same users and groups.
    """
    found: dict[str, list[Values]] = {}
    for weights in draw_weights(n_users, resamples.count, n_items, resamples.random_state):
        for label, replicates in statistics(weights).items():
            # Blocks of replicates come one after the other; they are joined below.
            if label not in jackknifed:
                found.setdefault(label, []).append(replicates)
    for weights in leave_out_weights(n_users, n_items, resamples.random_state) if jackknifed else ():
        for label, replicates in statistics(weights).items():
            if label in jackknifed:
                found.setdefault(label, []).append(replicates)
    return {label: np.concatenate(parts) for label, parts in found.items()}


def _intervals(counted: Counted, resamples: Bootstrap) -> dict[str, tuple[float, float]]:
    plan, values = counted.plan, counted.values()
    replicates = resample(counted.statistics(), plan.of_items.n_lists, plan.n_items, resamples, plan.jackknifed)
    result = {}
    for w in plan.wanted:
        # Metrics that are not means over users are biased by resampling: see `interval`.
        shift = {} if w.is_mean else {"centre": values[w.label], "lowest": w.lowest, "highest": w.highest}
        find = jackknife_interval if w.jackknifed else interval
        result[w.label] = find(replicates[w.label], resamples.confidence, **shift)
    return result


def _mean(per_user: Values) -> float:
    scored = per_user[np.isfinite(per_user)]
    return float(scored.mean()) if len(scored) else float("nan")
