"""Define FiADMM: the paper's algorithm on the paper's objective (Togashi & Abe 2022; docs/mathematics.md 4).

Order of calls in an epoch: `item_step` (V), with "auto" `balanced` and `step_sizes.safe_gamma`, then `users_epoch`:
`user_step` (U, linearised), t, `consensus_step` (s), `dual_step` (w). With fairness 0 its minimum is iALS's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from fairmf.backends.contract import Factors
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidParameter, NotFinite
from fairmf.models import feature_maps, step_sizes
from fairmf.models.base import IterativeModel
from fairmf.models.fiadmm_steps import AdmmState, consensus_step, dual_step, item_step, item_step_by_cg, user_step
from fairmf.models.objective import Objective
from fairmf.models.problem import Problem, serving_problem
from fairmf.params import check_count, hinted, setting
from fairmf.types import Record

# -- the paper's convergence theorem (docs/mathematics.md 4, with its misprints corrected) -----------------------------
#
# Practical settings usually do not satisfy it: it needs a rho and a gamma far from those that train well. It is about
# constant step sizes. Where "auto" moves rho or gamma, or rescales the factors, it says nothing about the epochs before
# the last such move; for the epochs since then it holds as if the run had begun there.


@dataclass(frozen=True)
class Bounds:
    """The largest squared norms |V|_F^2, |U|_F^2, |s|^2 seen so far."""

    items: float = 0.0
    users: float = 0.0
    consensus: float = 0.0

    def grown(self, items: float, users: float, consensus: float) -> Bounds:
        """Return the bounds after one more epoch."""
        return Bounds(max(self.items, items), max(self.users, users), max(self.consensus, consensus))


def required_rho(problem: Problem, seen: Bounds) -> float:
    """Return the smallest rho the theorem allows. Its proof bounds lambda_f V'V, so the largest weight enters."""
    lam, c_v, c_s = problem.lambda_f * problem.largest_fairness_square, seen.items, seen.consensus
    smallest_ridge = float(problem.item_ridge.min())
    first = 24 * lam**2 * c_v * c_s / smallest_ridge if smallest_ridge > 0 else float("inf")
    return max(first, 0.5 + float(np.sqrt(0.25 + 6 * lam**2 * c_v**2)), lam * c_v)


def allowed_gamma(problem: Problem, seen: Bounds) -> float:
    """Return the largest gamma the theorem allows. (It prints sqrt(m); the lemma behind it needs sqrt(n).)"""
    weights = problem.interactions.by_user.weights
    c_max = 1.0 if weights is None else float(weights.max())
    smoothness = (c_max + problem.unobserved_weight) * seen.items + float(problem.user_ridge.max())
    return 1.0 / (float(np.sqrt(problem.n_users)) * smoothness + 1.0)


def check(problem: Problem, state: TrainingState, exact_items: bool = True) -> Record:
    """Check the theorem's conditions after an epoch; return a record.

    `constant_since` is the first epoch from which on rho and gamma had their present values and nothing was rescaled.
    `satisfied` speaks of the epochs from there on; it is false where the last epoch itself moved a step size. The
    theorem covers exact item steps only.
    """
    seen, epochs = state.seen, state.epochs_done
    rho_needed, gamma_allowed = required_rho(problem, seen), allowed_gamma(problem, seen)
    steps_fit = state.rho >= rho_needed and state.gamma <= gamma_allowed
    return {
        "satisfied": bool(exact_items and steps_fit and state.constant_since <= epochs),
        "required_rho": rho_needed,
        "allowed_gamma": gamma_allowed,
        "constant_since": state.constant_since,
        "bounds": asdict(seen),
    }


S = TypeVar("S", bound=AdmmState)


@dataclass(frozen=True)
class TrainingState(AdmmState):
    """An ADMM state that also remembers what the theorem check needs."""

    seen: Bounds = field(default_factory=Bounds)
    epochs_done: int = 0
    constant_since: int = 1
    """The epoch from which on rho and gamma are what they are now; one more than `epochs_done` right after a move."""


