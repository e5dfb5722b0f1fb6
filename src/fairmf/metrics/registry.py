"""Metrics in the words of people: what each is called, what it tells, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.popularity import gini
from fairmf.errors import InvalidParameter
from fairmf.metrics.accuracy import ACCURACY
from fairmf.metrics.exposure import (
    average_popularity,
    bottom_share,
    coverage,
    entropy,
    merit_distance,
    merit_gini,
    tail_share,
    top_share,
)

# Every metric by name, and what each needs. A full name has a cut-off: "ndcg@100", "group_gini@20".


Values = NDArray[np.float64]
GROUP = "group_"


class Background(NamedTuple):
    """What exposure is compared with: number of lists, popularity and merit of every item (or group)."""

    n_lists: int
    popularity: Values | None
    merit: Values | None


class ExposureMetric(NamedTuple):
    """How one measure of exposure is computed from exposure vectors, and how it is to be read."""

    measure: Callable[[Values, Background], Values]
    weighting: str = "count"
    needs: str = ""
    fairer: str = "low"
    highest: float = 1.0


def _popularity(background: Background) -> Values:
    return np.empty(0) if background.popularity is None else background.popularity


def _merit(background: Background) -> Values:
    return np.empty(0) if background.merit is None else background.merit


EXPOSURE: dict[str, ExposureMetric] = {
    "gini": ExposureMetric(lambda o, _: gini(o)),
    "gini_dcg": ExposureMetric(lambda o, _: gini(o), weighting="dcg"),
    "gini_rbp": ExposureMetric(lambda o, _: gini(o), weighting="rbp"),
    "coverage": ExposureMetric(lambda o, _: coverage(o), fairer="high"),
    "entropy": ExposureMetric(lambda o, _: entropy(o), fairer="high"),
    "max_exposure": ExposureMetric(lambda o, b: o.max(axis=-1) / max(b.n_lists, 1), highest=math.inf),
    "top1_share": ExposureMetric(lambda o, _: top_share(o, 1)),
    "top10_share": ExposureMetric(lambda o, _: top_share(o, 10)),
    "bottom50_share": ExposureMetric(lambda o, _: bottom_share(o, 50), fairer="high"),
    "bottom80_share": ExposureMetric(lambda o, _: bottom_share(o, 80), fairer="high"),
    "popularity": ExposureMetric(lambda o, b: average_popularity(o, _popularity(b)), needs="train", highest=math.inf),
    "tail_share": ExposureMetric(lambda o, b: tail_share(o, _popularity(b)), needs="train", fairer="high"),
    "merit_distance": ExposureMetric(lambda o, b: merit_distance(o, _merit(b)), needs="merit"),
    "merit_gini": ExposureMetric(lambda o, b: merit_gini(o, _merit(b)), needs="merit"),
}


class Wanted(NamedTuple):
    """One metric at one cut-off."""

    name: str
    K: int

    @property
    def label(self) -> str:
        """The full name, as it keys the results."""
        return f"{self.name}@{self.K}"

    @property
    def is_accuracy(self) -> bool:
        """True for metrics that are means over users with targets."""
        return self.name in ACCURACY

    @property
    def of_groups(self) -> bool:
        """True for measures of the exposure of groups of items."""
        return self.name.startswith(GROUP)

    @property
    def exposure(self) -> ExposureMetric:
        """The measure behind an exposure metric, for items and for groups alike."""
        return EXPOSURE[self.name.removeprefix(GROUP)]

    @property
    def lower_is_better(self) -> bool:
        """True where less means fairer; every accuracy metric is better when higher."""
        return not self.is_accuracy and self.exposure.fairer == "low"


def known_names(available: Iterable[str] = ("train", "merit", "groups")) -> list[str]:
    """Metrics that can be computed when these optional inputs ("train", "merit", "groups") are there."""
    given = {"", *available}
    names = [name for name, metric in EXPOSURE.items() if metric.needs in given]
    return [*ACCURACY, *names, *([GROUP + name for name in names] if "groups" in given else [])]


def parse_metrics(metrics: Iterable[str] | None, at: int | Iterable[int], available: Iterable[str]) -> list[Wanted]:
    """Read metric names; one without "@K" is meant at every K of `at`, and None means all available."""
    cutoffs = [_cutoff(K, repr(K)) for K in (at if isinstance(at, Iterable) else [at])]
    available = list(available)
    names = known_names(available) if metrics is None else [metrics] if isinstance(metrics, str) else metrics
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
    """Read one full name, such as "ndcg@100"."""
    if "@" not in str(full):
        raise InvalidParameter(f"The metric {full!r} lacks its cut-off: write for example '{full}@20'.")
    return parse_metrics([full], (), ("train", "merit", "groups"))[0]


def _cutoff(K: Any, shown: str) -> int:
    if not isinstance(K, Integral) or K is True or K < 1:
        raise InvalidParameter(f"The cut-off K of a metric must be an integer >= 1. Got {shown} instead.")
    return int(K)


def _missing(name: str, available: list[str]) -> str:
    words = {
        "train": "the training data: pass train=",
        "merit": "the training data or each item's merit: pass train= or merit=",
        "groups": "the items' groups: pass groups=",
    }
    needed = [EXPOSURE[name.removeprefix(GROUP)].needs] + (["groups"] if name.startswith(GROUP) else [])
    return " and ".join(words[need] for need in needed if need and need not in available)


class Words(NamedTuple):
    """How one metric is spoken of. `share`: it is written in per cent."""

    title: str
    meaning: str
    share: bool = False


WORDS = {
    "ndcg": Words("nDCG", "how well held-out items are found and placed high, over users with targets"),
    "recall": Words("Recall", "part of a user's held-out items that the list finds"),
    "hit_rate": Words("Hit rate", "part of users whose list holds a held-out item"),
    "mrr": Words("MRR", "one over the rank of the first held-out item"),
    "gini": Words("Gini", "inequality of exposure: 0 all items alike, 1 one item has all"),
    "gini_dcg": Words("Gini (DCG)", "inequality of exposure where higher places count for more"),
    "gini_rbp": Words("Gini (RBP)", "inequality of exposure where the first places count for most"),
    "coverage": Words("Coverage", "part of the catalogue that is shown to anybody", share=True),
    "entropy": Words("Entropy", "evenness of exposure: 1 all items alike, 0 one item has all"),
    "max_exposure": Words("Most shown item", "part of users who are shown the most shown item", share=True),
    "top1_share": Words("Top-1% share", "share of exposure of the 1% of items shown most", share=True),
    "top10_share": Words("Top-10% share", "share of exposure of the 10% of items shown most", share=True),
    "bottom50_share": Words("Bottom-half share", "share of exposure of the half of items shown least", share=True),
    "bottom80_share": Words("Bottom-80% share", "share of exposure of the 80% of items shown least", share=True),
    "tail_share": Words("Tail share", "share of exposure of the 80% of items with fewest interactions", share=True),
    "popularity": Words("Popularity", "mean training interactions of what is shown"),
}
MINUS, MISSING = "\N{MINUS SIGN}", "\N{EN DASH}"


def words_of(metric: str) -> Words:
    """The words for a full name such as "ndcg@100"; a metric without any is called by its own name."""
    name, _, _ = metric.partition("@")
    if name.startswith(GROUP):
        found = words_of(name.removeprefix(GROUP))
        return found._replace(title=f"{found.title} of groups", meaning=f"{found.meaning} (of groups)")
    return WORDS.get(name, Words(name.replace("_", " "), ""))


def title(metric: str) -> str:
    """A metric's name as people write it: "nDCG@100"."""
    words, cut_off = words_of(metric), metric.partition("@")[2]
    return f"{words.title}@{cut_off}" if cut_off else words.title


def arrow(metric: str) -> str:
    """Which way is better (or fairer)."""
    return "↓" if lower_is_better(metric) else "↑"


def lower_is_better(metric: str) -> bool:
    """True where less is better or fairer."""
    return parse_metric(metric).lower_is_better


def written(metric: str, value: float | None) -> str:
    """A value as it stands in tables and sentences."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.1%}" if words_of(metric).share else f"{value:.3f}"


def written_change(metric: str, difference: float | None) -> str:
    """A difference: in points where the metric is a share."""
    if difference is None or not math.isfinite(difference):
        return MISSING
    return f"{signed(100 * difference, 1)} points" if words_of(metric).share else signed(difference, 3)


def signed(value: float, digits: int) -> str:
    """A number with its sign, and no sign before what rounds to nothing."""
    text = f"{value:+,.{digits}f}"
    return text.replace("-", MINUS) if any(digit in text for digit in "123456789") else text[1:]
