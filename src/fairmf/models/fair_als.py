"""FairALS: the paper's objective, minimised by alternating least squares (docs/mathematics.md 5).

Both half-steps have closed forms, because one vector q is all that couples the users: no ADMM, no rho, no gamma. Equals
IALS when fairness is 0, and reaches FiADMM's minimum otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairmf.models.alternating import AlternatingModel
from fairmf.parameters import setting


@dataclass(eq=False)
class FairALS(AlternatingModel):
    """Fair implicit ALS: iALS plus lambda_f/2 |V t|^2, which evens out items' average scores."""

    fairness: float = setting(
        1.0, "Strength of fairness: 0 is iALS, 0.1 mild, 1 clear, 10 strong.", symbol="phi", low=0
    )

    def trained_fairness(self) -> float:
        """phi."""
        return self.fairness
