"""The evaluation itself: streaming, names, users that count, groups, intervals."""

import json
import math

import numpy as np
import pytest
from naive import metrics as naive
from ranked_lists import Fixed, held_out_of, matrix, random_case
from scipy import stats

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.bootstrap import draw_weights, jackknife_interval, leave_out_weights
from fairmf.metrics.early_stopping import EarlyStopping
from fairmf.metrics.evaluate import evaluate, evaluate_lists
from fairmf.metrics.registry import parse_metric


def case(seed=3, **sizes):
    lists, targets, train = random_case(seed, **sizes)
    n_items = sizes.get("n_items", 15)
    return lists, held_out_of(targets, n_items), matrix(train, n_items), targets


@pytest.mark.parametrize("block", [1, 5, 100])
def test_blocks_do_not_matter(block):
    lists, held_out, train, _ = case()
    streamed = evaluate(Fixed(lists, 15, block), held_out, at=(3, 8), train=train, bootstrap=20)
    at_once = evaluate_lists(lists, held_out, at=(3, 8), train=train, bootstrap=20)
    assert streamed.values == pytest.approx(at_once.values)
    for label, interval in at_once.intervals.items():
        assert streamed.intervals[label] == pytest.approx(interval), label


def test_the_model_is_asked_once_for_the_longest_list_with_the_options_given():
    lists, held_out, _, _ = case()
    model = Fixed(lists, 15)
    evaluate(model, held_out, metrics=["ndcg@7", "gini@4"], bootstrap=0, fairness=2.0)
    evaluate(model, HeldOut(held_out.fold_in, held_out.targets, True), at=[50], bootstrap=0)
    assert [call["N"] for call in model.calls] == [7, 15]  # never more than the catalogue holds
    assert [call["known_users"] for call in model.calls] == [False, True]
    assert model.calls[0]["fairness"] == 2.0
    assert model.calls[0]["history"] is held_out.fold_in


def test_users_without_targets_count_in_exposure_only():
    lists = np.array([[0, 1], [0, 2], [3, 4]])
    result = evaluate_lists(lists, held_out_of([{0}, set(), {9}], 10), at=[2], bootstrap=0)
    assert result["recall@2"] == 0.5
    assert result.exposure[2].tolist() == [2, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert np.isnan(result.per_user["recall@2"]).tolist() == [False, True, False]
    assert (result.n_users, result.n_scored) == (3, 2)


def test_a_cutoff_beyond_the_catalogue_means_shorter_lists():
    lists = np.array([[0, 1, 2, -1], [1, 0, -1, -1]])
    result = evaluate(Fixed(lists, 4), held_out_of([{1, 2}, {3}], 4), at=[4, 1000], bootstrap=10)
    for name in ("recall", "ndcg", "gini", "coverage", "gini_rbp", "max_exposure"):
        assert result[f"{name}@4"] == result[f"{name}@1000"]
        assert result.intervals[f"{name}@4"] == result.intervals[f"{name}@1000"]
    assert result["recall@4"] == 0.5
    assert result["coverage@4"] == 0.75
    assert result.exposure[1000].tolist() == [2, 2, 1, 0]


def test_nobody_with_targets_gives_nan_and_json_null():
    result = evaluate_lists(np.array([[0], [1]]), held_out_of([set(), set()], 2), at=[1], bootstrap=5)
    assert np.isnan(result["ndcg@1"])
    assert result["gini@1"] == 0
    plain = result.to_dict()
    assert plain["values"]["ndcg@1"] is None
    assert plain["intervals"]["ndcg@1"] == [None, None]
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_no_lists_at_all_is_nan_without_a_warning():
    result = evaluate_lists(np.full((2, 3), -1), held_out_of([{0}, set()], 2), at=[3], bootstrap=5)
    assert result["recall@3"] == 0
    assert result["coverage@3"] == 0
    assert np.isnan(result["gini@3"])
    assert np.isnan(result.intervals["gini@3"]).all()


def test_metrics_are_chosen_by_name():
    lists, held_out, train, _ = case()
    chosen = evaluate_lists(lists, held_out, at=(2, 3), metrics=["gini", "ndcg@5"], bootstrap=0)
    assert list(chosen.values) == ["gini@2", "gini@3", "ndcg@5"]
    assert "gini@2" in chosen
    assert chosen.intervals == {}
    everything = evaluate_lists(lists, held_out, at=[2], bootstrap=0)
    assert "tail_share@2" not in everything
    assert "group_gini@2" not in everything
    assert "tail_share@2" in evaluate_lists(lists, held_out, at=[2], train=train, bootstrap=0)
    with pytest.raises(KeyError, match="ndcg@7"):
        everything["ndcg@7"]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"metrics": ["fairness@20"]},
            r"Unknown metric 'fairness@20'. Known metrics: recall, .*ndcg, .*group_merit_gini",
        ),
        ({"metrics": ["ndcg@0"]}, "integer >= 1"),
        ({"metrics": ["ndcg@ten"]}, "ndcg@ten"),
        ({"metrics": ["ndcg@"]}, "ndcg@"),
        ({"metrics": ["tail_share@5"]}, "pass train="),
        ({"metrics": ["merit_gini"]}, "pass train= or merit="),
        ({"metrics": ["group_tail_share"]}, "pass train= and .*pass groups="),
        ({"metrics": []}, "No metric"),
        ({"at": [0]}, "integer >= 1"),
        ({"at": [2.5]}, "integer >= 1"),
        ({"bootstrap": -1}, "'bootstrap' parameter of evaluate must be an integer >= 0"),
        ({"confidence": 1.0}, "confidence"),
        ({"random_state": -1}, "'random_state' parameter of evaluate must be an integer >= 0"),
        ({"at": "20"}, "integer >= 1"),
        ({"at": 2.5}, "integer >= 1"),
    ],
)
def test_wrong_settings(settings, match):
    lists, held_out, _, _ = case()
    with pytest.raises(InvalidParameter, match=match):
        evaluate(Fixed(lists, 15), held_out, **settings)


