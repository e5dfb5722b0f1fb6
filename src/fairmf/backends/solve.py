"""Solve all rows of one side: exactly, to convergence, or by a few conjugate gradient steps.

Scores are kept per observed entry, so that a block of b coordinates costs O(nnz b^2 + rows (b^3 + d b)) and a sweep
over all of them O(nnz d b + rows (d b^2 + d^2)), where Cholesky's d^3 per row could not be paid. The quadratic never
rises, and sweeps go to Cholesky's answer; with block_size >= d one sweep is Cholesky's answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Diagonalised, Factors, HalfStep, Matrix, SubspaceKernels, Vector
from fairmf.errors import InvalidParameter

# Exact rows: form each d x d matrix, factorise, solve. O(nnz d^2 + rows d^3).
#
# Equals any other solver at convergence; leaves a zero gradient (solvers/gradient.py), which is the test.


def solve_exactly(step: HalfStep) -> Factors:
    """The exact solution of every row."""
    out = step.backend.empty(step.rows.count, step.other.shape[1])
    step.backend.solve_rows(step.rows, step.other, step.shared, step.ridge, step.shift, out, step.rank_one)
    return out


# Eigenbasis PCG: rotate both sides so that the shared matrix is diagonal, then take a few conjugate gradient steps.
#
# U V' does not change under a common rotation, so factors are never rotated back. In the eigenbasis a row's matrix-
# vector product costs O(nnz_i d) instead of O(nnz_i d + d^2), and the inverse of (diagonal + ridge_i) is the
# preconditioner. Per half-step: O(k nnz d + (n + m) d^2 [two matrix products] + d^3). Equals Cholesky when the steps
# go to convergence.


def eigenbasis(backend: Backend, shared: Matrix, ridge: float = 0.0, guess: Matrix | None = None) -> Diagonalised:
    """The eigenbasis of a positive semi-definite matrix. Call it inside `backend.threads`: one thread, fixed bits.

    With a `guess`, the answer may have a rest off its diagonal (see contract).
    """
    found = backend.diagonalise(shared, ridge, guess)
    # Rounding leaves eigenvalues of a semi-definite matrix slightly below 0.
    return found._replace(values=np.maximum(found.values, 0.0))


def improve_by_cg(step: HalfStep, start: Factors, steps: int, tolerance: float = 0.0) -> Factors:
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


# Gradient rows: H_i x_i - b_i + shift without ever forming H_i. O(nnz d + rows d^2), the d^2 part one GEMM.
#
# The paper forms the d x d matrix of every user in its U step, which costs O(nnz d^2): see docs/mathematics.md 4.


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


# Rows solved to the backend's precision, by whichever way costs less: Cholesky, or eigenbasis PCG run to convergence.
#
# PCG needs an eigendecomposition and a rotation of the other side first, so a few rows are cheaper by Cholesky, and
# many by PCG (docs/performance.md). A row on which PCG has not arrived is solved by Cholesky: the answer is exact
# either way.


TYPICAL_STEPS = 15  # PCG steps a row needs to converge on usual data
CHECKED_AT_ONCE = 8192  # rows whose residual is held at a time


def solve_to_convergence(step: HalfStep) -> Factors:
    """The solution of every row."""
    return _by_pcg(step) if pcg_pays(step) else solve_exactly(step)


def pcg_pays(step: HalfStep) -> bool:
    """Whether PCG takes fewer flops. Without L2 its preconditioner may be singular."""
    n, nnz, (m, d) = step.rows.count, step.rows.nnz, step.other.shape
    if n == 0 or step.ridge.min() <= 0:
        return False
    by_cholesky = nnz * d**2 + n * d**3 / 3
    by_pcg = TYPICAL_STEPS * 4 * nnz * d + (2 * m + 4 * n) * d**2 + 20 * d**3
    return bool(by_pcg < by_cholesky)


def _by_pcg(step: HalfStep) -> Factors:
    backend, (m, d), n = step.backend, step.other.shape, step.rows.count
    values, vectors, _ = eigenbasis(backend, step.shared)
    other = backend.empty(m, d)
    backend.multiply(step.other, vectors, other)
    term = step.rank_one and step.rank_one._replace(vector=vectors.T @ step.rank_one.vector)
    turned = replace(step, other=other, shared=np.diag(values), shift=vectors.T @ step.shift, rank_one=term)
    this = backend.array(np.zeros((n, d), dtype=backend.dtype))
    # Beyond d/2 steps a row costs more than its Cholesky factorisation would have.
    backend.improve_rows(
        step.rows, other, values, step.ridge, turned.shift, max(16, d // 2), 0.01 * backend.tolerance, 1.0, this, term
    )
    late = np.flatnonzero(~_arrived(turned, values, this))
    this = backend.turned(this, vectors.T)
    if len(late):
        rest = _part(step, late)
        backend.put(solve_exactly(replace(rest, rows=step.rows.take(late))), late, this)
    return this


def _part(step: HalfStep, chosen: Any) -> HalfStep:
    """What belongs to the chosen rows, but for the rows themselves."""
    own = step.rank_one and step.rank_one._replace(weights=step.rank_one.weights[chosen])
    return replace(step, ridge=step.ridge[chosen], rank_one=own)


def _arrived(turned: HalfStep, values: Vector, this: Factors) -> NDArray[np.bool_]:
    """Rows whose relative error is certainly within the backend's tolerance.

    P_i = diagonal + ridge_i is at most H_i, so the error e = H_i^-1 r has min(P_i) |e|^2 <= e'H_i e <= r'P_i^-1 r.
    """
    backend, n = turned.backend, turned.rows.count
    arrived, diagonal = np.empty(n, dtype=bool), backend.host(values)
    for start in range(0, n, CHECKED_AT_ONCE):
        rows = slice(start, min(start + CHECKED_AT_ONCE, n))
        part = replace(_part(turned, rows), rows=turned.rows.block(rows.start, rows.stop))
        P = diagonal + part.ridge[:, None]
        own = backend.array(this[rows])
        r, x = (backend.host(y).astype(np.float64) for y in (gradient(part, own), own))
        arrived[rows] = (r**2 / P).sum(axis=1) <= backend.tolerance**2 * P.min(axis=1) * (x**2).sum(axis=1)
    return arrived


def blocks(factors: int, block_size: int) -> Iterator[tuple[int, int]]:
    """First and last (exclusive) coordinate of every block; the last block may be shorter."""
    for first in range(0, factors, block_size):
        yield first, min(first + block_size, factors)


def kernels_of(backend: Backend) -> SubspaceKernels:
    """The backend, if it has these kernels."""
    if not isinstance(backend, SubspaceKernels):
        raise InvalidParameter(f"solver='subspace' is not there for backend={backend.name!r}: use backend='cpu'.")
    return backend


def start_from(step: HalfStep, start: Factors) -> Factors:
    """A copy of `start`, in which rows without entries are 0 where that is their solution."""
    this: Factors = start.copy()
    if not step.shift.any():
        empty = np.flatnonzero(np.diff(step.rows.indptr) == 0)
        step.backend.put(step.backend.array(np.zeros((len(empty), this.shape[1]))), empty, this)
    return this


def improve_by_blocks(step: HalfStep, start: Factors, block_size: int, sweeps: int = 1) -> Factors:
    """The rows after that many sweeps over all coordinates from `start`."""
    kernels, this = kernels_of(step.backend), start_from(step, start)
    scores = kernels.entry_scores(step.rows, this, step.other)
    for _ in range(sweeps):
        for first, last in blocks(this.shape[1], block_size):
            kernels.improve_subspace(
                step.rows, step.other, step.shared, step.ridge, step.shift[first:last], first, last, scores, this,
                step.rank_one,
            )  # fmt: skip
    return this
