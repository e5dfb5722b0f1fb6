"""Choose FiADMM's step sizes from the data: gamma="auto", rho="auto" (docs/decisions/0004-automatic-step-sizes.md)."""

from __future__ import annotations

import math

import numpy as np

from fairmf.backends.contract import Factors, HalfStep, Vector
from fairmf.backends.solve import hessian_product
from fairmf.models.objective import l2_squares
from fairmf.models.problem import Problem

CANDIDATES = 64  # users whose Hessian is examined: those with the largest upper bound
POWER_STEPS = 8  # of power iteration; SAFETY makes up for what they underestimate
SAFETY = 0.9
SETTLING = 10  # first epochs, whose residuals still reflect the random start rather than rho


def safe_gamma(problem: Problem, V: Factors) -> float:
    """Return 0.9 / L, where L estimates the largest eigenvalue of any user's H_i. A larger constant gamma oscillates.

    H_i = sum_j c_ij v_j v_j' + alpha0 G_V + lambda_U(i) I. The trace of the first term plus lambda_U(i) bounds what a
    user adds, so the users with the largest bound are examined, by power iteration.
    """
    backend = problem.backend
    rows = problem.interactions.by_user
    bound = problem.user_ridge + _row_sums(problem, backend.host(backend.squared_norms(V)))
    chosen = np.argsort(-bound, kind="stable")[:CANDIDATES]
    step = problem.user_half_step(V)
    part = HalfStep(backend, rows.take(chosen), V, step.shared, step.ridge[chosen], step.shift)
    x = backend.array(np.random.default_rng(0).normal(size=(len(chosen), V.shape[1])))
    largest = 0.0
    # One thread: the work is so small that waking others would take longer.
    with backend.threads(1):
        for _ in range(POWER_STEPS):
            # A user without interactions has H_i = 0 where alpha0 is 0: its x stays 0 and must not become 0/0.
            norms = np.sqrt(np.maximum(backend.squared_norms(x), np.finfo(np.float32).tiny))
            x = backend.array(x / norms[:, None].astype(backend.dtype))
            x = hessian_product(part, x)
            largest = float(np.sqrt(backend.squared_norms(x).max()))
    return SAFETY / largest if largest > 0 else 1.0  # without curvature no step is too long


def _row_sums(problem: Problem, item_values: Vector) -> Vector:
    """Return sum_j c_ij value_j of every user."""
    rows = problem.interactions.by_user
    values = item_values[rows.indices]
    if rows.weights is not None:
        values *= rows.weights
    # By differences of running sums: unlike np.add.reduceat, right for empty rows too.
    running = np.concatenate(([0.0], np.cumsum(values)))
    sums: Vector = running[rows.indptr[1:]] - running[rows.indptr[:-1]]
    return sums


def balancing_scale(
    problem: Problem, U: Factors, V: Factors, user_map: Factors | None = None, item_map: Factors | None = None
) -> float:
    """Return the c for which (c U, V / c) has the least L2 term; every other term of F stays as it is.

    Maps of features are scaled with their side.

    From the small random start the exact V step makes V large and U small; the largest H_i is then huge, gamma tiny,
    and U hardly ever grows. Spreading the norm over both sides removes that trap.
    """
    users = l2_squares(problem.backend, problem.user_side, user_map, U, problem.user_ridge)
    items = l2_squares(problem.backend, problem.item_side, item_map, V, problem.item_ridge)
    return (items / users) ** 0.25 if users > 0 and items > 0 else 1.0


def first_rho(problem: Problem, V: Factors) -> float:
    """Return the first rho: 1000 lambda_f (times the mean w_j^2); without fairness the scale of the smooth part."""
    if problem.lambda_f > 0:
        squares = problem.fairness_squares
        return 1000.0 * problem.lambda_f * (1.0 if squares is None else float(squares.mean()))
    largest = float(np.linalg.eigvalsh(problem.backend.gramian(V))[-1])
    return max(problem.unobserved_weight, 1e-3) * problem.n_users * max(largest, 1e-12)


def least_rho(problem: Problem, V: Factors) -> float:
    """Return the least rho at which the constraint s = t can be trusted to hold; balancing never goes below it.

    The s step's rho w = lambda_f G_W s moves by up to L = lambda_f lambda_max(G_W) times what s moves, and the penalty
    must outweigh that. The theorem asks for 1/2 + sqrt(1/4 + 6 L^2) with |V|_F^2 in place of the eigenvalue.
    """
    steepest = problem.lambda_f * float(np.linalg.eigvalsh(problem.merit_gramian(V))[-1])
    return 0.5 + math.sqrt(0.25 + 6 * steepest**2)


def balanced_rho(rho: float, w: Vector, primal: float, dual: float, least: float) -> tuple[float, Vector]:
    """Balance the residuals (Boyd et al. 2011, 3.4.1): double rho if the primal is 10x the dual, halve it if reversed.

    Rho never falls below `least`, and is doubled while it is below. The dual variable is kept scaled by 1/rho, so it is
    rescaled whenever rho changes. Returns rho and the dual variable.
    """
    if rho < least or primal > 10 * dual:
        return rho * 2, w / 2
    if dual > 10 * primal and rho / 2 >= least:
        return rho / 2, w * 2
    return rho, w
