"""Eigenbasis PCG: rotate both sides so that the shared matrix is diagonal, then take a few conjugate gradient steps.

U V' does not change under a common rotation, so factors are never rotated back. In the eigenbasis a row's matrix-vector
product costs O(nnz_i d) instead of O(nnz_i d + d^2), and the inverse of (diagonal + ridge_i) is the preconditioner.
Per half-step: O(k nnz d + (n + m) d^2 [two matrix products] + d^3). Equals Cholesky when the steps go to convergence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairmf.backends import Factors, Matrix, Vector
from fairmf.solvers.half_step import HalfStep


class Eigenbasis(NamedTuple):
    """shared = vectors @ diag(values) @ vectors.T"""

    values: Vector
    vectors: Matrix


def eigenbasis(shared: Matrix) -> Eigenbasis:
    """The eigenbasis of a positive semi-definite matrix. Call it inside `backend.threads`: one thread, fixed bits."""
    if not np.isfinite(shared).all():  # LAPACK would not return; the fit loop finds the NaN and says where it came from
        return Eigenbasis(np.full(len(shared), np.nan), np.full_like(shared, np.nan))
    values, vectors = np.linalg.eigh(shared)
    # Rounding leaves eigenvalues of a semi-definite matrix slightly below 0.
    return Eigenbasis(np.maximum(values, 0.0), vectors)


def improve(step: HalfStep, start: Factors, steps: int, tolerance: float = 0.0) -> Factors:
    """The rows after up to `steps` PCG steps from `start`, in the basis they were given in.

    For callers that keep variables in a fixed basis: costs three matrix products where `fast.epoch` needs two.
    """
    backend = step.backend
    values, vectors = eigenbasis(step.shared)
    other, this = (backend.empty(*x.shape) for x in (step.other, start))
    backend.multiply(step.other, vectors, other)
    backend.multiply(start, vectors, this)
    shift = vectors.T @ step.shift
    term = step.rank_one and step.rank_one._replace(vector=vectors.T @ step.rank_one.vector)
    backend.improve_rows(step.rows, other, values, step.ridge, shift, steps, tolerance, 1.0, this, term)
    backend.multiply(this, np.ascontiguousarray(vectors.T), this)
    return this
