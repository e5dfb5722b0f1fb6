"""Fold in a few users, those with short histories without a matrix of d x d per user (docs/fold-in.md).

A user's vector is u = H^-1 (b - psi q), with H = S + l I + Y'CY and b = Y'C1: Y has the k vectors of the history as
rows, C their confidences, S = alpha0 G_V is shared by all users, l is the user's ridge. In the eigenbasis of S, S + l I
is a diagonal D, and by the Woodbury identity

    u = D^-1 (Y'z - psi q),   (C^-1 + Y D^-1 Y') z = 1 + psi Y D^-1 q

z_j = c_j (1 - u.y_j), what the history leaves unexplained. That is a system of k x k instead of d x d: 2 k d^2 +
k^2 d + k^3/3 flops, where Cholesky takes k d^2 + d^3/3. Equals `rows.solve_block` up to rounding; the small system is
solved in float64. Needs a ridge above 0 and confidences above 0. Longer histories are solved by Cholesky here too, each
with its own psi.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.rows import GATHER, _solve_row
from fairmf.kernels import kernel

SHORT = 1.6  # a history is short if it has at most 1/SHORT times as many items as there are factors
FEW_FACTORS, SHORT_OF_FEW = 64, 1.25  # up to so many factors: calling LAPACK costs more there than it saves
SHORT_ROWS = 128  # up to this length four rows are read at a time; longer ones come from memory faster one by one


@kernel(fastmath={"reassoc", "contract"})
def products(users, items, out):
    """Set out[i, j] = users[i].items[j].   in: users, items (rows of equal length)   out: out

    Not BLAS: for a few users it is faster, because it packs nothing, and it never starts threads.
    """
    n, m, d = len(users), len(items), users.shape[1]
    tiled = n - n % 4
    for i in range(0, tiled, 4):
        for j in range(m):
            a, b, c, e = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for k in range(d):
                x = items[j, k]
                a += x * users[i, k]
                b += x * users[i + 1, k]
                c += x * users[i + 2, k]
                e += x * users[i + 3, k]
            out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j] = a, b, c, e
    paired = m - m % 4 if d <= SHORT_ROWS else 0
    for i in range(tiled, n):
        for j in range(0, paired, 4):
            a, b, c, e = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for k in range(d):
                x = users[i, k]
                a += x * items[j, k]
                b += x * items[j + 1, k]
                c += x * items[j + 2, k]
                e += x * items[j + 3, k]
            out[i, j], out[i, j + 1], out[i, j + 2], out[i, j + 3] = a, b, c, e
        for j in range(paired, m):
            total = np.float32(0.0)
            for k in range(d):
                total += items[j, k] * users[i, k]
            out[i, j] = total


@kernel(inner=True)
def is_short(k, d):
    """Return whether a history of k items is solved in the space of its items, with d factors."""
    return k > 0 and k <= d / (SHORT_OF_FEW if d <= FEW_FACTORS else SHORT)


@kernel(fastmath={"reassoc", "contract"})
def fold_short(low, high, indptr, indices, weights, other, turned_other, basis, values, merit, l2, psi, out):
    """Fold in those of the users low..high that have a short history (`is_short`).

    `basis` has the eigenvectors of S as rows, `values` its eigenvalues, `merit` is q in that basis; `turned_other` is
    `other` in that basis, or empty: then the rows of a history are turned here. l2: see `ridge_of`.
    in: all but out   out: out (users x d); NaN where a system is not positive definite, or its solution not finite
    """
    d = other.shape[1]
    for i in range(low, high):
        start, k = indptr[i], indptr[i + 1] - indptr[i]
        if not is_short(k, d):
            continue
        ridge = ridge_of(weights[start : start + k], l2)
        turned = np.empty((k, d), dtype=np.float32)
        if len(turned_other):
            gather(turned_other, indices[start : start + k], turned)
        else:
            history = np.empty((k, d), dtype=np.float32)
            gather(other, indices[start : start + k], history)
            products(history, basis, turned)
        root, inner, right = np.empty(d), np.empty(d), np.empty(k)  # D^-1/2, psi D^-1/2 q
        for c in range(d):
            root[c] = np.sqrt(1.0 / (values[c] + ridge))
            inner[c] = psi[i] * root[c] * merit[c]
        scaled = np.empty((k, d))  # Y D^-1/2
        for e in range(k):
            along = 0.0
            for c in range(d):
                x = np.float64(turned[e, c]) * root[c]
                scaled[e, c] = x
                along += x * inner[c]
            right[e] = 1.0 + along
        system = np.empty((k, k))
        lower_products(scaled, system)
        for e in range(k):
            system[e, e] += 1.0 / np.float64(weights[start + e])
        if not solve_lower(system, right):
            no_solution(out[i])
            continue
        for c in range(d):
            inner[c] = -inner[c]
        for e in range(k):
            for c in range(d):
                inner[c] += right[e] * scaled[e, c]
        whole = np.empty(d)
        for c in range(d):
            whole[c] = 0.0
        for c in range(d):
            x = inner[c] * root[c]
            for f in range(d):
                whole[f] += x * np.float64(basis[c, f])
        for f in range(d):
            out[i, f] = np.float32(whole[f])
        check_finite(out[i])


@kernel(inner=True)
def binary_weights(indices, values, popular, factor, norm, m, out):
    """Weight a history of ones as `Balance.weights` does; return False if items do not ascend or a value is not 1.

    in: all but out   out: out. `popular` may be empty: then all weights are 1.
    """
    before = -1
    for e in range(len(indices)):
        j = indices[e]
        if j <= before or j >= m or values[e] != 1.0:
            return False
        before = j
        out[e] = np.float32(popular[j] * factor / norm) if len(popular) else np.float32(1.0)
    return True


@kernel(fastmath=True)
def fold_long(low, high, indptr, indices, weights, other, matrix, merit, l2, psi, out):
    """Fold in the other users of low..high, by Cholesky; `matrix` is S, `merit` q; otherwise as `fold_short`."""
    d = other.shape[1]
    own, tile = np.empty((d, d), dtype=np.float32), np.empty((GATHER, d), dtype=np.float32)
    letters, one = np.array([85, 78], dtype=np.uint8), np.array([1.0], dtype=np.float32)  # "U", "N"
    ints = np.array([d, 0, 1, 0], dtype=np.int32)  # as in `rows.solve_block`
    for i in range(low, high):
        start, stop = indptr[i], indptr[i + 1]
        if is_short(stop - start, d):
            continue
        for k in range(d):
            for c in range(d):
                own[k, c] = matrix[k, c]
        ridge = np.float32(ridge_of(weights[start:stop], l2))
        for k in range(d):
            own[k, k] += ridge
            out[i, k] = np.float32(-psi[i] * merit[k])
        if not _solve_row(indices, weights, start, stop, other, own, tile, letters, ints, one, out[i]):
            no_solution(out[i])
        check_finite(out[i])


@kernel
def fold_binary(
    low, high, indptr, indices, values, popular, scale, other, turned_other, basis, spectrum, turned_merit, matrix,
    merit, l2, psi, weights, out
):  # fmt: skip
    """Check, weight and fold in one history of ones, in one call: a request has little time for several.

    `scale` is (a^-b_U, z) (`data/weighting.py`); `weights` is scratch; the rest is as in `fold_short` and `fold_long`.
    out: weights, out; out[0, 0] is infinite where `binary_weights` refuses the history
    """
    if not binary_weights(indices, values, popular, scale[0], scale[1], len(other), weights):
        out[0, 0] = np.inf
    elif is_short(len(indices), other.shape[1]):
        fold_short(
            low, high, indptr, indices, weights, other, turned_other, basis, spectrum, turned_merit, l2, psi, out
        )  # fmt: skip
    else:
        fold_long(low, high, indptr, indices, weights, other, matrix, merit, l2, psi, out)


@kernel(inner=True)
def ridge_of(weights, l2):
    """Return lambda2 (c + alpha0 m)^eta, with c the sum of a user's confidences and l2 = (lambda2, eta, alpha0 m)."""
    total = 0.0
    for e in range(len(weights)):
        total += np.float64(weights[e])
    return l2[0] * (total + l2[2]) ** l2[1]


