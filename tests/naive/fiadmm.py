"""The steps of fiADMM by double loops over users and items, straight from the formulas; no Gramians, no shortcuts."""

import numpy as np


def item_step(C, U, s, ridge_v, unobserved, lambda_f, item_weights=None):
    n, m = C.shape
    d = U.shape[1]
    V = np.zeros((m, d))
    for j in range(m):
        w = 1.0 if item_weights is None else item_weights[j]
        matrix = ridge_v[j] * np.eye(d) + lambda_f * np.outer(w * s, w * s)
        right = np.zeros(d)
        for i in range(n):
            matrix += (C[i, j] + unobserved) * np.outer(U[i], U[i])
            right += C[i, j] * U[i]
        V[j] = np.linalg.inv(matrix) @ right
    return V


def user_gradient(C, U, V, ridge_u, unobserved):
    n, m = C.shape
    G = np.zeros_like(U)
    for i in range(n):
        for j in range(m):
            score = V[j] @ U[i]
            G[i] += C[i, j] * (score - 1) * V[j] + unobserved * score * V[j]
        G[i] += ridge_u[i] * U[i]
    return G


def user_step(C, U, V, s, w, rho, gamma, ridge_u, unobserved):
    """argmin over U of <G, U> + 1/(2 gamma) |U - U_old|^2 + rho/2 |(1/n) U'1 - s + w|^2, as one dense n x n solve."""
    n = len(U)
    G = user_gradient(C, U, V, ridge_u, unobserved)
    matrix = np.eye(n) / gamma + (rho / n**2) * np.ones((n, n))
    right = U / gamma - G + (rho / n) * np.tile(s - w, (n, 1))
    return np.linalg.solve(matrix, right)


def consensus_step(V, t, w, rho, lambda_f, sign=+1, item_weights=None):
    d = len(t)
    matrix = rho * np.eye(d)
    for j in range(len(V)):
        row = V[j] if item_weights is None else item_weights[j] * V[j]
        matrix += lambda_f * np.outer(row, row)
    return rho * (np.linalg.inv(matrix) @ (t + sign * w))
