"""Hold what a report shows: the page and its JSON are made from `Content` alone.

This module also has the comparison of models and the choice of example users.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairmf.data.split import HeldOut
from fairmf.io.atomic import replacing
from fairmf.metrics import sentences
from fairmf.metrics.audit_change import Change, UserChange
from fairmf.metrics.audit_result import GroupChange
from fairmf.metrics.evaluate import Evaluation
from fairmf.metrics.exposure import bottom_share
from fairmf.models.evenness import Level
from fairmf.models.fitted import History
from fairmf.types import Record, Settings

Values = NDArray[np.float64]
Lists = NDArray[np.integer]
LONGEST_GROUP = 40  # letters of a group's name in the item table


@dataclasses.dataclass(frozen=True, eq=False)
class Position:
    """One stop of the slider (one evenness, or one fairness), or one side of an audit.

    `changes`, `groups` and `users` compare it with the first stop, for the same users. They are empty for the first
    stop, and if only metrics are known. `exposure[j]` is the number of users whose list holds item j.
    """

    name: str
    values: Mapping[str, float]
    fairness: float | None = None
    changes: Mapping[str, Change] = dataclasses.field(default_factory=dict)
    users: Mapping[str, UserChange] = dataclasses.field(default_factory=dict)
    groups: tuple[GroupChange, ...] = ()
    exposure: Values | None = None
    lists: Lists | None = None
    """Lists of the example users: users x N item positions, -1 for an empty slot."""
    past_minimum: bool = False
    """Whether the stop is past the lowest Gini."""
    evenness: float | None = None
    level: Level | None = None
    """The level of the evenness; `fairness` is then that of the level."""
    intervals: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """The interval of each value (`changes` has those of the differences)."""


AS_SERVED = "the model as it serves now"
MODERATE = 0.3  # the evenness that the summary describes if the model serves at no other


@dataclasses.dataclass(frozen=True, eq=False)
class Catalogue:
    """The items by position: names, and groups and numbers of training interactions if they are known."""

    names: list[str]
    groups: list[Hashable] | None = None
    popularity: Values | None = None

    @property
    def n_cold(self) -> int:
        """Number of items without interactions in training; 0 if it is not known."""
        return 0 if self.popularity is None else int((self.popularity == 0).sum())

    def __len__(self) -> int:
        return len(self.names)


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """An example user: known items (`history`) and held-out items (`targets`), as item positions."""

    label: str
    history: tuple[int, ...]
    targets: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Series:
    """Further points of the chart: other ways to trade quality against inequality."""

    name: str
    points: tuple[tuple[float, float, str], ...]
    """(inequality, quality, label) of each point."""


@dataclasses.dataclass(frozen=True, eq=False)
class Content:
    """All parts of a report. A part that is None or empty has no section."""

    title: str
    subtitle: str
    positions: tuple[Position, ...]
    chosen: int
    """Position of the stop that the summary describes and compares with stop 0."""
    metrics: tuple[str, ...]
    quality: str
    inequality: str
    knob: str = ""
    """The name of what the slider sets: "evenness", "fairness", or "" for the sides of an audit."""
    note: str = ""
    """The source of the slider's levels, in words."""
    served: str = ""
    """The level that the model serves with by default, in words; "" if it is not known."""
    part: str = ""
    """The part of the split that the users are of, if it is known: "test" or "validation"."""
    share: str | None = None
    """The share of exposure that sentences are about, such as that of the least-shown half of the catalogue."""
    confidence: float = 0.95
    at: int | None = None
    n_users: int | None = None
    n_scored: int | None = None
    catalogue: Catalogue | None = None
    examples: tuple[Example, ...] = ()
    series: tuple[Series, ...] = ()
    contenders: tuple[Contender, ...] = ()
    history: History | None = None
    record: Settings = dataclasses.field(default_factory=dict)

    @property
    def before(self) -> Position:
        """The first stop, with which all others are compared."""
        return self.positions[0]

    @property
    def after(self) -> Position:
        """The stop that the summary describes."""
        return self.positions[self.chosen]

    @property
    def measured_on(self) -> str:
        """Say for how many users the numbers are: Gini and coverage depend on it. "" if it is not known."""
        if self.n_users is None:
            return ""
        users = " ".join(filter(None, (f"{self.n_users:,}", self.part, "users")))
        # Where all have held-out items, a second number would only be read twice.
        return users if self.n_scored in (None, self.n_users) else f"{users} ({self.n_scored:,} with held-out items)"

    @property
    def cold_share(self) -> str | None:
        """The metric of the exposure of cold items, if it was measured and their number is known."""
        metric = f"cold_share@{self.at}"
        known = self.catalogue is not None and self.catalogue.n_cold > 0
        return metric if known and metric in self.before.values else None

    def told_cold(self) -> str:
        """Say what share of exposure items without interactions get at the chosen stop; "" if it is not known."""
        if self.cold_share is None or self.catalogue is None:
            return ""
        n_cold, n_items, metric = self.catalogue.n_cold, len(self.catalogue), self.cold_share
        change = self.change(self.after, metric)
        told = sentences.told_cold_share(n_cold, n_items, metric, change, self.confidence)
        return f"At {self.after.name}, {told[:1].lower()}{told[1:]}" if self.knob else told

    def change(self, now: Position, metric: str) -> Change:
        """Return the change of a metric from the first stop; without an interval if none was computed."""
        # A curve has values only, an audit also intervals.
        if metric in now.changes:
            return now.changes[metric]
        return Change(self.before.values.get(metric, math.nan), now.values.get(metric, math.nan))

    def headline(self, now: Position) -> str:
        """Say in one sentence what rarely shown items gain, and what users lose or gain."""
        before = self.before
        if now is before:
            axes = (self.quality, self.inequality)
            values = ", ".join(f"{sentences.title(m)} {sentences.written(m, before.values[m])}" for m in axes)
            return f"All other stops are compared with {before.name}: {values}."
        quality = sentences.told_quality(self.quality, self.change(now, self.quality), self.confidence)
        metric = self.share or self.inequality
        tell = sentences.told_share if self.share else sentences.told_inequality
        exposure = tell(metric, self.change(now, metric), self.confidence)
        return f"From {before.name} to {now.name}, {exposure}, and {quality}."

    def short(self) -> list[str]:
        """Say in two short sentences what changes for items and what it costs users, without intervals."""
        now = self.after
        if now is self.before:
            return [self.headline(now)]
        metric = self.share or self.inequality
        items = sentences.short_exposure(metric, self.change(now, metric))
        users = sentences.short_quality(self.quality, self.change(now, self.quality))
        return [f"For items, from {self.before.name} to {now.name}: {items}.", f"For users: {users}."]

    def advice(self) -> str:
        """Say which level the page suggests and which one the model serves with now; "" for an audit or a curve."""
        if not self.served:
            return ""
        if self.served == self.after.name:
            return f"Suggested: {self.after.name}. The model serves this already."
        point = next((series.points[0] for series in self.series if series.name == AS_SERVED), None)
        values = (
            ""
            if point is None
            else ", ".join(
                f"{sentences.title(m)} {sentences.written(m, value)}"
                for m, value in ((self.quality, point[1]), (self.inequality, point[0]))
            )
        )
        return f"Suggested: {self.after.name}. Today: {self.served}{f' ({values})' if values else ''}."

    @property
    def is_start(self) -> bool:
        """Whether the suggested evenness is the usual one to begin with, and the model does not serve it yet."""
        return self.after.evenness == MODERATE and self.served not in ("", self.after.name)

    def summary(self) -> list[str]:
        """Return further sentences on the chosen stop: exposure, users, groups, better and worse metrics."""
        now = self.after
        if now is self.before:
            return []
        verdicts = sentences.told_verdicts({m: self.change(now, m) for m in self.metrics})
        sure = f" A change counts if its {self.confidence:.0%} interval does not contain 0." if now.changes else ""
        end = f"This {self.knob} is past the lowest Gini: a lower {self.knob} spreads exposure more evenly."
        found = [
            sentences.told_spread({m: self.change(now, m) for m in now.values}, self.at),
            sentences.told_users(self.quality, now.users.get(self.quality)),
            self.told_cold(),
            sentences.told_groups(now.groups),
            verdicts + sure,
            end if now.past_minimum else "",
        ]
        return [text for text in found if text]


