"""Improve all rows by conjugate gradients in lock-step, with sums over the rows' entries computed by other processes.

The steps are those of `cg.improve_rows`, split at the two places where it reads a row's entries: `begin` and `advance`
are given these sums instead. Blocks of rows have a fixed size, so bits do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel

TINY = np.float32(1e-30)


@kernel(fastmath=True, inline="always")
def _precondition(r, h, vector, th, gain, out):
    """Set out = (diag(h) + pull t t')^-1 r, by Sherman-Morrison."""
    for k in range(len(r)):
        out[k] = r[k] / h[k]
    if vector is not None:
        loaded = 0.0
        for k in range(len(r)):
            loaded += th[k] * r[k]
        for k in range(len(r)):
            out[k] -= gain * loaded * th[k]


@kernel(fastmath=True, inline="always")
def _known(diagonal, ridge, pull, vector, h, th):
    """Set h to the row's diagonal and th to t / h; return the gain of the rank-one term."""
    for k in range(len(h)):
        h[k] = diagonal[k] + ridge
    # Here and below, something times 0 is a zero of the arrays' own type: float32 or float64.
    if vector is None:
        return diagonal[0] * 0
    dot = diagonal[0] * 0
    for k in range(len(h)):
        th[k] = vector[k] / h[k]
        dot += vector[k] * th[k]
    return pull / (1 + pull * dot)


@kernel(fastmath=True)
def _begin_block(diagonal, ridge, shift, own, vector, pulls, empty, tolerance, first, last, x, r, p, rz, goal, squares):
    d = x.shape[1]
    h = np.empty(d, dtype=x.dtype)
    th = np.empty(0 if vector is None else d, dtype=x.dtype)
    total = 0.0
    for j in range(first, last):
        pull = ridge[j] * 0 if vector is None else pulls[j]
        gain = _known(diagonal, ridge[j], pull, vector, h, th)
        # r holds the entries' part of b - H x; subtract the terms that all rows share, and the rank-one term.
        for k in range(d):
            r[j, k] -= shift[k] + h[k] * x[j, k]
        if own is not None:
            for k in range(d):
                r[j, k] += own[j, k]
        if vector is not None:
            tx = ridge[j] * 0
            for k in range(d):
                tx += vector[k] * x[j, k]
            for k in range(d):
                r[j, k] -= pull * tx * vector[k]
        square = 0.0
        for k in range(d):
            square += r[j, k] * r[j, k]
        total += square
        if empty[j]:  # without entries the preconditioner is the matrix itself, so x = H^-1 (own - shift) exactly
            for k in range(d):
                r[j, k] = -shift[k]
            if own is not None:
                for k in range(d):
                    r[j, k] += own[j, k]
            _precondition(r[j], h, vector, th, gain, x[j])
            r[j, :] = 0
        _precondition(r[j], h, vector, th, gain, p[j])
        dot = ridge[j] * 0
        for k in range(d):
            dot += r[j, k] * p[j, k]
        rz[j] = dot
        goal[j] = max(dot * tolerance * tolerance, TINY)
        if not dot > goal[j]:  # converged: with direction 0 the other processes' sums for it are 0 as well
            p[j, :] = 0
    squares[0] = total


@kernel(fastmath=True)
def begin(low, high, diagonal, ridge, shift, own, vector, pulls, empty, tolerance, bounds, x, r, p, rz, goal, squares):
    """Compute the residual and the first direction. A converged row gets direction 0 and does not change any more.

    in: up to bounds   in and out: x (rows x d), r (the entries' part, then the residual)
    out: p, rz (rows), goal (rows), squares (blocks x 1: of the residual)
    """
    for b in range(low, high):
        _begin_block(
            diagonal, ridge, shift, own, vector, pulls, empty, tolerance, bounds[b], bounds[b + 1], x, r, p, rz, goal,
            squares[b],
        )  # fmt: skip


@kernel(fastmath=True)
def _advance_block(
    diagonal, ridge, shift, own, vector, pulls, curvatures, products, relaxation, first, last, x, r, p, rz, goal,
    change,
):  # fmt: skip
    d = x.shape[1]
    h = np.empty(d, dtype=x.dtype)
    z = np.empty(d, dtype=x.dtype)
    th = np.empty(0 if vector is None else d, dtype=x.dtype)
    losses = 0.0
    for j in range(first, last):
        if not rz[j] > goal[j]:  # converged before
            continue
        # The preconditioner is computed again: storing it for all rows would take as much memory as x.
        pull = ridge[j] * 0 if vector is None else pulls[j]
        gain = _known(diagonal, ridge[j], pull, vector, h, th)
        shared = slope = ridge[j] * 0
        for k in range(d):
            shared += h[k] * p[j, k] * p[j, k]
            slope += p[j, k] * (r[j, k] + shift[k] + h[k] * x[j, k])
        if own is not None:
            for k in range(d):
                slope -= p[j, k] * own[j, k]
        tp = ridge[j] * 0
        if vector is not None:
            tx = ridge[j] * 0
            for k in range(d):
                tp += vector[k] * p[j, k]
                tx += vector[k] * x[j, k]
            shared += pull * tp * tp
            slope += pull * tx * tp
        curvature = 0.0
        if products is None:
            curvature = curvatures[j]
        else:
            for k in range(d):
                curvature += np.float64(p[j, k]) * np.float64(products[j, k])
        length = rz[j] / (np.float64(curvature) + np.float64(shared)) * relaxation
        # The loss is a parabola in the step's length whose three coefficients are known.
        losses += length * (length * curvature - 2.0 * np.float64(slope))
        for k in range(d):
            x[j, k] += length * p[j, k]
        if products is None:  # the last step needs no new direction
            continue
        for k in range(d):
            r[j, k] -= length * (products[j, k] + h[k] * p[j, k])
        if vector is not None:
            for k in range(d):
                r[j, k] -= length * pull * tp * vector[k]
        _precondition(r[j], h, vector, th, gain, z)
        before, dot = rz[j], ridge[j] * 0
        for k in range(d):
            dot += r[j, k] * z[k]
        rz[j] = dot
        if not dot > goal[j]:
            p[j, :] = 0
        else:
            for k in range(d):
                p[j, k] = z[k] + dot / before * p[j, k]
    change[0] = losses


@kernel(fastmath=True)
def advance(
    low, high, diagonal, ridge, shift, own, vector, pulls, curvatures, products, relaxation, bounds, x, r, p, rz,
    goal, change,
):  # fmt: skip
    """Take one step. `products` are the entries' part of H p.

    In the last step they are None, and `curvatures`, the entries' part of p.H p, are given instead.

    in: up to bounds   in and out: x, r, p, rz, goal   out: change (blocks x 1: of the entries' loss)
    """
    for b in range(low, high):
        _advance_block(
            diagonal, ridge, shift, own, vector, pulls, curvatures, products, relaxation, bounds[b], bounds[b + 1], x,
            r, p, rz, goal, change[b],
        )  # fmt: skip
