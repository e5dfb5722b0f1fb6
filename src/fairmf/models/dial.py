"""Turn stored users to another fairness, without training (docs/mathematics.md 5).

q enters a user's vector linearly, u_i(psi) = H_i^-1 b_i - psi h_i with h_i = H_i^-1 q1. So a stored user is turned
either by solving again from the history, or by subtracting a multiple of h_i, the user's sensitivity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidParameter, MissingHistories
from fairmf.models.fitted import Fitted
from fairmf.models.fold_in import check_fairness
from fairmf.models.problem import Problem, problem_for

CLOSE = 1e-2  # relative distance of stored users from the solutions of their systems up to which they count as these


def dialled_users(model: Any, rows: NDArray[np.integer] | None, fairness: Any) -> NDArray[Any]:
    """Return the vectors of stored users (all, or the given rows) at this fairness.

    Solves from their histories where the model holds them, else turns them by `user_sensitivity`. Raises
    MissingHistories without both.
    """
    psi = check_fairness(fairness)
    fitted: Fitted = model.fitted
    if fitted.interactions is not None:
        histories = fitted.interactions if rows is None else fitted.interactions.take_users(rows)
        solved: NDArray[Any] = model.fold_in(histories, fairness=psi)
        return solved
    if fitted.user_sensitivity is None:
        raise MissingHistories(
            "This model was stored without its users' histories and without user_sensitivity: one of them is needed "
            "to serve stored users with another fairness."
        )
    users, slopes = fitted.user_factors, fitted.user_sensitivity
    if rows is not None:
        users, slopes = users[rows], slopes[rows]
    turned: NDArray[Any] = users - slopes * users.dtype.type(psi - fitted.fairness)
    return turned


def user_sensitivity(model: Any) -> NDArray[Any]:
    """Return h_i = H_i^-1 q1 of every stored user: what they lose per unit of fairness. Needs their histories.

    Raises InvalidParameter unless stored users are the solutions of their systems, as only these can be turned by h
    alone; FiADMM, which takes one linearised step an epoch, may leave them far from that.
    """
    fitted = model.fitted
    if not hasattr(model, "with_fairness"):
        raise InvalidParameter(f"{type(model).__name__} has no dial, so no user_sensitivity.")
    problem = problem_for(fitted.histories("user_sensitivity"), 0.0, fitted.settings)
    with problem.backend.threads(model.num_threads):
        slopes, users = sensitivities(problem, fitted.item_factors, fitted.merit)
    users -= slopes * users.dtype.type(fitted.fairness)
    users -= fitted.user_factors
    if np.linalg.norm(users) > CLOSE * np.linalg.norm(fitted.user_factors):
        raise InvalidParameter(
            "user_sensitivity needs users that are solved to convergence, and this model's are not: "
            "save model.with_fairness(model.fitted.fairness) instead, or keep the interactions."
        )
    return slopes


def sensitivities(
    problem: Problem, item_factors: NDArray[Any], merit: NDArray[np.float64]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return H_i^-1 q1 and H_i^-1 b_i for every row of the problem."""
    backend = problem.backend
    step = problem.user_half_step(backend.array(item_factors))
    plain = backend.host(backend.solve(step))
    if not merit.any():  # without unobserved weight, where an empty history's matrix may be singular
        return np.zeros_like(plain), plain
    return backend.host(backend.solve(replace(step, right=backend.vector(merit)))), plain