def test_merit_may_be_given_by_item_id():
    lists, held_out, _, _ = case()
    names = Ids([f"item {j}" for j in range(15)])
    named = HeldOut(*(Interactions(x.by_user, 15, None, names) for x in (held_out.fold_in, held_out.targets)))
    merit = np.where(np.arange(15) % 3 == 0, np.arange(15), 0)
    options = {"metrics": ["merit_distance@5"], "bootstrap": 0}
    by_position = evaluate(Fixed(lists, 15), named, merit=merit, **options)
    given = {f"item {j}": merit[j] for j in range(15) if merit[j]}
    assert evaluate(Fixed(lists, 15), named, merit=given, **options).values == by_position.values
    with pytest.raises(InvalidData, match="merit by item id needs items with ids"):
        evaluate(Fixed(lists, 15), held_out, merit=given, **options)


def test_wrong_data():
    lists, held_out, _, _ = case()
    with pytest.raises(InvalidData, match="model knows 14 items"):
        evaluate(Fixed(lists, 14), held_out)
    with pytest.raises(InvalidData, match="Only 11 of 12"):
        evaluate(Fixed(lists[:11], 15), held_out)
    with pytest.raises(InvalidData, match="consecutive"):
        evaluate(Fixed(np.concatenate((lists, lists)), 15), held_out)
    with pytest.raises(InvalidData, match="item positions"):
        evaluate(Fixed(np.full((12, 3), 15), 15), held_out)
    with pytest.raises(InvalidData, match="same item twice"):
        evaluate_lists(np.full((12, 2), 3), held_out)
    with pytest.raises(InvalidData, match="two-dimensional"):
        evaluate_lists(np.zeros((12, 2)), held_out)
    with pytest.raises(InvalidData, match="train has 3 items"):
        evaluate_lists(lists, held_out, train=matrix([[0]], 3))
    with pytest.raises(InvalidData, match="train must be Interactions"):
        evaluate_lists(lists, held_out, train=held_out)
    for merit in (np.ones(3), np.zeros(15), -np.ones(15), np.full(15, np.nan), "popularity", [[1], [2, 3]]):
        with pytest.raises(InvalidData, match="merit must be 15"):
            evaluate_lists(lists, held_out, merit=merit)


