"""What a group's fairness weight does to its exposure, and what weights cost in time."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.result import Result
from fairmf import FairALS, evaluate, group_weights, split_by_user, synthetic_events

WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)
FAIRNESS = 1.0


def run(short: bool) -> Result:
    size = (2_000, 600, 60_000) if short else (8_000, 2_000, 400_000)
    split = split_by_user(synthetic_events(*size), heldout=size[0] // 8)
    result = Result(
        "Fairness weights of groups",
        f"Synthetic data ({size[0]:,} users, {size[1]:,} items, {size[2]:,} interactions), FairALS with 32 factors and "
        f"fairness {FAIRNESS:g}. One group has the column's weight, all other items have 1. Each cell: the group's "
        "share of all slots in the first 20 of the held-out users, and in brackets nDCG@100 and Gini@20 of all. "
        "`python -m benchmarks group_weights`",
        ("group", "items", *(f"weight {w:g}" for w in WEIGHTS)),
    )
    for name, labels in groups(split.train).items():
        cells = [measured(split, labels, weight) for weight in WEIGHTS]
        result.rows.append((name, int(labels.sum()), *cells))
    result.findings.append(f"An epoch with weights takes {cost(split.train):.2f} times as long as one without.")
    return result


def groups(train) -> dict[str, np.ndarray]:
    """By popularity in training, and one that has nothing to do with it."""
    rank = np.argsort(np.argsort(-train.by_item.sums(), kind="stable"))
    m = len(rank)
    return {
        "any half": np.random.default_rng(0).random(m) < 0.5,
        "most popular fifth": rank < m // 5,
        "next three tenths": (rank >= m // 5) & (rank < m // 2),
        "least popular half": rank >= m // 2,
    }


def measured(split, labels, weight: float) -> str:
    weights = group_weights(split.train, labels, {True: weight})
    model = FairALS(factors=32, fairness=FAIRNESS).fit(split.train, fairness_weights=weights)
    found = evaluate(model, split.test, metrics=("ndcg@100", "gini@20", "group_gini@20"), groups=labels, bootstrap=0)
    return f"{found.group_shares(20)[True]:.3f} ({found['ndcg@100']:.3f}, {found['gini@20']:.3f})"


def cost(train) -> float:
    """Seconds of training with weights over those without: the least of five fits each, in turn."""
    some = np.linspace(0.0, 2.0, train.n_items)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(6):
        for weighted, found in seconds.items():
            began = time.perf_counter()
            FairALS(factors=32).fit(train, fairness_weights=some if weighted else None)
            found.append(time.perf_counter() - began)
    return min(seconds[True][1:]) / min(seconds[False][1:])
