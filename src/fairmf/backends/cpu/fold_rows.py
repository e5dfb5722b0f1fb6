"""Fold in single users with short histories, without a matrix of d x d per user (docs/fold-in.md).

A user's vector is u = H^-1 (b - psi q), with H = S + l I + Y'CY and b = Y'C1: Y has the k vectors of the history as
rows, C their confidences, S = alpha0 G_V is shared by all users, l is the user's ridge. In the eigenbasis of S, S + l I
is a diagonal D, and by the Woodbury identity

    u = D^-1 (Y'z - psi q),   (C^-1 + Y D^-1 Y') z = 1 + psi Y D^-1 q

z_j = c_j (1 - u.y_j), what the history leaves unexplained. That is a system of k x k instead of d x d: 2 k d^2 +
k^2 d + k^3/3 flops, where Cholesky takes k d^2 + d^3/3. Equals `rows.solve_block` up to rounding; the small system is
solved in float64. Needs a ridge above 0 and confidences above 0.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel


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
    for i in range(tiled, n):
        for j in range(m):
            total = np.float32(0.0)
            for k in range(d):
                total += items[j, k] * users[i, k]
            out[i, j] = total


@kernel(fastmath={"reassoc", "contract"})
def fold_rows(low, high, indptr, indices, weights, other, basis, values, merit, l2, psi, out):
    """Fold in users low..high.   in: all but out   out: out (users x d); NaN where a system is not positive definite

    `basis` has the eigenvectors of S as rows, `values` its eigenvalues, `merit` is q in that basis, and l2 = (lambda2,
    eta, alpha0 m): the ridge is lambda2 (c + alpha0 m)^eta, with c the sum of the user's confidences.
    """
    d = other.shape[1]
    for i in range(low, high):
        start, k = indptr[i], indptr[i + 1] - indptr[i]
        total = 0.0
        for e in range(k):
            total += np.float64(weights[start + e])
        ridge = l2[0] * (total + l2[2]) ** l2[1]
        history, turned = np.empty((k, d), dtype=np.float32), np.empty((k, d), dtype=np.float32)
        for e in range(k):
            history[e] = other[indices[start + e]]
        products(history, basis, turned)
        inverse, right = 1.0 / (values + ridge), np.empty(k)
        scaled = np.empty((k, d))  # Y D^-1/2
        for e in range(k):
            along = 0.0
            for c in range(d):
                along += np.float64(turned[e, c]) * inverse[c] * merit[c]
            right[e] = 1.0 + psi[i] * along
            for c in range(d):
                scaled[e, c] = np.float64(turned[e, c]) * np.sqrt(inverse[c])
        system = np.empty((k, k))
        for e in range(k):
            for f in range(e + 1):
                total = 0.0
                for c in range(d):
                    total += scaled[e, c] * scaled[f, c]
                system[e, f] = total
            system[e, e] += 1.0 / np.float64(weights[start + e])
        if not solve_lower(system, right):
            out[i, :] = np.nan
            continue
        inner = np.empty(d)
        for c in range(d):
            inner[c] = -psi[i] * merit[c]
        for e in range(k):
            for c in range(d):
                inner[c] += right[e] * np.float64(turned[e, c])
        for c in range(d):
            inner[c] *= inverse[c]
        whole = np.zeros(d)
        for c in range(d):
            for f in range(d):
                whole[f] += inner[c] * np.float64(basis[c, f])
        for f in range(d):
            out[i, f] = np.float32(whole[f])


@kernel(fastmath={"reassoc", "contract"})
def solve_lower(matrix, right):
    """Solve A x = b by Cholesky in place; `matrix` holds the lower triangle of A.   in, out: matrix, right

    Returns whether A is positive definite.
    """
    n = len(right)
    for i in range(n):
        for j in range(i):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / matrix[j, j]
        total = matrix[i, i]
        for k in range(i):
            total -= matrix[i, k] * matrix[i, k]
        if not total > 0.0:
            return False
        matrix[i, i] = np.sqrt(total)
    for i in range(n):
        total = right[i]
        for k in range(i):
            total -= matrix[i, k] * right[k]
        right[i] = total / matrix[i, i]
    for i in range(n - 1, -1, -1):
        right[i] /= matrix[i, i]
        for k in range(i):
            right[k] -= matrix[i, k] * right[i]
    return True
