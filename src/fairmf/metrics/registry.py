"""List all metrics in one table: name, formula, direction, required inputs, and title and meaning for people.

Everything that lists metrics reads `METRICS`: `evaluate`, early stopping, tuning, audits, reports and the command line.
To add one, write its formula in accuracy.py, exposure.py, user_metrics.py or joint_metrics.py, its row here, and its
definition in docs/metrics.md. A full name has a cut-off: "ndcg@100", "group_gini@20".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.popularity import gini
from fairmf.errors import InvalidParameter
from fairmf.metrics import accuracy, exposure, joint_metrics, user_metrics
from fairmf.metrics.metric_kinds import (
    AccuracyMetric,
    AnyMetric,
    Background,
    ExposureMetric,
    JointMetric,
    UserMetric,
)

Values = NDArray[np.float64]
GROUP, ALL = "group_", "all"
INPUTS = {
    "train": "the training data: pass train=",
    "merit": "the training data or each item's merit: pass train= or merit=",
    "groups": "the items' groups: pass groups=",
    "user_groups": "the users' groups: pass user_groups=",
    "histories": "the users' histories: held-out data with a fold-in, or train= with the same users",
    "features": "the items' features: pass features=",
    "lists": "all lists in one process: use evaluate or evaluate_lists",
    "cold": "items that nobody has in the training data, and that are held out (split_by_item) or have features",
    "cold_targets": "held-out items that nobody has in the training data: see split_by_item",
    "candidates": "a model that can rank some of the items alone: lists, FairRec and indices cannot",
}
"""Optional inputs that some metrics need, and how to pass each."""


# The empty arrays are for the type checker alone: `parse_metrics` refuses a metric whose input is missing.
def _popularity(b: Background) -> Values:
    return np.empty(0) if b.popularity is None else b.popularity


def _merit(b: Background) -> Values:
    return np.empty(0) if b.merit is None else b.merit


_TABLE: tuple[AnyMetric, ...] = (
    AccuracyMetric(
        name="recall", title="Recall", per_user=accuracy.recall,
        meaning="share of a user's held-out items that are in the list",
    ),
    AccuracyMetric(
        name="recall_all", usual=False, title="Recall (of all)", per_user=accuracy.recall_all,
        meaning="held-out items in the list divided by all held-out items, also where there are more than K",
    ),
    AccuracyMetric(
        name="precision", title="Precision", per_user=accuracy.precision,
        meaning="share of the list's places that hold a held-out item",
    ),
    AccuracyMetric(
        name="map", title="MAP", per_user=accuracy.average_precision,
        meaning="mean of the precision at the places of held-out items",
    ),
    AccuracyMetric(
        name="map_all", usual=False, title="MAP (of all)", per_user=accuracy.average_precision_all,
        meaning="as MAP, divided by all held-out items, also where there are more than K",
    ),
    AccuracyMetric(
        name="ndcg", title="nDCG", per_user=accuracy.ndcg,
        meaning="how many held-out items are in the list, and how high they are placed",
    ),
    AccuracyMetric(
        name="hit_rate", title="Hit rate", per_user=accuracy.hit_rate,
        meaning="share of users whose list holds a held-out item",
    ),
    AccuracyMetric(
        name="mrr", title="MRR", per_user=accuracy.mrr,
        meaning="1 divided by the rank of the first held-out item",
    ),
    ExposureMetric(
        name="gini", title="Gini", measure=lambda o, _: gini(o),
        meaning="inequality of exposure: 0 if all items have the same, 1 if one item has all",
    ),
    ExposureMetric(
        name="gini_dcg", title="Gini (DCG)", measure=lambda o, _: gini(o), weighting="dcg",
        meaning="inequality of exposure, with more weight on higher places (as in DCG)",
    ),
    ExposureMetric(
        name="gini_rbp", title="Gini (RBP)", measure=lambda o, _: gini(o), weighting="rbp",
        meaning="inequality of exposure, with most weight on the first places (as in RBP)",
    ),
    ExposureMetric(
        name="coverage", title="Coverage", measure=lambda o, _: exposure.coverage(o), lower_is_better=False,
        meaning="share of the catalogue that is in at least one list", percent=True,
    ),
    ExposureMetric(
        name="entropy", title="Entropy", measure=lambda o, _: exposure.entropy(o), lower_is_better=False,
        meaning="evenness of exposure: 1 if all items have the same, 0 if one item has all",
    ),
    ExposureMetric(
        # A list holds an item once at most, but several items of a group: for groups it may exceed 1.
        name="max_exposure", title="Most shown item", measure=lambda o, b: o.max(axis=-1) / max(b.n_lists, 1),
        meaning="share of users whose list holds the most shown item", highest=math.inf, percent=True,
    ),
    ExposureMetric(
        name="top1_share", title="Top-1% share", measure=lambda o, _: exposure.top_share(o, 1),
        meaning="share of exposure that the 1% of items shown most have", percent=True,
    ),
    ExposureMetric(
        name="top10_share", title="Top-10% share", measure=lambda o, _: exposure.top_share(o, 10),
        meaning="share of exposure that the 10% of items shown most have", percent=True,
    ),
    ExposureMetric(
        name="bottom50_share", title="Bottom-half share", measure=lambda o, _: exposure.bottom_share(o, 50),
        meaning="share of exposure of the least-shown half of items", lower_is_better=False, percent=True,
        owners="the least-shown half of the catalogue", jackknifed=True,
    ),
    ExposureMetric(
        name="bottom80_share", title="Bottom-80% share", measure=lambda o, _: exposure.bottom_share(o, 80),
        meaning="share of exposure of the least-shown 80% of items", lower_is_better=False, percent=True,
        owners="the least-shown 80% of the catalogue", jackknifed=True,
    ),
    ExposureMetric(
        name="popularity", title="Popularity", measure=lambda o, b: exposure.average_popularity(o, _popularity(b)),
        meaning="mean number of training interactions of the items shown", needs="train", highest=math.inf,
    ),
    ExposureMetric(
        name="tail_share", title="Tail share", measure=lambda o, b: exposure.tail_share(o, _popularity(b)),
        meaning="share of exposure of the 80% of items with the fewest interactions", needs="train",
        lower_is_better=False, percent=True, owners="the 80% of the catalogue with the fewest interactions",
    ),
    ExposureMetric(
        name="cold_share", title="Share of cold items", measure=lambda o, b: exposure.cold_share(o, _popularity(b)),
        meaning="share of exposure of the items that nobody has in the training data", needs="train cold",
        lower_is_better=False, percent=True, for_groups=False,
    ),
    ExposureMetric(
        name="cold_lift", title="Lift of cold items", measure=lambda o, b: exposure.cold_lift(o, _popularity(b)),
        meaning="share of exposure of cold items divided by their share of the catalogue", needs="train cold",
        lower_is_better=False, highest=math.inf, for_groups=False,
    ),
    UserMetric(
        name="cold_recall", title="Recall of cold items", per_user=user_metrics.cold_recall, needs="train cold_targets",
        meaning="share of a user's held-out cold items that are in the list",
    ),
    UserMetric(
        name="recall_among_cold", title="Recall among cold items", per_user=user_metrics.cold_recall, among="cold",
        meaning="share of a user's held-out cold items that are in a list of cold items alone",
        needs="train cold_targets candidates",
    ),
    UserMetric(
        name="recall_among_warm", title="Recall among warm items", per_user=user_metrics.warm_recall, among="warm",
        meaning="share of a user's held-out warm items that are in a list of warm items alone", usual=False,
        needs="train cold_targets candidates",
    ),
    ExposureMetric(
        name="novelty", usual=False, title="Novelty", needs="train", lower_is_better=False, highest=math.inf,
        for_groups=False, measure=lambda o, b: exposure.novelty(o, _popularity(b), b.n_train),
        meaning="mean self-information of the items shown, in bits: high for items that few users have",
    ),
    ExposureMetric(
        name="merit_distance", title="Distance from merit", needs="merit",
        measure=lambda o, b: exposure.merit_distance(o, _merit(b)),
        meaning="distance between shares of exposure and of merit: 0 if proportional, 1 if nothing in common",
    ),
    ExposureMetric(
        name="merit_gini", title="Gini per merit", measure=lambda o, b: exposure.merit_gini(o, _merit(b)),
        meaning="inequality of exposure per unit of merit: 0 if exposure is proportional to merit", needs="merit",
    ),
    JointMetric(
        name="popularity_lift", usual=False, title="Popularity lift", prepare=joint_metrics.popularity_lift,
        needs="train histories lists",
        meaning="how much more popular the items shown are than those of the users' histories, as a share",
        lowest=-1.0, highest=math.inf,
    ),
    UserMetric(
        name="aplt", usual=False, title="APLT", per_user=user_metrics.aplt, needs="train", percent=True,
        meaning="share of tail items in a list",
    ),
    UserMetric(
        name="aclt", usual=False, title="ACLT", per_user=user_metrics.aclt, needs="train",
        meaning="number of tail items in a list",
    ),
    UserMetric(
        name="ild", title="Intra-list diversity", per_user=user_metrics.ild, needs="features",
        meaning="mean distance (1 - cosine of features) of the items of a list",
    ),
    UserMetric(
        name="ee_loss", usual=False, title="EE-L", per_user=user_metrics.ee_loss, lower_is_better=True,
        meaning="squared distance between the exposure of items and their exposure in random ideal lists",
    ),
    UserMetric(
        name="ee_disparity", usual=False, title="EE-D", per_user=user_metrics.ee_disparity, lower_is_better=True,
        meaning="sum of the squared exposures of a user's items",
    ),
    UserMetric(
        name="ee_relevance", usual=False, title="EE-R", per_user=user_metrics.ee_relevance,
        meaning="twice the inner product of exposure and exposure in random ideal lists",
    ),
    UserMetric(
        name="awrf", title="AWRF", per_user=user_metrics.awrf, needs="groups",
        meaning="1 - divergence between groups' shares of attention and their target shares",
    ),
    UserMetric(
        name="jme_ii", usual=False, title="JME II", per_user=user_metrics.jme_ii, lower_is_better=True,
        meaning="squared difference from ideal exposure, single users and items",
    ),
    UserMetric(
        name="jme_ig", usual=False, title="JME IG", per_user=user_metrics.jme_ig, lower_is_better=True, needs="groups",
        meaning="squared difference from ideal exposure, single users and groups of items",
    ),
    UserMetric(
        name="jme_ig_disparity", usual=False, title="JME IG disparity", lower_is_better=True, needs="groups",
        per_user=user_metrics.jme_ig_disparity, meaning="squared exposure, single users and groups of items",
    ),
    UserMetric(
        name="jme_ig_relevance", usual=False, title="JME IG relevance", per_user=user_metrics.jme_ig_relevance,
        needs="groups", meaning="twice exposure times ideal exposure, single users and groups of items",
    ),
    *(
        JointMetric(
            name=f"jme_{members}{suffix}", usual=False, title=f"JME {members.upper()}{suffix.replace('_', ' ')}",
            prepare=joint_metrics.jme(members, suffix[1:] or "loss"), needs=needs,
            lower_is_better=suffix != "_relevance", meaning=f"{value}, {whose}",
        )
        for members, needs, whose in (
            ("ai", "lists", "all users and single items"), ("ag", "groups lists", "all users and groups of items"),
            ("gi", "user_groups lists", "groups of users and single items"),
            ("gg", "user_groups groups lists", "groups of users and of items"),
        )
        for suffix, value in (
            ("", "squared difference from ideal exposure"), ("_disparity", "squared exposure"),
            ("_relevance", "twice exposure times ideal exposure"),
        )
    ),
    UserMetric(
        name="envy", usual=False, title="Envy", per_user=user_metrics.envy, needs="lists", lower_is_better=True,
        meaning="mean nDCG that a user would gain from another user's list",
    ),
    JointMetric(
        name="user_gini", usual=False, title="Gini of users", prepare=joint_metrics.user_gini,
        meaning="inequality of what lists are worth to their users (DCG)",
    ),
    JointMetric(
        name="worst25_utility", usual=False, title="Worst-off quarter", prepare=joint_metrics.worst25_utility,
        lower_is_better=False, highest=math.inf,
        meaning="DCG of the quarter of users who are worst off, divided by the number of users",
    ),
)  # fmt: skip
METRICS: dict[str, AnyMetric] = {metric.name: metric for metric in _TABLE}


class Wanted(NamedTuple):
    """One metric at one cut-off."""

    name: str
    K: int

    @property
    def label(self) -> str:
        """The full name, such as "ndcg@100", which is the key of results."""
        return f"{self.name}@{self.K}"

    @property
    def of_groups(self) -> bool:
        """Whether it measures the exposure of groups of items."""
        return self.name.startswith(GROUP)

    @property
    def metric(self) -> AnyMetric:
        """Its row of the table; metrics of groups share the row of items."""
        return METRICS[self.name.removeprefix(GROUP)]

    @property
    def is_accuracy(self) -> bool:
        """Whether it is a mean over users with targets, of the hits in their lists."""
        return isinstance(self.metric, AccuracyMetric)

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over users."""
        return isinstance(self.metric, AccuracyMetric | UserMetric)

    @property
    def needs_all(self) -> bool:
        """Whether it needs the lists of all users at once."""
        return "lists" in self.metric.needs.split()

    @property
    def among(self) -> str:
        """The items that its lists are made of: "cold", "warm", or "" for all."""
        return self.metric.among if isinstance(self.metric, UserMetric) else ""

    @property
    def accuracy(self) -> AccuracyMetric:
        """The row of an accuracy metric."""
        if not isinstance(self.metric, AccuracyMetric):
            raise TypeError(f"{self.name} does not score users")
        return self.metric

    @property
    def exposure(self) -> ExposureMetric:
        """The row of an exposure metric."""
        if not isinstance(self.metric, ExposureMetric):
            raise TypeError(f"{self.name} does not measure exposure")
        return self.metric

    @property
    def jackknifed(self) -> bool:
        """Whether its interval leaves users out instead of resampling them."""
        return isinstance(self.metric, ExposureMetric) and self.metric.jackknifed

    @property
    def lowest(self) -> float:
        """The lowest value that a metric of exposure or of all lists can have."""
        return self.metric.lowest if isinstance(self.metric, JointMetric) else 0.0

    @property
    def highest(self) -> float:
        """The highest value that the metric can have."""
        return self.metric.highest if isinstance(self.metric, ExposureMetric | JointMetric) else 1.0

    @property
    def lower_is_better(self) -> bool:
        """Whether less is better or fairer."""
        return self.metric.lower_is_better

    @property
    def title(self) -> str:
        """The name as people write it: "nDCG@100"."""
        return f"{self.metric.title}{' of groups' if self.of_groups else ''}@{self.K}"

    @property
    def meaning(self) -> str:
        """The meaning of the metric, in a phrase."""
        return f"{self.metric.meaning}{' (of groups)' if self.of_groups else ''}"


