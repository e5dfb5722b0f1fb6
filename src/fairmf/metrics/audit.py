"""Compare two rankings for the same users, and resample the users for intervals: `audit`.

Lists arrive in blocks and are counted one block at a time. For the intervals, users x K integers are kept. No array is
as large as users x items.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.groups import GroupLabels
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.audit_change import Change, UserStatistics
from fairmf.metrics.audit_result import Audit, GroupChange, Items, Users
from fairmf.metrics.bootstrap import Bootstrap, interval, jackknife_interval, list_matrices
from fairmf.metrics.evaluate import Blocks, Counted, Ranker, Statistics, count_lists, given_lists, ranked_by, resample
from fairmf.metrics.plan import Plan, make_plan
from fairmf.metrics.registry import is_accuracy, known_names
from fairmf.params import check_count
from fairmf.types import Array, Settings

Values = NDArray[np.float64]
Lists = NDArray[np.integer]
Names = Sequence[object] | Array | Mapping[Any, object]
AUDITED = (
    "gini", "gini_dcg", "coverage", "entropy", "max_exposure", "top1_share", "top10_share", "bottom50_share",
    "bottom80_share", "tail_share", "popularity", "group_gini", "cold_share", "cold_recall",
)  # fmt: skip
"""The metrics of an audit beside accuracy; those that lack an input are left out."""


def audit(
    before: Ranker | Lists,
    after: Ranker | Lists,
    held_out: HeldOut | Split,
    *,
    at: int = 20,
    quality: Sequence[str] | None = None,
    groups: GroupLabels | None = None,
    names: Names | None = None,
    train: Interactions | None = None,
    part: str = "test",
    before_options: Settings | None = None,
    after_options: Settings | None = None,
    before_name: str = "before",
    after_name: str = "after",
    bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Audit:
    """Assess what changes for items, groups and users when `after` replaces `before` (docs/audit.md).

    Parameters
    ----------
    before, after
        Fitted models, or lists (users x N item positions, -1 for an empty slot).
    held_out
        The users to rank for: a HeldOut, or a Split, of which `part` is used.
    at
        Length K of the lists that are compared.
    quality
        Accuracy metrics that are compared user by user; by default nDCG and recall at `at`.
    groups
        A label per item, or a mapping from item id.
    names
        Titles of the items, one per item or by item id.
    train
        Training data, for the popularity of items; by default that of the Split.
    part
        "test" or "validation" of a Split.
    before_options, after_options
        Options of each model's `rank`, such as {"fairness": 2}. So one model can be compared with itself.
    before_name, after_name
        Names of the two sides in sentences.
    bootstrap, confidence, random_state
        Number of resamples of the users (the same for both sides), confidence and seed of the intervals.

    Returns
    -------
    Audit
        Every metric before and after, gains and losses of items, groups and users.

    Raises
    ------
    InvalidData
        If a side does not fit the held-out users, or its lists are too short.
    InvalidParameter
        If `quality` names no accuracy metric, or another parameter is out of its range.

    Examples
    --------
    >>> from fairmf import FairALS, audit, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> model = FairALS(factors=8, epochs=4).fit(split.train)
    >>> found = audit(model, model, split, before_options={"fairness": 0}, after_options={"fairness": 2})
    >>> found["coverage@20"].difference > 0
    True
    """
    held_out, train = read_part(held_out, part, train)
    K = check_count("audit", "at", at, 1)
    resamples = Bootstrap.checked("audit", bootstrap, confidence, random_state)
    labels = read_quality(quality, K)
    rankers = [side for side in (before, after) if not isinstance(side, np.ndarray)]
    # The plan of accuracy alone reads the inputs; it says which other metrics can be computed.
    given = known_names(make_plan(held_out, K, labels, groups, train, None, rankers=rankers).available)
    wanted = [f"{name}@{K}" for name in AUDITED if name in given]
    plan = make_plan(held_out, K, [*labels, *wanted], groups, train, None, rankers=rankers)
    titles = read_titles(names, plan.n_items, held_out.fold_in.item_ids)
    keep = bootstrap > 0 and held_out.n_users > 0
    sides = (("before", before, before_options), ("after", after, after_options))
    pair = Pair(*(_count(name, side, options, held_out, plan, keep) for name, side, options in sides))
    users = {label: UserStatistics(label, *(c.per_user[label] for c in pair)) for label in labels}
    replicates: dict[str, Values] = {}
    if keep:
        statistics = _differences(pair, K, list(users.values()))
        jackknifed = {key for label in plan.jackknifed for key in (label, _side(0, label), _side(1, label))}
        replicates = resample(statistics, held_out.n_users, plan.n_items, resamples, jackknifed)
    return Audit(
        at=K,
        before_name=before_name,
        after_name=after_name,
        n_users=held_out.n_users,
        n_scored=held_out.n_scored,
        confidence=float(confidence),
        metrics=_metrics(pair, replicates, confidence),
        users={label: statistics.change(replicates, confidence) for label, statistics in users.items()},
        groups=_groups(pair, K, replicates, confidence),
        items=_items(pair, K, held_out, titles),
        per_user=Users(
            ids_or_positions(held_out.fold_in.user_ids, held_out.n_users),
            *({label: counted.per_user[label] for label in labels} for counted in pair),
        ),
    )


class Pair(NamedTuple):
    """The counted lists of both sides."""

    before: Counted
    after: Counted


def _count(
    name: str, side: Ranker | Lists, options: Settings | None, held_out: HeldOut, plan: Plan, keep: bool
) -> Counted:
    try:
        return count_lists(_blocks(name, side, options, held_out, plan.longest), held_out, plan, keep_lists=keep)
    except InvalidData as error:
        raise InvalidData(f"{name}: {error}") from error


def _blocks(name: str, side: Ranker | Lists, options: Settings | None, held_out: HeldOut, longest: int) -> Blocks:
    if not isinstance(side, np.ndarray):
        if not hasattr(side, "rank"):
            raise InvalidData(f"needs a fitted model or an array of lists. Got {type(side).__name__} instead.")
        return ranked_by(side, held_out, longest, options or {})
    if options:
        raise InvalidParameter(f"{name}_options are for models; {name} is an array of lists.")
    blocks = given_lists(side)
    if side.shape[1] < longest:  # shorter lists would look like a loss of exposure
        raise InvalidData(f"the lists have {side.shape[1]} slots, but {longest} are compared: choose a smaller at=.")
    return blocks


def _differences(pair: Pair, K: int, users: Sequence[UserStatistics]) -> Statistics:
    """Return a function from users' weights to the differences of all metrics and shares, and the figures of users."""
    sides = [counted.statistics() for counted in pair]
    shares = [_group_shares(counted, K) for counted in pair] if pair.before.plan.groups else None

    def measured(weights: Values) -> dict[str, Values]:
        # Both sides get the same draw of users: what it adds to both cancels in the difference, whose interval
        # is usually narrower for that.
        before, after = (side(weights) for side in sides)
        found = {label: after[label] - value for label, value in before.items()}
        for k, side in enumerate((before, after)):
            found |= {_side(k, label): value for label, value in side.items()}
        if shares is not None:
            found["group shares"] = shares[1](weights) - shares[0](weights)
        for statistics in users:
            found |= statistics(weights)
        return found

    return measured