def test_a_whole_split_is_not_a_held_out_set():
    lists, held_out, train, _ = case()
    split = Split(train, held_out, held_out)
    for call in (
        lambda: evaluate(Fixed(lists, 15), split),
        lambda: evaluate_lists(lists, split),
        lambda: EarlyStopping(split, "ndcg@5"),
    ):
        with pytest.raises(InvalidData, match=r"choose split\.validation or split\.test"):
            call()
    with pytest.raises(InvalidData, match="not on Interactions"):
        evaluate(Fixed(lists, 15), train)


def test_popularity_must_be_of_the_same_items_in_the_same_order():
    held_out = held_out_of([{1}, {2}], 3, ["x", "y", "z"])
    turned = Interactions(held_out.targets.by_user, 3, None, Ids(["z", "y", "x"]))
    with pytest.raises(InvalidData, match="train and the held-out data have different item ids"):
        evaluate_lists(np.array([[0], [1]]), held_out, train=turned)


def test_one_cutoff_may_be_a_plain_number():
    lists, held_out, _, _ = case()
    one, same = (evaluate_lists(lists, held_out, at=at, bootstrap=0) for at in (3, [3]))
    assert one.values == pytest.approx(same.values, nan_ok=True)


def test_groups_by_label_and_by_item_id():
    lists = np.array([[0, 1], [0, 2], [0, 3]])
    ids = ["w", "x", "y", "z"]
    held_out = held_out_of([{1}, set(), {2}], 4, ids)
    by_label = evaluate_lists(lists, held_out, at=[2], groups=["b", "a", "b", "a"], bootstrap=0)
    by_id = evaluate_lists(lists, held_out, at=[2], groups={"z": "a", "y": "b", "x": "a", "w": "b"}, bootstrap=0)
    assert by_label.values == by_id.values
    assert by_label.group_names == ("b", "a")
    assert by_label.group_exposure[2].tolist() == [4, 2]
    assert by_label.group_shares(2) == pytest.approx({"b": 2 / 3, "a": 1 / 3})
    assert by_label["group_gini@2"] == pytest.approx(1 / 6)
    with pytest.raises(InvalidData, match="groups holds 3 labels"):
        evaluate_lists(lists, held_out, groups=[1, 2, 3])
    with pytest.raises(InvalidData, match="lacks 3 items, the first is 'x'"):
        evaluate_lists(lists, held_out, groups={"w": 1})
    with pytest.raises(InvalidData, match="no ids"):
        evaluate_lists(lists, held_out_of([{1}, set(), {2}], 4), groups={"w": 1})
    with pytest.raises(InvalidData, match="A group is named by"):
        evaluate_lists(lists, held_out, groups=[{"a": 1}, "b", "a", "b"])


def test_an_item_in_several_groups_counts_in_each_by_its_share():
    lists = np.array([[0, 1], [0, 2], [0, 3]])
    held_out = held_out_of([{1}, set(), {2}], 4)
    labels = [["a", "b"], ["b"], {"c", "a", "b", "d"}, ["a", "a"]]  # item 3 names its group twice
    found = evaluate_lists(lists, held_out, at=[2], groups=labels, metrics="all", bootstrap=0)
    expected = {"a": 3 / 2 + 1 / 4 + 1, "b": 3 / 2 + 1 + 1 / 4, "c": 1 / 4, "d": 1 / 4}  # 3, 1, 1, 1 users see 0..3
    assert dict(zip(found.group_names, found.group_exposure[2].tolist(), strict=True)) == expected
    assert found.group_exposure[2].sum() == lists.size
    # Lists of one label are single groups, whatever their metrics.
    single = [
        evaluate_lists(lists, held_out, groups=g, metrics="all", bootstrap=0) for g in ("baba", [*map(list, "baba")])
    ]
    assert single[0].values == pytest.approx(single[1].values, nan_ok=True)
    with pytest.raises(InvalidData, match="empty list of groups"):
        evaluate_lists(lists, held_out, groups=["a", [], "b", "b"])


