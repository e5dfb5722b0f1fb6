"""Solve the half-steps of ALS exactly, by Cholesky: both minimisers in closed form, so that F never rises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairmf.models import feature_maps
from fairmf.models.als_cg import AlternatingState, exact_coupling
from fairmf.models.objective import objective
from fairmf.models.problem import Problem


def users(problem: Problem, state: AlternatingState, fairness: float) -> AlternatingState:
    """Solve u_i = H_i^-1 (b_i - q) with the one q that is consistent with the mean of these u_i."""
    V = state.item_factors
    q = problem.backend.vector(np.zeros(V.shape[1]))
    own = feature_maps.own_right(problem.backend, problem.user_side, state.user_map)
    if fairness > 0:
        q = exact_coupling(problem, V, state.item_gramian, state.merit_gramian, fairness, own)
    U = problem.backend.solve(problem.user_half_step(V, shift=q, own=own))
    return replace(state, user_factors=U, coupling=q, mean_user=None)


def finish(problem: Problem, state: AlternatingState, fairness: float) -> AlternatingState:
    """Solve the users once more, and fit the items' map to the final items."""
    done = users(problem, state, fairness)
    return replace(
        done, item_map=feature_maps.settled(problem.backend, problem.item_side, done.item_map, done.item_factors)[0]
    )


def epoch(problem: Problem, state: AlternatingState, fairness: float) -> AlternatingState:
    """Run one epoch: users, then items."""
    backend = problem.backend
    user_map, _ = feature_maps.improved(backend, problem.user_side, state.user_map, state.user_factors)
    after = users(problem, replace(state, user_map=user_map), fairness)
    U = after.user_factors
    item_map, own = feature_maps.improved(backend, problem.item_side, state.item_map, state.item_factors)
    t, gramian_u = backend.mean(U), backend.gramian(U)
    V = backend.solve(problem.item_half_step(U, t, gramian_u, own))
    gramian = backend.gramian(V)
    return replace(
        after, item_factors=V, item_gramian=gramian, merit_gramian=problem.merit_gramian(V, gramian), mean_user=t,
        objective=objective(problem, U, V, t, user_map, item_map, (gramian_u, gramian)), item_map=item_map,
    )  # fmt: skip
