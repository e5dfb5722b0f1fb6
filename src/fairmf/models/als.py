"""Define FairALS and IALS: alternating least squares for implicit feedback.

FairALS minimises F of objective.py (Togashi & Abe 2022) by alternating least squares (docs/mathematics.md 5). Both
half-steps have closed forms, because one vector q is all that couples the users: no ADMM, no rho, no gamma. It equals
IALS when fairness is 0, and reaches FiADMM's minimum otherwise. IALS is that of Hu et al. 2008 in the form of Rendle
et al. 2021: F with lambda_f = 0.

Order of calls: `fit` (base.py) calls `start` once, `epoch` in every epoch and `finish` at the end. They take conjugate
gradient steps (als_cg.py), unless `SOLVERS` has functions of als_exact.py or als_subspace.py for the chosen solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.models.base import IterativeModel, item_balance_setting, user_balance_setting
from fairmf.params import hinted, setting
from fairmf.types import Record

if TYPE_CHECKING:
    from fairmf.backends import solve
    from fairmf.models import als_cg, als_exact, als_subspace, feature_maps
    from fairmf.models import objective as objectives
    from fairmf.models import problem as problems
    from fairmf.models.als_cg import AlternatingState, EpochEffort
    from fairmf.models.objective import Objective
    from fairmf.models.problem import Problem
else:  # models that only answer do without their solvers
    solve, objectives = lazy_module("fairmf.backends.solve"), lazy_module("fairmf.models.objective")
    als_cg, als_exact = lazy_module("fairmf.models.als_cg"), lazy_module("fairmf.models.als_exact")
    feature_maps = lazy_module("fairmf.models.feature_maps")
    als_subspace, problems = lazy_module("fairmf.models.als_subspace"), lazy_module("fairmf.models.problem")

WEAK = 0.05  # unobserved_weight below which rows take two steps: the preconditioner is then hardly more than L2
STRONG = 10.0  # fairness from which rows take two steps
EASY = 0.5  # ratio of observed to unobserved weight up to which one step per row is enough


@dataclass(frozen=True)
class Solver:
    """The functions by which `epoch` and `finish` solve the rows. Each gets the model, for its settings."""

    epoch: Callable[[AlternatingModel, Problem, AlternatingState], AlternatingState] | None = None
    """Run one epoch: users, then items. None: by conjugate gradients, as `AlternatingModel.epoch` does."""
    finish: Callable[[AlternatingModel, Problem, AlternatingState], AlternatingState] | None = None
    """Solve the users once more, to convergence. None: by conjugate gradients."""
    record: Callable[[AlternatingState], Record] = lambda _: {}
    """Return what to add to an epoch's record besides F."""
    check: Callable[[Backend], object] = lambda _: None
    """Raise an error if a backend lacks the kernels."""


SOLVERS = {
    "eigenbasis_cg": Solver(
        record=lambda state: {
            "gradient": {"users": state.user_gradient, "items": state.item_gradient},
            "effort": state.effort,
        },
    ),
    "cholesky": Solver(
        lambda model, problem, state: als_exact.epoch(problem, state, model.trained_fairness()),
        lambda model, problem, state: als_exact.finish(problem, state, model.trained_fairness()),
    ),
    "subspace": Solver(
        lambda model, problem, state: als_subspace.epoch(problem, state, model.trained_fairness(), model.block_size),
        check=lambda backend: solve.kernels_of(backend),
    ),
    "alternating_subspace": Solver(
        lambda model, problem, state: als_subspace.alternating_epoch(
            problem, state, model.trained_fairness(), model.block_size
        ),
        check=lambda backend: solve.kernels_of(backend),
    ),
}
"""Every solver by the name that `solver=` takes."""


