"""Rows solved to the backend's precision, by whichever way costs less: Cholesky, or eigenbasis PCG run to convergence.

PCG needs an eigendecomposition and a rotation of the other side first, so a few rows are cheaper by Cholesky, and many
by PCG (docs/performance.md). A row on which PCG has not arrived is solved by Cholesky: the answer is exact either way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import Factors, Vector
from fairmf.solvers import cholesky
from fairmf.solvers.eigenbasis import eigenbasis
from fairmf.solvers.gradient import gradient
from fairmf.solvers.half_step import HalfStep

TYPICAL_STEPS = 15  # PCG steps a row needs to converge on usual data
CHECKED_AT_ONCE = 8192  # rows whose residual is held at a time


def solve(step: HalfStep) -> Factors:
    """The solution of every row."""
    return _by_pcg(step) if pcg_pays(step) else cholesky.solve(step)


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
        backend.put(cholesky.solve(replace(rest, rows=step.rows.take(late))), late, this)
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
