"""The rivals' published updates in double loops over dense scores: slow, plain, and independent of fairmf.baselines."""

import itertools
import math

import numpy as np


def ranking(values, liked, K):
    """The K best items that are not liked, ties to the lower item."""
    free = [j for j in range(len(values)) if j not in liked]
    return sorted(free, key=lambda j: (-values[j], j))[:K]


# -- Frank-Wolfe on generalised Gini welfare (Do and Usunier 2022) ----------------------------------------------------


def falling_regression(y):
    """Falling isotonic regression by its min-max formula: v_k = min over a <= k of max over b >= k of mean(y[a..b])."""
    n = len(y)
    before = [0.0, *np.cumsum(y).tolist()]
    return np.array([
        min(max((before[b + 1] - before[a]) / (b + 1 - a) for b in range(k, n)) for a in range(k + 1)) for k in range(n)
    ])  # fmt: skip


def rising_weights_gradient(x, beta):
    """Weights of x in the smoothed Gini welfare: -x / beta projected onto the hull of 1, (n - 1) / n, .., 1 / n."""
    n = len(x)
    weights = [(n - r) / n for r in range(n)]
    z = [-value / beta for value in x]
    order = sorted(range(n), key=lambda j: (-z[j], j))
    # falling regression = minus rising regression of the negative, here by the mirrored formula
    fitted = -falling_regression(np.array([-(z[j] - weights[r]) for r, j in enumerate(order)])[::-1])[::-1]
    y = np.zeros(n)
    for r, j in enumerate(order):
        y[j] = z[j] - fitted[r]
    return y


def welfare_lists(S, liked, K, strength, u, v, time, smoothing, scales, of_users):
    """The linear maximisation: every user's best items by (1 - lambda) y_i s_ij + lambda y_j."""
    n, m = S.shape
    beta = smoothing / math.sqrt(time)
    yv = rising_weights_gradient(v, beta * scales[1])
    yu = rising_weights_gradient(u, beta * scales[0]) if of_users == "gini" else np.ones(n)
    values = [[(1 - strength) * yu[i] * S[i, j] + strength * yv[j] for j in range(m)] for i in range(n)]
    return [ranking(values[i], liked[i], K) for i in range(n)]


def frank_wolfe(S, liked, K, strength, passes, smoothing, of_users, seed):
    """Batch: P as a dense matrix of exposures, and a list of every user drawn from the mixture."""
    n, m = S.shape
    random = np.random.default_rng(seed)
    P, drawn, scales = np.zeros((n, m)), [None] * n, None
    for t in range(passes + 1):
        step = 2 / (t + 2)
        if t == 0:
            made = [ranking(S[i], liked[i], K) for i in range(n)]
        else:
            u = [sum(P[i, j] * S[i, j] for j in range(m)) for i in range(n)]
            v = [sum(P[i, j] for i in range(n)) for j in range(m)]
            made = welfare_lists(S, liked, K, strength, u, v, t, smoothing, scales, of_users)
        Q = np.zeros((n, m))
        for i in range(n):
            for j in made[i]:
                Q[i, j] = 1
        P = (1 - step) * P + step * Q
        draws = random.random(n)
        for i in range(n):
            if draws[i] < step:
                drawn[i] = made[i]
        if scales is None:
            scales = np.abs((P * S).sum(axis=1)).mean(), P.sum() / m
    return drawn, P


def online_frank_wolfe(S, liked, K, strength, passes, smoothing, of_users, seed, batch):
    """Online: running means over arrivals; the last list of every user."""
    n, m = S.shape
    random = np.random.default_rng(seed)
    u, v, arrived, scales, lists = np.zeros(n), np.zeros(m), 0, None, [None] * n
    for done in range(passes):
        order = random.permutation(n)
        for start in range(0, n, batch):
            users = order[start : start + batch]
            if arrived == 0:
                made = {i: ranking(S[i], liked[i], K) for i in users}
            else:
                time = 1 + arrived / n
                every = welfare_lists(S, liked, K, strength, u, v, time, smoothing, scales, of_users)
                made = {i: every[i] for i in users}
            shown = np.zeros(m)
            for i in users:
                lists[i] = made[i]
                u[i] += (sum(S[i, j] for j in made[i]) - u[i]) / (done + 1)
                for j in made[i]:
                    shown[j] += n / len(users)
            arrived += len(users)
            v += (shown - v) * len(users) / arrived
            if scales is None:
                scales = np.abs(u[users]).mean(), v.mean()
    return lists


# -- P-MMF (Xu et al. 2023) -------------------------------------------------------------------------------------------


def feasible_prices(mu, rho, strength, negative_only):
    """The next prices, in the norm weighted by rho, for which no set of providers has sum rho mu below -lambda.

    The move towards 0 that all negative rho mu have in common is found by bisection.
    """
    z = rho * mu
    low, high = 0.0, float(np.abs(z).max()) + 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(-x - middle, 0.0) for x in z) > strength:
            low = middle
        else:
            high = middle
    if sum(max(-x, 0.0) for x in z) <= strength:
        high = 0.0
    moved = [(0.0 if negative_only else x) if x >= 0 else -max(-x - high, 0.0) for x in z]
    return np.array(moved) / rho