def test_measures_of_groups_divide_items_among_their_groups():
    """AWRF and the joint measures by loops over slots, with items that are in two groups."""
    random = np.random.default_rng(3)
    n, m, K = 12, 9, 4
    lists = np.array([random.permutation(m)[:K] for _ in range(n)])
    targets = [set(random.permutation(m)[:2].tolist()) for _ in range(n)]
    shares = np.zeros((m, 3))
    for j in range(m):
        for g in {j % 3, j % 2}:
            shares[j, g] = 1 / len({j % 3, j % 2})
    labels = [np.flatnonzero(row).tolist() for row in shares]
    found = evaluate_lists(
        lists, held_out_of(targets, m), at=[K], groups=labels, metrics=["awrf", "jme_ig"], bootstrap=0
    )
    order = list(found.group_names)
    awrf, jme = [], []
    for u in range(n):
        attention, worth = np.zeros(3), np.zeros(3)
        for slot, j in enumerate(lists[u]):
            attention += shares[j] / np.log2(slot + 2)
            worth += shares[j] * 0.15 * 0.85**slot
        p, q = attention / attention.sum(), shares.sum(axis=0) / m
        middle = (p + q) / 2
        entropy = [sum(x * np.log2(x / y) for x, y in zip(a, middle, strict=True) if x) for a in (p, q)]
        awrf.append(1 - sum(entropy) / 2)
        # Ideal exposure: targets share the first two ranks, all others the rest.
        rbp = 0.15 * 0.85 ** np.arange(K)
        on, off = rbp[:2].mean(), rbp[2:].sum() / (m - 2)
        ideal = sum(shares[j] * (on if j in targets[u] else off) for j in range(m))
        jme.append((((worth - ideal) / shares.sum(axis=0)) ** 2).mean())
    assert order
    assert found["awrf@4"] == pytest.approx(np.mean(awrf))
    assert found["jme_ig@4"] == pytest.approx(np.mean(jme))


def test_table_and_repr_show_the_numbers():
    lists, held_out, _, _ = case()
    result = evaluate_lists(lists, held_out, metrics=["ndcg@5", "gini@3"], bootstrap=10)
    rows = result.table()
    assert [(row["metric"], row["K"]) for row in rows] == [("ndcg", 5), ("gini", 3)]
    assert rows[0]["value"] == result["ndcg@5"]
    assert (rows[1]["low"], rows[1]["high"]) == result.intervals["gini@3"]
    assert f"{result['ndcg@5']:.4f}" in repr(result)
    assert f"12 users, {result.n_scored} with targets" in repr(result)
    assert evaluate_lists(lists, held_out, metrics=["ndcg@5"], bootstrap=0).table()[0]["low"] is None


# -- intervals
# ---------------------------------------------------------------------------------------------------


def test_intervals_equal_those_of_resampled_lists_made_in_full():
    lists, held_out, train, targets = case(seed=8, n_users=14)
    popularity = np.bincount(train.by_user.indices, minlength=15).tolist()
    result = evaluate_lists(lists, held_out, at=[4, 8], train=train, bootstrap=30, random_state=5, confidence=0.8)
    random = np.random.default_rng(5)
    draws = [random.integers(14, size=14) for _ in range(30)]
    rows = lists.tolist()
    for name in ("gini", "gini_dcg", "gini_rbp", "coverage", "entropy", "popularity", "merit_distance"):
        for K in (4, 8):
            low, high = naive.resampled_interval(
                rows,
                lambda x, K=K, name=name: naive.exposure_metrics(x, 15, K, popularity, popularity)[name],
                draws,
                0.8,
            )
            limit = np.inf if name == "popularity" else 1
            assert result.intervals[f"{name}@{K}"] == pytest.approx((max(low, 0), min(high, limit))), name
    means = [naive.accuracy([rows[i] for i in draw], [targets[i] for i in draw], 4)["ndcg"] for draw in draws]
    assert result.intervals["ndcg@4"] == pytest.approx(tuple(np.quantile(means, [0.1, 0.9])))


