"""Example users: chosen by rule, from those whose lists change most to those whose lists change least."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.data.split import HeldOut
from fairmf.io.atomic import replacing
from fairmf.metrics.audit_change import Change, UserChange
from fairmf.metrics.audit_result import GroupChange
from fairmf.metrics.evaluate import Evaluation
from fairmf.metrics.exposure import bottom_share
from fairmf.metrics.registry import title
from fairmf.models.fitted import History

# A comparison of models on the same held-out users: what every table and report shows.


COLUMNS = ("recall@20", "recall@50", "ndcg@100", "gini@20", "coverage@20")


@dataclass(frozen=True)
class Contender:
    """One model's result."""

    name: str
    evaluation: Evaluation
    seconds: float


def write_json(contenders: Sequence[Contender], facts: dict[str, Any], path: Path) -> None:
    """All values and intervals, for machines."""
    rows = [{"name": c.name, "seconds": c.seconds, **c.evaluation.to_dict()} for c in contenders]
    text = json.dumps({"facts": facts, "models": rows}, indent=1) + "\n"
    with replacing(path) as file:
        file.write(text.encode())


def summary(before: Contender, after: Contender, at: int = 20, quality: str = "ndcg@100") -> str:
    """In plain words: what the less exposed part of the catalogue gains, and what it costs."""
    shares = [float(bottom_share(c.evaluation.exposure[at], 80)) for c in (before, after)]
    was, now = before.evaluation[quality], after.evaluation[quality]
    change = f"changes by {now / was - 1:+.1%}" if was > 0 else f"goes from {was:.3f} to {now:.3f}"
    cover = [c.evaluation[f"coverage@{at}"] for c in (before, after)]
    return (
        f"From {before.name} to {after.name}: the 80% of items shown least go from {shares[0]:.1%} to {shares[1]:.1%} "
        f"of the top-{at} exposure, the part of the catalogue shown at all from {cover[0]:.0%} to {cover[1]:.0%}, "
        f"and {title(quality)} {change}."
    )


# What a report shows, as data: the page and its JSON are made from this alone.


Values = NDArray[np.float64]
Lists = NDArray[np.integer]
LONGEST_NAME, LONGEST_GROUP = 120, 40


def cut(name: str, longest: int = LONGEST_NAME) -> str:
    """A name no longer than a page can bear."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


@dataclasses.dataclass(frozen=True, eq=False)
class Position:
    """One stop of the dial (or one side of an audit): its metrics, and what changed against the first stop.

    `changes`, `groups` and `users` compare with the first stop, for the same users; they are empty at the first stop
    and where nothing but the metrics is known. `exposure[j]` counts the users whose list holds item j.
    """

    name: str
    values: Mapping[str, float]
    fairness: float | None = None
    changes: Mapping[str, Change] = dataclasses.field(default_factory=dict)
    users: Mapping[str, UserChange] = dataclasses.field(default_factory=dict)
    groups: tuple[GroupChange, ...] = ()
    exposure: Values | None = None
    lists: Lists | None = None
    """Lists of the example users: users x N item positions, -1 for none."""
    past_minimum: bool = False
    """Beyond the lowest Gini the dial reaches: worse for users and for items."""


@dataclasses.dataclass(frozen=True, eq=False)
class Catalogue:
    """The items by position: names, groups and training interactions where they are known."""

    names: list[str]
    groups: list[Hashable] | None = None
    popularity: Values | None = None

    def __len__(self) -> int:
        return len(self.names)


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """An example user: what the model saw (`history`) and what was held out (`targets`), as item positions."""

    label: str
    history: tuple[int, ...]
    targets: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Series:
    """Points that are drawn beside the dial's: other ways to trade quality against inequality."""

    name: str
    points: tuple[tuple[float, float, str], ...]
    """(inequality, quality, what the point is)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Content:
    """All parts of a report. What is not known is None or empty, and its section is left out."""

    title: str
    subtitle: str
    positions: tuple[Position, ...]
    chosen: int
    """The stop that the summary speaks of; it is compared with stop 0."""
    metrics: tuple[str, ...]
    quality: str
    inequality: str
    share: str | None = None
    """The share of exposure that sentences speak of, such as that of the half of the catalogue shown least."""
    confidence: float = 0.95
    at: int | None = None
    n_users: int | None = None
    n_scored: int | None = None
    catalogue: Catalogue | None = None
    examples: tuple[Example, ...] = ()
    series: tuple[Series, ...] = ()
    contenders: tuple[Contender, ...] = ()
    history: History | None = None
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def before(self) -> Position:
        """What everything is compared with."""
        return self.positions[0]

    @property
    def after(self) -> Position:
        """The stop that the summary speaks of."""
        return self.positions[self.chosen]


LISTED = 10  # places of a list that are shown
HISTORY = 8  # items of a history that are shown: the least popular, which tell most about a taste


def choose(before: Lists, after: Lists, held_out: HeldOut, count: int) -> NDArray[np.int64]:
    """Rows of `count` users, evenly spread over how much of their list changes, most changed first.

    Only users with a history are asked, and those with targets before others.
    """
    history, targets = (np.diff(part.by_user.indptr) for part in (held_out.fold_in, held_out.targets))
    for candidates in (np.flatnonzero((history > 0) & (targets > 0)), np.flatnonzero(history > 0)):
        if len(candidates) >= count:
            break
    kept = shared(before[candidates, :LISTED], after[candidates, :LISTED])
    order = candidates[np.argsort(kept, kind="stable")]
    if count == 0 or not len(order):
        return np.zeros(0, dtype=np.int64)
    places = np.linspace(0, len(order) - 1, min(count, len(order)))
    return order[np.round(places).astype(np.int64)].astype(np.int64)


def shared(before: Lists, after: Lists) -> NDArray[np.int64]:
    """How many items each list has in common with the other one."""
    found = np.zeros(len(before), dtype=np.int64)
    for column in before.T:  # place by place: nothing larger than the lists themselves
        found += (column[:, None] == after).any(axis=1) & (column >= 0)
    return found


def described(rows: NDArray[np.int64], held_out: HeldOut, catalogue: Catalogue) -> tuple[Example, ...]:
    """The example users, numbered: their ids stay out of the page."""
    found = []
    for number, row in enumerate(rows.tolist(), start=1):
        history, targets = (part.by_user.block(row, row + 1).indices for part in (held_out.fold_in, held_out.targets))
        if catalogue.popularity is not None:
            history = history[np.argsort(catalogue.popularity[history], kind="stable")]
        found.append(Example(f"User {number}", tuple(history.tolist()), tuple(targets.tolist())))
    return tuple(found)
