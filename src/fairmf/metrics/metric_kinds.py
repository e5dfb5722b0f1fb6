"""Define the kinds of metrics: the fields of a row of the table in registry.py, and what its function is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.metrics.accuracy import Hits, PerUser
from fairmf.metrics.given import ListBlock

Values = NDArray[np.float64]


class Background(NamedTuple):
    """Hold what exposure is compared with: the number of lists, and popularity and merit of each item (or group)."""

    n_lists: int
    popularity: Values | None
    merit: Values | None
    n_train: int = 0
    """Number of training users with at least one item."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The fields of all metrics. With `percent`, values are written in per cent and differences in points.

    Metrics that are not `usual` are computed only if they are named, or with "all".
    """

    name: str
    title: str
    meaning: str
    percent: bool = False
    usual: bool = True


@dataclass(frozen=True, kw_only=True)
class AccuracyMetric(Metric):
    """A mean over the users with targets: `per_user(hits, number of targets, K)` scores each of them."""

    per_user: Callable[[Hits, NDArray[np.integer], int], PerUser]
    needs: ClassVar[str] = ""
    lower_is_better: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class UserMetric(Metric):
    """A mean over the users for whom it is defined: `per_user(block, K)` scores each, NaN where it is not defined.

    With `needs` "lists" (names of INPUTS, separated by spaces) the block holds all users, otherwise some of them. With
    `among` "cold" or "warm" it holds lists in which only these items were ranked.
    """

    per_user: Callable[[ListBlock, int], PerUser]
    needs: str = ""
    lower_is_better: bool = False
    among: str = ""


@dataclass(frozen=True, kw_only=True)
class JointMetric(Metric):
    """A function of all lists and of the users' weights, prepared once: `prepare(block, K)(weights)`."""

    prepare: Callable[[ListBlock, int], Callable[[Values], Values]]
    needs: str = "lists"
    lower_is_better: bool = True
    lowest: float = 0.0
    highest: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ExposureMetric(Metric):
    """A function of how often each item (or group) is shown.

    `measure` takes exposure vectors along the last axis. `weighting` says what a rank is worth (`slot_weights`),
    `needs` names an input of INPUTS, `highest` bounds the interval. `owners` names the items whose share of the
    exposure this is, for sentences. `for_groups` says whether the metric also exists for groups. The interval of a
    `jackknifed` metric leaves users out instead of resampling them (bootstrap.py).
    """

    measure: Callable[[Values, Background], Values]
    weighting: str = "count"
    needs: str = ""
    lower_is_better: bool = True
    highest: float = 1.0
    owners: str = ""
    for_groups: bool = True
    jackknifed: bool = False


AnyMetric = AccuracyMetric | UserMetric | ExposureMetric | JointMetric
