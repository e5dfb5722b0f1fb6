"""Solve the half-steps of ALS some factors at a time (iALS++), with the coupling q: F never rises, no d^3 per row.

Over the coordinates P of all users F is a quadratic whose blocks (H_i)_PP are coupled by t alone, as in the exact
half-step: with g_i the gradient at the present q = C t, C = phi alpha0 G_W, and A_P the mean of (H_i)_PP^-1,

    u_iP -= (H_i)_PP^-1 (g_iP + C_PP dt),     (I + A_P C_PP) dt = - mean of (H_i)_PP^-1 g_iP

is its minimum: a system of the block's size and no larger (docs/mathematics.md 5b).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairmf.backends import solve
from fairmf.models import feature_maps
from fairmf.models.als_cg import AlternatingState
from fairmf.models.objective import Objective
from fairmf.models.problem import Problem


def users(problem: Problem, state: AlternatingState, fairness: float, block_size: int) -> AlternatingState:
    """Sweep once over the users' coordinates; the given state is left as it is."""
    backend, V = problem.backend, state.item_factors
    user_map, own = feature_maps.improved(backend, problem.user_side, state.user_map, state.user_factors)
    state = replace(state, user_map=user_map)
    if fairness == 0:
        step = problem.user_half_step(V, gramian=state.item_gramian, own=own)
        return replace(state, user_factors=solve.improve_by_blocks(step, state.user_factors, block_size))
    kernels, U = solve.kernels_of(backend), state.user_factors.copy()
    step = problem.user_half_step(V, gramian=state.item_gramian, own=own)
    scores = kernels.entry_scores(step.rows, U, V)
    C = fairness * problem.unobserved_weight * state.merit_gramian
    t = backend.mean(U)
    for P in solve.blocks(U.shape[1], block_size):
        # The docstring's two equations for one block P; only q's part P enters the block's gradient.
        q = backend.vector(np.zeros(U.shape[1]))
        q[P] = C[P] @ t
        A, mean_step = kernels.block_response(replace(step, shift=q), P, scores, U)
        dt = np.linalg.solve(backend.vector(np.eye(len(A))) + A @ C[P, P], mean_step)
        q[P] += C[P, P] @ dt
        kernels.improve_block(replace(step, shift=q), P, scores, U)
        t[P] += dt
    # From U itself: t was only updated, and has collected rounding errors.
    return replace(state, user_factors=U, coupling=C @ backend.mean(U))


def epoch(problem: Problem, state: AlternatingState, fairness: float, block_size: int) -> AlternatingState:
    """Run one epoch: a sweep over the users, then one over the items."""
    backend = problem.backend
    after = users(problem, state, fairness, block_size)
    U = after.user_factors
    t, gramian_u = backend.mean(U), backend.gramian(U)
    item_map, own = feature_maps.improved(backend, problem.item_side, state.item_map, state.item_factors)
    V = solve.improve_by_blocks(problem.item_half_step(U, t, gramian_u, own), state.item_factors, block_size)
    gramian_v = backend.gramian(V)
    merit_gramian = problem.merit_gramian(V, gramian_v)
    squares = (
        feature_maps.l2_terms(backend, problem.user_side, after.user_map, U, problem.user_ridge),
        feature_maps.l2_terms(backend, problem.item_side, item_map, V, problem.item_ridge),
    )
    value = Objective(
        observed=0.5 * backend.observed_loss(problem.interactions.by_user, U, V),
        unobserved=0.5 * problem.unobserved_weight * float((gramian_u * gramian_v).sum()),
        l2=0.5 * sum(squares),
        fairness=0.5 * problem.lambda_f * float(t @ merit_gramian @ t),
    )
    return replace(
        after, item_factors=V, item_gramian=gramian_v, merit_gramian=merit_gramian, objective=value, item_map=item_map
    )