@kernel(inner=True)
def check_finite(row):
    """Set a row to NaN if any of its numbers is not finite, so that the first one tells.   in, out: row"""
    total = 0.0
    for c in range(len(row)):
        total += np.float64(row[c]) * 0.0
    if total != 0.0:
        no_solution(row)


@kernel(inner=True)
def no_solution(row):
    """Set a row to NaN.   out: row"""
    for c in range(len(row)):
        row[c] = np.nan


@kernel(inner=True)
def gather(rows, chosen, out):
    """Copy the chosen rows.   in: rows, chosen   out: out"""
    for e in range(len(chosen)):
        for c in range(rows.shape[1]):
            out[e, c] = rows[chosen[e], c]


@kernel(fastmath={"reassoc", "contract"}, inner=True)
def lower_products(rows, out):
    """Set out[e, f] = rows[e].rows[f] for f <= e.   in: rows   out: out (above its diagonal: anything)"""
    n, d = rows.shape
    for e in range(n):
        f = 0
        while f <= e:  # two at a time; the last may lie above the diagonal
            g = min(f + 1, n - 1)
            a, b = 0.0, 0.0
            for c in range(d):
                x = rows[e, c]
                a += x * rows[f, c]
                b += x * rows[g, c]
            out[e, f], out[e, g] = a, b
            f += 2


@kernel(fastmath={"reassoc", "contract"}, inner=True)
def solve_lower(matrix, right):
    """Solve A x = b by Cholesky in place; `matrix` holds the lower triangle of A.   in, out: matrix, right

    Returns whether A is positive definite.
    """
    n, inverse = len(right), np.empty(len(right))
    for i in range(n):
        j = 0
        while j + 4 <= i:  # four columns at a time, which share the reads of row i
            a, b, c, e = 0.0, 0.0, 0.0, 0.0
            for k in range(j):
                x = matrix[i, k]
                a += x * matrix[j, k]
                b += x * matrix[j + 1, k]
                c += x * matrix[j + 2, k]
                e += x * matrix[j + 3, k]
            a = (matrix[i, j] - a) * inverse[j]
            b = (matrix[i, j + 1] - b - a * matrix[j + 1, j]) * inverse[j + 1]
            c += a * matrix[j + 2, j] + b * matrix[j + 2, j + 1]
            c = (matrix[i, j + 2] - c) * inverse[j + 2]
            e += a * matrix[j + 3, j] + b * matrix[j + 3, j + 1] + c * matrix[j + 3, j + 2]
            e = (matrix[i, j + 3] - e) * inverse[j + 3]
            matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3] = a, b, c, e
            j += 4
        for last in range(j, i + 1):
            total = matrix[i, last]
            for k in range(last):
                total -= matrix[i, k] * matrix[last, k]
            if last < i:
                matrix[i, last] = total * inverse[last]
        if not total > 0.0:
            return False
        matrix[i, i] = np.sqrt(total)
        inverse[i] = 1.0 / matrix[i, i]
    for i in range(n):
        total = right[i]
        for k in range(i):
            total -= matrix[i, k] * right[k]
        right[i] = total * inverse[i]
    for i in range(n - 1, -1, -1):
        right[i] *= inverse[i]
        for k in range(i):
            right[k] -= matrix[i, k] * right[i]
    return True
