"""Read and check the arguments of `evaluate`, and plan what to measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.groups import GroupLabels, Groups, read_groups
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split, check_same_items
from fairmf.errors import InvalidData
from fairmf.metrics.exposure import add_up
from fairmf.metrics.registry import Background, Wanted, parse_metrics

Values = NDArray[np.float64]


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

    @property
    def cutoffs(self) -> list[int]:
        """All cut-offs, ascending."""
        return sorted({w.K for w in self.wanted})

    @property
    def longest(self) -> int:
        """The length of the lists that are needed."""
        return min(self.cutoffs[-1], self.n_items)

    @property
    def accuracy(self) -> list[Wanted]:
        """The metrics that are means over users."""
        return [w for w in self.wanted if w.is_accuracy]

    @property
    def by_weighting(self) -> dict[str, list[Wanted]]:
        """Exposure metrics by their weighting of slots. "count" is always there, because results contain the counts."""
        found: dict[str, list[Wanted]] = {"count": []}
        for w in self.wanted:
            if not w.is_accuracy:
                found.setdefault(w.exposure.weighting, []).append(w)
        return found

    def measure(self, w: Wanted, o: Values) -> Values:
        """Compute one exposure metric of exposure vectors (items along the last axis)."""
        if w.of_groups and self.groups is not None:
            o = add_up(o, self.groups.codes, len(self.groups.names))
        return w.exposure.measure(o, self.of_groups if w.of_groups else self.of_items)

    def of_all_groups(self, exposures: Mapping[int, Values]) -> GroupResults:
        """Return the fields of an `Evaluation` about groups: names and exposure by cut-off; empty without groups."""
        groups = self.groups
        if groups is None:
            return {"group_names": (), "group_exposure": {}}
        sums = {K: add_up(o, groups.codes, len(groups.names)) for K, o in exposures.items()}
        return {"group_names": groups.names, "group_exposure": sums}


def make_plan(
    held_out: HeldOut,
    at: int | Iterable[int],
    metrics: Iterable[str] | None,
    groups: GroupLabels | None,
    train: Interactions | None,
    merit: ArrayLike | None,
) -> Plan:
    """Read the arguments of `evaluate` and check them before anything is ranked."""
    check_held_out(held_out)
    m = held_out.fold_in.n_items
    popularity = None
    if train is not None:
        if not isinstance(train, Interactions):
            raise InvalidData(f"train must be Interactions, such as split.train. Got {type(train).__name__} instead.")
        check_same_items("train", train, "the held-out data", held_out.fold_in)
        popularity = np.bincount(train.by_user.indices, minlength=m).astype(np.float64)
    return plan_for(held_out.n_users, m, held_out.fold_in.item_ids, popularity, at, metrics, groups, merit)


def plan_for(
    n_users: int,
    n_items: int,
    item_ids: Ids | None,
    popularity: Values | None,
    at: int | Iterable[int],
    metrics: Iterable[str] | None,
    groups: GroupLabels | None,
    merit: ArrayLike | None,
) -> Plan:
    """Make the plan from the sizes of a held-out set. `popularity` is the number of training users of each item."""
    # Without a merit, popularity stands for it: exposure in proportion to interactions.
    worth = popularity if merit is None else _check_merit(merit, n_items)
    there = {"train": popularity is not None, "merit": worth is not None, "groups": groups is not None}
    wanted = parse_metrics(metrics, at, [name for name, given in there.items() if given])
    of_items = of_groups = Background(n_users, popularity, worth)
    found = None if groups is None else read_groups(groups, n_items, item_ids)
    if found is not None:
        # A group is as popular, and has as much merit, as its items together.
        sums = [None if x is None else add_up(x, found.codes, len(found.names)) for x in of_items[1:]]
        of_groups = Background(n_users, *sums)
    return Plan(wanted, n_items, of_items, of_groups, found)


def check_held_out(held_out: object) -> None:
    """Raise InvalidData if this is not one held-out set; for a whole Split, name its parts."""
    if not isinstance(held_out, HeldOut):
        hint = ": choose split.validation or split.test" if isinstance(held_out, Split) else ""
        raise InvalidData(f"A model is evaluated on a HeldOut, not on {type(held_out).__name__}{hint}.")


def _check_merit(merit: ArrayLike, n_items: int) -> Values:
    try:
        worth = np.asarray(merit, dtype=np.float64)
    except (TypeError, ValueError):
        worth = np.empty(0)
    if worth.shape != (n_items,) or not np.isfinite(worth).all() or (worth < 0).any() or not worth.any():
        raise InvalidData(f"merit must be {n_items:,} finite numbers >= 0, not all 0, one per item.")
    return worth
