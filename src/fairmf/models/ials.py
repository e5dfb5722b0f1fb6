"""iALS: alternating least squares for implicit feedback (Hu et al. 2008, in the form of Rendle et al. 2021).

Minimises F of objective.py with lambda_f = 0 by exact half-steps; F falls monotonically. FiADMM reaches the same
minimum when its fairness is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairmf.backends import Factors
from fairmf.models.fitting import State
from fairmf.models.iterative import IterativeModel
from fairmf.models.problem import Problem
from fairmf.solvers import cholesky


@dataclass(eq=False)
class IALS(IterativeModel):
    """Implicit ALS with frequency-scaled L2, rows solved exactly by Cholesky. No fairness term."""

    def lambda_f_for(self, n_users: int) -> float:  # noqa: ARG002
        """There is no fairness term."""
        return 0.0

    def start(self, problem: Problem, U: Factors, V: Factors) -> State:  # noqa: ARG002
        """The random factors."""
        return State(U, V)

    def epoch(self, problem: Problem, state: State) -> State:
        """Items, then users: the epoch ends with the users' half-step, so stored users equal their own fold-in."""
        V = cholesky.solve(problem.item_half_step(state.user_factors))
        U = cholesky.solve(problem.user_half_step(V))
        return State(U, V)