@dataclass(eq=False, repr=False)
class AlternatingModel(IterativeModel["AlternatingState"]):
    """Alternating least squares: each epoch solves the users, then the items; `finish` solves the users once more."""

    ABSENT: ClassVar[Record] = {"settings": "given"}

    solver: str = setting(
        "eigenbasis_cg",
        "How the vectors are computed. 'eigenbasis_cg' takes conjugate gradient steps. 'cholesky' solves exactly. "
        "'subspace' is iALS++: it solves for a block of factors at a time. 'alternating_subspace' is iALS++ that "
        "switches between users and items after every block, as the code of its authors does.",
        choices=SOLVERS,
    )  # fmt: skip
    cg_steps: int | str = setting(
        "auto", "Conjugate gradient steps per user or item in an epoch; 'auto' takes one step where one is enough.",
        low=1, integer=True, choices=("auto",),
    )  # fmt: skip
    block_size: int = setting(
        32, "Number of factors in a block of the solvers 'subspace' and 'alternating_subspace'.", low=1, integer=True
    )  # fmt: skip

    settings: str = setting(
        "given",
        "'auto': try a few values of unobserved_weight, regularization, regularization_exponent, item_balance and "
        "user_balance on a part of the data, and keep the best (takes as long as two to four fits). 'given': use the "
        "values that you give, and the defaults for the others.",
        choices=("given", "auto"),
    )

    engine: str = setting(
        "local", "Which processes compute: this one, or the workers of a Ray cluster.", choices=("local", "ray")
    )

    def trained_fairness(self) -> float:
        """Return the fairness to train with (phi)."""
        return 0.0

    def lambda_f_for(self, n_users: int) -> float:
        """Return the weight of the fairness term, phi alpha0 n."""
        if self.trained_fairness() > 0 and self.unobserved_weight == 0:
            raise InvalidParameter(
                f"{type(self).__name__} needs unobserved_weight > 0 where fairness is asked for: "
                "the fairness term is fairness * unobserved_weight * n."
            )
        return self.trained_fairness() * self.unobserved_weight * n_users

    def start(self, problem: Problem, U: Factors, V: Factors) -> AlternatingState:
        """Return the state of the random start, with its coupling vector q = phi alpha0 G_W t."""
        self._solver(problem).check(problem.backend)
        t, gramian_u, gramian = problem.backend.mean(U), problem.backend.gramian(U), problem.backend.gramian(V)
        merit_gramian = problem.merit_gramian(V, gramian)
        strength = self.trained_fairness() * problem.unobserved_weight
        q = strength * merit_gramian @ t
        rotation = problem.backend.vector(np.eye(self.factors))
        user_map = item_map = None
        if problem.has_features:
            sides = problem.user_side, problem.item_side
            user_map, item_map = feature_maps.start(problem.backend, *sides, self.factors)
        predicted = None  # by features: the zero map predicts 0. The other solvers do without it.
        if item_map is not None and self._solver(problem).epoch is None:
            predicted = problem.backend.array(np.zeros(V.shape))
        value = objectives.objective(problem, U, V, t, user_map, item_map, (gramian_u, gramian))
        few = self.factors >= als_cg.MANY_FACTORS and sum(problem.interactions.shape) <= als_cg.FEW_ROWS * self.factors
        one_step = self._solver(problem).epoch is None and self._effort(problem).steps == 1
        guesses = one_step and (few or problem.backend.slow_eigenvectors)
        return als_cg.AlternatingState(
            U, V, q, gramian, merit_gramian, value, rotation, mean_user=t, guesses=guesses,
            unturned_users=U if guesses and few and problem.holds_users else None,
            user_map=user_map, item_map=item_map, item_predicted=predicted,
        )  # fmt: skip

    def epoch(self, problem: Problem, state: AlternatingState) -> AlternatingState:
        """Run one epoch by the chosen solver."""
        solver, fairness = self._solver(problem), self.trained_fairness()
        if solver.epoch is not None:
            return solver.epoch(self, problem, state)
        # Where F rose, run the epoch again from the same start with more effort, in the end exactly.
        ladder = [self._effort(problem), als_cg.THOROUGH]
        for rung in range(state.effort, len(ladder)):
            after = als_cg.epoch(problem, state, fairness, ladder[rung])
            if after.objective.total <= state.objective.total * (1 + problem.backend.rounding):
                return replace(after, effort=max(0, rung - 1))
        after = replace(als_exact.epoch(problem, state, fairness), effort=len(ladder) - 1)
        if state.unturned_users is not None:  # both sides are in one basis now
            rotation = problem.backend.vector(np.eye(self.factors))
            after = replace(after, rotation=rotation, unturned_users=after.user_factors)
        if problem.item_side is not None and after.item_map is not None:  # the exact epoch does not keep it up
            after = replace(after, item_predicted=problem.item_side.predicted(problem.backend, after.item_map))
        return after

    def finish(self, problem: Problem, state: AlternatingState) -> AlternatingState:
        """Solve the users' half-step to convergence."""
        solver = self._solver(problem)
        if solver.finish is not None:
            return solver.finish(self, problem, state)
        return als_cg.finish(problem, state, self.trained_fairness(), sampled=self._is_hard(problem))

    def merit(self, problem: Problem, state: AlternatingState) -> Vector:
        """Return the merit direction q1: the present q over phi; alpha0 G_W t itself where phi is 0."""
        fairness = self.trained_fairness()
        if fairness > 0:
            return state.coupling / fairness
        return problem.unobserved_weight * (state.merit_gramian @ problem.backend.mean(state.user_factors))

    def objective(self, problem: Problem, state: AlternatingState) -> Objective:  # noqa: ARG002
        """Return F, which the epoch has computed already."""
        return state.objective

    def report(
        self, problem: Problem, before: AlternatingState, after: AlternatingState, value: Objective | None  # noqa: ARG002
    ) -> Record:  # fmt: skip
        """Return the gradient norms that the half-steps found, and the effort of the next epoch."""
        return self._solver(problem).record(after)

    def _fold_in_cohort(self, cohort: Interactions, factor: float, **_: Any) -> Factors:
        """Return U at the exact minimum over the batch, with V fixed."""
        fitted = self.fitted
        problem = problems.serving_problem(fitted, cohort)
        V = problem.backend.array(fitted.item_factors)
        # lambda_f of the batch is factor * phi alpha0 n, so that c = lambda_f / n_b is alpha0 times this:
        fairness = fitted.fairness * factor * self.n_users / cohort.n_users
        gramian = problem.backend.vector(fitted.item_gramian)
        q = np.zeros(len(gramian))
        if fairness > 0:
            q = als_cg.exact_coupling(problem, V, gramian, problem.merit_gramian(V, gramian), fairness)
        return problem.backend.host(solve.solve_to_convergence(problem.user_half_step(V, shift=q, gramian=gramian)))

    def _solver(self, problem: Problem) -> Solver:
        # Without L2 the preconditioner may be singular. The exact solver finds singular systems.
        singular = min(problem.least_user_ridge, problem.least_item_ridge) <= 0
        return SOLVERS["cholesky" if singular else self.solver]

    def is_hard(self, observed_weight: float, unobserved_weight: float, pairs: int) -> bool:
        """Return whether rows need a thorough solver: the observed outweighs the unobserved, by sums of weights."""
        return observed_weight > EASY * unobserved_weight * pairs

    def _is_hard(self, problem: Problem) -> bool:
        pairs = problem.interactions.n_users * problem.interactions.n_items
        return self.is_hard(problem.observed_weight, self.unobserved_weight, pairs)

    def _effort(self, problem: Problem) -> EpochEffort:
        if self.cg_steps != "auto":
            return als_cg.EpochEffort(steps=int(self.cg_steps), relaxation=als_cg.LIGHT.relaxation)
        if self._is_hard(problem):
            return als_cg.THOROUGH
        strongest = self.trained_fairness() * problem.largest_fairness_square
        demanding = strongest >= STRONG or self.unobserved_weight < WEAK
        return als_cg.FIRM if demanding else als_cg.LIGHT