# -- models compared on the same held-out users -----------------------------------------------------------------------

COLUMNS = ("recall@20", "recall@50", "ndcg@100", "gini@20", "coverage@20")


@dataclass(frozen=True)
class Contender:
    """The result of one model in a comparison."""

    name: str
    evaluation: Evaluation
    seconds: float


def write_json(contenders: Sequence[Contender], facts: Record, path: Path) -> None:
    """Write all values and intervals as JSON."""
    rows = [{"name": c.name, "seconds": c.seconds, **c.evaluation.to_dict()} for c in contenders]
    text = json.dumps({"facts": facts, "models": rows}, indent=1) + "\n"
    with replacing(path) as file:
        file.write(text.encode())


def summary(before: Contender, after: Contender, at: int = 20, quality: str = "ndcg@100") -> str:
    """Say in one sentence what rarely shown items gain, and what it costs."""
    was, now = (float(bottom_share(c.evaluation.exposure[at], 80)) for c in (before, after))
    found = {m: Change(before.evaluation[m], after.evaluation[m]) for m in (f"coverage@{at}", quality)}
    cover = sentences.told_spread(found, at).removesuffix(".")
    return (
        f"From {before.name} to {after.name}, {sentences.told_share(f'bottom80_share@{at}', Change(was, now), 0.95)}, "
        f"{cover[:1].lower()}{cover[1:]}, and {sentences.told_quality(quality, found[quality], 0.95)}."
    )


