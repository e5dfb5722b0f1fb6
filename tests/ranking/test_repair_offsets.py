"""The last items are moved inside the exposure bounds: gaps by hand, one step by hand, and the outcome counted."""

import numpy as np
import pytest

from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.ranking import repair_offsets
from fairmf.ranking.learn_offsets import Bounds, Schedule, learn
from fairmf.ranking.repair_offsets import Ranked, Sorted

K = 3


def problem(n=400, m=40, seed=0):
    generator = np.random.default_rng(seed)
    users, items = generator.normal(size=(n, 4)), generator.normal(size=(m, 4))
    users[:, 0] += 2.0
    hidden = [np.sort(generator.choice(m, 3, replace=False)) for _ in range(n)]
    exclude = Rows(np.arange(n + 1, dtype=np.int64) * 3, np.concatenate(hidden).astype(np.int32), None)
    users, items = users.astype(np.float32), items.astype(np.float32)
    base = generator.normal(0, 0.3, size=m)
    return Ranked(get_backend("cpu"), users, items, exclude, K, base)


def scores_of(ranked, prices):
    scores = ranked.users.astype(float) @ ranked.items.T.astype(float) + ranked.base + prices
    for user in range(len(scores)):
        scores[user, ranked.exclude.indices[ranked.exclude.indptr[user] : ranked.exclude.indptr[user + 1]]] = -np.inf
    return scores


def counts_of(ranked, prices):
    lists = np.argsort(-scores_of(ranked, prices), axis=1, kind="stable")[:, :K]
    return np.bincount(lists.ravel(), minlength=len(ranked.items))


def test_gaps_and_leads_are_those_of_the_scores():
    ranked = problem(n=60, m=12)
    prices = np.linspace(-1, 1, 12)
    gaps, leads, last = repair_offsets.places(ranked, prices)
    scores = scores_of(ranked, prices)
    order = np.argsort(-scores, axis=1)
    np.testing.assert_allclose(last, -np.sort(-scores, axis=1)[:, K - 1], rtol=1e-5)
    for item in range(12):
        rank = np.array([row.tolist().index(item) for row in order])
        had, near = rank < K, (rank >= K) & (rank < 2 * K)
        last, following = (np.take_along_axis(scores, order[:, k : k + 1], axis=1)[:, 0] for k in (K - 1, K))
        own = scores[:, item]
        np.testing.assert_allclose(
            leads.values[leads.start[item] : leads.start[item + 1]], np.sort((own - following)[had]), atol=1e-5
        )
        np.testing.assert_allclose(
            gaps.values[gaps.start[item] : gaps.start[item + 1]], np.sort((last - own)[near]), atol=1e-5
        )


def test_one_price_moves_by_exactly_what_its_item_lacks():
    """With the others at rest, the q-th smallest gap brings q more users, and no more."""
    ranked = problem()
    prices = np.zeros(40)
    gaps, leads, _ = repair_offsets.places(ranked, prices)
    item = int(np.argmax(np.where(leads.counts < 10, gaps.counts, -1)))
    assert gaps.counts[item] > 5
    need = gaps.smallest(np.array([item]), np.array([5]))[0]
    for extra, users in ((1e-4, 5), (-1e-4, 4)):
        prices[item] = need + extra
        assert counts_of(ranked, prices)[item] == leads.counts[item] + users


def test_items_that_nobody_nearly_gets_rise_by_what_they_lack():
    ranked = problem()
    prices = np.zeros(40)
    prices[[7, 9]] = -20.0
    gaps, _, last = repair_offsets.places(ranked, prices)
    assert (gaps.counts[[7, 9]] == 0).all()
    far = repair_offsets.far_moves(ranked, prices, np.array([7, 9]), last, 5)
    for item, move in zip((7, 9), far, strict=True):
        for extra, users in ((1e-4, 5), (-1e-4, 4)):
            tried = prices.copy()
            tried[item] += move + extra
            assert counts_of(ranked, tried)[item] == users


