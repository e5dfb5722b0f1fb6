"""Every metric as a double loop over users and slots, written from its definition in docs/metrics.md."""

from __future__ import annotations

import math

import numpy as np


def accuracy(lists, targets, K):
    """Mean recall, nDCG, hit rate and MRR at K over the users with targets. `targets` is a list of sets."""
    totals = {"recall": [], "ndcg": [], "hit_rate": [], "mrr": []}
    for items, wanted in zip(lists, targets, strict=True):
        if not wanted:
            continue
        hits, dcg, first = 0, 0.0, 0
        for rank, item in enumerate(items[:K], start=1):
            if item in wanted:
                hits += 1
                dcg += 1 / math.log2(rank + 1)
                first = first or rank
        best = min(K, len(wanted))
        totals["recall"].append(hits / best)
        totals["ndcg"].append(dcg / sum(1 / math.log2(rank + 1) for rank in range(1, best + 1)))
        totals["hit_rate"].append(1.0 if hits else 0.0)
        totals["mrr"].append(1 / first if first else 0.0)
    return {name: sum(each) / len(each) if each else math.nan for name, each in totals.items()}


def exposure(lists, n_items, K, weighting="count"):
    o = [0.0] * n_items
    for items in lists:
        for rank, item in enumerate(items[:K], start=1):
            if item >= 0:
                o[item] += {"count": 1.0, "dcg": 1 / math.log2(rank + 1), "rbp": 0.15 * 0.85 ** (rank - 1)}[weighting]
    return o


def gini(o):
    """Mean absolute difference of all pairs, divided by twice the mean: the definition behind the sorted formula."""
    m, total = len(o), sum(o)
    return sum(abs(a - b) for a in o for b in o) / (2 * m * total) if total else math.nan


def exposure_metrics(lists, n_items, K, popularity, merit, codes=None, n_groups=0):
    """All exposure metrics at K; with group codes those of the groups."""

    def of(weighting):
        o = exposure(lists, n_items, K, weighting)
        return o if codes is None else added(o, codes, n_groups)

    if codes is not None:
        popularity, merit = added(popularity, codes, n_groups), added(merit, codes, n_groups)
    o = of("count")
    m, total = len(o), sum(o)
    if total == 0:
        return None
    shares = [x / total for x in o]
    descending = sorted(o, reverse=True)
    # Most popular first, ties by index; the tail is what follows the head.
    by_popularity = sorted(range(m), key=lambda j: (-popularity[j], j))
    tail = by_popularity[m - math.floor(m * 4 / 5) :]
    per_merit = [o[j] / merit[j] for j in range(m) if merit[j] > 0]
    return {
        "gini": gini(o),
        "gini_dcg": gini(of("dcg")),
        "gini_rbp": gini(of("rbp")),
        "coverage": sum(x > 0 for x in o) / m,
        "entropy": -sum(s * math.log(s) for s in shares if s > 0) / math.log(m) if m > 1 else 0.0,
        "max_exposure": max(o) / len(lists),
        "top1_share": sum(descending[: math.ceil(m / 100)]) / total,
        "top10_share": sum(descending[: math.ceil(m / 10)]) / total,
        "bottom50_share": sum(sorted(o)[: m // 2]) / total,
        "bottom80_share": sum(sorted(o)[: math.floor(m * 4 / 5)]) / total,
        "popularity": sum(x * p for x, p in zip(o, popularity, strict=True)) / total,
        "tail_share": sum(o[j] for j in tail) / total,
        "merit_distance": 0.5 * sum(abs(s - w / sum(merit)) for s, w in zip(shares, merit, strict=True)),
        "merit_gini": gini(per_merit),
    }


def added(o, codes, n_groups):
    sums = [0.0] * n_groups
    for x, g in zip(o, codes, strict=True):
        sums[g] += x
    return sums


def resampled_interval(lists, measure, draws, confidence):
    """The shifted percentile interval, by making every resampled list of lists in full."""
    replicates = [measure([lists[i] for i in draw]) for draw in draws]
    shift = measure(lists) - np.mean(replicates)
    return tuple(np.quantile(replicates, [(1 - confidence) / 2, (1 + confidence) / 2]) + shift)
