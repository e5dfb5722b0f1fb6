"""Exposure offsets against the linear programme they solve, and the rules each step of learning must keep."""

import numpy as np
import pytest
from conftest import BACKENDS
from scipy.optimize import linprog

from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.errors import InvalidParameter
from fairmf.ranking import learn_offsets
from fairmf.ranking.learn_offsets import Bounds, Schedule

N, M, D, K = 60, 15, 4, 3


def problem(seed=0, n=N, m=M):
    """Users and items with a common taste, so that plain top-K shows few items."""
    generator = np.random.default_rng(seed)
    users, items = generator.normal(size=(n, D)), generator.normal(size=(m, D))
    users[:, 0] += 2.0
    return users.astype(np.float32), items.astype(np.float32)


def lists(users, items, offset, k=K):
    scores = users.astype(float) @ items.T.astype(float) + offset
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def shares(chosen, m=M):
    return np.bincount(chosen.ravel(), minlength=m) * m / chosen.size


def optimum(scores, k, floor, cap):
    """The linear programme itself, by a general solver: best total score of lists that keep the bounds."""
    n, m = scores.shape
    uniform = k * n / m
    per_user = np.kron(np.eye(n), np.ones(m))
    per_item = np.kron(np.ones(n), np.eye(m))
    limits = np.vstack([-per_item, per_item])
    right = np.concatenate([np.full(m, -floor * uniform), np.full(m, min(cap, m) * uniform)])
    found = linprog(-scores.ravel(), A_ub=limits, b_ub=right, A_eq=per_user, b_eq=np.full(n, k), bounds=(0, 1))
    assert found.status == 0
    return -found.fun


@pytest.fixture(params=BACKENDS)
def backend(request):
    return get_backend(request.param)


@pytest.mark.parametrize(("floor", "cap"), [(0.5, np.inf), (0.0, 1.5), (0.4, 2.0)])
def test_lists_are_nearly_the_best_that_keep_the_bounds(backend, floor, cap):
    users, items = problem()
    scores = users.astype(float) @ items.T.astype(float)
    plain = lists(users, items, 0.0)
    assert Bounds(floor, cap).violations(shares(plain))["items_below_floor"] > 5 or shares(plain).max() > cap
    learned = learn_offsets.learn(backend, backend.array(users), backend.array(items), None, K, Bounds(floor, cap))
    served = lists(users, items, learned.astype(float))
    best = optimum(scores, K, floor, cap)
    total = np.take_along_axis(scores, served, axis=1).sum()
    unbounded = np.take_along_axis(scores, plain, axis=1).sum()
    lost = unbounded - best
    assert lost > 0.02 * unbounded  # the bounds cost something here
    assert abs(total - best) < 0.25 * lost
    share = shares(served)
    assert share.min() > 0.6 * floor
    assert share.max() < 1.25 * cap


@pytest.mark.slow
def test_rarely_liked_items_are_lifted_far_and_then_told_apart():
    """Most items score nearly nothing and nearly alike, as in a long tail: far to go, a bit too far floods lists."""
    backend, floor = get_backend("cpu"), 0.5
    generator = np.random.default_rng(0)
    users = generator.normal(size=(700, D)).astype(np.float32)
    users[:, 0] += 3.0
    items = (generator.normal(size=(300, D)) * 0.01).astype(np.float32)
    items[:15] *= 100
    scores = users @ items.T
    needed = np.sort(scores, axis=1)[:, -K].mean()
    assert needed > 3 * scores.std()
    assert scores[:, 15:].std(axis=0).max() < 0.1 * scores.std()
    learned = learn_offsets.learn(backend, users, items, None, K, Bounds(floor)).astype(float)
    served = {"plain": lists(users, items, 0.0), "fair": lists(users, items, learned)}
    lacking = {way: np.maximum(floor - shares(found, 300), 0).mean() for way, found in served.items()}
    assert lacking["plain"] > 0.4
    assert lacking["fair"] < 0.045
    # Weak duality: no lists that keep the floor can have more than this, and ours come near it.
    total = {way: np.take_along_axis(scores, found, axis=1).sum() for way, found in served.items()}
    bound = np.sort(scores + learned, axis=1)[:, -K:].sum() - floor * K * len(users) / 300 * learned.sum()
    assert total["plain"] - total["fair"] < 1.02 * (total["plain"] - bound)