@hinted
@dataclass(eq=False, repr=False)
class FiADMM(IterativeModel[TrainingState]):
    """Fair implicit ADMM (Togashi & Abe 2022): iALS with a term that evens out the items' average scores.

    The term is lambda_f/2 |V t|^2. FairALS minimises the same objective, faster; this is the paper's algorithm.

    Examples
    --------
    >>> from fairmf import FiADMM, synthetic
    >>> model = FiADMM(factors=4, epochs=2, fairness=1.0).fit(synthetic(60, 40, 600), progress=False)
    >>> model.item_factors.shape
    (40, 4)
    """

    epochs: int = setting(100, "Largest number of training epochs.", low=1, integer=True)
    fairness: float = setting(
        1.0, "How strongly items' average scores are evened out, for data of any size.", symbol="phi", low=0
    )
    lambda_f: float | None = setting(
        None, "The paper's weight of the fairness term, instead of `fairness`. More data need a larger value.",
        symbol="lambda_f", low=0, choices=(None,),
    )  # fmt: skip
    rho: float | str = setting(
        "auto", "How strongly ADMM's constraint is enforced; 'auto' adapts it to the residuals.",
        symbol="rho", above=0, choices=("auto",),
    )  # fmt: skip
    gamma: float | str = setting(
        "auto",
        "Step size of the gradient step that updates the user vectors. 'auto' sets it in every epoch, as large as it "
        "can be without making training oscillate.",
        symbol="gamma", above=0, choices=("auto",),
    )  # fmt: skip

    solver: str = setting(
        "cholesky", "How items are solved: exactly, as in the paper, or by conjugate gradient steps.",
        choices=("cholesky", "eigenbasis_cg"),
    )  # fmt: skip
    cg_steps: int = setting(
        3, "Conjugate gradient steps per item in an epoch with solver='eigenbasis_cg'.", low=1, integer=True
    )

    kept: ClassVar[tuple[str, ...]] = ("rho", "gamma")

    def lambda_f_for(self, n_users: int) -> float:
        """Return lambda_f as given, or fairness * alpha0 * n."""
        asked_for = self.fairness if self.lambda_f is None else self.lambda_f
        if asked_for > 0 and self.unobserved_weight == 0:
            raise InvalidParameter(
                "FiADMM needs unobserved_weight > 0 where fairness is asked for: "
                "lambda_f = fairness * unobserved_weight * n."
            )
        return self.fairness * self.unobserved_weight * n_users if self.lambda_f is None else self.lambda_f

    def start(self, problem: Problem, U: Factors, V: Factors) -> TrainingState:
        """Return the start: s = t of the initial U, w = 0."""
        t = problem.backend.mean(U)
        rho = step_sizes.first_rho(problem, V) if self.rho == "auto" else float(self.rho)
        # gamma="auto" is set in the first epoch, once there is a V to measure.
        gamma = 1.0 if self.gamma == "auto" else float(self.gamma)
        user_map, item_map = feature_maps.start(problem.backend, problem.user_side, problem.item_side, self.factors)
        return TrainingState(
            U, V, consensus=t, dual=np.zeros_like(t), rho=rho, gamma=gamma, user_map=user_map, item_map=item_map
        )

    def epoch(self, problem: Problem, state: TrainingState) -> TrainingState:
        """Update V, U, t, s, w, in this order; with "auto", set step sizes between."""
        item_map, own = feature_maps.improved(problem.backend, problem.item_side, state.item_map, state.item_factors)
        if self._exactly(problem):
            V = item_step(problem, state.user_factors, state.consensus, own)
        else:
            V = item_step_by_cg(problem, state.user_factors, state.item_factors, state.consensus, self.cg_steps, own)
        user_map, _ = feature_maps.improved(problem.backend, problem.user_side, state.user_map, state.user_factors)
        ready = replace(state, item_factors=V, item_map=item_map, user_map=user_map)
        # A safe gamma depends on V's size, so the norms are balanced before gamma is measured.
        if self.gamma == "auto":
            ready = balanced(problem, ready)
            ready = replace(ready, gamma=step_sizes.safe_gamma(problem, ready.item_factors))
        moved = self.gamma == "auto"  # measured anew and rescaled in every epoch
        after = users_epoch(problem, ready)
        # Against `ready`, not `state`: balancing has scaled s, which is no progress of the algorithm.
        if self.rho == "auto" and state.epochs_done >= step_sizes.SETTLING:
            least = step_sizes.least_rho(problem, after.item_factors)
            rho, w = step_sizes.balanced_rho(after.rho, after.dual, *relative_residuals(problem, ready, after), least)
            moved = moved or rho != after.rho
            after = replace(after, rho=rho, dual=w)
        norms = problem.backend.squared_norms
        seen = state.seen.grown(
            items=float(norms(after.item_factors).sum()),
            users=float(norms(after.user_factors).sum()),
            consensus=float(after.consensus @ after.consensus),
        )
        done = state.epochs_done + 1
        return replace(after, seen=seen, epochs_done=done, constant_since=done + 1 if moved else state.constant_since)

    def report(self, problem: Problem, before: TrainingState, after: TrainingState, value: Objective | None) -> Record:
        """Return residual norms, the augmented Lagrangian, the step sizes and the theorem check."""
        record: Record = {
            "residuals": residuals(problem, before, after),
            "rho": after.rho,
            "gamma": after.gamma,
            "theorem": check(problem, after, self._exactly(problem)),
        }
        if value is not None:
            record["augmented_lagrangian"] = augmented_lagrangian(problem, after, value)
        return record

    def finish(self, problem: Problem, state: TrainingState) -> TrainingState:
        """Fit the items' map to the final items."""
        item_map = feature_maps.settled(problem.backend, problem.item_side, state.item_map, state.item_factors)[0]
        return replace(state, item_map=item_map)

    def remedy(self) -> str:
        """Return what to change; too large a gamma is the usual cause."""
        if self.gamma == "auto":
            return super().remedy()
        return f"gamma={self.gamma:g} is probably too large for this data: try gamma='auto' or a smaller value."

    def _exactly(self, problem: Problem) -> bool:
        # Without L2 the preconditioner may be singular.
        return self.solver == "cholesky" or float(problem.item_ridge.min()) <= 0

    # -- prediction -------------------------------------------------------------------------------------------------

    cohort_options: ClassVar[tuple[str, ...]] = ("epochs",)

    def _fold_in_cohort(
        self,
        cohort: Interactions,
        factor: float,
        epochs: int = 50,
        **unused: Any,  # noqa: ARG002
    ) -> Factors:
        """Fold in as the paper does: V is fixed, U, s and w start from zeros; rho is scaled as lambda_f is."""
        check_count("fold_in", "epochs", epochs)
        fitted = self.fitted
        trained_lambda_f = fitted.fairness * fitted.settings["unobserved_weight"] * self.n_users
        problem = serving_problem(fitted, cohort, trained_lambda_f * factor)
        backend = problem.backend
        V = backend.array(fitted.item_factors)
        U = backend.array(np.zeros((cohort.n_users, V.shape[1])))
        gamma = fitted.extra["gamma"]  # of the last epoch; "auto" measures it again, because other users have other H_i
        if fitted.settings["gamma"] == "auto":
            gamma = step_sizes.safe_gamma(problem, V)
        zero = backend.vector(np.zeros(V.shape[1]))
        state = AdmmState(U, V, zero, zero, rho=fitted.extra["rho"] * factor, gamma=gamma)
        with np.errstate(over="ignore", invalid="ignore"):  # found by the check after the loop
            for _ in range(epochs):
                state = users_epoch(problem, state)
        if not backend.all_finite(state.user_factors):
            raise NotFinite(f"FiADMM: folding in this cohort diverged. {self.remedy()}")
        return backend.host(state.user_factors)


