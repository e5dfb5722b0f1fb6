"""Plan, tabulate and draw each kind of table or figure: one module per kind, with `plan`, `rows` and `draw`.

`plan(experiment, done)` is called until it names no new pieces, so that a later round may depend on the results of an
earlier one. A kind with several rounds also has `later(experiment)`, which returns pieces like those of the later
rounds, for estimates.
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
    """The functions that the module of a kind provides."""

    def plan(self, experiment: Experiment, done: list[Outcome]) -> list[Piece]:
        """Return the pieces that can be computed now."""

    def rows(self, experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
        """Return the rows of the table."""

    def draw(self, experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
        """Return the plots, by the name of their file."""


def kind_of(experiment: Experiment) -> Kind:
    """Return the module of an experiment's kind."""
    # A module has the functions of the protocol, but a type checker cannot know that of a name made at run
    # time.
    return cast(Kind, importlib.import_module(f"fairmf.reproduce.kinds.{experiment.kind}"))


def later_pieces(experiment: Experiment) -> list[Piece]:
    """Return pieces like those of rounds after the first; most kinds have none."""
    later = getattr(kind_of(experiment), "later", None)
    return [] if later is None else list(later(experiment))


def total(experiment: Experiment) -> int:
    """Count the pieces of all rounds."""
    return len(kind_of(experiment).plan(experiment, [])) + len(later_pieces(experiment))