def test_without_need_there_are_no_offsets(backend):
    generator = np.random.default_rng(1)
    users, items = generator.normal(size=(400, M)).astype(np.float32), np.eye(M, dtype=np.float32)
    learned = learn_offsets.learn(
        backend, backend.array(users), backend.array(items), None, K, Bounds(0.3, 3.0), Schedule(iterations=20)
    )
    np.testing.assert_array_equal(learned, 0)


def test_a_price_is_paid_only_where_a_bound_binds():
    backend = get_backend("cpu")
    users, items = problem()
    learned = learn_offsets.learn(backend, users, items, None, K, Bounds(0.5))
    share = shares(lists(users, items, learned.astype(float)))
    assert (learned >= 0).all()
    assert (learned[share > 1.0] == 0).all()
    assert (learned > 0).any()
    capped = learn_offsets.learn(backend, users, items, None, K, Bounds(0.0, 1.5))
    assert (capped <= 0).all()
    assert (capped < 0).any()


def test_small_batches_learn_the_same_prices():
    backend = get_backend("cpu")
    users, items = problem(n=600)
    whole, part = (
        learn_offsets.learn(backend, users, items, None, K, Bounds(0.5), Schedule(users_at_once=size))
        for size in (600, 120)
    )
    np.testing.assert_allclose(part, whole, atol=0.15 * np.abs(whole).max())
    again = learn_offsets.learn(backend, users, items, None, K, Bounds(0.5), Schedule(users_at_once=120))
    np.testing.assert_array_equal(part, again)
    other = learn_offsets.learn(
        backend, users, items, None, K, Bounds(0.5), Schedule(users_at_once=120, random_state=1)
    )
    assert np.abs(part - other).max() > 0


@pytest.mark.parametrize(("at_once", "weight"), [(60, 1.0), (30, 0.5), (6, 0.2)])
def test_steps_follow_the_running_mean_of_the_batches(monkeypatch, at_once, weight):
    """Counts of one batch scatter: prices move by their mean over about a pass, or five batches."""
    users, items = problem()
    generator = np.random.default_rng(0)
    counted = [generator.uniform(0, 2, M) for _ in range(4)]
    fresh, seen = iter(counted), []
    monkeypatch.setattr(learn_offsets, "exposure_share", lambda *_: next(fresh))
    real = learn_offsets.moved
    monkeypatch.setattr(
        learn_offsets, "moved", lambda prices, share, *rest: seen.append(share) or real(prices, share, *rest)
    )
    schedule = Schedule(iterations=4, users_at_once=at_once)
    learn_offsets.learn(get_backend("cpu"), users, items, None, K, Bounds(0.5), schedule)
    expected = counted[0]
    for share, new in zip(seen, counted, strict=True):
        expected = (1 - weight) * expected + weight * new
        np.testing.assert_allclose(share, expected)


def test_the_same_bits_for_any_number_of_threads():
    backend = get_backend("cpu")
    users, items = problem(n=900, m=70)
    found = []
    for threads in (1, 2):
        with backend.threads(threads):
            found.append(
                learn_offsets.learn(
                    backend, users, items, None, K, Bounds(0.5, 2.0), Schedule(iterations=60, users_at_once=200)
                )
            )
    assert (found[0] > 0).any()
    assert (found[0] < 0).any()
    np.testing.assert_array_equal(found[0], found[1])


def test_excluded_items_are_not_counted_as_shown(backend):
    users, items = problem()
    everywhere = np.arange(N + 1) * 2  # nobody may be shown items 0 and 1
    exclude = Rows(everywhere.astype(np.int64), np.tile(np.array([0, 1], dtype=np.int32), N), None)
    share = learn_offsets.exposure_share(
        backend, backend.array(users), backend.array(items), np.zeros(M), exclude, np.arange(N), K
    )
    assert (share[:2] == 0).all()
    assert share.sum() == pytest.approx(M)
    scores = users.astype(float) @ items.T.astype(float)
    scores[:, :2] = -np.inf
    np.testing.assert_allclose(share, shares(np.argsort(-scores, axis=1, kind="stable")[:, :K]))


