"""Gradient rows: H_i x_i - b_i + shift without ever forming H_i. O(nnz d + rows d^2), the d^2 part one GEMM.

The paper forms the d x d matrix of every user in its U step, which costs O(nnz d^2): see docs/mathematics.md 4.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends import Factors, Vector
from fairmf.solvers.half_step import HalfStep


def gradient(step: HalfStep, this: Factors) -> Factors:
    """The gradient of the half-step's quadratic at `this`, one row each."""
    return _apply(step, this, target=1.0, shift=step.shift)


def hessian_product(step: HalfStep, this: Factors) -> Factors:
    """H_i x_i for every row."""
    return _apply(step, this, target=0.0, shift=np.zeros_like(step.shift))


def _apply(step: HalfStep, this: Factors, target: float, shift: Vector) -> Factors:
    backend = step.backend
    out = backend.empty(*this.shape)
    backend.multiply(this, step.shared, out)
    backend.add_diagonal(this, step.ridge, shift, step.rank_one, out)
    backend.residual_rows(step.rows, this, step.other, target, out)
    return out
