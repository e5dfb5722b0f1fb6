"""FairALS and IALS: alternating least squares for implicit feedback.

FairALS minimises F of objective.py (Togashi & Abe 2022) by alternating least squares (docs/mathematics.md 5). Both
half-steps have closed forms, because one vector q is all that couples the users: no ADMM, no rho, no gamma. It equals
IALS when fairness is 0, and reaches FiADMM's minimum otherwise. IALS is that of Hu et al. 2008 in the form of Rendle
et al. 2021: F with lambda_f = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import solve
from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.backends.solve import kernels_of
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidParameter
from fairmf.models import als_cg, als_exact, als_subspace
from fairmf.models.als_cg import FIRM, LIGHT, THOROUGH, AlternatingState, EpochEffort, UserGroups, exact_coupling
from fairmf.models.base import IterativeModel
from fairmf.models.objective import Objective, objective
from fairmf.models.problem import Problem, problem_for
from fairmf.params import setting
from fairmf.types import Record

WEAK = 0.05  # unobserved_weight below which rows take two steps: the preconditioner is little but L2 then
STRONG = 10.0  # fairness from which rows take two steps
EASY = 0.5  # observed over unobserved weight, up to which one step per row does


@dataclass(frozen=True)
class Solver:
    """How `epoch` and `finish` solve the rows. Each function gets the model, for its settings."""

    epoch: Callable[[AlternatingModel, Problem, AlternatingState], AlternatingState]
    """Run one epoch: users, then items."""
    finish: Callable[[AlternatingModel, Problem, AlternatingState], AlternatingState]
    """Solve the users once more, to convergence."""
    record: Callable[[AlternatingState], Record] = lambda _: {}
    """Return what an epoch's record says besides F."""
    check: Callable[[Backend], object] = lambda _: None
    """Raise an error where a backend cannot do it."""


def _cg_epoch(model: AlternatingModel, problem: Problem, state: AlternatingState) -> AlternatingState:
    # Where F rose, run the epoch again from the same start with more effort, at last exactly.
    fairness, groups = model.trained_fairness(), model._groups(problem)
    ladder = [model._effort(problem), THOROUGH]
    for rung in range(state.effort, len(ladder)):
        after = als_cg.epoch(problem, state, groups, fairness, ladder[rung])
        if after.objective.total <= state.objective.total * (1 + problem.backend.rounding):
            return replace(after, effort=max(0, rung - 1))
    return replace(als_exact.epoch(problem, state, fairness), effort=len(ladder) - 1)


def _cg_finish(model: AlternatingModel, problem: Problem, state: AlternatingState) -> AlternatingState:
    sampled = model._effort(problem).sampled
    return als_cg.finish(problem, state, model._groups(problem), model.trained_fairness(), sampled)


def _gradients(state: AlternatingState) -> Record:
    return {"gradient": {"users": state.user_gradient, "items": state.item_gradient}, "effort": state.effort}


SOLVERS = {
    "eigenbasis_cg": Solver(_cg_epoch, _cg_finish, _gradients),
    "cholesky": Solver(
        lambda model, problem, state: als_exact.epoch(problem, state, model.trained_fairness()),
        lambda model, problem, state: als_exact.users(problem, state, model.trained_fairness()),
    ),
    "subspace": Solver(
        lambda model, problem, state: als_subspace.epoch(problem, state, model.trained_fairness(), model.block_size),
        _cg_finish,
        check=kernels_of,
    ),
}
"""Every solver by the name that `solver=` takes."""