def test_one_step_moves_up_where_short_down_where_over_and_back_where_neither():
    bounds = Bounds(0.5, 2.0)
    prices = np.array([0.0, 0.0, 0.0, 0.3, -0.3, 0.05, -0.05, 0.3])
    share = np.array([0.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.25])
    moved = learn_offsets.moved(prices, share, bounds, 0.1, 0.1)
    np.testing.assert_allclose(moved, [0.1, -0.1, 0.0, 0.2, -0.25, 0.0, 0.0, 0.35])


def test_the_level_of_lifted_items_moves_as_what_they_lack_together():
    prices = np.array([1.0, 1.0, 1.0, 1.0, 0.0])  # the last is popular by itself: it does not count
    level = 0.4
    flooded = learn_offsets.lift(
        prices, np.array([0.0, 0.0, 0.0, 5.0, 90.0]), 0.5, 0.1, level
    )  # three short, together over
    np.testing.assert_allclose(flooded[:4], np.array([0.05, 0.05, 0.05, -0.15]) - level)
    uneven = learn_offsets.lift(
        prices, np.array([0.3, 0.3, 0.4, 1.5, 90.0]), 0.5, 0.1, level
    )  # they lack .4, .4, .2 and -2
    np.testing.assert_allclose(uneven[:4], np.array([0.04, 0.04, 0.02, -0.1]) - level * 0.25)
    assert flooded[4] == uneven[4] == -0.1


def test_the_spread_of_scores_needs_no_score_matrix(backend):
    users, items = problem()
    spread = learn_offsets.score_spread(backend, backend.array(users), backend.array(items))
    assert spread == pytest.approx((users @ items.T).std(), rel=1e-4)


@pytest.mark.parametrize(
    ("bounds", "k", "message"),
    [
        (Bounds(-0.1), K, "min_exposure"),
        (Bounds(1.5), K, "min_exposure"),
        (Bounds(float("nan")), K, "min_exposure"),
        (Bounds(0.1, 0.9), K, "max_exposure"),
        (Bounds(), K, "Give min_exposure"),
        (Bounds(0.5), M, "K must be below"),
    ],
)
def test_impossible_bounds_are_refused(bounds, k, message):
    users, items = problem()
    with pytest.raises(InvalidParameter, match=message):
        learn_offsets.learn(get_backend("cpu"), users, items, None, k, bounds)


def one_each(n, m):
    """One item in the history of every user."""
    return Rows(np.arange(n + 1), (np.arange(n) % m).astype(np.int32), None)


def test_prices_bring_rare_items_into_the_lists_whatever_the_scale_of_scores():
    backend, m = get_backend("cpu"), 60
    users, items = problem(n=600, m=m)
    schedule = Schedule(iterations=200)
    made = [
        learn_offsets.item_prices(backend, users, np.float32(scale) * items, one_each(600, m), K, schedule)
        for scale in (1, 8)
    ]
    np.testing.assert_allclose(made[0], made[1], atol=1e-3)
    assert (made[0] >= 0).all()
    spread = (users.astype(float) @ items.T).std()
    before, after = (shares(lists(users, items, lift * spread * made[0]), m) for lift in (0.0, 1.0))
    wanted = learn_offsets.PRICE_FLOOR
    assert (before < 0.5 * wanted).mean() > 0.2
    assert (after < 0.5 * wanted).mean() < 0.02


def test_without_users_or_scores_there_are_no_prices():
    backend = get_backend("cpu")
    users, items = problem()
    schedule = Schedule(iterations=5)
    nobody = Rows(np.zeros(N + 1, dtype=np.int64), np.empty(0, dtype=np.int32), None)
    assert learn_offsets.item_prices(backend, users, items, nobody, K, schedule) is None
    assert learn_offsets.item_prices(backend, users, 0 * items, one_each(N, M), K, schedule) is None