@hinted
@dataclass(eq=False, repr=False)
class FairALS(AlternatingModel):
    """Fair implicit ALS: iALS with a term that evens out the items' average scores (lambda_f/2 |V t|^2).

    Examples
    --------
    >>> from fairmf import FairALS, synthetic
    >>> model = FairALS(factors=4, epochs=2, fairness=1.0).fit(synthetic(60, 40, 600), progress=False)
    >>> items, scores = model.recommend(54, N=3)
    >>> len(items)
    3
    """

    fairness: float = setting(
        0.0,
        "The training setting of the paper: how strongly training makes the average scores of items equal. 0: not at "
        "all. To make lists even, use evenness instead.",
        symbol="phi",
        low=0,
    )
    item_balance: float = item_balance_setting(0.25)
    user_balance: float = user_balance_setting(0.25)

    def trained_fairness(self) -> float:
        """Return the fairness to train with (phi)."""
        return self.fairness


@hinted
@dataclass(eq=False, repr=False)
class IALS(AlternatingModel):
    """Implicit ALS with frequency-scaled L2, trained without fairness. `recommend(fairness=...)` works nevertheless.

    Examples
    --------
    >>> from fairmf import IALS, synthetic
    >>> model = IALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> model.fitted.fairness
    0.0
    """
