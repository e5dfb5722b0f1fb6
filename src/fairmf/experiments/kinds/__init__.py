"""One file per kind of table or figure: `plan` its pieces, make `rows` of what came out, `draw` it.

`plan(experiment, done)` is called until it names nothing new, so that a later round may depend on an earlier one;
`total(experiment)` is how many there will be.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

from fairmf.experiments.experiment import Experiment
from fairmf.experiments.pieces import Outcome, Piece
from fairmf.experiments.summary import Row


class Kind(Protocol):
    """What a kind's file has."""

    def plan(self, experiment: Experiment, done: list[Outcome]) -> list[Piece]:
        """The pieces that can be computed now."""

    def total(self, experiment: Experiment) -> int:
        """How many pieces there are in all rounds."""

    def rows(self, experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
        """The table."""

    def draw(self, experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Any]:
        """The plots, by the name of their file."""


def kind_of(experiment: Experiment) -> Kind:
    """The file of an experiment's kind."""
    return cast(Kind, importlib.import_module(f"fairmf.experiments.kinds.{experiment.kind}"))
