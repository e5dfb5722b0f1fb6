"""Solve half-steps on any backend, with the methods of the contract.

`solve_to_convergence` is exact to the backend's precision, and takes the cheaper of two ways. `improve_by_cg` and
`improve_by_blocks` take a few steps from a given start. All three converge to the answer of `Backend.solve` (Cholesky).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Effort, Factors, HalfStep, Matrix, SubspaceKernels
from fairmf.data.csr import Rows
from fairmf.errors import InvalidParameter

TYPICAL_STEPS = 15  # PCG steps that a row needs to converge on usual data
CHECKED_AT_ONCE = 8192  # rows whose residuals are computed at a time, to bound memory


def solve_to_convergence(step: HalfStep) -> Factors:
    """Solve every row by whichever costs less: Cholesky, or PCG in the eigenbasis run to convergence.

    PCG first needs an eigendecomposition and a rotation of the other side, so Cholesky is cheaper for few rows and PCG
    for many (docs/performance.md). Rows on which PCG has not converged are solved by Cholesky.
    """
    return _by_pcg(step) if pcg_pays(step) else step.backend.solve(step)


def pcg_pays(step: HalfStep) -> bool:
    """Return whether PCG takes fewer flops than Cholesky. Without L2 its preconditioner may be singular: then False."""
    n, nnz, (m, d) = step.rows.count, step.rows.nnz, step.other.shape
    if n == 0 or step.right is not None or step.ridge.min() <= 0:
        return False
    by_cholesky = nnz * d**2 + n * d**3 / 3
    # An entry takes an inner product and a sum (4 d flops) per step. Add rotations of both sides, and eigenvectors.
    by_pcg = TYPICAL_STEPS * 4 * nnz * d + (2 * m + 4 * n) * d**2 + 20 * d**3
    return bool(by_pcg < by_cholesky)


def improve_by_cg(step: HalfStep, start: Factors, effort: Effort) -> Factors:
    """Return the rows after PCG steps from `start`, in the basis they were given in.

    It costs three matrix products, where als_cg.py, which keeps the factors in the eigenbasis, needs two.
    """
    turned, vectors = in_eigenbasis(step)
    this = step.backend.empty(*start.shape)
    step.backend.multiply(start, vectors, this)
    step.backend.improve(turned, this, effort)
    return step.backend.turned(this, vectors.T)


def hessian_product(step: HalfStep, this: Factors) -> Factors:
    """Return H_i x_i for every row."""
    return step.backend.residual(replace(step, right=np.zeros_like(step.shift)), this)


# -- PCG in the eigenbasis --------------------------------------------------------------------------------------------
#
# U V' does not change under a common rotation. In the eigenbasis of the shared matrix a row's matrix-vector product
# costs O(nnz_i d) instead of O(nnz_i d + d^2), and the inverse of (diagonal + ridge_i) is the preconditioner. Per
# half-step: O(k nnz d + (n + m) d^2 [two matrix products] + d^3).


def in_eigenbasis(step: HalfStep) -> tuple[HalfStep, Matrix]:
    """Return the same systems in the eigenbasis of the shared matrix, and that basis."""
    backend = step.backend
    values, vectors, _ = backend.diagonalise(step.matrix, 0.0, None)
    other = backend.empty(*step.other.shape)
    backend.multiply(step.other, vectors, other)
    term = step.rank_one and step.rank_one._replace(vector=vectors.T @ step.rank_one.vector)
    own = None
    if step.own is not None:
        own = backend.empty(*step.own.shape)
        backend.multiply(step.own, vectors, own)
    return replace(step, other=other, shared=values, shift=vectors.T @ step.shift, rank_one=term, own=own), vectors


def _by_pcg(step: HalfStep) -> Factors:
    backend, d, n = step.backend, step.other.shape[1], step.rows.count
    turned, vectors = in_eigenbasis(step)
    this = backend.array(np.zeros((n, d), dtype=backend.dtype))
    # Beyond d/2 steps a row costs more than its Cholesky factorisation would have. The goal is stricter than
    # the tolerance, because `_converged` is: it bounds the error from above.
    backend.improve(turned, this, Effort(max(16, d // 2), 0.01 * backend.tolerance))
    # `improve` returns no residuals of single rows, so compute them.
    late = np.flatnonzero(~_converged(turned, this))
    this = backend.turned(this, vectors.T)
    if len(late):
        backend.put(backend.solve(replace(_part(step, late), rows=step.rows.take(late))), late, this)
    return this


def _part(step: HalfStep, chosen: slice | NDArray[np.intp]) -> HalfStep:
    """Return the step with the numbers and right-hand sides of the chosen rows; `rows` itself stays as it is."""
    term = step.rank_one and step.rank_one._replace(weights=step.rank_one.weights[chosen])
    own = None if step.own is None else step.backend.array(step.own[chosen])
    return replace(step, ridge=step.ridge[chosen], rank_one=term, own=own)


def _converged(turned: HalfStep, this: Factors) -> NDArray[np.bool_]:
    """Return for each row whether its relative error is certainly within the backend's tolerance.

    P_i = diagonal + ridge_i is at most H_i, so the error e = H_i^-1 r has min(P_i) |e|^2 <= e'H_i e <= r'P_i^-1 r.
    """
    backend, n = turned.backend, turned.rows.count
    converged, diagonal = np.empty(n, dtype=bool), backend.host(turned.shared)
    for start in range(0, n, CHECKED_AT_ONCE):
        rows = slice(start, min(start + CHECKED_AT_ONCE, n))
        part = replace(_part(turned, rows), rows=turned.rows.block(rows.start, rows.stop))
        P = diagonal + part.ridge[:, None]
        own = backend.array(this[rows])
        r, x = (backend.host(y).astype(np.float64) for y in (backend.residual(part, own), own))
        converged[rows] = (r**2 / P).sum(axis=1) <= backend.tolerance**2 * P.min(axis=1) * (x**2).sum(axis=1)
    return converged


# -- blocks of coordinates (iALS++) -----------------------------------------------------------------------------------
#
# The score of each observed entry is stored, so that a block of b coordinates costs O(nnz b^2 + rows (b^3 + d b)) and a
# sweep over all blocks O(nnz d b + rows (d b^2 + d^2)): for many factors less than Cholesky's d^3 per row. The
# quadratic never rises, and sweeps converge to Cholesky's answer; with block_size >= d one sweep is Cholesky's answer.


def improve_by_blocks(step: HalfStep, start: Factors, block_size: int, sweeps: int = 1) -> Factors:
    """Return the rows after that many sweeps over all blocks of coordinates, from `start`."""
    kernels, this = kernels_of(step.backend), start.copy()
    if step.own is None and not step.shift.any():  # the solution of rows without entries is 0
        clear_empty_rows(step.backend, step.rows, this)
    scores = kernels.entry_scores(step.rows, this, step.other)
    for _ in range(sweeps):
        for block in blocks(this.shape[1], block_size):
            kernels.improve_block(step, block, scores, this)
    return this


def clear_empty_rows(backend: Backend, rows: Rows, this: Factors) -> None:
    """Set the factors of rows without entries to 0, in place."""
    empty = np.flatnonzero(np.diff(rows.indptr) == 0)
    backend.put(backend.array(np.zeros((len(empty), this.shape[1]))), empty, this)


def blocks(factors: int, block_size: int) -> Iterator[slice]:
    """Yield the blocks of coordinates; the last one may be shorter."""
    for first in range(0, factors, block_size):
        yield slice(first, min(first + block_size, factors))


def kernels_of(backend: Backend) -> SubspaceKernels:
    """Return the backend if it has the kernels for blocks of coordinates; raise InvalidParameter if not."""
    if not isinstance(backend, SubspaceKernels):
        raise InvalidParameter(f"solver='subspace' does not support backend={backend.name!r}: use backend='cpu'.")
    return backend
