"""One file per kind of table or figure: `plan` its pieces, make `rows` of what came out, `draw` it.

`plan(experiment, done)` is called until it names nothing new, so that a later round may depend on an earlier one. A
kind with such rounds has `later(experiment)` as well: pieces like those that follow the first round, for estimates.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from fairmf.reproduce.pieces import Outcome, Piece
from fairmf.reproduce.spec import Experiment
from fairmf.reproduce.tables import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Kind(Protocol):
    """What the file of a kind provides."""

    def plan(self, experiment: Experiment, done: list[Outcome]) -> list[Piece]:
        """Return the pieces that can be computed now."""

    def rows(self, experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
        """Return the rows of the table."""

    def draw(self, experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
        """Return the plots, by the name of their file."""


def kind_of(experiment: Experiment) -> Kind:
    """Return the module of an experiment's kind."""
    return cast(Kind, importlib.import_module(f"fairmf.reproduce.kinds.{experiment.kind}"))


def later_pieces(experiment: Experiment) -> list[Piece]:
    """Return pieces like those that follow the first round; none for most kinds."""
    later = getattr(kind_of(experiment), "later", None)
    return [] if later is None else list(later(experiment))


def total(experiment: Experiment) -> int:
    """Count the pieces of all rounds."""
    return len(kind_of(experiment).plan(experiment, [])) + len(later_pieces(experiment))