@dataclass(eq=False)
class AlternatingModel(IterativeModel):
    """Alternating least squares; users, then items in an epoch, and a converged users' half-step at the end."""

    solver: str = setting(
        "eigenbasis_cg", "How rows are solved: conjugate gradient steps, exactly, or by blocks of factors (iALS++).",
        choices=SOLVERS,
    )  # fmt: skip
    cg_steps: int | str = setting(
        "auto", "Conjugate gradient steps per row and half-step; 'auto' takes one where that is enough.",
        low=1, integer=True, choices=("auto",),
    )  # fmt: skip
    block_size: int = setting(
        32, "Factors that are solved for at a time with solver='subspace'.", low=1, integer=True
    )  # fmt: skip

    engine: str = setting(
        "local", "Who computes: this process, or the workers of a Ray cluster.", choices=("local", "ray")
    )

    def trained_fairness(self) -> float:
        """phi."""
        return 0.0

    def lambda_f_for(self, n_users: int) -> float:
        """lambda_f = phi alpha0 n."""
        if self.trained_fairness() > 0 and self.unobserved_weight == 0:
            raise InvalidParameter(
                f"{type(self).__name__} needs unobserved_weight > 0 where fairness is asked for: "
                "the fairness term is fairness * unobserved_weight * n."
            )
        return self.trained_fairness() * self.unobserved_weight * n_users

    def start(self, problem: Problem, U: Factors, V: Factors) -> AlternatingState:
        """q = c G_W t of the start."""
        self._solver(problem).check(problem.backend)
        gramian = problem.backend.gramian(V)
        merit_gramian = problem.merit_gramian(V, gramian)
        strength = self.trained_fairness() * problem.unobserved_weight
        q = strength * merit_gramian @ problem.backend.mean(U)
        rotation = problem.backend.vector(np.eye(self.factors))
        return AlternatingState(U, V, q, gramian, merit_gramian, objective(problem, U, V), rotation)

    def epoch(self, problem: Problem, state: AlternatingState) -> AlternatingState:
        """Run one epoch by the chosen solver."""
        return self._solver(problem).epoch(self, problem, state)

    def finish(self, problem: Problem, state: AlternatingState) -> AlternatingState:
        """Solve the users' half-step to convergence."""
        return self._solver(problem).finish(self, problem, state)

    def merit(self, problem: Problem, state: AlternatingState) -> Vector:
        """q1: the q in force over phi; for phi = 0 the direction alpha0 G_W t itself."""
        fairness = self.trained_fairness()
        if fairness > 0:
            return state.coupling / fairness
        return super().merit(problem, state)

    def objective(self, problem: Problem, state: AlternatingState) -> Objective:  # noqa: ARG002
        """Return F, which the epoch has computed."""
        return state.objective

    def report(
        self, problem: Problem, before: Any, after: AlternatingState, value: Objective | None  # noqa: ARG002
    ) -> Record:  # fmt: skip
        """Return the gradient norms that the half-steps found, and the effort in force."""
        return self._solver(problem).record(after)

    def _fold_in_cohort(self, cohort: Interactions, factor: float, **_: Any) -> NDArray[Any]:
        """Return U at the exact minimum over the batch, V fixed."""
        fitted = self.fitted
        problem = problem_for(cohort, 0.0, fitted.settings, fitted.fairness_weights)
        V = problem.backend.array(fitted.item_factors)
        # lambda_f of the batch is factor * phi alpha0 n, so that c = lambda_f / n_b is alpha0 times this:
        fairness = fitted.fairness * factor * self.n_users / cohort.n_users
        gramian = problem.backend.vector(fitted.item_gramian)
        q = np.zeros(len(gramian))
        if fairness > 0:
            q = exact_coupling(problem, V, gramian, problem.merit_gramian(V, gramian), fairness)
        return problem.backend.host(solve.solve_to_convergence(problem.user_half_step(V, shift=q, gramian=gramian)))

    def _solver(self, problem: Problem) -> Solver:
        # Without L2 the preconditioner may be singular; the exact solver says where a system is.
        singular = min(problem.least_user_ridge, problem.least_item_ridge) <= 0
        return SOLVERS["cholesky" if singular else self.solver]

    def _effort(self, problem: Problem) -> EpochEffort:
        if self.cg_steps != "auto":
            return EpochEffort(steps=int(self.cg_steps), relaxation=LIGHT.relaxation)
        data = problem.interactions
        observed = problem.cached("observed_weight", lambda: float(data.by_user.sums().sum()))
        unobserved = self.unobserved_weight * data.n_users * data.n_items
        if observed > EASY * unobserved:
            return THOROUGH
        strongest = self.trained_fairness() * problem.largest_fairness_square
        demanding = strongest >= STRONG or self.unobserved_weight < WEAK
        return FIRM if demanding else LIGHT

    def _groups(self, problem: Problem) -> UserGroups:
        return problem.cached("user_groups", lambda: UserGroups.of(problem))


@dataclass(eq=False)
class FairALS(AlternatingModel):
    """Fair implicit ALS: iALS plus lambda_f/2 |V t|^2, which evens out items' average scores.

    Examples
    --------
    >>> from fairmf import FairALS, synthetic
    >>> model = FairALS(factors=4, epochs=2, fairness=1.0).fit(synthetic(60, 40, 600), progress=False)
    >>> items, scores = model.recommend(54, N=3)
    >>> len(items)
    3
    """

    fairness: float = setting(
        1.0, "Strength of fairness: 0 is iALS, 0.1 mild, 1 clear, 10 strong.", symbol="phi", low=0
    )

    def trained_fairness(self) -> float:
        """phi."""
        return self.fairness


@dataclass(eq=False)
class IALS(AlternatingModel):
    """Implicit ALS with frequency-scaled L2: no fairness in training; `recommend(fairness=...)` works all the same.

    Examples
    --------
    >>> from fairmf import IALS, synthetic
    >>> model = IALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> model.fitted.fairness
    0.0
    """
