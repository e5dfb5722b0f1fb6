"""The audit against plain loops, under symmetries, and at its edges."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import audit as naive_audit
from naive import metrics as naive
from ranked_lists import Fixed, held_out_of, matrix, random_case

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.audit import audit
from fairmf.metrics.audit_result import Audit
from fairmf.metrics.evaluate import evaluate_lists

GROUPS = ["a", "b", "b", "a", "c"] * 3


def case(seed=0, n_users=14, n_items=15, length=6):
    """Two sets of lists for the same users, their targets, training data."""
    before, targets, train = random_case(seed, n_users, n_items, length)
    after, _, _ = random_case(seed + 1, n_users, n_items, length)
    return before, after, targets, train


def audited(before, after, targets, n_items=15, **options):
    options = {"at": 5, "bootstrap": 0} | options
    return audit(before, after, held_out_of(targets, n_items), **options)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 14), st.integers(6, 18), st.integers(1, 6))
def test_values_equal_plain_loops(seed, n_users, n_items, K):
    before, after, targets, train = case(seed, n_users, n_items)
    groups = [f"g{j % 3}" for j in range(n_items)]
    codes = [j % 3 for j in range(n_items)]
    found = audited(before, after, targets, n_items, at=K, groups=groups, train=matrix(train, n_items))
    popularity = np.bincount([j for row in train for j in row], minlength=n_items).tolist()
    for side, lists in (("before", before.tolist()), ("after", after.tolist())):
        for name in ("recall", "ndcg"):
            value = naive.accuracy(lists, targets, K)[name]
            assert getattr(found[f"{name}@{K}"], side) == pytest.approx(value, nan_ok=True)
        expected = naive.exposure_metrics(lists, n_items, K, popularity, [1] * n_items)
        for name in ("gini", "gini_dcg", "coverage", "entropy", "top1_share", "top10_share", "bottom50_share",
                     "bottom80_share",
                     "tail_share", "popularity", "max_exposure"):  # fmt: skip
            if expected is not None:
                assert getattr(found[f"{name}@{K}"], side) == pytest.approx(expected[name]), name
        counts = naive.exposure(lists, n_items, K)
        assert getattr(found.items, side).tolist() == counts
        assert getattr(found.items, f"{side}_dcg").tolist() == pytest.approx(naive.exposure(lists, n_items, K, "dcg"))
        of_groups = naive.added(counts, codes, 3)
        assert [getattr(g, side) for g in found.groups] == of_groups
        if sum(counts):
            assert [getattr(g.share, side) for g in found.groups] == pytest.approx(np.divide(of_groups, sum(counts)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_users_equal_plain_loops(seed, n_users):
    before, after, targets, _ = case(seed, n_users)
    found = audited(before, after, targets, quality=["recall", "ndcg@3"])
    assert list(found.users) == ["recall@5", "ndcg@3"]
    for label, users in found.users.items():
        name, _, K = label.partition("@")
        differences = naive_audit.user_differences(before.tolist(), after.tolist(), targets, int(K), name)
        assert users.n_scored == found.n_scored == len(differences)
        if not differences:
            assert np.isnan(users.worst_decile.value)
            continue
        assert users.worst_decile.value == pytest.approx(naive_audit.worst_decile(differences))
        assert users.worse_off.value == pytest.approx(np.mean([x < 0 for x in differences]))
        assert users.better_off.value == pytest.approx(np.mean([x > 0 for x in differences]))
        assert users.unchanged == pytest.approx(np.mean([x == 0 for x in differences]))
        assert users.quantiles[0.25] == pytest.approx(np.quantile(differences, 0.25))
        assert users.quantiles[0] == pytest.approx(min(differences))
        assert users.quantiles[1] == pytest.approx(max(differences))


def test_intervals_equal_those_of_both_sides_resampled_together():
    before, after, targets, _ = case(3, n_users=16)
    found = audited(before, after, targets, groups=GROUPS, bootstrap=40, confidence=0.8, random_state=7)
    random = np.random.default_rng(7)
    draws = [random.integers(16, size=16) for _ in range(40)]
    rows = before.tolist(), after.tolist()

    def expected(measure, shifted):
        return naive_audit.paired_interval(*rows, measure, draws, 0.8, shifted)

    ndcg = expected(lambda lists, d: naive.accuracy(lists, [targets[i] for i in d], 5)["ndcg"], shifted=False)
    assert (found["ndcg@5"].low, found["ndcg@5"].high) == pytest.approx(ndcg)
    for name in ("gini", "coverage", "gini_dcg"):
        ends = expected(lambda x, d, n=name: naive.exposure_metrics(x, 15, 5, [1] * 15, [1] * 15)[n], shifted=True)
        assert (found[f"{name}@5"].low, found[f"{name}@5"].high) == pytest.approx(ends), name

    ends = naive_audit.leave_one_out_interval(
        *rows, lambda x: naive.exposure_metrics(x, 15, 5, [1] * 15, [1] * 15)["bottom80_share"], 0.8
    )
    assert (found["bottom80_share@5"].low, found["bottom80_share@5"].high) == pytest.approx(ends)

    def share_of_b(lists, _):
        o = naive.exposure(lists, 15, 5)
        return sum(o[j] for j in range(15) if GROUPS[j] == "b") / sum(o)

    b = found.groups[1]
    assert b.group == "b"
    assert (b.share.low, b.share.high) == pytest.approx(expected(share_of_b, shifted=False))


def test_user_intervals_equal_those_of_resampled_users():
    before, after, targets, _ = case(5, n_users=20)
    users = audited(before, after, targets, bootstrap=30, confidence=0.9, random_state=2).users["ndcg@5"]
    random = np.random.default_rng(2)
    worst, worse = [], []
    for _ in range(30):
        d = random.integers(20, size=20)
        sides = [[x[i].tolist() for i in d] for x in (before, after)]
        differences = naive_audit.user_differences(*sides, [targets[i] for i in d], 5, "ndcg")
        worst.append(naive_audit.worst_decile(differences))
        worse.append(np.mean([x < 0 for x in differences]))
    for estimate, replicates in ((users.worst_decile, worst), (users.worse_off, worse)):
        assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(replicates, [0.05, 0.95])))


def test_nothing_changes_from_a_thing_to_itself():
    before, _, targets, train = case(1)
    found = audited(before, before, targets, bootstrap=20, groups=GROUPS, train=matrix(train, 15))
    for label, change in found.metrics.items():
        assert (change.difference, change.low, change.high) == (0, 0, 0), label
        assert change.beyond_chance is False
    assert found.gainers() == found.losers() == []
    for users in found.users.values():
        assert (users.worst_decile.value, users.worse_off.value, users.better_off.high) == (0, 0, 0)
        assert users.unchanged == 1
    assert "0 items gain exposure, 0 lose exposure" in found.summary()
    assert "not statistically significant" not in found.summary()
    assert "keep their shares" in found.summary()


def test_swapping_the_sides_flips_the_signs():
    before, after, targets, _ = case(2)
    options = {"groups": GROUPS, "bootstrap": 25}
    there, back = audited(before, after, targets, **options), audited(after, before, targets, **options)
    for label, change in there.metrics.items():
        assert change.difference == pytest.approx(-back[label].difference)
        assert (change.low, change.high) == pytest.approx((-back[label].high, -back[label].low)), label
    for one, other in zip(there.groups, back.groups, strict=True):
        assert one.share.difference == pytest.approx(-other.share.difference)
    gained, lost = there.gainers(15), back.losers(15)
    assert [(x.item, x.difference) for x in gained] == [(x.item, -x.difference) for x in lost]
    assert there.users["ndcg@5"].worse_off.value == back.users["ndcg@5"].better_off.value


def test_permuting_users_changes_nothing_and_permuting_items_permutes():
    before, after, targets, _ = case(4)
    random = np.random.default_rng(0)
    users, items = random.permutation(14), random.permutation(15)
    base = audited(before, after, targets, groups=GROUPS)
    shuffled = audited(before[users], after[users], [targets[i] for i in users], groups=GROUPS)

    def renamed(lists):
        return np.where(lists >= 0, items[lists], -1)

    moved_groups = np.empty(15, dtype=object)
    moved_groups[items] = GROUPS
    moved = audited(renamed(before), renamed(after), [{int(items[j]) for j in t} for t in targets], groups=moved_groups)
    for other in (shuffled, moved):
        for label, change in base.metrics.items():
            assert other[label].difference == pytest.approx(change.difference), label
        for label, change in base.users.items():
            assert other.users[label].worst_decile.value == pytest.approx(change.worst_decile.value)
    assert np.array_equal(shuffled.items.after, base.items.after)
    assert np.array_equal(moved.items.after[items], base.items.after)
    assert {g.group: g.after for g in moved.groups} == {g.group: g.after for g in base.groups}


def test_gainers_and_losers_by_name():
    before, after = np.array([[0, 1], [0, 1], [0, 2]]), np.array([[3, 1], [3, 2], [0, 2]])
    held_out = held_out_of([{0}, {1}, set()], 5, ["u", "v", "w", "x", "y"])
    found = audit(
        before, after, held_out, at=2, names={"x": "The X", "u": "The U"}, groups=[1, 1, 2, 2, 2], bootstrap=0
    )
    assert [(c.item, c.name, c.group, c.before, c.after) for c in found.gainers()] == [
        ("x", "The X", 2, 0, 2),
        ("w", "w", 2, 1, 2),
    ]
    assert [(c.item, c.difference) for c in found.losers()] == [("u", -2), ("v", -1)]
    assert found.losers(1) == found.losers()[:1]
    assert "Largest gains: The X (from 0 to 2 users), w (from 1 to 2 users)." in found.summary()
    assert "Largest losses: The U (from 3 to 1 users)" in found.summary()
    assert "2 items gain exposure, 2 lose exposure, 1 are in no list" in found.summary()
    assert "2 (+50.0 points)" in found.summary()


def test_users_without_targets_count_in_exposure_only():
    found = audited(np.array([[0], [1]]), np.array([[2], [1]]), [set(), {1}], 3, at=1)
    assert found.items.before.tolist() == [1, 1, 0]
    assert (found.n_users, found.n_scored, found["recall@1"].after) == (2, 1, 1)
    assert found.users_table()["recall@1 before"].to_pylist() == [None, 1]


def test_nobody_with_targets():
    before, after, targets, _ = case(6)
    found = audited(before, after, [set()] * len(targets), bootstrap=10)
    assert np.isnan(found["ndcg@5"].before)
    assert "could not be measured" in found.summary()
    assert found.to_dict()["users"]["ndcg@5"]["worst_decile"] == {"value": None, "low": None, "high": None}
    assert found["gini@5"].low is not None


def test_no_exposure_on_one_side():
    before, _, targets, _ = case(6)
    found = audited(before, np.full_like(before, -1), targets, bootstrap=10, groups=GROUPS)
    assert "no exposure to compare" in found.summary()
    assert json.loads(found.to_json()) == found.to_dict()
    assert found.to_dict()["metrics"]["gini@5"]["after"] is None


@pytest.mark.parametrize("ids", [list(range(100, 115)), [f"i{j}" for j in range(15)], [(j, "x") for j in range(15)],
                                 [1, "two", *range(3, 16)]])  # fmt: skip
def test_json_is_finite_and_keeps_ids(ids):
    before, after, targets, train = case(8)
    held_out = held_out_of(targets, 15, ids)
    found = audit(before, after, held_out, at=5, bootstrap=10, groups=GROUPS,
                  train=Interactions(matrix(train, 15).by_user, 15, None, Ids(ids)))  # fmt: skip
    text = found.to_json(every_item=True)
    assert "NaN" not in text
    assert json.loads(text) == found.to_dict(every_item=True)
    listed = [item["item"] for item in found.to_dict(every_item=True)["items"]]
    assert listed == [list(x) if isinstance(x, tuple) else x for x in ids]
    assert "items" not in found.to_dict()
    assert len(found.items_table()) == 15
    curve = found.to_dict()["lorenz"]
    assert curve["before"] == pytest.approx(found.lorenz()[0].tolist())
    assert (curve["share_of_items"][-1], curve["after"][-1]) == (1, 1)


def test_long_lorenz_curves_are_thinned_in_json():
    random = np.random.default_rng(0)
    lists = np.stack([random.permutation(500)[:9] for _ in range(40)])
    found = audited(lists, lists[::-1], [{0}] * 40, 500)
    curve = found.to_dict()["lorenz"]
    assert len(curve["before"]) == 101
    assert len(found.lorenz()[0]) == 501
    assert curve["before"][90] == pytest.approx(found.lorenz()[0][450])


def test_tables():
    before, after, targets, train = case(9)
    found = audited(before, after, targets, groups=GROUPS, train=matrix(train, 15), bootstrap=10)
    items, groups, users = found.items_table(), found.groups_table(), found.users_table()
    assert all(isinstance(table, pa.Table) for table in (items, groups, users))
    assert items["difference"].to_pylist() == (found.items.after - found.items.before).astype(int).tolist()
    assert sum(items["after_share"].to_pylist()) == pytest.approx(1)
    assert items["group"].to_pylist() == GROUPS
    assert groups["n_items"].to_pylist() == [6, 6, 3]
    assert groups["low"].to_pylist() == [g.share.low for g in found.groups]
    assert users.num_rows == 14
    means = users.to_pandas().mean(numeric_only=True)
    assert means["ndcg@5 difference"] == pytest.approx(found["ndcg@5"].difference)
    assert "popularity" not in audited(before, after, targets).items_table().column_names


def test_models_are_asked_with_their_options_and_the_part_of_a_split():
    before, after, targets, train = case(10)
    first, second = Fixed(before, 15), Fixed(after, 15, block=5)
    part, other = held_out_of(targets, 15), held_out_of([{0}], 15)
    split = Split(matrix(train, 15), other, part)
    found = audit(first, second, split, at=5, after_options={"fairness": 2.0}, quality="ndcg@6", bootstrap=10)
    assert "fairness" not in first.calls[0]
    assert (second.calls[0]["fairness"], second.calls[0]["N"]) == (2.0, 6)
    assert "tail_share@5" in found.metrics  # popularity comes from the split
    same = audit(before, after, part, at=5, quality="ndcg@6", bootstrap=10)
    assert {label: found[label] for label in same.metrics} == same.metrics
    validation = Split(matrix(train, 15), part, other)
    assert audit(first, second, validation, part="validation", at=5, bootstrap=0).n_users == 14


def test_seeds():
    before, after, targets, _ = case(11)
    one, same, other = (audited(before, after, targets, bootstrap=20, random_state=s) for s in (0, 0, 1))
    assert one.metrics == same.metrics
    assert one.metrics != other.metrics


def test_a_clear_change_is_told_from_an_unclear_one():
    targets = [{0}] * 60
    always, never = np.tile([0, 1], (60, 1)), np.tile([2, 1], (60, 1))
    found = audited(always, never, targets, 5, at=2, bootstrap=50)
    assert found["ndcg@2"].beyond_chance is True
    assert found["ndcg@2"].relative == -1
    assert "not statistically significant" not in found.summary()
    mixed = np.where(np.arange(60)[:, None] % 2 == 0, always, never)
    found = audited(mixed, np.roll(mixed, 1, axis=0)[:, ::-1], targets, 5, at=2, bootstrap=50, quality="recall@2")
    assert found["recall@2"].beyond_chance is False
    moved = mixed.copy()
    moved[1] = [0, 1]
    found = audited(mixed, moved, targets, 5, at=2, bootstrap=50, quality="recall@2")
    assert found["recall@2"].difference > 0
    assert "not statistically significant" in found.summary()
    with pytest.raises(KeyError, match="was not audited; there are recall@2"):
        found["ndcg@2"]
    assert repr(found) == "Audit(before to after, 60 users, 5 items)"
    assert isinstance(found, Audit)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"at": 0}, InvalidParameter, "'at' parameter of audit must be an integer >= 1"),
        ({"bootstrap": -1}, InvalidParameter, "'bootstrap' parameter of audit"),
        ({"confidence": 2}, InvalidParameter, "'confidence' parameter of audit"),
        ({"random_state": "x"}, InvalidParameter, "'random_state' parameter of audit"),
        ({"quality": ["gini@5"]}, InvalidParameter, "must name accuracy metrics.* Got 'gini@5'"),
        ({"quality": []}, InvalidParameter, "Got none"),
        ({"groups": ["a", "b"]}, InvalidData, "groups holds 2 labels, but there are 15 items"),
        ({"names": ["a", "b"]}, InvalidData, "names holds 2 names, but there are 15 items"),
        ({"names": {1: "a"}}, InvalidData, "the items have no ids"),
        ({"train": matrix([[0]], 3)}, InvalidData, "train has 3 items"),
        ({"before_options": {"fairness": 1}}, InvalidParameter, "before_options are for models"),
        ({"at": 7}, InvalidData, "before: the lists have 6 slots, but 7 are compared"),
    ],
)
def test_wrong_arguments(options, error, match):
    before, after, targets, _ = case(12)
    with pytest.raises(error, match=match):
        audited(before, after, targets, **options)


def test_wrong_sides():
    before, after, targets, train = case(13)
    held_out = held_out_of(targets, 15)
    with pytest.raises(InvalidData, match="after: The model knows 14 items, the held-out data has 15"):
        audit(Fixed(before, 15), Fixed(after, 14), held_out, at=5)
    with pytest.raises(InvalidData, match=r"before: needs a fitted model or an array of lists\. Got list"):
        audit(before.tolist(), after, held_out, at=5)
    with pytest.raises(InvalidData, match="after: Only 13 of 14"):
        audit(before, after[:13], held_out, at=5)
    with pytest.raises(InvalidData, match="before: A list holds the same item twice"):
        audit(np.zeros_like(before), after, held_out, at=5)
    with pytest.raises(InvalidData, match="not on Interactions"):
        audit(before, after, matrix(train, 15), at=5)
    with pytest.raises(InvalidParameter, match="'part' parameter of audit must be"):
        audit(before, after, Split(matrix(train, 15), held_out, held_out), part="train")
    ids = held_out_of(targets, 15, [f"i{j}" for j in range(15)])
    with pytest.raises(InvalidData, match="names has none of the items; the first item is 'i0'"):
        audit(before, after, ids, at=5, names={0: "x"})


def test_known_users_are_passed_on():
    before, after, targets, _ = case(14)
    plain = held_out_of(targets, 15)
    model = Fixed(before, 15)
    audit(model, after, HeldOut(plain.fold_in, plain.targets, known_users=True), at=5, bootstrap=0)
    assert model.calls[0]["known_users"] is True


def test_the_groups_that_change_most_are_named_first():
    before = np.array([[0], [0], [0], [1], [1], [2], [2]])
    after = np.array([[3], [3], [3], [3], [1], [4], [4]])
    found = audited(before, after, [set()] * 7, 5, at=1, groups=list("pqrst"))
    assert "shares of exposure that rise most: s (+57.1 points), t (+28.6 points); those" in found.summary()
    assert "fall most: p (−42.9 points), r (−28.6 points), q (−14.3 points)." in found.summary()


def test_no_users_at_all():
    nobody = np.empty((0, 5), dtype=np.int32)
    assert "no exposure to compare" in audited(nobody, nobody, [], bootstrap=10).summary()
    assert evaluate_lists(nobody, held_out_of([], 15), at=[5], bootstrap=10).intervals == {}


def test_memory_is_users_plus_items_never_their_product():
    n, m, K = 20_000, 30_000, 20

    class Spread:
        """Item (start + k * step) mod m in slot k of every list, made block by block."""

        n_items = m

        def __init__(self, step):
            self.step = step

        def rank(self, history, N, *, known_users=False):
            for first in range(0, n, 1000):
                start = np.arange(first, first + 1000)[:, None] * 7
                yield first, ((start + np.arange(N) * self.step) % m).astype(np.int32)

    held_out = held_out_of([{i % m} for i in range(n)], m)
    tracemalloc.start()
    found = audit(Spread(1), Spread(11), held_out, at=K, bootstrap=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.items.after.sum() == n * K
    assert peak < n * m / 6  # bytes: far less than one byte for every pair
