"""The dial: stored users at another fairness, without training (docs/mathematics.md 5).

q enters a user's vector linearly, u_i(psi) = H_i^-1 b_i - psi h_i with h_i = H_i^-1 q1. So a stored user can be turned
either from their history, by solving again, or from h_i, the user's sensitivity, by one subtraction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidParameter, MissingHistories
from fairmf.models.fitted import Fitted
from fairmf.models.fold_in import check_fairness
from fairmf.models.problem import Problem, problem_for

CLOSE = 1e-2  # relative distance of stored users from the solutions of their systems up to which they count as these
DOMINANCE = 1e6  # how much larger than any b_i the shift is from which a sensitivity is read off


def dialled_users(model: Any, rows: NDArray[np.integer] | None, fairness: Any) -> NDArray[Any]:
    """The vectors of stored users (all, or the given rows) at this fairness.

    From their histories where the model holds them; otherwise from `user_sensitivity`; MissingHistories without both.
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
    """h_i = H_i^-1 q1 of every stored user: what they lose per unit of fairness. Needs their histories.

    Only where stored users are the solutions of their systems can they be turned by h alone; FiADMM, which takes one
    linearised step an epoch, may leave them far from that.
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
    """H_i^-1 q1 and H_i^-1 b_i for every row of the problem.

    The kernel solves H x = b - shift and no other right-hand side. With a shift of -K q1, so long that b is a millionth
    of it, x is K h up to that millionth, which a second solve without shift takes away.
    """
    backend = problem.backend
    V = backend.array(item_factors)
    length = float(np.linalg.norm(merit))
    plain = backend.host(backend.solve(problem.user_half_step(V)))
    if length == 0.0:
        return np.zeros_like(plain), plain
    largest = max(1.0, float(problem.interactions.by_user.sums().max(initial=0.0)))
    scale = DOMINANCE * largest * max(1e-30, float(np.sqrt(backend.host(backend.squared_norms(V)).max(initial=0.0))))
    solved = backend.host(backend.solve(problem.user_half_step(V, shift=-(scale / length) * merit)))
    solved -= plain
    solved *= solved.dtype.type(length / scale)
    return solved, plain
