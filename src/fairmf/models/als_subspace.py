"""Solve the half-steps of ALS some factors at a time (iALS++), with the coupling q: F never rises, no d^3 per row.

Over the coordinates P of all users F is a quadratic whose blocks (H_i)_PP are coupled by t alone, as in the exact
half-step: with g_i the gradient at the present q = C t, C = phi alpha0 G_W, and A_P the mean of (H_i)_PP^-1,

    u_iP -= (H_i)_PP^-1 (g_iP + C_PP dt),     (I + A_P C_PP) dt = - mean of (H_i)_PP^-1 g_iP

is its minimum: a system of the block's size and no larger (docs/mathematics.md 5b).

Two orders. `epoch` sweeps over all blocks of the users, then over all blocks of the items. `alternating_epoch` takes
turns: a block of the users, the same block of the items, and so on, as the C++ of Rendle et al. (2021) does. The
Gramians are then computed anew for every block. Both end at the same F; with one block they are the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairmf.backends import solve
from fairmf.backends.contract import Factors, HalfStep, Matrix, Vector
from fairmf.models import feature_maps
from fairmf.models.als_cg import AlternatingState
from fairmf.models.objective import objective
from fairmf.models.problem import Problem


def users(problem: Problem, state: AlternatingState, fairness: float, block_size: int) -> AlternatingState:
    """Sweep once over the users' coordinates; the given state is left as it is."""
    backend, V = problem.backend, state.item_factors
    user_map, own = feature_maps.improved(backend, problem.user_side, state.user_map, state.user_factors)
    state = replace(state, user_map=user_map)
    if fairness == 0:
        step = problem.user_half_step(V, gramian=state.item_gramian, own=own)
        return replace(state, user_factors=solve.improve_by_blocks(step, state.user_factors, block_size))
    U = state.user_factors.copy()
    step = problem.user_half_step(V, gramian=state.item_gramian, own=own)
    scores = solve.kernels_of(backend).entry_scores(step.rows, U, V)
    C = fairness * problem.unobserved_weight * state.merit_gramian
    t = backend.mean(U)
    for P in solve.blocks(U.shape[1], block_size):
        _improve_coupled(step, P, scores, U, C, t)
    # From U itself: t was only updated, and has collected rounding errors.
    return replace(state, user_factors=U, coupling=C @ backend.mean(U))


def _improve_coupled(step: HalfStep, P: slice, scores: Factors, U: Factors, C: Matrix, t: Vector) -> None:
    """Minimise F over the coordinates P of all users by the docstring's two equations; updates scores, U and t."""
    backend = step.backend
    kernels = solve.kernels_of(backend)
    # Only q's part P enters the block's gradient.
    q = backend.vector(np.zeros(U.shape[1]))
    q[P] = C[P] @ t
    A, mean_step = kernels.block_response(replace(step, shift=q), P, scores, U)
    dt = np.linalg.solve(backend.vector(np.eye(len(A))) + A @ C[P, P], mean_step)
    q[P] += C[P, P] @ dt
    kernels.improve_block(replace(step, shift=q), P, scores, U)
    t[P] += dt


def epoch(problem: Problem, state: AlternatingState, fairness: float, block_size: int) -> AlternatingState:
    """Run one epoch: a sweep over the users, then one over the items."""
    backend = problem.backend
    after = users(problem, state, fairness, block_size)
    U = after.user_factors
    t, gramian_u = backend.mean(U), backend.gramian(U)
    item_map, own = feature_maps.improved(backend, problem.item_side, state.item_map, state.item_factors)
    V = solve.improve_by_blocks(problem.item_half_step(U, t, gramian_u, own), state.item_factors, block_size)
    return _done(problem, replace(after, item_map=item_map), V, gramian_u, t)


def alternating_epoch(problem: Problem, state: AlternatingState, fairness: float, block_size: int) -> AlternatingState:
    """Run one epoch in the order of the authors' code: each block of the users is followed by that of the items."""
    backend, data = problem.backend, problem.interactions
    kernels, U, V = solve.kernels_of(backend), state.user_factors.copy(), state.item_factors.copy()
    user_map, own_u = feature_maps.improved(backend, problem.user_side, state.user_map, U)
    item_map, own_v = feature_maps.improved(backend, problem.item_side, state.item_map, V)
    state = replace(state, user_map=user_map, item_map=item_map)
    # The solution of rows without entries is 0, except for users who are coupled to others.
    if own_v is None:
        solve.clear_empty_rows(backend, data.by_item, V)
    if fairness == 0 and own_u is None:
        solve.clear_empty_rows(backend, data.by_user, U)
    gramian_v, merit_gramian = backend.gramian(V), problem.merit_gramian(V)
    # Both sides need the scores of the observed entries, each in its own order.
    order = data.by_user.to_csr(np.arange(data.nnz), data.n_items).tocsc().data
    scores = kernels.entry_scores(data.by_user, U, V)
    gramian_u, t = state.item_gramian, backend.mean(U)
    for P in solve.blocks(U.shape[1], block_size):
        users_step = problem.user_half_step(V, gramian=gramian_v, own=own_u)
        if fairness == 0:
            kernels.improve_block(users_step, P, scores, U)
        else:
            _improve_coupled(users_step, P, scores, U, fairness * problem.unobserved_weight * merit_gramian, t)
        gramian_u, t = backend.gramian(U), backend.mean(U)
        by_item = scores[order]
        kernels.improve_block(problem.item_half_step(U, t, gramian_u, own_v), P, by_item, V)
        scores[order] = by_item
        gramian_v, merit_gramian = backend.gramian(V), problem.merit_gramian(V)
    q = fairness * problem.unobserved_weight * merit_gramian @ t
    return _done(problem, replace(state, user_factors=U, coupling=q), V, gramian_u, t)


def _done(problem: Problem, state: AlternatingState, V: Factors, gramian_u: Matrix, t: Vector) -> AlternatingState:
    """Return the state at the end of an epoch: new items, their Gramians, and F."""
    gramian_v = problem.backend.gramian(V)
    merit_gramian = problem.merit_gramian(V, gramian_v)
    maps, gramians = (state.user_map, state.item_map), (gramian_u, gramian_v)
    value = objective(problem, state.user_factors, V, t, *maps, gramians)
    return replace(
        state, item_factors=V, item_gramian=gramian_v, merit_gramian=merit_gramian, objective=value, mean_user=t
    )
