"""EASE and the graph filter: against dense double loops, in blocks, and what they refuse."""

import numpy as np
import pytest
import scipy.sparse as sp
from naive import rivals as naive

from fairmf import EASE, GraphFilter, Interactions, Popularity, evaluate, split_by_user, synthetic
from fairmf.baselines import ease, score_model
from fairmf.errors import InvalidData, InvalidParameter, NotEnoughMemory, NotFitted

DATA = synthetic(70, 30, 500, random_state=1)
X = DATA.to_csr().toarray().astype(np.float64)
X[X > 0] = 1.0
MODELS = {"ease": lambda: EASE(5.0), "filter": lambda: GraphFilter(factors=6)}


def test_ease_solves_one_ridge_regression_per_item():
    model = EASE(regularization=3.0).fit(DATA)
    assert np.allclose(model.weights, naive.ease(X, 3.0), atol=1e-6)
    assert not np.allclose(model.weights, naive.ease(X, 4.0), atol=1e-3)
    assert (model.weights.diagonal() == 0).all()
    assert np.allclose(model.score_rows(sp.csr_array(X.astype(np.float32))), X @ naive.ease(X, 3.0), atol=1e-5)


@pytest.mark.parametrize(("low_pass", "exponent"), [(0.0, 0.5), (0.3, 0.5), (2.0, 0.7)])
def test_the_filter_equals_the_dense_graph(low_pass, exponent):
    model = GraphFilter(factors=6, low_pass=low_pass, user_exponent=exponent).fit(DATA)
    expected = naive.graph_filter(X, X, 6, low_pass, exponent)
    assert np.allclose(model.score_rows(sp.csr_array(X.astype(np.float32))), expected, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_lists_are_the_best_scores_without_the_history(name, monkeypatch):
    model = MODELS[name]().fit(DATA)
    scores = np.asarray(model.score_rows(sp.csr_array(X.astype(np.float32))))
    expected = [naive.ranking(scores[i], set(np.flatnonzero(X[i])), 7) for i in range(len(X))]
    found = np.concatenate([lists for _, lists in model.rank(DATA, 7, known_users=True)])
    assert found.tolist() == expected
    monkeypatch.setattr(score_model, "SCORES_AT_ONCE", 200)  # six users at a time
    blocks = list(model.rank(DATA, 7))
    assert len(blocks) == 12
    assert np.concatenate([lists for _, lists in blocks]).tolist() == expected


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_for_any_number_of_threads(name):
    one, two = MODELS[name](), MODELS[name]()
    one.num_threads, two.num_threads = 1, 2
    first, second = (np.concatenate([x for _, x in model.fit(DATA).rank(DATA, 9)]) for model in (one, two))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("name", MODELS)
def test_evaluate_takes_them_and_they_beat_popularity(name):
    split = split_by_user(synthetic(600, 150, 12_000), heldout=80, protocol="seeded")
    options = {"metrics": ["ndcg@20"], "bootstrap": 0}
    own = evaluate(MODELS[name]().fit(split.train), split.test, **options)["ndcg@20"]
    assert own > 1.1 * evaluate(Popularity().fit(split.train), split.test, **options)["ndcg@20"]


@pytest.mark.parametrize("name", MODELS)
def test_a_user_without_history_gets_popular_items(name):
    model = MODELS[name]().fit(DATA)
    nobody = Interactions.from_csr(sp.csr_array((1, 30), dtype=np.float32), allow_empty=True)
    ((_, lists),) = model.rank(nobody, 4)
    assert lists[0].tolist() == np.argsort(-X.sum(axis=0), kind="stable")[:4].tolist()


@pytest.mark.parametrize("name", MODELS)
def test_what_they_refuse(name):
    with pytest.raises(NotFitted, match="call fit first"):
        MODELS[name]().rank(DATA, 3)
    model = MODELS[name]().fit(DATA)
    with pytest.raises(InvalidData, match="31 items"):
        model.rank(sp.csr_array((2, 31), dtype=np.float32), 3)
    with pytest.raises(InvalidData, match="all 70 training users"):
        model.rank(DATA.take_users(np.arange(3)), 3, known_users=True)
    with pytest.raises(TypeError, match="no option 'evenness'"):
        model.rank(DATA, 3, evenness=0.5)
    with pytest.raises(InvalidData, match="no interactions"):
        MODELS[name]().fit(sp.csr_array((4, 4), dtype=np.float32))


def test_wrong_settings_are_errors():
    with pytest.raises(InvalidParameter, match="'regularization' parameter of EASE"):
        EASE(0.0).fit(DATA)
    with pytest.raises(InvalidParameter, match="'factors' parameter of GraphFilter"):
        GraphFilter(factors=0).fit(DATA)


def test_ease_refuses_more_items_than_memory(monkeypatch):
    monkeypatch.setattr(ease, "free_memory", lambda: 12 * 30**2)
    EASE(1.0).fit(DATA)
    monkeypatch.setattr(ease, "free_memory", lambda: 12 * 30**2 - 1)
    with pytest.raises(NotEnoughMemory, match="30 x 30 items"):
        EASE(1.0).fit(DATA)


def test_free_memory_is_a_number():
    assert ease.free_memory() > 2**20