def _group_shares(counted: Counted, K: int) -> Callable[[Values], Values]:
    """Return a function from users' weights to the groups' shares of exposure."""
    groups, lists = counted.plan.groups, counted.lists
    if groups is None or lists is None:
        raise ValueError("Shares of groups need groups and kept lists.")
    several = groups.shares is not None
    # If every item has one group, the lists with every item replaced by its group are enough. A list may hold a group
    # many times: entries with the same place in a sparse matrix add up.
    shown = lists if several else np.where(lists >= 0, groups.codes[lists], -1)
    matrix = list_matrices(shown, len(groups.codes) if several else len(groups.names), [K], "count")

    def measured(weights: Values) -> Values:
        (_, exposures), *_ = matrix.exposures(weights)
        exposures = groups.add_up(exposures) if several else exposures
        total = exposures.sum(axis=1, keepdims=True)
        shares: Values = np.divide(exposures, total, out=np.full(exposures.shape, np.nan), where=total > 0)
        return shares

    return measured


def _metrics(pair: Pair, replicates: dict[str, Values], confidence: float) -> dict[str, Change]:
    values = [counted.values() for counted in pair]
    found = {}
    for w in pair.before.plan.wanted:
        was, now = (side[w.label] for side in values)
        if w.label not in replicates:
            found[w.label] = Change(was, now)
            continue
        # As in `evaluate`, intervals of exposure metrics are centred: resampling makes exposure more unequal, and
        # not by the same amount on both sides.
        limit = w.highest
        shift = {} if w.is_mean else {"centre": now - was, "lowest": -limit, "highest": limit}
        find = jackknife_interval if w.jackknifed else interval
        ends = find(replicates[w.label], confidence, **shift)
        own = []
        for k, value in enumerate((was, now)):
            shift = {} if w.is_mean else {"centre": value, "highest": limit}
            own.append(find(replicates[_side(k, w.label)], confidence, **shift))
        found[w.label] = Change(was, now, *ends, *own)
    return found


