"""Compute the steps of one fiADMM epoch (docs/mathematics.md 4): one function each, named as in the paper.

minimise over U, V, s   F with |W V s|^2 in the fairness term,   subject to s = t,   t = (1/n) U'1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairmf.backends import solve
from fairmf.backends.contract import Effort, Factors, Vector
from fairmf.models.fit_loop import State
from fairmf.models.problem import Problem


@dataclass(frozen=True)
class AdmmState(State):
    """The factors, the consensus vector s, its scaled dual w, and the step sizes in force."""

    consensus: Vector
    dual: Vector
    rho: float
    gamma: float


def item_step(problem: Problem, U: Factors, s: Vector, own: Factors | None = None) -> Factors:
    """Solve the V step exactly.

    v_j = (sum_i c_ij u_i u_i' + alpha0 G_U + lambda_f s s' + lambda_V(j) I)^-1 sum_i c_ij u_i.
    With fairness weights, lambda_f w_j^2 s s'. `own` is added to the right-hand sides.
    """
    return problem.backend.solve(problem.item_half_step(U, mean_user=s, own=own))


def item_step_by_cg(
    problem: Problem, U: Factors, V: Factors, s: Vector, steps: int, own: Factors | None = None
) -> Factors:
    """Improve V by a few preconditioned conjugate gradient steps on the same systems. O(nnz d)."""
    return solve.improve_by_cg(problem.item_half_step(U, mean_user=s, own=own), V, Effort(steps))


def user_step(
    problem: Problem,
    U: Factors,
    V: Factors,
    s: Vector,
    w: Vector,
    rho: float,
    gamma: float,
    own: Factors | None = None,
) -> Factors:
    """Take the linearised U step: a gradient step a_i of every user, then the users' coupling through their mean."""
    n = problem.n_users
    backend = problem.backend
    a = problem.backend.residual(problem.user_half_step(V, own=own), U)
    a *= backend.dtype.type(-gamma)
    a += U
    backend.add_vector((rho * gamma / n) * (s - w), a)
    backend.add_vector(-coupling(n * backend.mean(a), n, rho, gamma), a)
    return a


def coupling(sum_of_a: Vector, n: int, rho: float, gamma: float) -> Vector:
    """Return what every a_i loses: [rho / (n^2 (rho/n + 1/gamma))] sum_k a_k.

    That is Sherman-Morrison on rho/n^2 11' + I/gamma.
    """
    return (rho / (n**2 * (rho / n + 1.0 / gamma))) * sum_of_a


def consensus_step(problem: Problem, V: Factors, t: Vector, w: Vector, rho: float) -> Vector:
    """Return s = rho (lambda_f G_W + rho I)^-1 (t + w). The paper prints t - w in Algorithm 1, which diverges."""
    matrix = problem.lambda_f * problem.merit_gramian(V) + np.diag(np.full_like(t, rho))
    return np.linalg.solve(matrix, rho * (t + w)).astype(np.float64)


def dual_step(w: Vector, t: Vector, s: Vector) -> Vector:
    """Return the new scaled dual variable, w + t - s."""
    return w + t - s
