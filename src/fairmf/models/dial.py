"""Change the fairness of stored users without training (docs/mathematics.md 5).

The fairness psi enters a user's vector linearly, u_i(psi) = H_i^-1 b_i - psi h_i with h_i = H_i^-1 q1. So a stored
user's vector at another fairness is found either by solving again from the history, or by subtracting a multiple of
h_i, the user's sensitivity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, Vector
from fairmf.errors import InvalidParameter, MissingHistories
from fairmf.models.fitted import check_fairness
from fairmf.models.problem import Problem, serving_problem

if TYPE_CHECKING:
    from fairmf.models.fitted import FittedModel

CLOSE = 1e-2  # largest relative distance at which stored users still count as the solutions of their systems


def dialled_users(model: FittedModel, rows: NDArray[np.integer] | None, fairness: float) -> Factors:
    """Return the vectors of stored users (all, or the given rows) at this fairness.

    Solves from their histories if the model holds them, else uses `user_sensitivity`. Raises MissingHistories without
    both.
    """
    psi, fitted = check_fairness(fairness), model.fitted
    if fitted.interactions is not None:
        histories = fitted.interactions if rows is None else fitted.interactions.take_users(rows)
        if fitted.user_features is not None and rows is not None:
            return model.fold_in(histories, fairness=psi, features=fitted.user_features.rows.take(rows))
        return model.fold_in(histories, fairness=psi)
    if fitted.user_sensitivity is None:
        raise MissingHistories(
            "This model was stored without its users' histories and without user_sensitivity: one of them is needed "
            "to serve stored users with another fairness."
        )
    users, slopes = fitted.user_factors, fitted.user_sensitivity
    if rows is not None:
        users, slopes = users[rows], slopes[rows]
    turned: Factors = users - slopes * users.dtype.type(psi - fitted.fairness)
    return turned


def user_sensitivity(model: FittedModel) -> Factors:
    """Return what the vector of every stored user loses per unit of fairness (h_i = H_i^-1 q1). Needs histories.

    Raises InvalidParameter unless stored users are the solutions of their systems: only then does h_i alone lead to
    the solution at another fairness. FiADMM, which takes one linearised step an epoch, may leave them far from it.
    """
    fitted = model.fitted
    if not hasattr(model, "with_fairness"):
        raise InvalidParameter(f"{type(model).__name__} has no dial, so no user_sensitivity.")
    problem = serving_problem(fitted, fitted.histories("user_sensitivity"))
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


def sensitivities(problem: Problem, item_factors: Factors, merit: Vector) -> tuple[Factors, Factors]:
    """Return H_i^-1 q1 and H_i^-1 b_i for every row of the problem."""
    backend = problem.backend
    step = problem.user_half_step(backend.array(item_factors))
    plain = backend.host(backend.solve(step))
    if not merit.any():  # without unobserved weight, where an empty history's matrix may be singular
        return np.zeros_like(plain), plain
    return backend.host(backend.solve(replace(step, right=backend.vector(merit)))), plain
