"""Every metric by name, and what each needs. A full name has a cut-off: "ndcg@100", "group_gini@20"."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidParameter
from fairmf.inequality import gini
from fairmf.metrics import exposure as measures
from fairmf.metrics.accuracy import ACCURACY

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
    "coverage": ExposureMetric(lambda o, _: measures.coverage(o), fairer="high"),
    "entropy": ExposureMetric(lambda o, _: measures.entropy(o), fairer="high"),
    "max_exposure": ExposureMetric(lambda o, b: o.max(axis=-1) / max(b.n_lists, 1), highest=math.inf),
    "top1_share": ExposureMetric(lambda o, _: measures.top_share(o, 1)),
    "top10_share": ExposureMetric(lambda o, _: measures.top_share(o, 10)),
    "bottom50_share": ExposureMetric(lambda o, _: measures.bottom_share(o, 50), fairer="high"),
    "bottom80_share": ExposureMetric(lambda o, _: measures.bottom_share(o, 80), fairer="high"),
    "popularity": ExposureMetric(
        lambda o, b: measures.average_popularity(o, _popularity(b)), needs="train", highest=math.inf
    ),
    "tail_share": ExposureMetric(lambda o, b: measures.tail_share(o, _popularity(b)), needs="train", fairer="high"),
    "merit_distance": ExposureMetric(lambda o, b: measures.merit_distance(o, _merit(b)), needs="merit"),
    "merit_gini": ExposureMetric(lambda o, b: measures.merit_gini(o, _merit(b)), needs="merit"),
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
