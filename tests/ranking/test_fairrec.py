"""FairRec against its telling in double loops, its guarantee, and its certificate."""

import numpy as np
import pytest
from conftest import slow_values
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import fairrec as naive

from fairmf.data.csr import Rows
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.ranking import fairrec
from fairmf.ranking.fairrec import EXCLUDED, FULL, RunOptions, fair_rec, minimum_exposure


def rows_of(sets):
    indptr = np.concatenate(([0], np.cumsum([len(x) for x in sets]))).astype(np.int64)
    return Rows(indptr, np.array([j for x in sets for j in sorted(x)], dtype=np.int32), None)


def random_case(seed):
    """Small problems of every kind: ties, negative scores, K near or above m, items that few may be given."""
    random = np.random.default_rng(seed)
    n, m, d = random.integers(1, 25), random.integers(1, 18), random.integers(1, 4)
    K = int(random.integers(1, m + 3)) if random.random() < 0.5 else int(random.integers(1, min(m, 4) + 1))
    n = max(n, -(-m // min(K, m)))  # with fewer places than items FairRec refuses
    if random.random() < 0.6:
        users, items = random.integers(-2, 3, (n, d)), random.integers(-2, 3, (m, d))
    else:
        users, items = random.normal(size=(n, d)), random.normal(size=(m, d))
    if random.random() < 0.3:  # a common order: everybody wants the same
        users = np.abs(users)
    share = float(random.choice([0.01, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0]))
    reach = random.choice([0.0, 0.2, 0.6, 1.0], size=m)  # how many users exclude each item
    excluded = [set(np.flatnonzero(random.random(m) < reach).tolist()) for _ in range(n)]
    if random.random() < 0.3:
        excluded = [set() for _ in range(n)]
    return users.astype(np.float32), items.astype(np.float32), K, share, excluded


def score_matrix(users, items):
    return np.array([[float(np.dot(u.astype(float), v.astype(float))) for v in items] for u in users])


def listed(row):
    return [j for j in row.tolist() if j >= 0]


@pytest.mark.parametrize("problems", [30, *slow_values(300)])
@pytest.mark.parametrize("chunk", [1, 2, 64])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_equals_the_double_loops_on_many_problems(backend, chunk, problems, monkeypatch):
    monkeypatch.setattr(fairrec, "CHUNK", chunk)
    kinds = {"ell > 0": 0, "short": 0, "negative": 0, "unfilled": 0}
    for seed in range(problems):
        users, items, K, share, excluded = random_case(seed)
        scores = score_matrix(users, items)
        expected, ell = naive.fair_rec(scores, K, share, excluded, random_state=seed)
        found = fair_rec(
            users, items, K, share, exclude=rows_of(excluded), order="allocation", run=RunOptions(seed, backend)
        )
        assert [listed(row) for row in found.items] == expected, seed
        for i, row in enumerate(expected):
            np.testing.assert_allclose(found.scores[i, : len(row)], scores[i, row], rtol=1e-5, atol=1e-6)
            assert np.isnan(found.scores[i, len(row) :]).all()
            assert (found.items[i, len(row) :] == -1).all()
        check_certificate(found.certificate, expected, excluded, len(users), len(items), ell)
        kinds["ell > 0"] += ell > 0
        kinds["short"] += not found.certificate.kept
        kinds["negative"] += bool(ell > 0 and (scores.max(axis=1) < 0).any())
        kinds["unfilled"] += any(len(row) < K for row in expected)
    assert min(kinds.values()) >= problems // 15, kinds  # every kind was met


def check_certificate(certificate, lists, excluded, n, m, ell):
    exposure = [sum(j in row for row in lists) for j in range(m)]
    assert certificate.guaranteed == ell
    assert certificate.realised == min(exposure)
    assert certificate.short.tolist() == [j for j in range(m) if exposure[j] < ell]
    assert certificate.exposure.tolist() == [exposure[j] for j in certificate.short]
    feasible = [n - sum(j in hidden for hidden in excluded) for j in certificate.short]
    assert certificate.feasible.tolist() == feasible
    assert certificate.reasons == tuple(EXCLUDED if count < ell else FULL for count in feasible)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_without_exclusions_fewer_than_k_items_are_short(seed):
    users, items, K, share, _ = random_case(seed)
    K = min(K, len(items))
    found = fair_rec(users, items, K, share, run=RunOptions(seed))
    assert len(found.certificate.short) < K
    assert all(reason == FULL for reason in found.certificate.reasons)
    for row in found.items:
        assert len(set(row.tolist())) == K


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_order_by_score_holds_the_same_items(seed):
    users, items, K, share, excluded = random_case(seed)
    hidden, scores = rows_of(excluded), score_matrix(users, items)
    allocated = fair_rec(users, items, K, share, exclude=hidden, order="allocation", run=RunOptions(1))
    sorted_ = fair_rec(users, items, K, share, exclude=hidden, run=RunOptions(1))
    for i, (a, b) in enumerate(zip(allocated.items, sorted_.items, strict=True)):
        assert listed(b) == sorted(listed(a), key=lambda j: (-scores[i, j], j))
        assert set(listed(a)) & excluded[i] == set()


def test_offsets_are_added_to_the_scores():
    random = np.random.default_rng(3)
    users, items, offsets = random.normal(size=(30, 3)), random.normal(size=(12, 3)), random.normal(0, 2, size=12)
    scores = score_matrix(users, items) + offsets
    nothing = [set() for _ in range(30)]
    expected, _ = naive.fair_rec(scores, 4, 0.8, nothing, random_state=0)
    found = fair_rec(users, items, 4, 0.8, offsets=offsets, order="allocation")
    assert [listed(row) for row in found.items] == expected
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, found.items, axis=1), rtol=1e-5, atol=1e-5)