def balanced(problem: Problem, state: TrainingState) -> TrainingState:
    """Spread the norm over U and V so that the L2 term is least, at the same predictions (gamma="auto" only)."""
    U, V = state.user_factors, state.item_factors
    c = step_sizes.balancing_scale(problem, U, V, state.user_map, state.item_map)
    number = problem.backend.dtype.type
    return replace(
        state,
        user_factors=U * number(c),
        item_factors=V * number(1 / c),
        user_map=None if state.user_map is None else state.user_map * number(c),
        item_map=None if state.item_map is None else state.item_map * number(1 / c),
        consensus=state.consensus * c,
        dual=state.dual * c,
    )


def users_epoch(problem: Problem, state: S) -> S:
    """Run steps 2 to 5 with V fixed: U, t, s, w."""
    V, s, w, rho = state.item_factors, state.consensus, state.dual, state.rho
    own = feature_maps.own_right(problem.backend, problem.user_side, state.user_map)
    U = user_step(problem, state.user_factors, V, s, w, rho, state.gamma, own)
    t = problem.backend.mean(U)
    s = consensus_step(problem, V, t, w, rho)
    return replace(state, user_factors=U, consensus=s, dual=dual_step(w, t, s))


def residuals(problem: Problem, before: AdmmState, after: AdmmState) -> dict[str, float]:
    """Return how far each variable moved, and how far the constraint s = t is from holding."""
    backend = problem.backend
    t = backend.mean(after.user_factors)
    return {
        "items": float(np.sqrt(backend.squared_distance(after.item_factors, before.item_factors))),
        "users": float(np.sqrt(backend.squared_distance(after.user_factors, before.user_factors))),
        "consensus": float(np.linalg.norm(after.consensus - before.consensus)),
        "dual": float(np.linalg.norm(t - after.consensus)),  # = |w+ - w|, the constraint violation
    }


def relative_residuals(problem: Problem, before: AdmmState, after: AdmmState) -> tuple[float, float]:
    """Return the primal |t - s| and dual |s+ - s| residuals, each relative to the variables' size."""
    t, s, w = problem.backend.mean(after.user_factors), after.consensus, after.dual
    tiny = np.finfo(np.float64).tiny
    primal = np.linalg.norm(t - s) / max(np.linalg.norm(t), np.linalg.norm(s), tiny)
    dual = np.linalg.norm(s - before.consensus) / max(np.linalg.norm(w), tiny)
    return float(primal), float(dual)


def augmented_lagrangian(problem: Problem, state: AdmmState, value: Objective) -> float:
    """Return L_rho = F with s in the fairness term + rho/2 |t - s + w|^2 - rho/2 |w|^2."""
    backend = problem.backend
    t, s, w = backend.mean(state.user_factors), state.consensus, state.dual
    split_fairness = 0.5 * problem.lambda_f * float(s @ problem.merit_gramian(state.item_factors) @ s)
    gap = t - s + w
    return value.total - value.fairness + split_fairness + 0.5 * state.rho * float(gap @ gap - w @ w)
