"""F and its four terms by double loops over all users and items, straight from the definition."""

import numpy as np


def dense(interactions):
    """The full n x m matrix of confidences (0 where there is no interaction)."""
    return interactions.to_csr().toarray().astype(np.float64)


def ridges(C, regularization, exponent, unobserved):
    n, m = C.shape
    users = [regularization * (C[i].sum() + unobserved * m) ** exponent for i in range(n)]
    items = [regularization * (C[:, j].sum() + unobserved * n) ** exponent for j in range(m)]
    return np.array(users), np.array(items)


def terms(C, U, V, regularization, exponent, unobserved, lambda_f, mean=None, item_weights=None):
    n, m = C.shape
    ridge_u, ridge_v = ridges(C, regularization, exponent, unobserved)
    observed = everywhere = fairness = 0.0
    t = sum(U[i] for i in range(n)) / n if mean is None else mean
    for i in range(n):
        for j in range(m):
            score = float(U[i] @ V[j])
            if C[i, j] > 0:
                observed += 0.5 * C[i, j] * (1 - score) ** 2
            everywhere += 0.5 * unobserved * score**2
    l2 = sum(0.5 * ridge_u[i] * float(U[i] @ U[i]) for i in range(n))
    l2 += sum(0.5 * ridge_v[j] * float(V[j] @ V[j]) for j in range(m))
    for j in range(m):
        w = 1.0 if item_weights is None else item_weights[j]
        fairness += 0.5 * lambda_f * (w * float(V[j] @ t)) ** 2
    return {"observed": observed, "unobserved": everywhere, "l2": l2, "fairness": fairness}


def total(*args, **kwargs):
    return sum(terms(*args, **kwargs).values())
