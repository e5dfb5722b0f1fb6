"""Metrics of fairness and diversity as loops over users, items and slots, from their definitions in docs/metrics.md.

Exposure is a dense table users x items here, which the library never makes.
"""

from __future__ import annotations

import math

from naive.metrics import gini


def rbp(rank):
    return 0.15 * 0.85 ** (rank - 1)


def dcg(items, wanted, K):
    return sum(1 / math.log2(rank + 1) for rank, item in enumerate(items[:K], start=1) if item in wanted)


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def more_accuracy(lists, targets, K, m):
    """Precision, recall of all targets and MAP. A list has at most one slot for each of the m items."""
    K = min(K, m)
    found = {"precision": [], "recall_all": [], "map": [], "map_all": []}
    for items, wanted in zip(lists, targets, strict=True):
        if not wanted:
            continue
        hits, total = 0, 0.0
        for rank, item in enumerate(items[:K], start=1):
            if item in wanted:
                hits += 1
                total += hits / rank
        found["precision"].append(hits / K)
        found["recall_all"].append(hits / len(wanted))
        found["map"].append(total / min(K, len(wanted)))
        found["map_all"].append(total / len(wanted))
    return {name: mean(each) for name, each in found.items()}


def exposure_tables(lists, targets, m, K):
    """Exposure and ideal exposure of every item for every user with targets: two tables, and the users."""
    K = min(K, m)
    users = [u for u, wanted in enumerate(targets) if wanted]
    shown, ideal = [], []
    for u in users:
        row = [0.0] * m
        for rank, item in enumerate(lists[u][:K], start=1):
            if item >= 0:
                row[item] = rbp(rank)
        shown.append(row)
        t = len(targets[u])
        top = sum(rbp(rank) for rank in range(1, K + 1) if rank <= t)
        rest = sum(rbp(rank) for rank in range(1, K + 1) if rank > t)
        ideal.append([top / t if j in targets[u] else rest / (m - t) for j in range(m)])
    return users, shown, ideal


def expected_exposure(lists, targets, m, K):
    _, shown, ideal = exposure_tables(lists, targets, m, K)
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(shown, ideal, strict=True)]
    return {
        "ee_loss": mean(sum((a - b) ** 2 for a, b in row) for row in pairs),
        "ee_disparity": mean(sum(a * a for a, _ in row) for row in pairs),
        "ee_relevance": mean(2 * sum(a * b for a, b in row) for row in pairs),
    }


def jme(lists, targets, m, K, user_codes, codes):
    """Every member: the squares of mean differences over cells of (users or groups) x (items or groups)."""
    users, shown, ideal = exposure_tables(lists, targets, m, K)
    n = len(users)
    user_sets = {
        "i": [[k] for k in range(n)],
        "a": [list(range(n))] if n else [],
        "g": [[k for k in range(n) if user_codes[users[k]] == g] for g in sorted({user_codes[u] for u in users})],
    }
    item_sets = {"i": [[j] for j in range(m)], "g": [[j for j in range(m) if codes[j] == g] for g in set(codes)]}
    found = {}
    for a, b in ("ii", "ig", "ai", "ag", "gi", "gg"):
        cells = []
        for some_users in user_sets[a]:
            for some_items in item_sets[b]:
                size = len(some_users) * len(some_items)
                given = sum(shown[k][j] for k in some_users for j in some_items) / size
                wanted = sum(ideal[k][j] for k in some_users for j in some_items) / size
                cells.append((given, wanted))
        found[f"jme_{a}{b}"] = mean((x - y) ** 2 for x, y in cells)
        if a + b != "ii":  # those are EE-D and EE-R, divided by the number of items
            found[f"jme_{a}{b}_disparity"] = mean(x**2 for x, _ in cells)
            found[f"jme_{a}{b}_relevance"] = mean(2 * x * y for x, y in cells)
    return found


def awrf(lists, K, codes, target):
    values = []
    for items in lists:
        weights = dict.fromkeys(target, 0.0)
        for rank, item in enumerate(items[:K], start=1):
            if item >= 0:
                weights[codes[item]] += 1 / math.log2(rank + 1)
        total = sum(weights.values())
        if total:
            p, q = [w / total for w in weights.values()], list(target.values())
            middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
            divergence = sum(a * math.log2(a / c) / 2 for a, c in zip(p, middle, strict=True) if a > 0)
            divergence += sum(b * math.log2(b / c) / 2 for b, c in zip(q, middle, strict=True) if b > 0)
            values.append(1 - divergence)
    return mean(values)


def of_popularity(lists, histories, K, popularity, n_train):
    """APLT, ACLT, novelty and popularity lift."""
    m = len(popularity)
    by_popularity = sorted(range(m), key=lambda j: (-popularity[j], j))
    tail = set(by_popularity[m - math.floor(m * 4 / 5) :])
    short = [[item for item in items[:K] if item >= 0] for items in lists]
    information = [-math.log2(max(popularity[item], 1) / max(n_train, 1)) for items in short for item in items]
    both = [(items, past) for items, past in zip(short, histories, strict=True) if items and past]
    now = mean(mean(popularity[item] for item in items) for items, _ in both)
    before = mean(mean(popularity[item] for item in past) for _, past in both)
    return {
        "aplt": mean(sum(item in tail for item in items) / len(items) for items in short if items),
        "aclt": mean(sum(item in tail for item in items) for items in short),
        "novelty": mean(information),
        "popularity_lift": (now - before) / before if before > 0 else math.nan,
    }


def ild(lists, K, features):
    def cosine(a, b):
        lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
        return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0

    values = []
    for items in lists:
        short = [item for item in items[:K] if item >= 0]
        pairs = [(a, b) for k, a in enumerate(short) for b in short[k + 1 :]]
        if pairs:
            values.append(mean(1 - cosine(features[a], features[b]) for a, b in pairs))
    return mean(values)


def of_users(lists, targets, K):
    """Envy, and the inequality and the worst-off quarter of the users' utilities."""
    n, utilities, envies = len(lists), [], []
    for u, wanted in enumerate(targets):
        if not wanted:
            continue
        ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(K, len(wanted)) + 1))
        own = dcg(lists[u], wanted, K)
        utilities.append(own)
        more = [max(0.0, dcg(lists[v], wanted, K) - own) / ideal for v in range(n) if v != u]
        envies.append(mean(more) if more else 0.0)
    worst = sorted(utilities)[: len(utilities) // 4]
    return {
        "envy": mean(envies),
        "user_gini": gini(utilities) if utilities else math.nan,
        "worst25_utility": sum(worst) / len(utilities) if utilities else math.nan,
    }
