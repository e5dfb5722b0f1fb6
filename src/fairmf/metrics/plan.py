"""Read and check the arguments of `evaluate`, and plan what to measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.groups import GroupLabels, Groups, read_groups
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split, check_same_items
from fairmf.errors import InvalidData
from fairmf.metrics.given import NO_EXTRAS, Extras, Given, read_features, read_group_target, read_user_groups
from fairmf.metrics.metric_kinds import Background, ExposureMetric, JointMetric
from fairmf.metrics.registry import Wanted, parse_metrics

Values = NDArray[np.float64]
Merit: TypeAlias = ArrayLike | Mapping[Any, float]
"""The merit of every item, by position or by id."""


class GroupResults(TypedDict):
    """The fields of an `Evaluation` that are about groups."""

    group_names: tuple[Hashable, ...]
    group_exposure: dict[int, Values]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The metrics to compute, and what exposure is compared with."""

    wanted: list[Wanted]
    n_items: int
    of_items: Background
    of_groups: Background
    groups: Groups | None
    given: Given
    available: tuple[str, ...] = ()
    """The optional inputs (names of INPUTS) that are there."""

    @property
    def cutoffs(self) -> list[int]:
        """All cut-offs, ascending."""
        return sorted({w.K for w in self.wanted})

    @property
    def longest(self) -> int:
        """The length of the lists that are needed."""
        return min(self.cutoffs[-1], self.n_items)

    @property
    def means(self) -> list[Wanted]:
        """The metrics that are means over users."""
        return [w for w in self.wanted if w.is_mean]

    @property
    def jackknifed(self) -> frozenset[str]:
        """The labels of metrics whose intervals leave users out instead of resampling them."""
        return frozenset(w.label for w in self.wanted if w.jackknifed)

    @property
    def n_cold(self) -> int | None:
        """Number of items that nobody has in the training data; None if it is not known."""
        return None if self.given.popularity is None else int(self.given.is_cold.sum())

    def only(self, among: str) -> Plan:
        """Return the plan of the metrics of lists that are made of these items alone ("cold" or "warm")."""
        return dataclasses.replace(self, wanted=[w for w in self.wanted if w.among == among])

    @property
    def joint(self) -> list[tuple[Wanted, JointMetric]]:
        """The metrics of all lists together, with their rows of the table."""
        return [(w, w.metric) for w in self.wanted if isinstance(w.metric, JointMetric)]

    @property
    def needs_all(self) -> bool:
        """Whether a metric needs the lists of all users at once."""
        return any(w.needs_all for w in self.wanted)

    @property
    def by_weighting(self) -> dict[str, list[Wanted]]:
        """Exposure metrics by their weighting of slots. "count" is always there, because results contain the counts."""
        found: dict[str, list[Wanted]] = {"count": []}
        for w in self.wanted:
            if isinstance(w.metric, ExposureMetric):
                found.setdefault(w.exposure.weighting, []).append(w)
        return found

    def measure(self, w: Wanted, o: Values) -> Values:
        """Compute one exposure metric of exposure vectors (items along the last axis)."""
        if w.of_groups and self.groups is not None:
            o = self.groups.add_up(o)
        return w.exposure.measure(o, self.of_groups if w.of_groups else self.of_items)

    def of_all_groups(self, exposures: Mapping[int, Values]) -> GroupResults:
        """Return the fields of an `Evaluation` about groups: names and exposure by cut-off; empty without groups."""
        groups = self.groups
        if groups is None:
            return {"group_names": (), "group_exposure": {}}
        sums = {K: groups.add_up(o) for K, o in exposures.items()}
        return {"group_names": groups.names, "group_exposure": sums}