def _side(k: int, label: str) -> str:
    """Return the key of the resampled values of one side, beside those of the differences."""
    return f"{('before', 'after')[k]} {label}"


def _groups(pair: Pair, K: int, replicates: dict[str, Values], confidence: float) -> tuple[GroupChange, ...]:
    groups = pair.before.plan.groups
    if groups is None:
        return ()
    sizes = groups.sizes
    before, after = (groups.add_up(counted.exposure["count", K]) for counted in pair)
    shares = [o / o.sum() if o.sum() > 0 else np.full(len(o), np.nan) for o in (before, after)]
    found = []
    for g, name in enumerate(groups.names):
        # Not shifted: if all lists are full, a group's share is a mean over users, and resampling is unbiased.
        ends = interval(replicates["group shares"][:, g], confidence) if replicates else (None, None)
        share = Change(float(shares[0][g]), float(shares[1][g]), *ends)
        found.append(GroupChange(name, int(sizes[g]), float(before[g]), float(after[g]), share))
    return tuple(found)


def _items(pair: Pair, K: int, held_out: HeldOut, titles: list[str]) -> Items:
    plan = pair.before.plan
    labels = None if plan.groups is None else [plan.groups.of_item(j) for j in range(plan.n_items)]
    counts, weighted = ([counted.exposure[weighting, K] for counted in pair] for weighting in ("count", "dcg"))
    # `Items` takes both pairs in the order before, after.
    ids = ids_or_positions(held_out.fold_in.item_ids, plan.n_items)
    return Items(ids, titles, labels, plan.of_items.popularity, *counts, *weighted)


# -- arguments --------------------------------------------------------------------------------------------------------


def read_part(held_out: HeldOut | Split, part: str, train: Interactions | None) -> tuple[HeldOut, Interactions | None]:
    """Return the users of the audit, and the training data for the popularity of items."""
    if not isinstance(held_out, Split):
        return held_out, train
    if part not in ("validation", "test"):
        raise InvalidParameter(f"The 'part' parameter of audit must be 'validation' or 'test'. Got {part!r} instead.")
    return (held_out.test if part == "test" else held_out.validation), held_out.train if train is None else train


def read_quality(quality: Sequence[str] | None, K: int) -> list[str]:
    """Return the full names of the metrics that are compared for each user."""
    if quality is None:
        return [f"ndcg@{K}", f"recall@{K}"]
    # A string is a sequence too, but of letters.
    given = [quality] if isinstance(quality, str) else list(quality)
    labels = [label if "@" in str(label) else f"{label}@{K}" for label in given]
    wrong = [label for label in labels if not is_accuracy(label)]
    if wrong or not labels:
        got = repr(wrong[0]) if wrong else "none"
        raise InvalidParameter(
            f"The 'quality' parameter of audit must name accuracy metrics, such as 'ndcg@100'. Got {got} instead."
        )
    return list(dict.fromkeys(labels))


def read_titles(names: Names | None, n_items: int, item_ids: Ids | None) -> list[str]:
    """Return a name for every item; its id if no name is given."""
    own = ids_or_positions(item_ids, n_items)
    if names is None:
        return [str(item) for item in own]
    if isinstance(names, Mapping):
        if item_ids is None:
            raise InvalidData(
                "names is a mapping from item ids, but the items have no ids.", hint="pass one name per item"
            )
        # Some items may lack a name. If all do, the mapping most likely has ids of another type.
        if n_items and not any(item in names for item in own):
            raise InvalidData(f"names has none of the items; the first item is {own[0]!r}.")
        return [str(names.get(item, item)) for item in own]
    if len(names) != n_items:
        raise InvalidData(f"names holds {len(names):,} names, but there are {n_items:,} items.")
    return [str(name) for name in names]


def ids_or_positions(ids: Ids | None, count: int) -> list[Hashable]:
    """Return ids as Python values; positions if the data has no ids."""
    return list(range(count)) if ids is None else list(ids.values.tolist())