def known_names(available: Iterable[str] = tuple(INPUTS)) -> list[str]:
    """Return the metrics that can be computed when these optional inputs are given."""
    given = {"", *available}
    of_items = [name for name, metric in METRICS.items() if given.issuperset(metric.needs.split())]
    rows = ((name, METRICS[name]) for name in of_items)
    of_groups = [GROUP + name for name, row in rows if isinstance(row, ExposureMetric) and row.for_groups]
    return [*of_items, *(of_groups if "groups" in given else [])]


def parse_metrics(metrics: Iterable[str] | None, at: int | Iterable[int], available: Iterable[str]) -> list[Wanted]:
    """Parse metric names. A name without "@K" means every K of `at`.

    None means the usual metrics that can be computed, "all" all of them.
    """
    cutoffs = [_cutoff(K, repr(K)) for K in (at if isinstance(at, Iterable) else [at])]
    available = list(available)
    names = [name for name in known_names(available) if METRICS[name.removeprefix(GROUP)].usual]
    if metrics is not None:
        given = [metrics] if isinstance(metrics, str) else metrics
        names = [one for name in given for one in (known_names(available) if name == ALL else [name])]
    wanted: dict[Wanted, None] = {}  # a dictionary keeps the order and drops names that were given twice
    for full in names:
        name, found, number = str(full).partition("@")
        if name not in known_names():
            raise InvalidParameter(f"Unknown metric {full!r}. Known metrics: {', '.join(known_names())}.")
        if name not in known_names(available):
            raise InvalidParameter(f"The metric {full!r} needs {_missing(name, available)}.")
        ks = [_cutoff(int(number) if number.isdecimal() else number, full)] if found else cutoffs
        wanted.update((Wanted(name, K), None) for K in ks)
    if not wanted:
        raise InvalidParameter("No metric was asked for: 'at' or 'metrics' is empty.")
    return list(wanted)


def parse_metric(full: str) -> Wanted:
    """Parse one full name, such as "ndcg@100"."""
    if "@" not in str(full):
        raise InvalidParameter(f"The metric {full!r} lacks its cut-off: write for example '{full}@20'.")
    return parse_metrics([full], (), INPUTS)[0]


def is_accuracy(full: str) -> bool:
    """Return whether a name, with or without a cut-off, is an accuracy metric; False for unknown names."""
    return isinstance(METRICS.get(str(full).partition("@")[0]), AccuracyMetric)


def _cutoff(K: object, shown: str) -> int:
    if isinstance(K, bool) or not isinstance(K, Integral) or K < 1:
        raise InvalidParameter(f"The cut-off K of a metric must be an integer >= 1. Got {shown} instead.")
    return int(K)


def _missing(name: str, available: list[str]) -> str:
    needed = [*METRICS[name.removeprefix(GROUP)].needs.split(), *(["groups"] if name.startswith(GROUP) else [])]
    return " and ".join(INPUTS[need] for need in needed if need not in available)