def test_intervals_of_the_least_shown_items_are_those_of_lists_without_one_user():
    """At most 40 users: every group that is left out is one user, and the formula that of the plain jackknife."""
    lists, held_out, train, _ = case(seed=8, n_users=14)
    result = evaluate_lists(lists, held_out, at=[8], train=train, bootstrap=3, confidence=0.8)

    def share(rows, percent):
        return sum(sorted(naive.exposure(rows, 15, 8))[: 15 * percent // 100]) / sum(naive.exposure(rows, 15, 8))

    rows = lists.tolist()
    for percent in (50, 80):
        without = [share(rows[:i] + rows[i + 1 :], percent) for i in range(14)]
        error = math.sqrt(13 / 14 * sum((x - sum(without) / 14) ** 2 for x in without))
        reach = stats.t(13).ppf(0.9) * error
        value = share(rows, percent)
        assert reach > 0
        assert result.intervals[f"bottom{percent}_share@8"] == pytest.approx((max(value - reach, 0), value + reach))


def test_every_user_is_left_out_once_in_groups_of_nearly_equal_size(monkeypatch):
    whole = np.concatenate(list(leave_out_weights(100, 5, 0)), axis=1)
    assert whole.shape == (100, 40)
    assert (whole.sum(axis=1) == 39).all()
    assert set((whole == 0).sum(axis=0)) == {2, 3}
    monkeypatch.setattr("fairmf.metrics.bootstrap.CELLS_AT_ONCE", 700)
    parts = list(leave_out_weights(100, 5, 0))
    assert [part.shape[1] for part in parts] == [7, 7, 7, 7, 7, 5]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    assert all(math.isnan(x) for x in jackknife_interval(np.array([0.5]), 0.9, 0.5))


def test_intervals_depend_on_the_seed_only_and_hold_their_value():
    lists, held_out, train, _ = case(seed=2, n_users=60, n_items=40)
    settings = {"at": [5], "train": train, "bootstrap": 100}
    first, again = (evaluate_lists(lists, held_out, **settings) for _ in range(2))
    other = evaluate_lists(lists, held_out, **settings, random_state=1)
    wide = evaluate_lists(lists, held_out, **settings, confidence=0.99)
    assert first.intervals == again.intervals
    assert first.intervals != other.intervals
    for label, (low, high) in first.intervals.items():
        assert low <= first[label] <= high, label
        assert wide.intervals[label][0] <= low
        assert high <= wide.intervals[label][1]


def test_weights_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    whole = np.concatenate(list(draw_weights(7, 9, 5, 0)), axis=1)
    monkeypatch.setattr("fairmf.metrics.bootstrap.CELLS_AT_ONCE", 14)
    parts = list(draw_weights(7, 9, 5, 0))
    assert len(parts) == 5
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    assert (whole.sum(axis=0) == 7).all()


def test_intervals_of_mean_recall_have_the_width_theory_gives():
    random = np.random.default_rng(0)
    hit = random.random(2000) < 0.3
    lists = np.where(hit, 0, 1)[:, None]
    result = evaluate_lists(lists, held_out_of([{0}] * 2000, 2), metrics=["recall@1"], bootstrap=400)
    low, high = result.intervals["recall@1"]
    expected = 2 * 1.96 * np.sqrt(hit.mean() * (1 - hit.mean()) / 2000)
    assert high - low == pytest.approx(expected, rel=0.15)


def test_one_metric_by_its_full_name():
    assert parse_metric("gini@20").lower_is_better
    assert parse_metric("group_gini_rbp@20").lower_is_better
    assert not parse_metric("coverage@20").lower_is_better
    assert not parse_metric("group_tail_share@20").lower_is_better
    assert not parse_metric("ndcg@100").lower_is_better
    with pytest.raises(InvalidParameter, match="lacks its cut-off: write for example 'ndcg@20'"):
        parse_metric("ndcg")


def test_a_model_may_reuse_the_block_it_yields():
    lists, held_out, _, _ = case()

    class Reusing(Fixed):
        def rank(self, history, N, **options):
            block = np.empty((3, N), dtype=np.int32)
            for first, items in super().rank(history, N, **options):
                block[:] = items
                yield first, block

    results = [evaluate(kind(lists, 15), held_out, at=[8], bootstrap=10) for kind in (Fixed, Reusing)]
    assert results[0].intervals == results[1].intervals