def test_a_step_by_hand():
    start = np.array([0, 2, 2, 6, 10, 12])
    leads = Sorted(start, np.array([0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.05, 0.1, 0.2, 0.3, 0.5, 0.6], dtype=np.float32))
    gaps = Sorted(np.array([0, 3, 3, 4, 5, 5]), np.array([0.3, 0.5, 0.9, 0.1, 0.1], dtype=np.float32))
    prices = np.array([0.0, 0.0, 0.15, 0.0, -1.0])
    moved = repair_offsets.moved(prices, 3.0, np.inf, gaps, leads)
    # Item 0 has 2 of 3 users and aims at 4: the second gap, times RELAX. Nobody nearly gets item 1: it stays.
    # Items 2 to 4: enough users and nothing to give back; the last lacks one and has no gap.
    np.testing.assert_allclose(moved, [1.5 * 0.5, 0.0, 0.15, 0.0, -1.0], atol=1e-4)
    capped = repair_offsets.moved(np.zeros(5), 0.0, 2.0, gaps, leads)
    # At most 2 users, and the aim is 1: items 2 and 3 lose their three nearest to the edge.
    np.testing.assert_allclose(capped, [0.0, 0.0, -1.5 * 0.3, -1.5 * 0.2, 0.0], atol=1e-4)
    # Raised beyond need (3 users are enough where 2 are asked for): back to between two users, not past 0.
    rich = repair_offsets.moved(np.array([0, 0, 0.5, 2.0, 0]), 2.0, np.inf, gaps, leads)
    np.testing.assert_allclose(rich[2:4], [0.5 - 0.15, 2.0 - 0.075], atol=1e-6)
    assert repair_offsets.moved(np.array([0, 0, 0.04, 0, 0]), 2.0, np.inf, gaps, leads)[2] == 0


@pytest.mark.parametrize(("floor", "cap"), [(0.5, np.inf), (0.0, 1.5), (0.5, 2.0)])
def test_learned_offsets_are_brought_inside_the_bounds(floor, cap):
    ranked = problem(n=1500)
    bounds = Bounds(floor, cap)
    learned = learn(
        ranked.backend, ranked.users, ranked.items, ranked.exclude, K, bounds.tightened(0.03),
        Schedule(iterations=100, users_at_once=150), base=ranked.base,
    ).astype(float)  # fmt: skip
    learned *= np.random.default_rng(1).uniform(0.8, 1.2, len(learned))  # as far off as counts of batches can be
    low, high = repair_offsets.whole_bounds(bounds, ranked.equal)

    def outside(prices):
        counts = counts_of(ranked, prices)
        return int(((counts < low) | (counts > high)).sum())

    repaired = repair_offsets.repair(ranked, learned, bounds)
    assert outside(np.zeros(40)) > 5
    assert outside(learned) > 2
    assert outside(repaired) <= 1


def test_whole_users():
    assert repair_offsets.whole_bounds(Bounds(0.25), 5.76) == (2, np.inf)
    assert repair_offsets.whole_bounds(Bounds(0.5, 1.5), 100) == (50, 150)
    assert repair_offsets.whole_bounds(Bounds(0.29, 2), 100) == (29, 200)  # 28.999... in floats
    assert Bounds(0.5, 4).tightened(0.1) == Bounds(0.55, 3.6)
    assert Bounds(1.0, 1.0).tightened(0.1) == Bounds(1.0, 1.0)


def test_it_keeps_the_best_and_gives_up():
    """A floor that no prices can meet: two items nobody tells apart, one place each. The prices stay the best found."""
    users = np.ones((10, 1), dtype=np.float32)
    items = np.array([[1.0], [1.0], [1.0]], dtype=np.float32)
    ranked = Ranked(get_backend("cpu"), users, items, None, 1, np.zeros(3))
    said = []
    found = repair_offsets.repair(ranked, np.zeros(3), Bounds(0.9), said.append)
    assert 1 < len(said) <= repair_offsets.PASSES
    assert np.isfinite(found).all()
