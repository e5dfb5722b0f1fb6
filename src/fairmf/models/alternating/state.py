"""What an alternating epoch hands to the next."""

from __future__ import annotations

from dataclasses import dataclass

from fairmf.backends import Matrix, Vector
from fairmf.models.fitting import State
from fairmf.models.objective import Objective


@dataclass(frozen=True)
class AlternatingState(State):
    """Factors, the coupling vector q in the factors' basis, and what the last half-step left at hand."""

    coupling: Vector
    item_gramian: Matrix
    merit_gramian: Matrix
    """V' W^2 V: the same as `item_gramian` where items have no fairness weights."""
    objective: Objective
    rotation: Matrix
    """From the basis of the last users' half-step to that of the items', in which the factors are."""
    user_gradient: float = 0.0
    item_gradient: float = 0.0
    effort: int = 0
    """How often the number of steps is doubled: raised where F rose, lowered again when all goes well."""
