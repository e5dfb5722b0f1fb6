"""What a report shows, as data: the page and its JSON are made from this alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.metrics.audit.numbers import Change
from fairmf.metrics.audit.result import GroupChange
from fairmf.metrics.audit.users import UserChange
from fairmf.models.history import History
from fairmf.reporting.comparison import Contender

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