def larger(n=700, m=150, d=6, seed=0):
    """Everybody wants about the same items, so that candidates run out before their turn."""
    random = np.random.default_rng(seed)
    taste = random.normal(size=d)
    users = taste + 0.3 * random.normal(size=(n, d))
    return users.astype(np.float32), random.normal(size=(m, d)).astype(np.float32)


@pytest.mark.parametrize("settings_", [{}, {"CHUNK": 3, "MOST_AHEAD": 32}, {"CHUNK": 1}])
def test_blocks_do_not_change_the_answer(settings_, monkeypatch):
    users, items = larger(n=350)
    for name, value in settings_.items():
        monkeypatch.setattr(fairrec, name, value)
    excluded = [set(np.random.default_rng(i).permutation(150)[: i % 40].tolist()) for i in range(350)]
    expected, _ = naive.fair_rec(score_matrix(users, items), 5, 0.6, excluded, random_state=7)
    found = fair_rec(users, items, 5, 0.6, exclude=rows_of(excluded), order="allocation", run=RunOptions(7))
    assert [listed(row) for row in found.items] == expected


def test_same_bits_for_any_number_of_threads_and_another_seed_another_answer():
    users, items = larger()
    one, two, other = (
        fair_rec(users, items, 5, 1.0, run=RunOptions(s, num_threads=t)) for t, s in ((1, 0), (2, 0), (1, 1))
    )
    np.testing.assert_array_equal(one.items, two.items)
    np.testing.assert_array_equal(one.scores, two.scores)
    assert not np.array_equal(one.items, other.items)


def test_exposure_is_raised_to_what_was_promised():
    users, items = larger()
    found = fair_rec(users, items, 5, 0.9)
    assert found.certificate.guaranteed == 21
    exposure = np.bincount(found.items.ravel(), minlength=150)
    assert (exposure >= 21).sum() > 145
    least = fair_rec(users, items, 5, 0.001)
    assert np.bincount(least.items.ravel(), minlength=150).min() == 1
    plain = np.argsort(-(users @ items.T), axis=1)[:, :5]
    assert np.bincount(plain.ravel(), minlength=150).min() == 0  # it took FairRec to show them


def test_exposure_is_guaranteed_in_whole_users():
    """Of share K n / m users the whole ones, but never none: a share that does nothing would only look like one."""
    assert [minimum_exposure(share, 4, 10, 15) for share in (0.01, 0.3, 0.74, 0.75, 1)] == [1, 1, 1, 2, 2]
    users, items = larger(n=10, m=15)
    found = fair_rec(users, items, 4, 0.01).certificate
    assert (found.guaranteed, found.asked) == (1, pytest.approx(0.01 * 40 / 15))
    assert repr(found).startswith("Certificate(guaranteed 1 users (0.0267 asked for), smallest ")
    assert "asked" not in repr(fair_rec(users, items, 3, 0.5).certificate)  # 1 exactly


def test_fewer_places_than_items_are_refused():
    assert minimum_exposure(1, 3, 5, 15) == 1
    with pytest.raises(InvalidParameter, match="5 users with 3 items each have 15 places for 16 items") as raised:
        fair_rec(*larger(n=5, m=16), 3, 1.0)
    assert "at least 6 users" in raised.value.hint


def test_the_share_is_the_decimal_that_was_written():
    assert minimum_exposure(0.29, 100, 1, 1) == 29
    assert minimum_exposure(1, 20, 100_000, 20_000) == 100
    assert minimum_exposure(np.float64(0.5), 3, 3, 2) == 2


def test_nobody_and_a_repeated_exclusion():
    assert fair_rec(np.ones((0, 2)), np.ones((3, 2)), 2, 0.5).items.shape == (0, 2)
    twice = Rows(np.array([0, 2, 2]), np.array([1, 1], dtype=np.int32), None)
    found = fair_rec(np.ones((2, 1)), np.ones((2, 1)), 2, 1.0, exclude=twice)
    assert found.items.tolist() == [[0, -1], [0, 1]]
    assert found.certificate.short.tolist() == [1]
    assert found.certificate.feasible.tolist() == [1]
    assert "1 items below" in repr(found.certificate)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"K": 0}, "'K' parameter of fair_rec must be an integer >= 1. Got 0"),
        ({"K": 2.0}, "'K' parameter"),
        ({"share": 0}, "'share' parameter of fair_rec must be a number > 0 and <= 1. Got 0"),
        ({"share": 1.01}, "'share' parameter"),
        ({"share": float("nan")}, "'share' parameter"),
        ({"share": "half"}, "'share' parameter"),
        ({"order": "random"}, "'order' parameter of fair_rec must be one of"),
        ({"run": RunOptions(backend="abacus")}, "There is no backend 'abacus'"),
        ({"users": np.ones((2, 3))}, "as many columns"),
        ({"items": np.ones((0, 2))}, "at least one item"),
        ({"users": np.full((2, 2), np.nan)}, "not finite"),
        ({"offsets": np.ones(4)}, "offsets must be 3 finite numbers"),
        ({"exclude": rows_of([{1}])}, "one row per user: 2. Got 1"),
        ({"exclude": rows_of([{1}, {3}])}, r"outside 0\.\.2"),
        ({"run": RunOptions(-1)}, "random_state"),
    ],
)
def test_bad_input(arguments, problem):
    with pytest.raises((InvalidData, InvalidParameter), match=problem):
        fair_rec(**({"users": np.ones((2, 2)), "items": np.ones((3, 2)), "K": 2, "share": 0.5} | arguments))
