"""What couples the users of FairALS: one vector q = phi alpha0 G_W t that every user's right-hand side loses.

H_i u_i = b_i - q, and t is the mean of the u_i, so q must satisfy q = C t(q) with C = phi alpha0 G_W. t(q) is affine
with slope -A, A the mean of H_i^-1 (docs/mathematics.md 5). G_W = V' W^2 V is G_V unless items have fairness weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairmf.backends import Backend, Factors, Matrix, Vector
from fairmf.models.problem import Problem

SAMPLE = 512  # users whose exact response stands for all
GROUPS = 4096  # users with different weights beyond this many are merged with their neighbours


@dataclass(frozen=True)
class UserGroups:
    """Users gathered by their sum of confidences: few groups for binary data, and L2 depends on nothing else."""

    sums: Vector
    ridge: Vector
    shares: Vector
    popularity: Vector
    """Of the items."""
    interactions: float
    """Their sum."""

    @classmethod
    def of(cls, problem: Problem) -> UserGroups:
        """The groups of a problem's users."""
        sums, ridge, counts = problem.user_groups(GROUPS)
        popularity = problem.interactions.by_item.sums()
        popularity.flags.writeable = False
        own = problem.backend.vector
        return cls(own(sums), own(ridge), own(counts / counts.sum()), popularity, float(popularity.sum()))

    def response(self, problem: Problem, eigenvalues: Vector, V: Factors) -> Vector:
        """An estimate of A's diagonal in the eigenbasis of alpha0 G_V: how much t falls per unit of q.

        Between two bounds. D, the mean of 1/(eigenvalue + ridge_i), leaves the data term out and is at least A: with it
        the correction cannot overshoot, but is slow where unobserved_weight is small. Adding a typical data term, the
        popularity-weighted mean of v_jk^2 times the user's sum, gives about the mean of 1/diag(H_i), which is below A
        and may overshoot. A quarter of the first and three of the second have converged wherever we tried.
        """
        typical = problem.backend.weighted_squares(V, self.popularity) / self.interactions
        return problem.backend.mean_response(self.shares, self.ridge, self.sums, eigenvalues, typical, 0.75)


def sampled_response(problem: Problem, eigenvalues: Vector, V: Factors) -> Matrix:
    """A itself, over a sample of users taken evenly along their number of interactions (all, if they are few).

    Costs SAMPLE Cholesky factorisations. A sampled A is within some per cent of A, so that each round of corrections
    shrinks the error to some per cent, at any fairness.
    """
    rows, ridge = problem.sampled_users(SAMPLE)
    inverse, _ = problem.backend.mean_inverse(rows, V, np.diag(eigenvalues), ridge)
    return inverse


def answer(response: Vector | Matrix, change: Vector) -> Vector:
    """How much every user loses when q rises by `change`. A vector stands for a diagonal matrix."""
    result: Vector = response * change if response.ndim == 1 else response @ change
    return result


def corrected(
    backend: Backend,
    q: Vector,
    t: Vector,
    strength: Vector | Matrix,
    response: Vector | Matrix,
    rest: Vector | None = None,
) -> tuple[Vector, Vector]:
    """The q that satisfies q = C t if t answers with `response`, and that answer: what every user gains by it.

    `strength` is C, in the eigenbasis of alpha0 G_V.

    There C is diagonal, so a vector, unless items have fairness weights. In a basis that is nearly that one, `rest` is
    what is off the diagonal times t: then q = C t is approached rather than met.
    """
    if strength.ndim == 1 and response.ndim == 1:
        return backend.corrected_shift(q, t, strength, response, rest)
    missing = answer(strength, t) - q if rest is None else answer(strength, t) + rest - q
    left = strength[:, None] if strength.ndim == 1 else strength
    product = left * response if strength.ndim == 1 or response.ndim == 1 else left @ response
    change: Vector = np.linalg.solve(np.diag(np.ones_like(q)) + product, missing).astype(np.float64)
    return q + change, -answer(response, change)


def exact_coupling(problem: Problem, V: Factors, gramian: Matrix, merit_gramian: Matrix, fairness: float) -> Vector:
    """q = C t where (I + A C) t = mean of H_i^-1 b_i, with A accumulated over all users. O(nnz d^2 + n d^3)."""
    shared, strength = (problem.unobserved_weight * x for x in (gramian, merit_gramian))
    inverse, solution = problem.backend.mean_inverse(problem.interactions.by_user, V, shared, problem.user_ridge)
    t = np.linalg.solve(np.diag(np.ones_like(solution)) + inverse @ (fairness * strength), solution)
    return (fairness * strength @ t).astype(np.float64)