def all_sets_hold(mu, rho, strength):
    """Whether sum over S of rho mu >= -lambda for every set S of providers."""
    count = len(mu)
    sets = itertools.chain.from_iterable(itertools.combinations(range(count), r) for r in range(count + 1))
    return all(sum(rho[p] * mu[p] for p in chosen) >= -strength - 1e-9 for chosen in sets)


def pmmf(S, liked, K, provider, rho, strength, eta, alpha, order, capped, batch=1):
    """Lists of users in their order of arrival, with prices that change after every batch."""
    count = len(rho)
    T = len(order)
    mu, momentum, left = np.zeros(count), np.zeros(count), T * K * rho
    lists = [None] * len(S)
    for start in range(0, T, batch):
        users = order[start : start + batch]
        shown = np.zeros(count)
        for i in users:
            values = []
            for j, score in enumerate(S[i]):
                p = provider[j]
                values.append(score - mu[p] - (1e4 if capped and left[p] <= 0 else 0.0))
            chosen = ranking(values, liked[i], K)
            lists[i] = sorted(chosen, key=lambda j: (-S[i, j], j))
            for j in chosen:
                shown[provider[j]] += 1
        left = left - shown
        gradient = -shown / (len(users) * K) + (left / (T * K) if capped else rho)
        momentum = alpha * gradient + (1 - alpha) * momentum
        mu = feasible_prices(mu - len(users) * eta / math.sqrt(T) * momentum / rho**2, rho, strength, not capped)
        assert count > 8 or all_sets_hold(mu, rho, strength)
    return lists


# -- xQuAD and calibrated popularity (Abdollahpouri et al. 2019, 2021) ------------------------------------------------


def popularity_groups(counts, cuts):
    """The group of every item: how many cuts lie at or below the share of interactions of more popular items."""
    total = sum(counts)
    groups = []
    for j, own in enumerate(counts):
        before = sum(other for k, other in enumerate(counts) if other > own or (other == own and k < j))
        groups.append(sum(before >= cut * total for cut in cuts))
    return groups


def shares(items, groups, count):
    """The share of each group among items."""
    return [sum(groups[j] == g for j in items) / len(items) for g in range(count)]


def jensen_shannon(p, q):
    """The Jensen-Shannon divergence in bits."""
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]

    def kl(x):
        return sum(a * math.log2(a / b) for a, b in zip(x, middle, strict=True) if a > 0)

    return (kl(p) + kl(q)) / 2


def greedy(scores, liked, groups, count, strength, rule, candidates, N):
    """One user's list: every slot compares all candidates that are left, by the formula of the paper."""
    best = ranking(scores, liked, candidates)
    low, high = min(scores[j] for j in best), max(scores[j] for j in best)
    unit = {j: (scores[j] - low) / (high - low) if high > low else 0.0 for j in best}
    p = shares(sorted(liked), groups, count)
    chosen = []

    def value(j):
        g = groups[j]
        if rule == "calibrated":
            relevance = sum(unit[k] for k in chosen) + unit[j]
            return (1 - strength) * relevance - strength * jensen_shannon(p, shares([*chosen, j], groups, count))
        covered = [groups[k] == g for k in chosen]
        if rule == "binary":
            novelty = math.prod(1 - c for c in covered)
        else:
            novelty = 1 - (sum(covered) / len(covered) if covered else 0)
        return (1 - strength) * unit[j] + strength * p[g] * novelty

    for _ in range(min(N, len(best))):
        rest = [j for j in best if j not in chosen]
        values = [value(j) for j in rest]
        top = max(values)
        # Values that differ by rounding alone are equal: the earlier candidate wins.
        chosen.append(next(j for j, x in zip(rest, values, strict=True) if x >= top - 1e-12))
    return chosen


# -- EASE (Steck 2019) and GF-CF (Shen et al. 2021) -------------------------------------------------------------------


def ease(X, regularization):
    """Item weights by one ridge regression per item on all others, which is what the closed form solves."""
    m = X.shape[1]
    B = np.zeros((m, m))
    for k in range(m):
        others = [j for j in range(m) if j != k]
        A = X[:, others]
        B[others, k] = np.linalg.solve(A.T @ A + regularization * np.eye(m - 1), A.T @ X[:, k])
    return B


def graph_filter(X, rows, factors, low_pass, exponent):
    """Scores of histories by the dense item graph and its eigenvectors."""
    n, m = X.shape
    users, items = X.sum(axis=1), X.sum(axis=0)
    scaled, symmetric = np.zeros((n, m)), np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            if X[i, j]:
                scaled[i, j] = users[i] ** -exponent * items[j] ** (exponent - 1)
                symmetric[i, j] = users[i] ** -0.5 * items[j] ** -0.5
    scores = rows @ (scaled.T @ scaled)
    values, vectors = np.linalg.eigh(symmetric.T @ symmetric)
    V = vectors[:, np.argsort(-values)[:factors]]
    into = np.array([1 / math.sqrt(c) if c else 0.0 for c in items])
    return scores + low_pass * (rows * into) @ V @ V.T * np.sqrt(items)
