"""Solve the half-steps of ALS exactly, by Cholesky: both minimisers in closed form, so that F never rises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairmf.models.als_cg import AlternatingState, exact_coupling
from fairmf.models.objective import objective
from fairmf.models.problem import Problem


def users(problem: Problem, state: AlternatingState, fairness: float) -> AlternatingState:
    """Solve u_i = H_i^-1 (b_i - q) with the one q that is consistent with the mean of these u_i."""
    V = state.item_factors
    q = problem.backend.vector(np.zeros(V.shape[1]))
    if fairness > 0:
        q = exact_coupling(problem, V, state.item_gramian, state.merit_gramian, fairness)
    return replace(state, user_factors=problem.backend.solve(problem.user_half_step(V, shift=q)), coupling=q)


def epoch(problem: Problem, state: AlternatingState, fairness: float) -> AlternatingState:
    """Run one epoch: users, then items."""
    after = users(problem, state, fairness)
    U = after.user_factors
    V = problem.backend.solve(problem.item_half_step(U, mean_user=problem.backend.mean(U)))
    gramian = problem.backend.gramian(V)
    return replace(
        after, item_factors=V, item_gramian=gramian, merit_gramian=problem.merit_gramian(V, gramian),
        objective=objective(problem, U, V),
    )  # fmt: skip
