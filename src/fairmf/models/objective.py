"""Compute the objective F(U, V) and its gradient (docs/mathematics.md 2).

    F = 1/2 sum_{(i,j) in R} c_ij (r_ij - u_i.v_j)^2 + alpha0/2 |U V'|^2
      + 1/2 sum_i lambda_U(i) |u_i|^2 + 1/2 sum_j lambda_V(j) |v_j|^2 + lambda_f/2 |W V t|^2,    t = (1/n) U'1

r_ij is 1, and 0 for a dislike. Where users or items have features, their L2 term is that of feature_maps.py instead.

W is the identity unless items have fairness weights. |U V'|^2 = sum(G_U * G_V) and |W V t|^2 = t' (V' W^2 V) t, so F
costs O(nnz d + (n+m) d^2): never n * m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairmf.backends.contract import Backend, Factors, Matrix, Vector
from fairmf.models.feature_maps import SideFeatures, own_right
from fairmf.models.problem import Problem


@dataclass(frozen=True)
class Objective:
    """The four terms of F."""

    observed: float
    unobserved: float
    l2: float
    fairness: float

    @property
    def total(self) -> float:
        """The sum of the four terms (F)."""
        return self.observed + self.unobserved + self.l2 + self.fairness

    def to_dict(self) -> dict[str, float]:
        """Return the terms and their total, by name."""
        return {**vars(self), "total": self.total}


def objective(
    problem: Problem,
    U: Factors,
    V: Factors,
    mean_user: Vector | None = None,
    user_map: Factors | None = None,
    item_map: Factors | None = None,
    gramians: tuple[Matrix, Matrix] | None = None,
) -> Objective:
    """Return F(U, V) at these maps of features. `gramians` are G_U and G_V, computed if not given.

    With `mean_user` = s the fairness term is lambda_f/2 |W V s|^2 instead, as fiADMM splits it.
    """
    backend = problem.backend
    t = backend.mean(U) if mean_user is None else backend.vector(mean_user)
    gramian_u, gramian_v = (backend.gramian(U), backend.gramian(V)) if gramians is None else gramians
    loss = backend.observed_loss(problem.interactions.by_user, U, V)
    if problem.dislikes is not None:
        loss += problem.dislikes.change(backend, U, V)
    squares = l2_squares(backend, problem.user_side, user_map, U, problem.user_ridge)
    squares += l2_squares(backend, problem.item_side, item_map, V, problem.item_ridge)
    return Objective(
        observed=0.5 * loss,
        unobserved=0.5 * problem.unobserved_weight * float((gramian_u * gramian_v).sum()),
        l2=0.5 * squares,
        fairness=0.5 * problem.lambda_f * float(t @ problem.merit_gramian(V, gramian_v) @ t),
    )


def l2_squares(
    backend: Backend,
    side: SideFeatures | None,
    M: Factors | None,
    this: Factors,
    ridge: Vector,
    predicted: Factors | None = None,
) -> float:
    """Return twice the L2 term of one side: sum_i ridge_i |x_i|^2, or that of its features if it has any.

    `predicted` is what M predicts, if that is known.
    """
    if side is None or M is None:
        return float(backend.weighted_squares(this, ridge).sum())
    return side.penalty(backend, M, this, predicted)


def gradients(
    problem: Problem, U: Factors, V: Factors, user_map: Factors | None = None, item_map: Factors | None = None
) -> tuple[Factors, Factors]:
    """Return the gradients of F by U and by V, at these maps of features."""
    t = problem.backend.mean(U)
    coupling = (problem.lambda_f / problem.n_users) * (problem.merit_gramian(V) @ t)
    sides = ((problem.user_side, user_map), (problem.item_side, item_map))
    own_u, own_v = (own_right(problem.backend, side, M) for side, M in sides)
    grad_u = problem.backend.residual(problem.user_half_step(V, shift=coupling, own=own_u), U)
    grad_v = problem.backend.residual(problem.item_half_step(U, mean_user=t, own=own_v), V)
    return grad_u, grad_v


def gradient_norm(problem: Problem, U: Factors, V: Factors) -> float:
    """Return the norm of the gradient of F."""
    return float(np.sqrt(sum(float(problem.backend.squared_norms(g).sum()) for g in gradients(problem, U, V))))
