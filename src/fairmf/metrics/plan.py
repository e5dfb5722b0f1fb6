"""What is to be measured, and against what: the arguments of `evaluate`, read and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.groups import GroupLabels, Groups, read_groups
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split, check_same_items
from fairmf.errors import InvalidData
from fairmf.metrics.exposure import add_up
from fairmf.metrics.registry import Background, Wanted, parse_metrics
from fairmf.params import check_count, check_seed, check_share

Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be measured, and against what."""

    wanted: list[Wanted]
    n_items: int
    of_items: Background
    of_groups: Background
    groups: Groups | None

    @property
    def cutoffs(self) -> list[int]:
        """Every K that is asked for, ascending."""
        return sorted({w.K for w in self.wanted})

    @property
    def longest(self) -> int:
        """How many slots of a list are needed."""
        return min(self.cutoffs[-1], self.n_items)

    @property
    def accuracy(self) -> list[Wanted]:
        """The metrics that are means over users."""
        return [w for w in self.wanted if w.is_accuracy]

    @property
    def by_weighting(self) -> dict[str, list[Wanted]]:
        """Exposure metrics by the worth they give to a slot; plain counts are always part of the result."""
        found: dict[str, list[Wanted]] = {"count": []}
        for w in self.wanted:
            if not w.is_accuracy:
                found.setdefault(w.exposure.weighting, []).append(w)
        return found

    def measure(self, w: Wanted, o: Values) -> Values:
        """One exposure metric of exposure vectors over items (along the last axis)."""
        if w.of_groups and self.groups is not None:
            o = add_up(o, self.groups.codes, len(self.groups.names))
        return w.exposure.measure(o, self.of_groups if w.of_groups else self.of_items)


def make_plan(
    held_out: HeldOut,
    at: int | Iterable[int],
    metrics: Iterable[str] | None,
    groups: GroupLabels | None,
    train: Interactions | None,
    merit: ArrayLike | None,
) -> Plan:
    """Read the arguments of `evaluate`: what is wrong with them is found before anything is ranked."""
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
    """The same where there is no held-out set at hand: its sizes, and how many users each item had in training."""
    worth = popularity if merit is None else _check_merit(merit, n_items)
    there = {"train": popularity is not None, "merit": worth is not None, "groups": groups is not None}
    wanted = parse_metrics(metrics, at, [name for name, given in there.items() if given])
    of_items = of_groups = Background(n_users, popularity, worth)
    found = None if groups is None else read_groups(groups, n_items, item_ids)
    if found is not None:
        sums = [None if x is None else add_up(x, found.codes, len(found.names)) for x in of_items[1:]]
        of_groups = Background(n_users, *sums)
    return Plan(wanted, n_items, of_items, of_groups, found)


def check_held_out(held_out: Any) -> None:
    """Raise InvalidData for what is not one held-out set, a whole split above all."""
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


def check_resampling(owner: str, bootstrap: Any, confidence: Any, random_state: Any) -> None:
    """Refuse what intervals cannot be made with."""
    check_count(owner, "bootstrap", bootstrap, 0)
    check_share(owner, "confidence", confidence)
    check_seed(owner, random_state)
