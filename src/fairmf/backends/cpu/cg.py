"""Improve all rows by preconditioned conjugate gradients, in the basis where the shared matrix is diagonal.

In that basis a row's matrix-vector product costs O(nnz_i d), and (diagonal + ridge_i) is a good preconditioner that
costs nothing. Entries are processed eight at a time, so that the row's own vectors are read once per eight gathered
ones, and eight sums are under way at once; the last entries of a row four at a time.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel

TINY = np.float32(1e-30)  # squares of float32 numbers this small underflow: a row below it counts as solved


@kernel(fastmath=True, inline="always")
def _residual_pass(indices, weights, start, stop, other, x, r):
    """Add sum_j c_j (1 - x.y_j) y_j to r; return sum_j c_j (1 - x.y_j)^2."""
    d = len(x)
    one = np.float32(1.0)
    loss = 0.0
    e = start
    while e + 8 <= stop:
        a, b, c, f = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
        g, h, o, q = indices[e + 4], indices[e + 5], indices[e + 6], indices[e + 7]
        sa = sb = sc = sf = sg = sh = so = sq = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * x[k]
            sb += other[b, k] * x[k]
            sc += other[c, k] * x[k]
            sf += other[f, k] * x[k]
            sg += other[g, k] * x[k]
            sh += other[h, k] * x[k]
            so += other[o, k] * x[k]
            sq += other[q, k] * x[k]
        sa, sb, sc, sf, sg, sh, so, sq = one - sa, one - sb, one - sc, one - sf, one - sg, one - sh, one - so, one - sq
        wa, wb, wc, wf, wg, wh, wo, wq = sa, sb, sc, sf, sg, sh, so, sq
        if weights is not None:
            wa, wb, wc, wf = sa * weights[e], sb * weights[e + 1], sc * weights[e + 2], sf * weights[e + 3]
            wg, wh, wo, wq = sg * weights[e + 4], sh * weights[e + 5], so * weights[e + 6], sq * weights[e + 7]
        loss += np.float64(sa * wa + sb * wb + sc * wc + sf * wf + sg * wg + sh * wh + so * wo + sq * wq)
        for k in range(d):
            r[k] += wa * other[a, k] + wb * other[b, k] + wc * other[c, k] + wf * other[f, k]
            r[k] += wg * other[g, k] + wh * other[h, k] + wo * other[o, k] + wq * other[q, k]
        e += 8
    while e < stop:
        a, b, c, f, wa, wb, wc, wf = _last_four(indices, weights, e, stop)
        sa = sb = sc = sf = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * x[k]
            sb += other[b, k] * x[k]
            sc += other[c, k] * x[k]
            sf += other[f, k] * x[k]
        sa, sb, sc, sf = one - sa, one - sb, one - sc, one - sf
        wa, wb, wc, wf = sa * wa, sb * wb, sc * wc, sf * wf
        loss += np.float64(sa * wa + sb * wb + sc * wc + sf * wf)
        for k in range(d):
            r[k] += wa * other[a, k] + wb * other[b, k] + wc * other[c, k] + wf * other[f, k]
        e += 4
    return loss


@kernel(fastmath=True, inline="always")
def _product_pass(indices, weights, start, stop, other, p, hp):
    """Add sum_j c_j (p.y_j) y_j to hp; return sum_j c_j (p.y_j)^2."""
    d = len(p)
    curvature = 0.0
    e = start
    while e < stop:
        a, b, c, f, wa, wb, wc, wf = _last_four(indices, weights, e, stop)
        sa = sb = sc = sf = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * p[k]
            sb += other[b, k] * p[k]
            sc += other[c, k] * p[k]
            sf += other[f, k] * p[k]
        wa, wb, wc, wf = sa * wa, sb * wb, sc * wc, sf * wf
        curvature += np.float64(sa * wa + sb * wb + sc * wc + sf * wf)
        for k in range(d):
            hp[k] += wa * other[a, k] + wb * other[b, k] + wc * other[c, k] + wf * other[f, k]
        e += 4
    return curvature


@kernel(fastmath=True, inline="always")
def _curvature_pass(indices, weights, start, stop, other, p):
    """Return sum_j c_j (p.y_j)^2, which is all that the last step needs.

    It goes through the entries backwards, because those that the pass before read last are still in the cache.
    """
    d = len(p)
    curvature = 0.0
    whole = start + (stop - start) // 8 * 8
    for e in range(whole, stop, 4):
        a, b, c, f, wa, wb, wc, wf = _last_four(indices, weights, e, stop)
        sa = sb = sc = sf = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * p[k]
            sb += other[b, k] * p[k]
            sc += other[c, k] * p[k]
            sf += other[f, k] * p[k]
        curvature += np.float64(sa * sa * wa + sb * sb * wb + sc * sc * wc + sf * sf * wf)
    for e in range(whole - 8, start - 8, -8):
        a, b, c, f = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
        g, h, o, q = indices[e + 4], indices[e + 5], indices[e + 6], indices[e + 7]
        sa = sb = sc = sf = sg = sh = so = sq = np.float32(0.0)
        for k in range(d):
            sa += other[a, k] * p[k]
            sb += other[b, k] * p[k]
            sc += other[c, k] * p[k]
            sf += other[f, k] * p[k]
            sg += other[g, k] * p[k]
            sh += other[h, k] * p[k]
            so += other[o, k] * p[k]
            sq += other[q, k] * p[k]
        if weights is None:
            curvature += np.float64(sa * sa + sb * sb + sc * sc + sf * sf)
            curvature += np.float64(sg * sg + sh * sh + so * so + sq * sq)
        else:
            curvature += np.float64(
                sa * sa * weights[e] + sb * sb * weights[e + 1] + sc * sc * weights[e + 2] + sf * sf * weights[e + 3]
            )
            curvature += np.float64(
                sg * sg * weights[e + 4]
                + sh * sh * weights[e + 5]
                + so * so * weights[e + 6]
                + sq * sq * weights[e + 7]
            )
    return curvature


@kernel(inner=True)
def _last_four(indices, weights, e, stop):
    """Return four entries from `e` on, with their weights. Beyond the last one it is repeated with weight 0."""
    one, none = np.float32(1.0), np.float32(0.0)
    b, c, f = min(e + 1, stop - 1), min(e + 2, stop - 1), min(e + 3, stop - 1)
    wb, wc, wf = one if e + 1 < stop else none, one if e + 2 < stop else none, one if e + 3 < stop else none
    if weights is None:
        return indices[e], indices[b], indices[c], indices[f], one, wb, wc, wf
    wb, wc, wf = wb * weights[b], wc * weights[c], wf * weights[f]
    return indices[e], indices[b], indices[c], indices[f], weights[e], wb, wc, wf


@kernel(fastmath=True, inline="always")
def _dot(a, b):
    total = np.float32(0.0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@kernel(fastmath=True, inner=True)
def _improve_block(
    indptr, indices, weights, other, diagonal, ridge, shift, own, vector, pulls, steps, tolerance, accuracy, relaxation,
    first, last, this, sums,
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
        if accuracy > 0.0:
            size = np.float32(0.0)
            for k in range(d):
                size += h[k] * x[k] * x[k]
            goal = max(goal, accuracy * accuracy * size)
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
    accuracy, relaxation, bounds, this, sums,
):  # fmt: skip
    """Improve rows (`Backend.improve`). `own`, `vector` t and `pulls` (rank_one) may be None: Numba omits their code.

    The preconditioner h + pull t t' is inverted by Sherman-Morrison: 1/h - gain th th', where th = t / h.
    in: all but the last two   in and out: this   out: sums (blocks x 3)
    """
    for block in range(low, high):
        _improve_block(
            indptr, indices, weights, other, diagonal, ridge, shift, own, vector, pulls, steps, tolerance, accuracy,
            relaxation, bounds[block], bounds[block + 1], this, sums[block],
        )  # fmt: skip