# -- example users ----------------------------------------------------------------------------------------------------

LISTED = 10  # places of a list that are shown
HISTORY = 8  # items of a history that are shown: the least popular ones, which say most about a user's taste


def choose(before: Lists, after: Lists, held_out: HeldOut, count: int) -> NDArray[np.int64]:
    """Choose `count` users, from those whose list changes most to those whose list changes least.

    Only users with a history are chosen, and users with held-out items before others.
    """
    history, targets = (np.diff(part.by_user.indptr) for part in (held_out.fold_in, held_out.targets))
    # Prefer users with held-out items, whose hits the page can show; fall back to all if there are too few.
    for candidates in (np.flatnonzero((history > 0) & (targets > 0)), np.flatnonzero(history > 0)):
        if len(candidates) >= count:
            break
    kept = shared(before[candidates, :LISTED], after[candidates, :LISTED])
    order = candidates[np.argsort(kept, kind="stable")]
    if count == 0 or not len(order):
        return np.zeros(0, dtype=np.int64)
    # Evenly spread from most to least changed, so that a reader sees both kinds of users.
    places = np.linspace(0, len(order) - 1, min(count, len(order)))
    return order[np.round(places).astype(np.int64)].astype(np.int64)


def shared(before: Lists, after: Lists) -> NDArray[np.int64]:
    """Count the items that each list has in common with the other one."""
    found = np.zeros(len(before), dtype=np.int64)
    for column in before.T:  # slot by slot, so that no array is larger than the lists
        found += (column[:, None] == after).any(axis=1) & (column >= 0)
    return found


def described(rows: NDArray[np.int64], held_out: HeldOut, catalogue: Catalogue) -> tuple[Example, ...]:
    """Describe the example users. They are numbered, so that no user id is in the page."""
    found = []
    for number, row in enumerate(rows.tolist(), start=1):
        history, targets = (part.by_user.block(row, row + 1).indices for part in (held_out.fold_in, held_out.targets))
        if catalogue.popularity is not None:
            history = history[np.argsort(catalogue.popularity[history], kind="stable")]
        found.append(Example(f"User {number}", tuple(history.tolist()), tuple(targets.tolist())))
    return tuple(found)
