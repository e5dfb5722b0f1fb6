"""A model asked at one stop of the dial after another, each compared with the first for the same users.

Of every stop the metrics, the items' exposure and the example users' lists are kept. Two sets of lists are in memory at
a time (users x K integers each), never anything as large as users x items.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.interactions import Interactions
from fairmf.metrics import Audit, audit
from fairmf.metrics.groups import GroupLabels
from fairmf.metrics.lists import Ranker, ranked_by
from fairmf.metrics.registry import parse_metric
from fairmf.reporting.content import Position
from fairmf.reporting.examples import LISTED, choose
from fairmf.splitting import HeldOut

STEPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Stops of the dial in units of the trained fairness; they end where the Gini rises again."""

Lists = NDArray[np.int32]


@dataclasses.dataclass(frozen=True, eq=False)
class Question:
    """What is asked at every stop."""

    held_out: HeldOut
    at: int
    quality: tuple[str, ...]
    groups: GroupLabels | None
    train: Interactions | None
    examples: int
    bootstrap: int
    confidence: float
    random_state: int

    @property
    def longest(self) -> int:
        """How many places of a list are needed."""
        cutoffs = [parse_metric(label).K for label in self.quality]
        return min(max(self.at, LISTED, *cutoffs), self.held_out.fold_in.n_items)

    def compare(self, before: Lists, after: Lists) -> Audit:
        """What changes from one set of lists to another."""
        return audit(
            before, after, self.held_out, at=self.at, quality=self.quality, groups=self.groups, train=self.train,
            bootstrap=self.bootstrap, confidence=self.confidence, random_state=self.random_state,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The stops, the rows of the example users, and the last comparison (for what all of them share)."""

    positions: tuple[Position, ...]
    example_rows: NDArray[np.int64]
    last: Audit


def measure(
    model: Ranker,
    question: Question,
    stops: Sequence[float],
    chosen: float,
    open_end: bool,
    advance: Callable[[str], None],
) -> Measured:
    """Ask at the stops, which rise from the one all others are compared with. With `open_end` those beyond the first
    that has a higher Gini than its neighbour are left out.
    """
    lists = {psi: lists_at(model, question, psi) for psi in (stops[0], chosen)}
    first = lists[stops[0]]
    rows = choose(first, lists[chosen], question.held_out, question.examples)
    positions: list[Position] = []
    gini = f"gini@{question.at}"
    for psi in stops[1:]:
        now = lists[psi] if psi == chosen else lists_at(model, question, psi)
        found = question.compare(first, now)
        if not positions:
            positions.append(_first(found, named(stops[0]), stops[0], first[rows, :LISTED]))
        positions.append(_next(found, named(psi), psi, now[rows, :LISTED]))
        advance(named(psi))
        if open_end and psi > chosen and positions[-1].values[gini] > positions[-2].values[gini]:
            break
    return Measured(tuple(_marked(positions, gini)), rows, found)


def lists_at(model: Ranker, question: Question, psi: float) -> Lists:
    """The lists of all users at one stop."""
    blocks = ranked_by(model, question.held_out, question.longest, {"fairness": psi})
    return np.concatenate([np.array(items, dtype=np.int32) for _, items in blocks])


def named(psi: float) -> str:
    """What a stop is called."""
    return f"fairness {psi:g}"


def both_sides(found: Audit) -> tuple[Position, ...]:
    """An audit as two stops."""
    return _first(found, found.before_name, None, None), _next(found, found.after_name, None, None)


def _first(found: Audit, name: str, psi: float | None, lists: Any) -> Position:
    values = {label: change.before for label, change in found.metrics.items()}
    return Position(name, values, psi, exposure=found.items.before, lists=lists)


def _next(found: Audit, name: str, psi: float | None, lists: Any) -> Position:
    values = {label: change.after for label, change in found.metrics.items()}
    return Position(name, values, psi, found.metrics, found.users, found.groups, found.items.after, lists)


def _marked(positions: Sequence[Position], gini: str) -> list[Position]:
    """Stops beyond the lowest Gini say so."""
    end = int(np.argmin([position.values[gini] for position in positions]))
    return [dataclasses.replace(position, past_minimum=k > end) for k, position in enumerate(positions)]
