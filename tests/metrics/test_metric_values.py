"""Metric values: against double loops, closed forms and hand-computed numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import fair_metrics as fair
from naive import metrics as naive
from ranked_lists import Fixed, held_out_of, matrix, random_case

from fairmf.data.popularity import gini
from fairmf.data.split import HeldOut
from fairmf.metrics.evaluate import evaluate, evaluate_lists
from fairmf.metrics.exposure import (
    bottom_share,
    entropy,
    exposure,
    lorenz_curve,
    merit_distance,
    merit_gini,
    slot_weights,
    tail,
    top_share,
)
from fairmf.metrics.registry import known_names


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 15), st.integers(1, 25), st.integers(1, 10), st.integers(1, 30))
def test_every_metric_equals_its_double_loop(seed, n_users, n_items, length, K):
    lists, targets, train = random_case(seed, n_users, n_items, length)
    random = np.random.default_rng(seed)
    codes = random.integers(0, 4, n_items)
    merit = random.integers(0, 3, n_items) + (np.arange(n_items) == 0)
    popularity = np.bincount([j for row in train for j in row], minlength=n_items)
    user_codes = random.integers(0, 3, n_users).tolist()
    features = random.integers(0, 3, (n_items, 4))
    histories = [{j for j in range(n_items) if random.random() < 0.3} - wanted for wanted in targets]
    held_out = HeldOut(matrix(histories, n_items), matrix(targets, n_items))
    result = evaluate(
        Fixed(lists, n_items), held_out, at=[K], train=matrix(train, n_items), merit=merit, groups=codes,
        user_groups=user_codes, features=features, metrics="all", bootstrap=0,
    )  # fmt: skip
    wanted = naive.accuracy(lists.tolist(), targets, K) | fair.more_accuracy(lists.tolist(), targets, K, n_items)
    of_items = naive.exposure_metrics(lists.tolist(), n_items, K, popularity.tolist(), merit.tolist())
    # Groups are numbered by first appearance.
    order = {g: k for k, g in enumerate(dict.fromkeys(codes.tolist()))}
    codes = [order[g] for g in codes.tolist()]
    of_groups = naive.exposure_metrics(
        lists.tolist(), n_items, K, popularity.tolist(), merit.tolist(), codes, len(order)
    )
    target = {g: codes.count(g) / n_items for g in range(len(order))}
    wanted |= fair.expected_exposure(lists.tolist(), targets, n_items, K)
    wanted |= fair.jme(lists.tolist(), targets, n_items, K, user_codes, codes)
    wanted |= fair.of_users(lists.tolist(), targets, K)
    wanted["awrf"] = fair.awrf(lists.tolist(), K, codes, target)
    wanted["ild"] = fair.ild(lists.tolist(), K, features.tolist())
    of_popularity = fair.of_popularity(lists.tolist(), histories, K, popularity.tolist(), sum(map(bool, train)))
    wanted |= {name: value for name, value in of_popularity.items() if name != "popularity_lift" or any(histories)}
    if of_items is not None:
        wanted |= of_items | {f"group_{name}": value for name, value in of_groups.items()}
        # tests/metrics/test_cold_items.py
        apart = {"cold_recall", "cold_share", "cold_lift", "recall_among_cold", "recall_among_warm"}
        assert set(wanted) == set(known_names()) - apart - ({"popularity_lift"} if not any(histories) else set())
    for name, value in wanted.items():
        assert result[f"{name}@{K}"] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name
    assert result.exposure[K].tolist() == naive.exposure(lists.tolist(), n_items, K)
    assert result.n_scored == sum(bool(t) for t in targets)


def test_the_usual_metrics_are_the_default_and_all_is_everything():
    held_out, lists = held_out_of([{1}, {2}], 4), np.array([[0, 1], [2, 3]])
    usual = evaluate_lists(lists, held_out, at=2, bootstrap=0).values
    every = evaluate_lists(lists, held_out, at=2, metrics="all", bootstrap=0).values
    assert {"precision@2", "gini@2"} <= usual.keys()
    assert usual.keys() < every.keys()
    assert {"envy@2", "jme_ii@2"} <= every.keys() - usual.keys()
    named = evaluate_lists(lists, held_out, at=2, metrics=["envy", "ndcg@1"], bootstrap=0).values
    assert list(named) == ["envy@2", "ndcg@1"]


def test_ndcg_and_recall_by_hand():
    # Hits at ranks 1 and 3 of three targets: DCG = 1 + 1/2, ideal = 1 + 1/log2(3) + 1/2.
    result = evaluate_lists(np.array([[4, 0, 5, 1]]), held_out_of([{4, 5, 6}], 8), at=[2, 4], bootstrap=0)
    assert result["ndcg@4"] == pytest.approx(1.5 / (1.5 + 1 / math.log2(3)))
    assert result["recall@4"] == pytest.approx(2 / 3)
    assert result["recall@2"] == pytest.approx(1 / 2)  # divided by min(K, targets)
    assert result["ndcg@2"] == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert result["mrr@4"] == 1
    late = evaluate_lists(np.array([[0, 1, 4]]), held_out_of([{4}], 8), at=[2, 3], bootstrap=0)
    assert late["mrr@3"] == pytest.approx(1 / 3)
    assert late["hit_rate@3"] == 1
    assert late["mrr@2"] == late["hit_rate@2"] == 0


def test_perfect_lists_score_one_at_every_cutoff():
    targets = [{0, 3}, {1}, {2, 4, 5, 6}]
    lists = np.array([[0, 3, 7, 8], [1, 7, 8, 9], [2, 4, 5, 6]])
    result = evaluate_lists(lists, held_out_of(targets, 10), at=[1, 2, 4], bootstrap=0)
    for K in (1, 2, 4):
        assert [result[f"{name}@{K}"] for name in ("recall", "ndcg", "hit_rate", "mrr")] == [1, 1, 1, 1]


def test_gini_closed_forms():
    assert gini(np.full(7, 3.0)) == pytest.approx(0, abs=1e-15)
    one = np.zeros(7)
    one[4] = 12
    assert gini(one) == pytest.approx(6 / 7)
    assert gini([1, 3]) == pytest.approx(1 / 4)
    assert gini(np.arange(1, 101)) == pytest.approx(99 / 300)  # 1..m has (m - 1) / (3 m)
    assert np.isnan(gini(np.zeros(3)))
    assert gini(np.stack([np.full(7, 2.0), one])).tolist() == pytest.approx([0, 6 / 7])


def test_lorenz_curve_and_the_gini_are_the_same_statement():
    o = np.array([5.0, 0, 1, 1, 9])
    curve = lorenz_curve(o)
    assert curve.tolist() == pytest.approx([0, 0, 1 / 16, 2 / 16, 7 / 16, 1])
    area = (curve[1:] + curve[:-1]).sum() / 2 / len(o)
    assert 1 - 2 * area == pytest.approx(float(gini(o)))


def test_entropy_closed_forms():
    assert entropy(np.full(9, 2.0)) == pytest.approx(1)
    assert entropy([0, 5, 0]) == 0
    assert entropy([1, 1, 0, 0]) == pytest.approx(0.5)
    assert entropy([4]) == 0


def test_top_share_rounds_up():
    o = np.arange(1.0, 12.0)  # m = 11: the top 10 % are 2 items, the top 1 % is 1
    assert top_share(o, 10) == pytest.approx((10 + 11) / 66)
    assert top_share(o, 1) == pytest.approx(11 / 66)
    assert top_share(np.ones(300), 1) == pytest.approx(3 / 300)
    assert top_share(np.ones(100), 1) == pytest.approx(1 / 100)


def test_the_tail_is_four_fifths_rounded_down_with_ties_by_index():
    assert tail(np.array([5.0, 1, 1, 1, 1])).tolist() == [False, True, True, True, True]
    assert tail(np.array([2.0, 2, 2, 2, 2, 2])).tolist() == [False, False, True, True, True, True]
    assert tail(np.array([1.0, 2.0])).tolist() == [True, False]
    assert tail(np.array([3.0])).tolist() == [False]


def test_exposure_in_proportion_to_merit_is_perfect():
    merit = np.array([4.0, 0, 1, 3])
    assert merit_distance(5 * merit, merit) == pytest.approx(0, abs=1e-15)
    assert merit_gini(5 * merit, merit) == pytest.approx(0, abs=1e-15)
    assert merit_distance([0, 9, 0, 0], merit) == pytest.approx(1)
    assert merit_gini([8, 0, 0, 0], merit) == pytest.approx(2 / 3)  # one of the three items with merit


def test_slot_weights():
    assert slot_weights(3).tolist() == [1, 1, 1]
    assert slot_weights(3, "dcg").tolist() == pytest.approx([1, 1 / math.log2(3), 0.5])
    assert slot_weights(3, "rbp").tolist() == pytest.approx([0.15, 0.1275, 0.108375])
    assert exposure(np.array([[2, 0, -1]]), 3, 2, "dcg").tolist() == pytest.approx([1 / math.log2(3), 0, 1])
    with pytest.raises(ValueError, match="weighting"):
        slot_weights(3, "linear")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_permuting_users_changes_nothing_and_permuting_items_permutes_exposure(seed):
    lists, targets, train = random_case(seed, n_users=20, n_items=18)
    random = np.random.default_rng(seed)
    users, items = random.permutation(20), random.permutation(18)
    # Popularity without ties: which item is tail must not depend on the order of items.
    train = [list(range(j, 18)) for j in range(18)] + [row for row in train if not row]
    base = evaluate_lists(lists, held_out_of(targets, 18), at=[5, 8], train=matrix(train, 18), bootstrap=0)
    shuffled = evaluate_lists(
        lists[users], held_out_of([targets[i] for i in users], 18), at=[5, 8], train=matrix(train, 18), bootstrap=0
    )
    renamed = evaluate_lists(
        np.where(lists >= 0, items[lists], -1),
        held_out_of([{int(items[j]) for j in t} for t in targets], 18),
        at=[5, 8],
        train=matrix([[int(items[j]) for j in row] for row in train], 18),
        bootstrap=0,
    )
    for label, value in base.values.items():
        assert shuffled[label] == pytest.approx(value, nan_ok=True), label
        assert renamed[label] == pytest.approx(value, nan_ok=True), label
    assert np.array_equal(renamed.exposure[5][items], base.exposure[5])
    assert np.array_equal(shuffled.exposure[8], base.exposure[8])


def test_randomising_lists_lowers_gini_and_raises_coverage():
    random = np.random.default_rng(0)
    popular = np.stack([random.permutation(12)[:10] for _ in range(200)])  # everybody gets the same twelve items
    mixed = np.where(
        random.random(popular.shape) < 0.5,
        popular,
        random.permuted(np.tile(np.arange(12, 100), (200, 1)), axis=1)[:, :10],
    )
    everyone = held_out_of([set()] * 200, 100)
    values = [
        evaluate_lists(x, everyone, at=[10], metrics=["gini", "gini_dcg", "coverage", "entropy"], bootstrap=0).values
        for x in (popular, mixed)
    ]
    assert values[1]["gini@10"] < values[0]["gini@10"] - 0.1
    assert values[1]["gini_dcg@10"] < values[0]["gini_dcg@10"] - 0.1
    assert values[1]["coverage@10"] > values[0]["coverage@10"]
    assert values[1]["entropy@10"] > values[0]["entropy@10"]


def test_bottom_share_rounds_down_and_is_the_lorenz_curve():
    o = np.array([9.0, 1, 0, 2, 4, 3])  # m = 6: four fifths are 4 items
    assert bottom_share(o, 80) == pytest.approx((0 + 1 + 2 + 3) / 19)
    assert bottom_share(o, 80) == pytest.approx(lorenz_curve(o)[4])
    assert bottom_share(np.array([5.0]), 80) == 0
    assert np.isnan(bottom_share(np.zeros(4), 80))
