"""What docs/metrics.md says of intervals: how often they hold the truth, and what memory they take."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
from ranked_lists import held_out_of

from fairmf.metrics import evaluate, registry
from fairmf.metrics.bootstrap import interval
from fairmf.metrics.evaluate import evaluate_lists

pytestmark = pytest.mark.slow

UNEQUAL = ["gini", "gini_dcg", "coverage", "entropy"]


def long_tailed_lists(random, n_users, n_items, K):
    """Lists drawn without replacement with probability falling as rank^-0.9 (Gumbel top-K)."""
    scores = -0.9 * np.log(np.arange(1, n_items + 1)) + random.gumbel(size=(n_users, n_items))
    return np.argsort(-scores, axis=1)[:, :K].astype(np.int32)


def repeat(repetitions):
    random = np.random.default_rng(1)
    everyone = held_out_of([set()] * 400, 600)
    lists = (long_tailed_lists(random, 400, 600, 10) for _ in range(repetitions))
    return [evaluate_lists(x, everyone, at=[10], metrics=UNEQUAL, bootstrap=100) for x in lists]


def share_holding(results, label, values):
    limits = np.array([result.intervals[label] for result in results])
    return np.mean((limits[:, 0] <= values) & (values <= limits[:, 1]))


def test_shifted_intervals_hold_the_expected_value_over_new_users():
    results = repeat(150)
    for name in UNEQUAL:
        label = f"{name}@10"
        expected = np.mean([result[label] for result in results])
        assert 0.87 <= share_holding(results, label, expected) <= 0.99, name


@pytest.mark.parametrize(
    ("name", "n_users", "n_items"),
    [("bottom80_share", 60, 1200), ("bottom80_share", 100, 2000), ("bottom50_share", 200, 1000)],
)
def test_intervals_of_the_least_shown_items_leave_users_out(name, n_users, n_items, monkeypatch):
    """Where lists cover little of the catalogue, resampled lists show next to none of these items."""
    random, everyone, label = np.random.default_rng(2), held_out_of([set()] * n_users, n_items), f"{name}@10"
    lists = [long_tailed_lists(random, n_users, n_items, 10) for _ in range(100)]

    def holding():
        results = [evaluate_lists(x, everyone, at=[10], metrics=[name], bootstrap=100) for x in lists]
        return share_holding(results, label, np.mean([result[label] for result in results]))

    assert holding() >= 0.93
    resampled = dataclasses.replace(registry.METRICS[name], jackknifed=False)
    monkeypatch.setitem(registry.METRICS, name, resampled)
    assert holding() <= 0.3


def test_unshifted_intervals_of_exposure_miss_their_own_value(monkeypatch):
    monkeypatch.setattr(evaluate, "interval", lambda found, confidence, **_: interval(found, confidence))
    results = repeat(20)
    for name in UNEQUAL:
        label = f"{name}@10"
        assert share_holding(results, label, np.array([result[label] for result in results])) == 0, name


def test_default_intervals_of_ten_thousand_users_stay_in_bounded_memory():
    random = np.random.default_rng(0)
    blocks = [long_tailed_lists(random, 1000, 20_000, 100) for _ in range(10)]
    targets = [set(random.integers(20_000, size=10).tolist()) for _ in range(10_000)]
    held_out, lists = held_out_of(targets, 20_000), np.concatenate(blocks)
    tracemalloc.start()
    try:
        result = evaluate_lists(lists, held_out, metrics="all", train=held_out.targets)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400e6  # users x items would be 1.6e9 bytes, replicates x items for all metrics as much again
    assert result.intervals.keys() == result.values.keys()
    assert len(result.values) == 105