def make_plan(
    held_out: HeldOut,
    at: int | Iterable[int],
    metrics: Iterable[str] | None,
    groups: GroupLabels | None,
    train: Interactions | None,
    merit: Merit | None,
    extras: Extras = NO_EXTRAS,
    rankers: Sequence[object] = (),
) -> Plan:
    """Read the arguments of `evaluate` and check them before anything is ranked; `rankers` will make the lists."""
    check_held_out(held_out)
    m = held_out.fold_in.n_items
    popularity, n_train = None, 0
    if train is not None:
        if not isinstance(train, Interactions):
            raise InvalidData(f"train must be Interactions, such as split.train. Got {type(train).__name__} instead.")
        check_same_items("train", train, "the held-out data", held_out.fold_in)
        popularity = train.by_user.column_counts(m)
        n_train = int(np.count_nonzero(np.diff(train.by_user.indptr)))
    ids = held_out.fold_in.item_ids
    is_cold = np.zeros(m, dtype=bool) if popularity is None else popularity == 0
    cold_targets = bool(is_cold[held_out.targets.by_user.indices].any())
    given = Given(
        n_items=m,
        popularity=popularity,
        n_train=n_train,
        histories=held_out.fold_in.nnz > 0,
        cold=cold_targets or bool(is_cold.any() and any(map(has_item_features, rankers))),
        cold_targets=cold_targets,
        candidates=len(rankers) > 0 and all(map(takes_items, rankers)),
        user_groups=read_user_groups(extras.user_groups, held_out.n_users, held_out.fold_in.user_ids),
        features=read_features(extras.features, m, ids),
    )
    found = None if groups is None else read_groups(groups, m, ids, several=True)
    given = dataclasses.replace(given, groups=found, group_target=read_group_target(extras.group_target, found))
    return plan_for(held_out.n_users, given, at, metrics, by_position(merit, ids), all_lists=True)


def plan_for(
    n_users: int,
    given: Given,
    at: int | Iterable[int],
    metrics: Iterable[str] | None,
    merit: ArrayLike | None,
    *,
    all_lists: bool,
) -> Plan:
    """Make the plan from checked inputs. `all_lists` says whether the lists of all users are at hand together."""
    popularity, groups = given.popularity, given.groups
    # Without a merit, popularity stands for it: exposure in proportion to interactions.
    worth = popularity if merit is None else _check_merit(merit, given.n_items)
    there = {
        "train": popularity, "merit": worth, "groups": groups, "user_groups": given.user_groups,
        "histories": given.histories or None, "features": given.features, "lists": all_lists or None,
        "cold": given.cold or None, "cold_targets": given.cold_targets or None, "candidates": given.candidates or None,
    }  # fmt: skip
    available = tuple(name for name, value in there.items() if value is not None)
    wanted = parse_metrics(metrics, at, available)
    of_items = of_groups = Background(n_users, popularity, worth, given.n_train)
    if groups is not None:
        # A group is as popular, and has as much merit, as its items together.
        sums = [None if x is None else groups.add_up(x) for x in (popularity, worth)]
        of_groups = Background(n_users, sums[0], sums[1], given.n_train)
    return Plan(wanted, given.n_items, of_items, of_groups, groups, given, available)


def takes_items(ranker: object) -> bool:
    """Return whether a ranker's `rank` takes `items`, the only candidates: its attribute `takes_items` says so."""
    return bool(getattr(ranker, "takes_items", False))


def has_item_features(ranker: object) -> bool:
    """Return whether a model, or the model below a re-ranker, was fitted with item features."""
    fitted = getattr(getattr(ranker, "model", ranker), "fitted", None)
    return getattr(fitted, "item_features", None) is not None


def check_held_out(held_out: object) -> None:
    """Raise InvalidData if this is not one held-out set; for a whole Split, name its parts."""
    if not isinstance(held_out, HeldOut):
        hint = ": choose split.validation or split.test" if isinstance(held_out, Split) else ""
        raise InvalidData(f"A model is evaluated on a HeldOut, not on {type(held_out).__name__}{hint}.")


def by_position(merit: Merit | None, ids: Ids | None) -> ArrayLike | None:
    """Return a merit that is given by item id as one number per item, 0 for items that are not named."""
    if not isinstance(merit, Mapping):
        return merit
    if ids is None:
        raise InvalidData("merit by item id needs items with ids: give one number per item.")
    return [merit.get(item, 0.0) for item in ids.values.tolist()]


def _check_merit(merit: ArrayLike, n_items: int) -> Values:
    try:
        worth = np.asarray(merit, dtype=np.float64)
    except (TypeError, ValueError):
        worth = np.empty(0)
    if worth.shape != (n_items,) or not np.isfinite(worth).all() or (worth < 0).any() or not worth.any():
        raise InvalidData(f"merit must be {n_items:,} finite numbers >= 0, not all 0, one per item.")
    return worth
