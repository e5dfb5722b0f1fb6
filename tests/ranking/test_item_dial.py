"""The item dial against brute force over all users and items."""

import numpy as np
import pytest
from conftest import BACKENDS
from hypothesis import given
from hypothesis import strategies as st

from fairmf.backends.contract import ItemScale
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.ranking.item_dial import ItemDial, score_spreads

N, M, D = 70, 45, 6


@pytest.fixture
def factors():
    rng = np.random.default_rng(3)
    users = rng.normal(0.4, 1.0, (N, D))
    items = rng.normal(0.0, 1.0, (M, D)) * rng.lognormal(0, 1, M)[:, None]
    items[7] = 0
    return users, items, rng.integers(0, 30, M).astype(np.float64)


def dial_of(users, items, popularity, backend="reference"):
    backend = get_backend(backend)
    spread = score_spreads(backend, backend.array(users), len(users), backend.array(items))
    return ItemDial(spread, items @ users.mean(axis=0), popularity)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_spread_is_that_of_all_scores(factors, backend):
    users, items, _ = factors
    np.testing.assert_allclose(dial_of(*factors, backend).spread, (users @ items.T).std(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flatten", [0.0, 0.3, 1.0, 2.0])
def test_the_spread_of_flattened_scores_is_that_of_all_pairs(factors, flatten):
    users, items, _ = factors
    dial = dial_of(*factors)
    scores = users @ items.T * dial.scale(flatten)
    assert dial.score_spread(flatten) == pytest.approx(scores.std(), rel=1e-9)


def test_a_level_is_the_formula(factors):
    users, items, popularity = factors
    scale, offset = dial_of(*factors).level(0.6, 0.4)
    scores = users @ items.T
    sigma = scores.std(axis=0)
    sigma[7] = 1.0  # its scores are all 0
    flattened = scores / sigma**0.6
    logs = np.log(np.maximum(popularity, 1))
    np.testing.assert_allclose(scale, sigma**-0.6, rtol=1e-5)
    np.testing.assert_allclose(offset, -0.4 * flattened.std() * (logs - logs.mean()), rtol=1e-5, atol=1e-6)


def test_a_level_of_zero_changes_nothing(factors):
    assert dial_of(*factors).level(0.0, 0.0) is None


def test_an_item_whose_scores_hardly_vary_is_not_blown_up(factors):
    users, items, popularity = factors
    items[3] = 1e-9
    dial = dial_of(users, items, popularity)
    alive = np.arange(M) != 7
    assert dial.scale(1.0)[3] == pytest.approx(1e3 / np.median(dial.spread[alive]))


def test_levels_are_kept(factors):
    dial = dial_of(*factors)
    assert dial.level(0.5, 0.2) is dial.level(0.5, 0.2)
    assert dial.level(0.5, 0.2) is not dial.level(0.5, 0.3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 5, 200])
@pytest.mark.parametrize("parts", ["scale", "offset", "both"])
def test_top_k_ranks_by_dialled_scores(backend, count, parts):
    """More users than the cpu backend sorts the items for, and fewer; against a sort of all scores."""
    rng = np.random.default_rng(count)
    users, items = (rng.normal(size=(n, D)).astype(np.float32) for n in (count, 1500))
    scale = rng.lognormal(0, 1, 1500).astype(np.float32) if parts != "offset" else None
    offset = rng.normal(0, 2, 1500).astype(np.float32) if parts != "scale" else None
    barred = np.sort(rng.choice(1500, (count, 4)), axis=1).astype(np.int32)
    barred = [np.unique(row) for row in barred]
    exclude = Rows(np.concatenate([[0], np.cumsum([len(r) for r in barred])]), np.concatenate(barred), None)
    chosen = get_backend(backend)
    found, scores = np.empty((count, 30), np.int32), np.empty((count, 30), np.float32)
    with chosen.threads(2):
        chosen.top_k(chosen.array(users), chosen.array(items), 30, exclude, found, scores, ItemScale(scale, offset))
    scaled = items if scale is None else items * scale[:, None]
    expected = users.astype(np.float64) @ scaled.astype(np.float64).T + (0 if offset is None else offset)
    for i, row in enumerate(barred):
        expected[i, row] = -np.inf
    best = np.argsort(-expected, axis=1, kind="stable")[:, :30]
    np.testing.assert_allclose(scores, np.take_along_axis(expected, best, 1), rtol=1e-5, atol=1e-5)
    assert (found == best).mean() > 0.999
    assert not any(np.isin(found[i], row).any() for i, row in enumerate(barred))


@given(st.integers(0, 10**6), st.floats(0, 3), st.floats(0, 3))
def test_one_user_gets_what_the_batch_gives(seed, g, h):
    rng = np.random.default_rng(seed)
    users, items = (rng.normal(size=(n, 4)).astype(np.float32) for n in (80, 60))
    backend = get_backend("cpu")
    level = dial_of(users, items, rng.integers(0, 50, 60).astype(float), "cpu").level(g, h)
    found, scores = np.empty((80, 9), np.int32), np.empty((80, 9), np.float32)
    backend.top_k(users, items, 9, None, found, scores, level)
    for i in (0, 41):
        one, value = np.empty((1, 9), np.int32), np.empty((1, 9), np.float32)
        backend.top_k(users[i : i + 1], items, 9, None, one, value, level)
        assert np.array_equal(one[0], found[i])
        assert np.array_equal(value[0], scores[i])


@pytest.mark.parametrize("huge", [("users",), ("items",), ("users", "items")])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_numbers_that_are_too_large_have_no_spread(huge, backend):
    """What a fit that diverged leaves: no spread rather than an error of NumPy's, or infinities in a file."""
    largest = float(np.finfo(backend.dtype).max) / 8
    generator = np.random.default_rng(0)
    users, items = (
        backend.array(generator.choice([-1.0, 1.0], (9, 3)) * (largest if side in huge else 1.0))
        for side in ("users", "items")
    )
    with backend.threads(1):
        spread = score_spreads(backend, users, 9, items)
    assert np.isfinite(spread).all()
    assert len(huge) == 1 or not spread.any()


def test_an_item_whose_number_of_users_is_not_known_counts_as_one_of_its_spread():
    random = np.random.default_rng(4)
    spread, mean = random.random(30) + 0.1, random.standard_normal(30)
    counts = np.round(40 * spread**1.5 + random.random(30))
    known = np.arange(30) >= 5
    counts[~known] = 0
    spread[0] = mean[0] = 0  # nothing is known of it at all
    spread[1], spread[2] = 1e4, 1e-2  # beyond all others
    dial = ItemDial(spread, mean, counts, known=known)
    slope, start = np.polyfit(np.log(spread[known]), np.log(counts[known]), 1)
    assert slope == pytest.approx(1.5, abs=0.3)
    logs = np.log(counts, where=known, out=np.zeros(30))
    logs[3:5] = start + slope * np.log(spread[3:5])
    logs[:3] = logs[known].mean(), logs[known].max(), 0.0
    np.testing.assert_allclose(dial.log_counts, logs, rtol=1e-9)
    offset = -0.7 * dial.score_spread(0.4) * (logs - logs.mean())
    np.testing.assert_allclose(dial.level(0.4, 0.7).offset, offset, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(dial.counts[~known], 0)
    every = ItemDial(spread, mean, counts, known=np.ones(30, dtype=bool))
    np.testing.assert_array_equal(every.log_counts, ItemDial(spread, mean, counts).log_counts)
    np.testing.assert_array_equal(every.log_counts[:5], 0)


def test_a_dial_of_nothing_but_unknown_items_treats_all_alike():
    dial = ItemDial(np.ones(3), np.zeros(3), np.zeros(3), known=np.zeros(3, dtype=bool))
    np.testing.assert_array_equal(dial.log_counts, 0)
