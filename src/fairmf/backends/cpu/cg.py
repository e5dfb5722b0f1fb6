"""Improve all rows by preconditioned conjugate gradients, in the basis where the shared matrix is diagonal.

In that basis a row's matrix-vector product costs O(nnz_i d), and (diagonal + ridge_i) is a good preconditioner that
costs nothing. Entries are processed four at a time, so that the row's own vectors are read once per four gathered ones.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel

TINY = np.float32(1e-30)  # squares of float32 numbers this small underflow: a row below it counts as solved


@kernel(fastmath=True, inline="always")
def _residual_pass(indices, weights, start, stop, other, x, r):
    """Add sum_j c_j (1 - x.y_j) y_j to r; return sum_j c_j (1 - x.y_j)^2."""
    d = len(x)
    loss = 0.0
    e = start
    while e + 4 <= stop:
        a, b, c, f = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
        sa = sb = sc = sf = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * x[k]
            sb += other[b, k] * x[k]
            sc += other[c, k] * x[k]
            sf += other[f, k] * x[k]
        one = np.float32(1.0)
        sa, sb, sc, sf = one - sa, one - sb, one - sc, one - sf
        if weights is None:
            loss += np.float64(sa * sa + sb * sb + sc * sc + sf * sf)
        else:
            wa, wb, wc, wf = sa * weights[e], sb * weights[e + 1], sc * weights[e + 2], sf * weights[e + 3]
            loss += np.float64(sa * wa + sb * wb + sc * wc + sf * wf)
            sa, sb, sc, sf = wa, wb, wc, wf
        for k in range(d):
            r[k] += sa * other[a, k] + sb * other[b, k] + sc * other[c, k] + sf * other[f, k]
        e += 4
    while e < stop:
        a = indices[e]
        sa = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * x[k]
        sa = np.float32(1.0) - sa
        wa = sa if weights is None else sa * weights[e]
        loss += np.float64(sa * wa)
        for k in range(d):
            r[k] += wa * other[a, k]
        e += 1
    return loss


@kernel(fastmath=True, inline="always")
def _product_pass(indices, weights, start, stop, other, p, hp):
    """Add sum_j c_j (p.y_j) y_j to hp; return sum_j c_j (p.y_j)^2."""
    d = len(p)
    curvature = 0.0
    e = start
    while e + 4 <= stop:
        a, b, c, f = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
        sa = sb = sc = sf = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * p[k]
            sb += other[b, k] * p[k]
            sc += other[c, k] * p[k]
            sf += other[f, k] * p[k]
        if weights is None:
            curvature += np.float64(sa * sa + sb * sb + sc * sc + sf * sf)
        else:
            wa, wb, wc, wf = sa * weights[e], sb * weights[e + 1], sc * weights[e + 2], sf * weights[e + 3]
            curvature += np.float64(sa * wa + sb * wb + sc * wc + sf * wf)
            sa, sb, sc, sf = wa, wb, wc, wf
        for k in range(d):
            hp[k] += sa * other[a, k] + sb * other[b, k] + sc * other[c, k] + sf * other[f, k]
        e += 4
    while e < stop:
        a = indices[e]
        sa = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * p[k]
        wa = sa if weights is None else sa * weights[e]
        curvature += np.float64(sa * wa)
        for k in range(d):
            hp[k] += wa * other[a, k]
        e += 1
    return curvature


@kernel(fastmath=True, inline="always")
def _curvature_pass(indices, weights, start, stop, other, p):
    """Return sum_j c_j (p.y_j)^2, which is all that the last step needs.

    It goes through the entries backwards, because those that the pass before read last are still in the cache.
    """
    d = len(p)
    curvature = 0.0
    e = stop
    while e - 4 >= start:
        e -= 4
        a, b, c, f = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
        sa = sb = sc = sf = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * p[k]
            sb += other[b, k] * p[k]
            sc += other[c, k] * p[k]
            sf += other[f, k] * p[k]
        if weights is None:
            curvature += np.float64(sa * sa + sb * sb + sc * sc + sf * sf)
        else:
            curvature += np.float64(
                sa * sa * weights[e] + sb * sb * weights[e + 1] + sc * sc * weights[e + 2] + sf * sf * weights[e + 3]
            )
    while e > start:
        e -= 1
        a = indices[e]
        sa = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * p[k]
        curvature += np.float64(sa * sa if weights is None else sa * sa * weights[e])
    return curvature


@kernel(fastmath=True, inline="always")
def _dot(a, b):
    total = np.float32(0.0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@kernel(fastmath=True, inner=True)
def _improve_block(
    indptr, indices, weights, other, diagonal, ridge, shift, own, vector, pulls, steps, tolerance, relaxation, first,
    last, this, sums,
):  # fmt: skip
    """Improve rows first..last on this thread.   in: all but the last two   in and out: this   out: sums (3)

    This must stay a separate function that is too large to inline. Inlined into its caller, LLVM would optimise it a
    second time when the kernel is stored, and a process that compiles it would get other last bits than one that loads.
    """
    d = other.shape[1]
    r = np.empty(d, dtype=np.float32)
    p = np.empty(d, dtype=np.float32)
    hp = np.empty(d, dtype=np.float32)
    h = np.empty(d, dtype=np.float32)
    th = np.empty(0 if vector is None else d, dtype=np.float32)
    total_loss = total_residual = total_l2 = 0.0
    for i in range(first, last):
        x = this[i]
        start, stop = indptr[i], indptr[i + 1]
        # 1. Residual r = b - shift - H x, with the preconditioner's diagonal h. The entries' part comes last.
        for k in range(d):
            h[k] = diagonal[k] + ridge[i]
            r[k] = -shift[k] - h[k] * x[k]
        if own is not None:
            for k in range(d):
                r[k] += own[i, k]
        if vector is not None:
            pull, tx = pulls[i], _dot(vector, x)
            for k in range(d):
                th[k] = vector[k] / h[k]
                r[k] -= pull * tx * vector[k]
            gain = pull / (np.float32(1.0) + pull * _dot(vector, th))
        loss = _residual_pass(indices, weights, start, stop, other, x, r)
        # 2. First direction p = preconditioner^-1 r, and rz = r.p, by which convergence is measured.
        rz = residual = np.float32(0.0)
        for k in range(d):
            p[k] = r[k] / h[k]
            rz += r[k] * p[k]
            residual += r[k] * r[k]
        total_residual += np.float64(residual)
        if vector is not None:
            loaded = _dot(th, r)
            for k in range(d):
                p[k] -= gain * loaded * th[k]
            rz = _dot(r, p)
        if start == stop:  # without entries the preconditioner is the matrix itself, so x = H^-1 (own - shift) exactly
            for k in range(d):
                x[k] = -shift[k] / h[k]
            if own is not None:
                for k in range(d):
                    x[k] += own[i, k] / h[k]
            if vector is not None:
                loaded = _dot(vector, x)
                for k in range(d):
                    x[k] -= gain * loaded * th[k]
            rz = np.float32(0.0)
        goal = max(rz * tolerance * tolerance, TINY)
        # 3. Steps: length = rz / p'Hp minimises the quadratic along p.
        for step in range(steps):
            if not rz > goal:
                break
            if vector is not None:
                tp = _dot(vector, p)
            if step + 1 == steps:
                curvature = _curvature_pass(indices, weights, start, stop, other, p)
            else:
                hp[:] = 0.0
                if vector is not None:
                    for k in range(d):
                        hp[k] = pull * tp * vector[k]
                curvature = _product_pass(indices, weights, start, stop, other, p, hp)
            # p'Hp = curvature (the entries' part) + shared; slope is the entries' part of p.r.
            shared = slope = np.float32(0.0)
            for k in range(d):
                shared += h[k] * p[k] * p[k]
                slope += p[k] * (r[k] + shift[k] + h[k] * x[k])
            if own is not None:
                slope -= _dot(p, own[i])
            if vector is not None:
                shared += pull * tp * tp
                slope += pull * tx * tp
            length = rz / (np.float32(curvature) + shared)
            if step + 1 == steps:
                length *= relaxation
            # The loss is a parabola in the step's length whose coefficients are known: no pass over entries is needed.
            loss += np.float64(length) * (np.float64(length) * curvature - 2.0 * np.float64(slope))
            for k in range(d):
                x[k] += length * p[k]
            if step + 1 < steps:  # the next direction, conjugate to this one; after the last step none is needed
                before = rz
                rz = np.float32(0.0)
                for k in range(d):
                    r[k] -= length * (hp[k] + h[k] * p[k])
                    rz += r[k] * r[k] / h[k]
                if vector is not None:
                    tx += length * tp
                    loaded = _dot(th, r)
                    rz -= gain * loaded * loaded
                beta = rz / before
                for k in range(d):
                    p[k] = r[k] / h[k] + beta * p[k]
                if vector is not None:
                    for k in range(d):
                        p[k] -= gain * loaded * th[k]
        # 4. Sums for the objective, which cost no further pass over the entries.
        square = np.float32(0.0)
        for k in range(d):
            square += x[k] * x[k]
        total_l2 += np.float64(ridge[i]) * np.float64(square)
        total_loss += loss
    sums[0], sums[1], sums[2] = total_loss, total_residual, total_l2


@kernel(fastmath=True)
def improve_rows(
    low, high, indptr, indices, weights, other, diagonal, ridge, shift, own, vector, pulls, steps, tolerance,
    relaxation, bounds, this, sums,
):  # fmt: skip
    """Improve rows (`Backend.improve`). `own`, `vector` t and `pulls` (rank_one) may be None: Numba omits their code.

    The preconditioner h + pull t t' is inverted by Sherman-Morrison: 1/h - gain th th', where th = t / h.
    in: all but the last two   in and out: this   out: sums (blocks x 3)
    """
    for block in range(low, high):
        _improve_block(
            indptr, indices, weights, other, diagonal, ridge, shift, own, vector, pulls, steps, tolerance, relaxation,
            bounds[block], bounds[block + 1], this, sums[block],
        )  # fmt: skip
