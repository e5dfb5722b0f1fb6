"""similar_items, similar_users and score, against cosines and inner products by hand."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from conftest import paper_als, peer_library, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmf.backends.registry import get_backend
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories
from fairmf.models import similar
from fairmf.models.als import IALS

N_USERS, N_ITEMS = 30, 20
ROWS = random_rows(N_USERS, N_ITEMS)
PLAIN = Interactions(ROWS, N_ITEMS + 1)  # item 20 has no interactions, user 0 no history
NAMED = Interactions(ROWS, N_ITEMS + 1, Ids([f"u{i}" for i in range(N_USERS)]), Ids(np.arange(N_ITEMS + 1) + 500))


def fitted(data=PLAIN, **options):
    return paper_als(factors=4, epochs=3, **options).fit(data)


def by_hand(vectors, query, candidates):
    """(row, cosine) of the candidates, itself first, then by falling cosine."""
    vectors = vectors.astype(np.float64)

    def cosine(j):
        lengths = np.sqrt(sum(vectors[j] ** 2)) * np.sqrt(sum(vectors[query] ** 2))
        return sum(vectors[j] * vectors[query]) / lengths

    scored = [(j, cosine(j)) for j in candidates if vectors[j].any()]
    return sorted(scored, key=lambda x: (x[0] != query, -x[1], x[0]))


def test_items_by_falling_cosine_with_the_item_itself_first(backend):
    model = fitted(backend=backend.name)
    for item in (0, 7, 19):
        ids, scores = model.similar_items(item, N=6)
        expected = by_hand(model.item_factors, item, range(N_ITEMS + 1))[:6]
        assert ids.tolist() == [j for j, _ in expected]
        np.testing.assert_allclose(scores, [c for _, c in expected], atol=1e-5)
        assert scores[0] == 1.0


def test_many_at_once_are_the_same_as_one_by_one():
    model = fitted(NAMED)
    ids, scores = model.similar_items([507, 500, 507], N=5)
    assert ids.shape == scores.shape == (3, 5)
    for k, item in enumerate((507, 500, 507)):
        one_ids, one_scores = model.similar_items(item, N=5)
        assert one_ids.shape == (5,)
        np.testing.assert_array_equal(ids[k], one_ids)
        np.testing.assert_allclose(scores[k], one_scores, atol=1e-6)
    assert model.similar_items([], N=3)[0].shape == (0, 3)


def test_users_are_named_and_those_without_history_are_nobodys_neighbours():
    model = fitted(NAMED)
    assert model.user_factors[0].any()  # fairness gives a user without history a vector, the same to all of them
    ids, scores = model.similar_users("u4", N=N_USERS)
    with_history = np.flatnonzero(np.diff(ROWS.indptr))
    expected = [f"u{i}" for i, _ in by_hand(model.user_factors, 4, with_history)]
    assert ids.tolist() == expected + [None] * (N_USERS - len(expected))
    assert len(expected) < N_USERS
    assert np.isnan(scores[-1])
    nobody, nothing = model.similar_users("u0", N=3)
    assert nobody.tolist() == [None, None, None]
    assert np.isnan(nothing).all()


def test_without_histories_only_zero_vectors_are_left_out():
    model = IALS(factors=4, epochs=3).fit(PLAIN)
    model._fitted = dataclasses.replace(model.fitted, interactions=None)
    np.testing.assert_allclose(model.user_factors[0], 0.0, atol=1e-15)  # rounding may be left
    assert model.similar_users(0, N=2)[0].tolist() == [-1, -1]
    assert 0 not in model.similar_users(4, N=N_USERS)[0]


def test_an_item_without_interactions_is_similar_to_nothing():
    ids, scores = fitted().similar_items(N_ITEMS, N=4)
    assert ids.tolist() == [-1] * 4
    assert np.isnan(scores).all()
    everyone, cosines = fitted().similar_items(3, N=N_ITEMS + 5)
    assert sorted(everyone[:N_ITEMS].tolist()) == list(range(N_ITEMS))
    assert everyone[N_ITEMS:].tolist() == [-1] * (fitted().n_items - N_ITEMS), "no more slots than items"
    assert np.isnan(cosines[N_ITEMS:]).all()


def test_what_is_left_of_the_random_start_is_no_direction():
    """One light epoch on sparse data: an item without interactions still has a vector, which says nothing."""
    sparse = Interactions(random_rows(400, 200, density=0.005), 201)
    model = IALS(factors=8, epochs=1, cg_steps=1).fit(sparse)
    model._fitted = dataclasses.replace(model.fitted, interactions=None)
    empty = np.flatnonzero(sparse.by_item.sums() == 0)
    assert model.similar_items(200, N=2)[0].tolist() == [-1, -1]
    assert not set(empty.tolist()) & set(model.similar_items(5, N=201)[0].tolist())


def test_candidates_and_filters():
    model = fitted(NAMED)
    among, without = [501, 503, 507, 509, 503], [503, 511]
    rows = {1, 3, 7, 9}
    for options, left in (
        ({"items": among}, rows),
        ({"filter_items": without}, set(range(N_ITEMS)) - {3, 11}),
        ({"items": among, "filter_items": without}, {1, 7, 9}),
        ({"items": 501}, {1}),
        ({"items": []}, set()),
    ):
        for item in (507, 503):
            ids = model.similar_items(item, N=N_ITEMS, **options)[0]
            expected = [500 + j for j, _ in by_hand(model.item_factors, item - 500, sorted(left))]
            assert ids.tolist() == expected + [-1] * (N_ITEMS - len(expected))
    users = model.similar_users("u5", N=4, users=["u2", "u5", "u9"], filter_users="u9")[0]
    assert users.tolist() == ["u5", "u2", None, None]


def test_equal_vectors_tie_to_the_lower_row_but_never_before_the_item_itself():
    backend = get_backend("cpu")
    vectors = np.array([[1, 0], [2, 0], [0, 1], [3, 0], [-1, 0]], dtype=np.float32)
    rows, cosines = similar.nearest(
        backend, vectors, np.array([3, 0]), 5, np.arange(5), directed=np.ones(5, dtype=bool)
    )
    assert rows.tolist() == [[3, 0, 1, 2, 4], [0, 1, 3, 2, 4]]
    np.testing.assert_allclose(cosines, [[1, 1, 1, 0, -1]] * 2, atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 30), st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**32 - 1),
    st.sampled_from(["cpu", "reference"]),
)  # fmt: skip
def test_any_size_of_block_gives_the_same_as_a_full_sort(count, N, at_once, seed, name):
    generator, backend = np.random.default_rng(seed), get_backend(name)
    # Whole numbers in one dimension more than the sign: plenty of ties, and cosines that both ways compute exactly.
    vectors = backend.array(generator.choice([-1.0, 0.0, 1.0], size=(count, 1)) * [[2.0, 0.0]])
    vectors[generator.random(count) < 0.3] = [0.0, 4.0]
    directed = generator.random(count) < 0.8
    queries = generator.integers(0, count, size=3)
    candidates = np.flatnonzero(generator.random(count) < 0.7)
    before, similar.ROWS_AT_ONCE = similar.ROWS_AT_ONCE, at_once
    try:
        rows, cosines = similar.nearest(backend, vectors, queries, N, candidates, directed)
    finally:
        similar.ROWS_AT_ONCE = before
    for k, query in enumerate(queries):
        left = [j for j in candidates if directed[j]]
        lost = not (directed[query] and vectors[query].any())
        expected = [] if lost else by_hand(vectors, query, left)[:N]
        missing = min(N, count) - len(expected)
        assert rows[k].tolist() == [j for j, _ in expected] + [-1] * missing
        np.testing.assert_allclose(cosines[k], [c for _, c in expected] + [np.nan] * missing, atol=1e-6)


def test_agreement_with_implicit():
    als = peer_library("implicit.cpu.als")
    model = fitted(Interactions(ROWS, N_ITEMS))
    with threadpoolctl.threadpool_limits(1, "blas"):  # implicit warns otherwise
        peer = als.AlternatingLeastSquares(factors=4)
    peer.item_factors, peer.user_factors = model.item_factors.copy(), model.user_factors.copy()
    ours, theirs = model.similar_items([2, 11], N=8), peer.similar_items(np.array([2, 11]), N=8)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-5)


@pytest.mark.parametrize("N", [0, -2, 1.5, True, None])
def test_bad_n(N):
    with pytest.raises(InvalidParameter, match="'N' parameter must be an integer >= 1"):
        fitted().similar_items(1, N=N)


def test_unknown_names():
    model = fitted(NAMED)
    for ask in (
        lambda: model.similar_items(3),
        lambda: model.similar_items(503, items=[3]),
        lambda: model.similar_items(503, filter_items=3),
        lambda: model.score("u1", 3),
    ):
        with pytest.raises(InvalidData, match="1 of 1 items are unknown, the first is 3"):
            ask()
    with pytest.raises(InvalidData, match="1 of 1 users are unknown"):
        model.similar_users("me")
    with pytest.raises(InvalidData, match=r"Item rows go from 0 to 20; got 21\.\.21"):
        fitted().similar_items(21)
    with pytest.raises(InvalidData, match="without user ids"):
        fitted().similar_users("u1")


# -- score -------------------------------------------------------------------------------------------------------------


def test_scores_of_pairs():
    model = fitted(NAMED)
    table = model.user_factors.astype(float) @ model.item_factors.astype(float).T
    np.testing.assert_allclose(model.score(["u3", "u9"], [507, 502]), [table[3, 7], table[9, 2]], atol=1e-6)
    np.testing.assert_allclose(model.score("u3", [507, 502, 500]), table[3, [7, 2, 0]], atol=1e-6)
    np.testing.assert_allclose(model.score(["u3", "u9"], 507), table[[3, 9], 7], atol=1e-6)
    one = model.score("u3", 507)
    assert np.ndim(one) == 0
    assert one == pytest.approx(table[3, 7], abs=1e-6)
    assert model.score([], []).shape == (0,)
    assert model.score("u3", []).shape == (0,)


def test_scores_are_those_of_recommend():
    model = fitted(NAMED)
    ids, scores = model.recommend("u6", N=5)
    np.testing.assert_allclose(model.score("u6", ids), scores, atol=1e-6)


def test_scores_at_another_fairness():
    model = fitted(NAMED)
    dialled = model.with_fairness(4.0)
    asked = ["u9", "u3", "u4", "u9"], [507, 502, 500, 501]
    np.testing.assert_allclose(model.score(*asked, fairness=4.0), dialled.score(*asked), atol=1e-5)
    assert np.abs(model.score(*asked, fairness=4.0) - model.score(*asked)).max() > 0.01
    model._fitted = dataclasses.replace(model.fitted, interactions=None)
    assert model.score("u3", 507) is not None
    with pytest.raises(MissingHistories, match="without user_sensitivity"):
        model.score("u3", 507, fairness=4.0)


def test_scores_in_blocks(monkeypatch):
    model = fitted()
    users, items = np.arange(30).repeat(21), np.tile(np.arange(21), 30)
    whole = model.score(users, items)
    monkeypatch.setattr("fairmf.models.recommend.PAIRS_AT_ONCE", 17)
    np.testing.assert_array_equal(model.score(users, items), whole)


def test_pairs_must_be_pairs():
    with pytest.raises(InvalidData, match="as many users as items; got 2 users and 3 items"):
        fitted().score([1, 2], [1, 2, 3])
    with pytest.raises(InvalidData, match="as many users as items; got 1 users and 3 items"):
        fitted().score([1], [1, 2, 3])


def test_a_sparse_matrix_is_no_name():
    with pytest.raises(InvalidData):
        fitted().similar_items(sp.csr_matrix(np.eye(3)))
