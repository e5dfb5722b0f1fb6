"""Evaluate a model on a sharded data set: every task ranks and measures the users of one shard, and returns sums.

Tasks return neither lists nor the results of single users, so there are no bootstrap intervals, and metrics that need
all lists together (JME, envy, popularity lift) cannot be computed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.groups import read_groups
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.distributed.shards import InMemoryShards, Shard, ShardSource
from fairmf.distributed.task_pool import RayTasks, Tasks
from fairmf.errors import InvalidData
from fairmf.metrics.evaluate import AT, Evaluation, Measured, count_lists, count_ranked, evaluate
from fairmf.metrics.given import Given, read_group_target
from fairmf.metrics.plan import Plan, by_position, plan_for
from fairmf.models.evenness import Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.shard_lists import UserFeatures, check_items, over_shard, without_users
from fairmf.params import takes_keywords

if TYPE_CHECKING:
    from typing_extensions import Unpack

Values = NDArray[np.float64]


class Sums(NamedTuple):
    """The counts and sums of one shard."""

    n_users: int
    n_scored: int
    exposure: dict[tuple[str, int], Values]
    totals: dict[str, tuple[float, int]]
    """For every accuracy metric, its sum over users with targets and the number of these users."""
    unmatched: int
    """Number of users with targets but without history."""


@takes_keywords(Measured, of=evaluate)
def evaluate_shards(
    model: FactorModel,
    history: ShardSource,
    targets: ShardSource,
    *,
    train: ShardSource | None = None,
    evenness: float | Level | None = None,
    fairness: float | None = None,
    user_features: Any = None,
    tasks: Tasks | None = None,
    **measured: Unpack[Measured],
) -> Evaluation:
    """Rank all items for every user of `history` and measure the lists against `targets`, as `evaluate` does.

    Users are matched by their ids and folded in from their history, whose items are left out of the lists. Users
    without targets count in exposure only, users without history not at all.

    Parameters
    ----------
    model
        A fitted model.
    history, targets
        Sources with the model's items (`ParquetShards.read(..., items=model.fitted.item_ids)`) and equally many shards.
    at, metrics, groups, merit
        As in `evaluate`.
    train
        The source of the training data, for metrics that need popularity.
    evenness, fairness
        As in `recommend`: the level at which lists are made; by default the model's own.
    user_features
        As in `recommend_shards`.
    tasks
        Where tasks run; by default on Ray.

    Returns
    -------
    Evaluation
        With `per_user` and `intervals` empty.

    Raises
    ------
    InvalidData
        If the sources have other items or numbers of shards, or no user of the targets is in the history.

    Examples
    --------
    >>> from fairmf import FairALS, evaluate_shards, split_by_user, synthetic
    >>> from fairmf.distributed.shards import InMemoryShards
    >>> from fairmf.distributed.task_pool import InProcess
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> model = FairALS(factors=8, epochs=4).fit(split.train)
    >>> history, targets = (InMemoryShards(part, 2) for part in (split.test.fold_in, split.test.targets))
    >>> found = evaluate_shards(model, history, targets, at=20, evenness=0.5, tasks=InProcess())
    >>> found.n_users, found["coverage@20"] > 0.5
    (60, True)
    """
    for what, source in (("history", history), ("targets", targets), ("train", train)):
        if source is not None:
            check_items(model, source, what)
    if isinstance(history, InMemoryShards) and isinstance(targets, InMemoryShards):
        targets = targets.cut_like(history)  # each is cut by its own number of interactions
    if history.shards != targets.shards:
        raise InvalidData(
            f"history has {history.shards} shards and targets {targets.shards}: read both with the same shards=, so "
            "that a user is in the same shard of both."
        )
    level, features = model.fitted.served(evenness, fairness), UserFeatures.of(model, history, user_features)
    tasks = RayTasks(gpus=float(model.fitted.settings["backend"] == "cuda")) if tasks is None else tasks
    popularity, n_train = (None, 0) if train is None else (_users_of_items(tasks, train), train.n_users)
    groups = measured.get("groups")
    found = None if groups is None else read_groups(groups, history.n_items, model.fitted.item_ids, several=True)
    wanted = targets.popularity if not targets.n_dislikes else _users_of_items(tasks, targets)
    cold = popularity is not None and bool(np.asarray(wanted)[popularity == 0].any())
    given = Given(
        history.n_items, popularity, n_train, cold=cold, cold_targets=cold, candidates=True, groups=found,
        group_target=read_group_target(None, found),
    )  # fmt: skip
    merit = by_position(measured.get("merit"), model.fitted.item_ids)
    plan = plan_for(history.n_users, given, measured.get("at", AT), measured.get("metrics"), merit, all_lists=False)
    cases = [(number,) for number in range(history.shards)]
    # Results are added one by one in the order of the shards: that needs little memory and always gives the same bits.
    parts = tasks.each(measure_shard, cases, (without_users(model), history, targets, plan, (level, features)))
    total = functools.reduce(_added, parts)
    if total.unmatched == targets.n_users:
        raise InvalidData("No user of the targets is in the history: users are matched by their ids.")
    return _evaluation(plan, total)


def measure_shard(
    lean: FactorModel, history: ShardSource, targets: ShardSource, plan: Plan,
    how: tuple[Level, UserFeatures | None], number: int,
) -> Sums:  # fmt: skip
    """Rank and measure the users of one shard; `how` is the level, and the features of users."""
    level, features = how
    model = over_shard(lean, history, number, level, features)
    seen = model.fitted.histories("evaluate")
    wanted, unmatched = aligned(targets.load(number), seen)
    held_out = HeldOut(seen, wanted, known_users=True)
    if seen.n_users:
        counted = count_ranked(model, held_out, plan, {}, keep_lists=False)
    else:
        counted = count_lists(iter(()), held_out, plan, keep_lists=False)
    totals = {}
    for label, values in counted.per_user.items():
        scored = values[np.isfinite(values)]
        totals[label] = float(scored.sum()), len(scored)
    return Sums(held_out.n_users, held_out.n_scored, counted.exposure, totals, unmatched)


def aligned(shard: Shard, history: Interactions) -> tuple[Interactions, int]:
    """Return the targets in the order of the history's users, and the number of users with targets but no history.

    Items in a user's history are dropped from the targets, because lists never contain them.
    """
    if shard.user_ids is None or history.user_ids is None:
        raise InvalidData("Users of history and targets are matched by their ids, and one of them has none.")
    # The two sources need not have the same users, nor in the same order.
    place = {user: row for row, user in enumerate(shard.user_ids.values.tolist())}
    rows = np.array([place.get(user, -1) for user in history.user_ids.values.tolist()], dtype=np.int64)
    found = rows >= 0
    taken = shard.rows.take(rows[found])
    lengths = np.zeros(len(rows), dtype=np.int64)
    lengths[found] = np.diff(taken.indptr)
    # Users without targets get an empty row. The others were taken in the order of the history, so their
    # entries are in place already.
    whole = Rows(np.concatenate(([0], np.cumsum(lengths))), taken.indices, taken.weights)
    wanted = _without(whole, history)
    ids = history.user_ids
    return Interactions(wanted, history.n_items, ids, history.item_ids), len(place) - int(found.sum())


def _without(rows: Rows, history: Interactions) -> Rows:
    """Return the rows without the entries that are in the history."""
    m, seen = history.n_items, history.by_user

    # One number per pair of user and item. 64 bits, because users x items may exceed 2^31.
    def keys(of: Rows) -> NDArray[np.int64]:
        return np.repeat(np.arange(of.count, dtype=np.int64) * m, np.diff(of.indptr)) + of.indices

    own = keys(rows)
    new = ~np.isin(own, keys(seen), assume_unique=True)
    if new.all():
        return rows
    counts = np.bincount((own // max(m, 1))[new], minlength=rows.count)
    weights = None if rows.weights is None else rows.weights[new]
    return Rows(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), rows.indices[new], weights)


def _users_of_items(tasks: Tasks, train: ShardSource) -> Values:
    """Count the users of each item; dislikes do not count."""
    # Popularity is the sum of confidences, which is the number of users if all are 1.
    if train.is_binary:
        return np.asarray(train.popularity, dtype=np.float64)
    parts = tasks.each(item_counts, [(number,) for number in range(train.shards)], (train,))
    counts: Values = sum(parts, start=np.zeros(train.n_items))
    return counts


def item_counts(source: ShardSource, number: int) -> Values:
    """Count the users of each item in one shard; dislikes do not count."""
    return source.load(number).rows.column_counts(source.n_items)


def _added(one: Sums, other: Sums) -> Sums:
    for key, exposure in other.exposure.items():
        one.exposure[key] = one.exposure[key] + exposure
    totals = {label: (a + other.totals[label][0], k + other.totals[label][1]) for label, (a, k) in one.totals.items()}
    return Sums(
        one.n_users + other.n_users,
        one.n_scored + other.n_scored,
        one.exposure,
        totals,
        one.unmatched + other.unmatched,
    )


def _evaluation(plan: Plan, total: Sums) -> Evaluation:
    values = {}
    for w in plan.wanted:
        if w.is_mean:
            reached, count = total.totals[w.label]
            values[w.label] = reached / count if count else float("nan")
        else:
            values[w.label] = float(plan.measure(w, total.exposure[w.exposure.weighting, w.K]))
    counts = {K: total.exposure["count", K] for K in plan.cutoffs}
    return Evaluation(
        values=values, intervals={}, exposure=counts, per_user={}, n_users=total.n_users, n_scored=total.n_scored,
        n_cold=plan.n_cold, **plan.of_all_groups(counts),
    )  # fmt: skip
