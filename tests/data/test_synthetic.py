import re

import numpy as np
import pytest
import scipy.sparse.linalg as linalg

from fairmf.data.interactions import Interactions
from fairmf.data.popularity import counts_with_total, gini
from fairmf.data.synthetic import synthetic, synthetic_events, titles
from fairmf.errors import InvalidParameter

SIZES = [(2000, 1000, 100_000), (2000, 1000, 20_000), (300, 500, 6000), (5000, 200, 40_000), (100, 20_000, 100_000)]


def counts(events):
    return np.bincount(events.users), np.bincount(events.items)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_size_distinct_pairs_and_minimums(size, seed):
    events = synthetic_events(*size, random_state=seed)
    per_user, per_item = counts(events)
    assert len(events) == size[2]
    assert Interactions.from_events(events).nnz == size[2]  # no pair twice
    assert (len(per_user), len(per_item)) == size[:2]
    assert per_user.min() >= 5
    assert per_item.min() >= 1


@pytest.mark.parametrize("target", [0.3, 0.55, 0.75, 0.9])
@pytest.mark.parametrize("size", [(2000, 1000, 20_000), (3000, 2000, 60_000)])
def test_the_popularity_has_the_gini_asked_for(target, size):
    events = synthetic_events(*size, popularity_gini=target)
    assert gini(counts(events)[1]) == pytest.approx(target, abs=0.03)


def test_the_usual_gini_where_density_allows_it():
    assert gini(counts(synthetic_events())[1]) == pytest.approx(0.75, abs=0.03)
    assert gini(counts(synthetic_events(50, 20, 450))[1]) < 0.5  # as near as so dense a matrix allows
    with pytest.raises(InvalidParameter, match=r"'popularity_gini' 0.75 cannot be reached .* nearest is 0"):
        synthetic_events(50, 20, 450, popularity_gini=0.75)


def test_gini_of_known_vectors():
    assert gini(np.ones(7)) == pytest.approx(0)
    assert gini(np.array([0, 0, 0, 5])) == pytest.approx(3 / 4)
    assert gini(np.array([3, 1])) == pytest.approx(1 / 4)


def test_activity_is_skewed_as_much_as_asked():
    even = counts(synthetic_events(activity_spread=0.0))[0]
    skewed = counts(synthetic_events(activity_spread=1.0))[0]
    assert even.max() - even.min() <= 2
    assert skewed.max() > 4 * np.median(skewed)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("users", "items", "times")) and (
        a.user_ids,
        a.item_ids,
    ) == (b.user_ids, b.item_ids)


def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    first = synthetic_events(random_state=3)
    assert same(first, synthetic_events(random_state=3))
    assert same(first, synthetic_events(random_state=np.random.SeedSequence(3)))
    assert not same(first, synthetic_events(random_state=4))


def test_the_bits_of_one_seed_are_pinned():
    # Other tests and examples quote numbers made from this data: a change of the generator must be on purpose.
    assert synthetic(200, 100, 2000, random_state=7).fingerprint()[:16] == "3875532ff090efcf"


def test_rows_are_in_order_of_time_and_ids_of_first_appearance():
    events = synthetic_events(200, 100, 2000)
    assert (np.diff(events.times) >= 0).all()
    assert events.times.dtype == np.int64
    assert len(np.unique(events.times)) > 1000
    for codes, ids in ((events.users, events.user_ids), (events.items, events.item_ids)):
        assert list(dict.fromkeys(codes.tolist())) == list(range(len(ids)))
    assert sorted(events.user_ids.values.tolist()) == list(range(1, 201))


def test_titles_are_readable_and_unique():
    names = synthetic_events(200, 5000, 20_000).item_ids.values.tolist()
    assert len(set(names)) == 5000
    assert all(re.fullmatch(r"The [A-Z][a-z]+ [A-Z][a-z]+ \((19|20)\d\d\)", name) for name in names)
    many = titles(np.zeros(60_000, dtype=int))  # more than one theme has without sequels
    assert len(set(many)) == 60_000


def recall_at_20(scores, train, test):
    seen, wanted = train.to_csr().toarray() > 0, test.to_csr().toarray() > 0
    top = np.argsort(-np.where(seen, -np.inf, scores), axis=1, kind="stable")[:, :20]
    hits = np.take_along_axis(wanted, top, axis=1).sum(axis=1)
    scored = wanted.any(axis=1)
    return (hits[scored] / np.minimum(20, wanted.sum(axis=1)[scored])).mean()


@pytest.mark.slow
def test_there_are_tastes_for_a_factor_model_to_find():
    def popularity_and_svd(**settings):
        events = synthetic_events(**settings)
        held_out = np.random.default_rng(0).random(len(events)) < 0.2
        train, test = (Interactions.from_events(events.select(mask)) for mask in (~held_out, held_out))
        u, s, v = linalg.svds(train.to_csr().astype(float), k=16, random_state=0)
        popularity = np.broadcast_to(train.by_item.sums(), train.shape)
        return recall_at_20(popularity, train, test), recall_at_20(u * s @ v, train, test)

    popularity, svd = popularity_and_svd()
    assert svd > 1.3 * popularity
    popularity, svd = popularity_and_svd(taste_strength=0.0)
    assert svd < 1.1 * popularity  # nothing to find where nothing was planted


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_interactions": 100}, "must be from 10,000 \\(5 per user\\) to 1,000,000"),
        ({"n_interactions": 1_500_000}, "half of all pairs"),
        ({"n_users": 0}, "'n_users' parameter of SyntheticEvents must be an integer >= 1"),
        ({"popularity_gini": 2.0}, "'popularity_gini'"),
        ({"taste_strength": -1.0}, "'taste_strength'"),
        ({"tastes": 1.5}, "'tastes'"),
        ({"random_state": "x"}, "'random_state' parameter of synthetic_events must be an integer"),
        ({"random_state": -1}, "'random_state' parameter of synthetic_events must be an integer"),
    ],
)
def test_impossible_requests(settings, message):
    with pytest.raises(InvalidParameter, match=message):
        synthetic_events(**settings)


@pytest.mark.parametrize("size", [(50, 20, 500), (1, 10, 5), (7, 30, 35), (40, 3000, 2000)])
def test_extreme_shapes_still_hold_exactly_what_was_asked(size):
    assert synthetic(*size).nnz == size[2]


def test_counts_keep_their_bounds_and_total():
    weights = np.exp(3 * np.random.default_rng(0).standard_normal(500))
    made = counts_with_total(weights, 10_000, 5, 100)
    assert (made.sum(), made.min(), made.max()) == (10_000, 5, 100)


def test_synthetic_is_its_events():
    events = synthetic_events(200, 100, 2000, tastes=3)
    assert synthetic(200, 100, 2000, tastes=3).fingerprint() == Interactions.from_events(events).fingerprint()


@pytest.mark.slow
def test_ten_million():
    events = synthetic_events(136_677, 20_108, 10_000_000)
    data = Interactions.from_events(events)
    assert data.shape == (136_677, 20_108)
    assert data.nnz == len(events) == 10_000_000
    per_user, per_item = counts(events)
    assert per_user.min() >= 5
    assert per_item.min() >= 1
    assert gini(per_item) == pytest.approx(0.75, abs=0.01)
