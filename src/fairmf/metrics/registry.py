"""List all metrics in one table: name, formula, direction, required inputs, and title and meaning for people.

Everything that lists metrics reads `METRICS`: `evaluate`, early stopping, tuning, audits, reports and the command line.
To add one, write its formula in accuracy.py or exposure.py, its row here, and its definition in docs/metrics.md.
A full name has a cut-off: "ndcg@100", "group_gini@20".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.popularity import gini
from fairmf.errors import InvalidParameter
from fairmf.metrics import accuracy, exposure
from fairmf.metrics.accuracy import Hits, PerUser

Values = NDArray[np.float64]
GROUP = "group_"
INPUTS = {
    "train": "the training data: pass train=",
    "merit": "the training data or each item's merit: pass train= or merit=",
    "groups": "the items' groups: pass groups=",
}
"""Optional inputs that some metrics need, and how to pass each."""


class Background(NamedTuple):
    """What exposure is compared with: the number of lists, and the popularity and merit of every item (or group)."""

    n_lists: int
    popularity: Values | None
    merit: Values | None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The fields of all metrics. With `percent`, values are written in per cent and differences in points."""

    name: str
    title: str
    meaning: str
    percent: bool = False


@dataclass(frozen=True, kw_only=True)
class AccuracyMetric(Metric):
    """A mean over the users with targets: `per_user(hits, number of targets, K)` scores each of them."""

    per_user: Callable[[Hits, NDArray[np.integer], int], PerUser]
    needs: ClassVar[str] = ""
    lower_is_better: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ExposureMetric(Metric):
    """A function of how often each item (or group) is shown.

    `measure` takes exposure vectors along the last axis. `weighting` says what a rank is worth (`slot_weights`),
    `needs` names an input of INPUTS, `highest` bounds the interval. `owners` names the items whose share of the
    exposure this is, for sentences.
    """

    measure: Callable[[Values, Background], Values]
    weighting: str = "count"
    needs: str = ""
    lower_is_better: bool = True
    highest: float = 1.0
    owners: str = ""


# The empty arrays are for the type checker alone: `parse_metrics` refuses a metric whose input is missing.
def _popularity(background: Background) -> Values:
    return np.empty(0) if background.popularity is None else background.popularity


def _merit(background: Background) -> Values:
    return np.empty(0) if background.merit is None else background.merit


_TABLE: tuple[AccuracyMetric | ExposureMetric, ...] = (
    AccuracyMetric(
        name="recall", title="Recall", per_user=accuracy.recall,
        meaning="share of a user's held-out items that are in the list",
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
        owners="the least-shown half of the catalogue",
    ),
    ExposureMetric(
        name="bottom80_share", title="Bottom-80% share", measure=lambda o, _: exposure.bottom_share(o, 80),
        meaning="share of exposure of the least-shown 80% of items", lower_is_better=False, percent=True,
        owners="the least-shown 80% of the catalogue",
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
        name="merit_distance", title="Distance from merit", needs="merit",
        measure=lambda o, b: exposure.merit_distance(o, _merit(b)),
        meaning="distance between shares of exposure and of merit: 0 if proportional, 1 if nothing in common",
    ),
    ExposureMetric(
        name="merit_gini", title="Gini per merit", measure=lambda o, b: exposure.merit_gini(o, _merit(b)),
        meaning="inequality of exposure per unit of merit: 0 if exposure is proportional to merit", needs="merit",
    ),
)  # fmt: skip
METRICS: dict[str, AccuracyMetric | ExposureMetric] = {metric.name: metric for metric in _TABLE}


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
    def metric(self) -> AccuracyMetric | ExposureMetric:
        """Its row of the table; metrics of groups share the row of items."""
        return METRICS[self.name.removeprefix(GROUP)]

    @property
    def is_accuracy(self) -> bool:
        """Whether it is a mean over users with targets."""
        return isinstance(self.metric, AccuracyMetric)

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
    def lower_is_better(self) -> bool:
        """Whether less is better or fairer."""
        return self.metric.lower_is_better

    @property
    def title(self) -> str:
        """The name as people write it: "nDCG@100"."""
        return f"{self.metric.title}{' of groups' if self.of_groups else ''}@{self.K}"

    @property
    def meaning(self) -> str:
        """What the metric means, in a phrase."""
        return f"{self.metric.meaning}{' (of groups)' if self.of_groups else ''}"


def known_names(available: Iterable[str] = tuple(INPUTS)) -> list[str]:
    """Return the metrics that can be computed when these optional inputs are given."""
    given = {"", *available}
    of_items = [name for name, metric in METRICS.items() if metric.needs in given]
    of_groups = [GROUP + name for name in of_items if isinstance(METRICS[name], ExposureMetric)]
    return [*of_items, *(of_groups if "groups" in given else [])]


def parse_metrics(metrics: Iterable[str] | None, at: int | Iterable[int], available: Iterable[str]) -> list[Wanted]:
    """Parse metric names. A name without "@K" means every K of `at`; None means all metrics that can be computed."""
    cutoffs = [_cutoff(K, repr(K)) for K in (at if isinstance(at, Iterable) else [at])]
    available = list(available)
    names = known_names(available) if metrics is None else [metrics] if isinstance(metrics, str) else metrics
    # A dictionary keeps the order and drops names that were given twice.
    wanted: dict[Wanted, None] = {}
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
    needed = [METRICS[name.removeprefix(GROUP)].needs, "groups" if name.startswith(GROUP) else ""]
    return " and ".join(INPUTS[need] for need in needed if need and need not in available)
