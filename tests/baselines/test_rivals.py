"""Rivals that re-rank a model: their published updates in double loops, limit cases, and what all lists must be."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import rivals as naive

from fairmf import (
    EASE,
    IALS,
    PMMF,
    CalibratedPopularity,
    FrankWolfe,
    GraphFilter,
    Interactions,
    Level,
    XQuAD,
    evaluate,
    split_by_user,
    synthetic,
)
from fairmf.baselines import frank_wolfe, pmmf
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.evaluate import evaluate_lists

DATA = synthetic(60, 40, 600, random_state=3)
MODEL = IALS(factors=6, epochs=3, num_threads=1).fit(DATA, progress=False)
# Random factors instead of trained ones, so that no two scores differ by rounding alone.
_random = np.random.default_rng(5)
MODEL._fitted = dataclasses.replace(
    MODEL.fitted,
    user_factors=np.abs(_random.normal(size=(60, 6))).astype(np.float32) / 6,
    item_factors=_random.normal(size=(40, 6)).astype(np.float32) + np.linspace(1, -1, 40, dtype=np.float32)[:, None],
    item_spread=None,
)
SCORES = MODEL.user_factors.astype(np.float64) @ MODEL.item_factors.T.astype(np.float64)
LIKED = [set(DATA.by_user.row(i)[0].tolist()) for i in range(DATA.n_users)]
RIVALS = {
    "frank-wolfe": lambda model, x: FrankWolfe(model, x, passes=2, batch_size=7),
    "frank-wolfe, batch": lambda model, x: FrankWolfe(model, x, online=False, passes=4),
    "frank-wolfe, users": lambda model, x: FrankWolfe(model, x, users="gini", passes=2, weighting="dcg"),
    "p-mmf": lambda model, x: PMMF(model, x, batch_size=3),
    "p-mmf, no limit": lambda model, x: PMMF(model, x, capacity=None, showing=0.5),
    "xquad": lambda model, x: XQuAD(model, x, candidates=15),
    "xquad, binary": lambda model, x: XQuAD(model, x, cover="binary", candidates=15),
    "calibrated": lambda model, x: CalibratedPopularity(model, x, candidates=15),
}


def plain(model, data, N, known=True, **options):
    return np.concatenate([lists for _, lists in model.rank(data, N, known_users=known, **options)])


def listed(lists):
    return [[j for j in row if j >= 0] for row in lists.tolist()]


# -- what holds for all of them ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["factors", "ease", "filter"])
def model(request):
    if request.param == "factors":
        return MODEL
    return (EASE(20.0) if request.param == "ease" else GraphFilter(factors=8)).fit(DATA)


@pytest.mark.parametrize("name", [name for name in RIVALS if name != "p-mmf"])
def test_strength_0_gives_the_plain_lists(name, model):
    found = RIVALS[name](model, 0).lists(DATA, 8, known_users=True)
    assert np.array_equal(found, plain(model, DATA, 8))


@pytest.mark.parametrize("name", RIVALS)
def test_a_strength_changes_lists_and_a_seed_repeats_them(name, model):
    strength = 0.05 if name.startswith("p-mmf") else 0.7
    rival = RIVALS[name](model, strength)
    found = rival.lists(DATA, 8, known_users=True)
    assert not np.array_equal(found, plain(model, DATA, 8))
    assert np.array_equal(found, rival.lists(DATA, 8, known_users=True))


@pytest.mark.parametrize("name", RIVALS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), strength=st.sampled_from([0.01, 0.3, 1.0]), N=st.integers(1, 45))
def test_lists_hold_no_liked_item_and_none_twice(name, seed, strength, N):
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 12)), DATA.n_items
    # Histories from none to all items; a full list is not possible for some users.
    pairs = random.random((n, m)) < random.choice([0.0, 0.1, 0.5, 0.95, 1.0], size=(n, 1))
    history = Interactions.from_csr(sp.csr_array(pairs.astype(np.float32)), allow_empty=True)
    lists = RIVALS[name](MODEL, strength).lists(history, N)
    assert lists.shape == (n, min(N, m))
    for i, row in enumerate(listed(lists)):
        assert len(set(row)) == len(row)
        assert not pairs[i, row].any()
        assert len(row) == min(N, m - pairs[i].sum())
        assert all(lists[i, len(row) :] == -1)


@pytest.mark.parametrize("name", RIVALS)
def test_users_without_history_get_popular_items(name):
    history = DATA.take_users(np.array([0, 1, 2]))
    rows = sp.vstack([history.to_csr(), sp.csr_array((1, DATA.n_items), dtype=np.float32)]).tocsr()
    with_new = Interactions.from_csr(rows, allow_empty=True)
    assert RIVALS[name](MODEL, 0.3).lists(with_new, 5)[3].tolist() == MODEL.fitted.most_popular[:5].tolist()


@pytest.mark.parametrize("name", RIVALS)
def test_evaluate_takes_rivals_and_their_lists_alike(name):
    split = split_by_user(synthetic(300, 80, 4000), heldout=50, protocol="seeded")
    rival = RIVALS[name](IALS(factors=4, epochs=2).fit(split.train, progress=False), 0.2)
    lists = rival.lists(split.test.fold_in, 10)
    options = {"at": 10, "metrics": ["ndcg", "gini"], "bootstrap": 0}
    assert evaluate(rival, split.test, **options).values == evaluate_lists(lists, split.test, **options).values


@pytest.mark.parametrize("name", RIVALS)
def test_lists_start_from_an_evenness(name):
    level = Level(flatten=0.4, discount=0.3)
    even = plain(MODEL, DATA, 8, evenness=level)
    assert not np.array_equal(even, plain(MODEL, DATA, 8))
    if name != "p-mmf":
        found = RIVALS[name](MODEL, 0).lists(DATA, 8, known_users=True, evenness=level)
        assert np.array_equal(found, even)
    changed = RIVALS[name](MODEL, 0.3).lists(DATA, 8, known_users=True, evenness=level)
    assert not np.array_equal(changed, RIVALS[name](MODEL, 0.3).lists(DATA, 8, known_users=True))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FrankWolfe(MODEL, 1.5), "'strength' parameter of FrankWolfe"),
        (lambda: FrankWolfe(MODEL, 0.5, users="rich"), "'users' parameter"),
        (lambda: FrankWolfe(MODEL, 0.5, smoothing=0), "'smoothing' parameter"),
        (lambda: PMMF(MODEL, -1), "'strength' parameter of PMMF"),
        (lambda: PMMF(MODEL, 0.1, capacity=0), "'capacity' parameter"),
        (lambda: XQuAD(MODEL, 0.1, candidates=0), "'candidates' parameter"),
        (lambda: CalibratedPopularity(MODEL, 0.1, tail=0.8), "'tail' parameter"),
        (lambda: XQuAD("model", 0.1), "fitted model"),
    ],
)
def test_wrong_settings_are_errors(make, words):
    rival = make()
    if isinstance(rival.model, str):
        from fairmf.baselines.cohort import cohort_of

        with pytest.raises(InvalidParameter, match=words):
            cohort_of(rival.model, DATA, False, {})
        return
    with pytest.raises(InvalidParameter, match=words):
        rival.rank(DATA, 5)


# -- Frank-Wolfe ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_projection_is_the_nearest_point_of_the_permutahedron(seed):
    random = np.random.default_rng(seed)
    z, weights = random.normal(size=5) * 2, np.sort(random.random(5))[::-1]
    if seed == 0:
        z[1:4] = z[0]  # ties
    y = frank_wolfe.project(z, weights)
    # Inside the hull: sums of the largest entries are at most those of the weights, and all add up to the same.
    assert y.sum() == pytest.approx(weights.sum())
    assert all(np.sort(y)[::-1][:r].sum() <= weights[:r].sum() + 1e-12 for r in range(1, 5))
    # Nearest: no vertex lies in the direction of z.
    assert max(np.dot(z - y, np.array(vertex) - y) for vertex in itertools.permutations(weights)) < 1e-12


@pytest.mark.parametrize("users", ["equal", "gini"])
@pytest.mark.parametrize("strength", [0.1, 0.4])
def test_batch_steps_equal_the_double_loops(users, strength):
    expected, _ = naive.frank_wolfe(SCORES, LIKED, 5, strength, 6, 3.0, users, seed=4)
    rival = FrankWolfe(MODEL, strength, users=users, online=False, passes=6, smoothing=3.0, random_state=4)
    assert listed(rival.lists(DATA, 5, known_users=True)) == expected


@pytest.mark.parametrize("users", ["equal", "gini"])
@pytest.mark.parametrize("batch", [2, 16])
def test_online_steps_equal_the_double_loops(users, batch):
    expected = naive.online_frank_wolfe(SCORES, LIKED, 5, 0.3, 2, 3.0, users, 4, batch)
    rival = FrankWolfe(MODEL, 0.3, users=users, passes=2, smoothing=3.0, batch_size=batch, random_state=4)
    assert listed(rival.lists(DATA, 5, known_users=True)) == expected


def test_frank_wolfe_reaches_more_welfare_than_other_lists():
    strength, K, m = 0.3, 5, DATA.n_items

    def welfare(P):
        v = np.sort(P.sum(axis=0))
        return (1 - strength) * (P * SCORES).sum() + strength * (v * np.arange(m, 0, -1) / m).sum()

    _, P = naive.frank_wolfe(SCORES, LIKED, K, strength, 60, 3.0, "equal", seed=0)
    start = naive.frank_wolfe(SCORES, LIKED, K, strength, 0, 3.0, "equal", seed=0)[1]
    rows = FrankWolfe(MODEL, strength, passes=10, smoothing=3.0, batch_size=4).lists(DATA, K, known_users=True)
    made = np.zeros_like(P)
    made[np.repeat(np.arange(len(rows)), K), rows.ravel()] = 1
    assert welfare(made) > welfare(start)
    assert welfare(made) > 0.97 * welfare(P)
    assert welfare(made) <= welfare(P) * 1.01


def test_only_the_first_slots_count():
    long = FrankWolfe(MODEL, 0.5, K=5, random_state=1).lists(DATA, 12, known_users=True)
    short = FrankWolfe(MODEL, 0.5, K=5, random_state=1).lists(DATA, 3, known_users=True)
    assert np.array_equal(long[:, :3], short)
    assert not np.array_equal(long[:, :5], FrankWolfe(MODEL, 0.5).lists(DATA, 12, known_users=True)[:, :5])


# -- P-MMF ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("positive", [True, False])
def test_the_projection_of_prices_is_the_nearest_feasible_point(seed, positive):
    z, budget = np.random.default_rng(seed).normal(size=6), 0.7
    found = pmmf.project(z, budget, positive)
    assert -np.minimum(found, 0).sum() <= budget + 1e-12
    # Any other feasible point is further away.
    for other in np.random.default_rng(seed + 50).normal(size=(2000, 6)) * 0.3 + found:
        other = other if positive else np.minimum(other, 0)
        if -np.minimum(other, 0).sum() <= budget:
            assert np.linalg.norm(other - z) >= np.linalg.norm(found - z) - 1e-12
    assert np.allclose(found, naive.feasible_prices(z, np.ones(6), budget, not positive), atol=1e-12)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("capacity", [None, 1.0, 2.0])
@pytest.mark.parametrize("groups", [None, 4])
def test_pmmf_equals_the_double_loops(batch, capacity, groups):
    m, K = DATA.n_items, 4
    provider = np.arange(m) if groups is None else np.arange(m) % groups
    count = provider.max() + 1
    rho = (capacity or 1.0) * (1 + 1 / count) * np.bincount(provider) / m
    order = np.random.default_rng(2).permutation(DATA.n_users)
    eta = 2e-3 if groups is None else 0.05
    expected = naive.pmmf(SCORES, LIKED, K, provider, rho, 0.05, eta, 0.3, order, capacity is not None, batch)
    rival = PMMF(
        MODEL, 0.05, groups=None if groups is None else provider, capacity=capacity, learning_rate=eta, momentum=0.3,
        batch_size=batch, random_state=2,
    )  # fmt: skip
    found = listed(rival.lists(DATA, K, known_users=True))
    assert found == expected
    assert found != listed(plain(MODEL, DATA, K))


def test_pmmf_raises_the_worst_off_provider():
    provider = np.arange(DATA.n_items) // 10  # four providers; ids of synthetic items fall in popularity
    least = {}
    for strength in (0.0, 0.3):
        lists = PMMF(MODEL, strength, groups=provider, capacity=None, showing=0.3).lists(DATA, 5, known_users=True)
        least[strength] = np.bincount(provider[lists.ravel()], minlength=4).min()
    assert least[0.3] > least[0.0]


def test_no_provider_gets_more_than_its_capacity():
    lists = PMMF(MODEL, 0.1, capacity=2.0).lists(DATA, 5, known_users=True)
    most = 2.0 * (1 + 1 / 40) * 60 * 5 / 40
    assert np.bincount(lists.ravel()).max() <= most + 1  # the last list may go one beyond what is left
    assert np.bincount(plain(MODEL, DATA, 5).ravel()).max() > most + 1


def test_capacities_can_follow_interactions():
    by_items = PMMF(MODEL, 0.1).lists(DATA, 5, known_users=True)
    by_interactions = PMMF(MODEL, 0.1, sizes="interactions").lists(DATA, 5, known_users=True)
    popular = np.argsort(-MODEL.fitted.popularity)[:10]
    assert np.isin(by_interactions, popular).sum() > np.isin(by_items, popular).sum()


def test_wrong_groups_are_errors():
    with pytest.raises(InvalidData, match="3 labels, but there are 40 items"):
        PMMF(MODEL, 0.1, groups=["a", "b", "c"]).lists(DATA, 5)


# -- xQuAD and calibrated popularity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["smooth", "binary", "calibrated"])
@pytest.mark.parametrize("strength", [0.2, 0.5, 0.8, 1.0])
def test_greedy_lists_equal_the_double_loops(rule, strength):
    counts = DATA.by_user.column_counts(DATA.n_items)
    if rule == "calibrated":
        cuts, rival = (0.2, 0.8), CalibratedPopularity(MODEL, strength, candidates=14)
    else:
        cuts, rival = (0.6,), XQuAD(MODEL, strength, cover=rule, candidates=14, head=0.6)
    groups = naive.popularity_groups(counts, cuts)
    # Float32 scores, as the candidates come from them.
    scores = SCORES.astype(np.float32).astype(np.float64)
    expected = [
        naive.greedy(scores[i], LIKED[i], groups, len(cuts) + 1, strength, rule, 14, 6) for i in range(DATA.n_users)
    ]
    assert listed(rival.lists(DATA, 6, known_users=True)) == expected


def test_calibrated_lists_have_the_shares_of_histories():
    counts = DATA.by_user.column_counts(DATA.n_items)
    groups = np.array(naive.popularity_groups(counts, (0.2, 0.8)))

    def distance(lists):
        own = [naive.shares(sorted(liked), groups, 3) for liked in LIKED]
        return np.mean(
            [naive.jensen_shannon(p, naive.shares(row, groups, 3)) for p, row in zip(own, lists, strict=True)]
        )

    calibrated = CalibratedPopularity(MODEL, 0.9, candidates=30).lists(DATA, 8, known_users=True)
    assert distance(listed(calibrated)) < 0.7 * distance(listed(plain(MODEL, DATA, 8)))


def test_fewer_candidates_than_slots_still_fill_lists():
    assert (XQuAD(MODEL, 0.5, candidates=2).lists(DATA, 8, known_users=True) >= 0).all()
