"""Eigenbasis PCG: rotate both sides so that the shared matrix is diagonal, then take a few conjugate gradient steps.

U V' does not change under a common rotation, so factors are never rotated back. In the eigenbasis a row's matrix-vector
product costs O(nnz_i d) instead of O(nnz_i d + d^2), and the inverse of (diagonal + ridge_i) is the preconditioner.
Per half-step: O(k nnz d + (n + m) d^2 [two matrix products] + d^3). Equals Cholesky when the steps go to convergence.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends import Backend, Diagonalised, Factors, Matrix
from fairmf.solvers.half_step import HalfStep


def eigenbasis(backend: Backend, shared: Matrix, ridge: float = 0.0, guess: Matrix | None = None) -> Diagonalised:
    """The eigenbasis of a positive semi-definite matrix. Call it inside `backend.threads`: one thread, fixed bits.

    With a `guess`, the answer may have a rest off its diagonal (see contract).
    """
    found = backend.diagonalise(shared, ridge, guess)
    # Rounding leaves eigenvalues of a semi-definite matrix slightly below 0.
    return found._replace(values=np.maximum(found.values, 0.0))


def improve(step: HalfStep, start: Factors, steps: int, tolerance: float = 0.0) -> Factors:
    """The rows after up to `steps` PCG steps from `start`, in the basis they were given in.

    For callers that keep variables in a fixed basis: costs three matrix products where `fast.epoch` needs two.
    """
    backend = step.backend
    values, vectors, _ = eigenbasis(backend, step.shared)
    other, this = (backend.empty(*x.shape) for x in (step.other, start))
    backend.multiply(step.other, vectors, other)
    backend.multiply(start, vectors, this)
    shift = vectors.T @ step.shift
    term = step.rank_one and step.rank_one._replace(vector=vectors.T @ step.rank_one.vector)
    backend.improve_rows(step.rows, other, values, step.ridge, shift, steps, tolerance, 1.0, this, term)
    return backend.turned(this, vectors.T)
