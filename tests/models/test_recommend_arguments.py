"""The arguments of `recommend` one by one: implicit's call, new users, filters, candidates, users without history."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from conftest import peer_library, random_rows

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories
from fairmf.models.als import IALS, FairALS
from fairmf.models.popularity import Popularity

N_USERS, N_ITEMS = 30, 20
ROWS = random_rows(N_USERS, N_ITEMS)
PLAIN = Interactions(ROWS, N_ITEMS)
NAMED = Interactions(ROWS, N_ITEMS, Ids([f"u{i}" for i in range(N_USERS)]), Ids([f"item {j}" for j in range(N_ITEMS)]))
CSR = sp.csr_matrix(PLAIN.to_csr())
POPULAR = sorted(range(N_ITEMS), key=lambda j: (-PLAIN.by_item.sums()[j], j))
FULL = N_USERS - 1  # this user has had every item, user 0 none


@pytest.fixture(scope="module")
def model():
    return FairALS(factors=4, epochs=3).fit(PLAIN)


@pytest.fixture(scope="module")
def named():
    return FairALS(factors=4, epochs=3).fit(NAMED)


def without_histories(model):
    bare = type(model)(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})
    bare._fitted = dataclasses.replace(model.fitted, interactions=None)
    return bare


def same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_call_of_implicit_gives_the_answer_of_implicit(model):
    implicit_als = peer_library("implicit.cpu.als")
    with threadpoolctl.threadpool_limits(1, "blas"):  # it warns otherwise
        theirs = implicit_als.AlternatingLeastSquares(factors=4)
    theirs.user_factors, theirs.item_factors = model.user_factors, model.item_factors
    users = np.flatnonzero(np.diff(ROWS.indptr))[[3, 7, 11]]  # implicit has no answer of its own for empty histories
    calls = [
        ((users[0], CSR[users[0]]), {"N": 5}),
        ((users, CSR[users], 6, True), {}),
        ((users, CSR[users], 6, False, [1, 2, 3]), {}),
        ((users, CSR[users]), {"N": 4, "items": [9, 3, 17, 5, 11, 0, 8, 14, 19]}),
    ]
    for arguments, options in calls:
        ids, scores = model.recommend(*arguments, **options)
        expected_ids, expected = theirs.recommend(*arguments, **options)
        real = expected > -1e38  # implicit returns -3.4e38 and a real id where nothing is left
        np.testing.assert_array_equal(ids[real], expected_ids[real])
        np.testing.assert_allclose(scores[real], expected[real], rtol=1e-4, atol=1e-6)
        assert (ids[~real] == -1).all()


def test_user_items_say_what_is_liked(model):
    other = sp.csr_array(CSR[[5, 6]])  # users 3 and 7, with the histories of 5 and 6
    ids, scores = model.recommend([3, 7], other, N=N_ITEMS)
    for row, values, user, history in zip(ids, scores, (3, 7), (5, 6), strict=True):
        liked = set(CSR[history].indices.tolist())
        assert set(row[row >= 0].tolist()) == set(range(N_ITEMS)) - liked
        by_hand = model.item_factors.astype(float) @ model.user_factors[user].astype(float)
        np.testing.assert_allclose(values[: len(row[row >= 0])], by_hand[row[row >= 0]], rtol=1e-6)


def test_one_row_of_a_csr_array_is_flat_and_fits_one_user(model):
    try:
        flat = sp.csr_array(CSR)[5]
    except NotImplementedError:
        pytest.skip("SciPy before 1.15 has no flat sparse rows")
    same(model.recommend(5, flat, N=4), model.recommend(5, N=4))


def test_new_users_are_folded_in(model, named):
    history = Interactions(random_rows(3, N_ITEMS, seed=5), N_ITEMS).take_users(np.array([1, 2]))
    vectors = model.fold_in(history)
    for who in ([1000, 2000], ["new", "newer"]):
        asked = model if who[0] == 1000 else named
        ids, scores = asked.recommend(who, history, N=5, recalculate_user=True)
        again = model.recommend([0, 0], history, N=5, recalculate_user=True)
        np.testing.assert_array_equal(scores, again[1])
        for row, values, vector, i in zip(again[0], scores, vectors, range(2), strict=True):
            by_hand = model.item_factors.astype(float) @ vector.astype(float)
            liked = set(history.by_user.row(i)[0].tolist())
            best = [j for j in np.argsort(-by_hand, kind="stable") if j not in liked][:5]
            assert row[: len(best)].tolist() == best
            np.testing.assert_allclose(values[: len(best)], by_hand[best], rtol=1e-5)
        assert ids.shape == (2, 5)
    one = model.recommend(10**6, history.take_users(np.array([0])), N=5, recalculate_user=True)
    same(one, (again[0][0], again[1][0]))
    with pytest.raises(InvalidData, match="rows go from 0 to 29"):
        model.recommend([1000, 2000], history)


def test_recalculated_training_users_use_their_stored_histories(model):
    again = model.recommend([3, 7], N=5, recalculate_user=True)
    np.testing.assert_array_equal(again[0], model.recommend([3, 7], CSR[[3, 7]], N=5, recalculate_user=True)[0])


def test_the_dial_turns_given_histories_too(model):
    asked = model.recommend([1000], CSR[[3]], N=8, fairness=5.0)
    same(asked, model.recommend([3], N=8, fairness=5.0))
    assert asked[1].tolist() != model.recommend([3], N=8)[1].tolist()


def test_by_row_on_data_with_ids(named, model):
    same(named.recommend([3, 7], N=6, by="row"), model.recommend([3, 7], N=6))
    ids = named.recommend(3, N=6, by="row", items=[4, 5, 6, 7], filter_items=[5])[0]
    assert set(ids.tolist()) <= {4, 6, 7, -1}


def test_candidates_and_filters_together(named):
    every = named.recommend("u3", N=N_ITEMS, filter_already_liked_items=False)[0].tolist()
    chosen = ["item 4", "item 2", "item 9", "item 4", "item 7"]
    ids, scores = named.recommend("u3", N=6, filter_already_liked_items=False, items=chosen, filter_items=["item 9"])
    expected = [name for name in every if name in {"item 4", "item 2", "item 7"}]
    assert ids.tolist() == [*expected, None, None, None]
    assert np.isnan(scores[3:]).all()
    assert named.recommend("u3", N=2, items=[])[0].tolist() == [None, None]


def test_no_history_respects_the_filters_and_has_no_scores(model):
    barred = POPULAR[:2]
    each = sp.csr_array((np.ones(1), ([0], [POPULAR[3]])), shape=(1, N_ITEMS))
    ids, scores = model.recommend(0, N=4, filter_items=barred)
    assert ids.tolist() == POPULAR[2:6]
    assert np.isnan(scores).all()
    assert model.recommend([0], N=4, filter_items=each)[0][0].tolist() == [*POPULAR[:3], POPULAR[4]]
    some = sorted(POPULAR[5:8])
    assert model.recommend(0, N=4, items=some)[0].tolist() == [*POPULAR[5:8], -1]


def test_no_history_can_be_an_error(model, named):
    with pytest.raises(InvalidData, match=r"1 of 3 users have no history, the first is 'u0'"):
        named.recommend(["u4", "u0", "u5"], no_history="error")
    model.recommend([4, 5], no_history="error")
    with pytest.raises(InvalidData, match="1 of 1 users have no history, the first is 77"):
        model.recommend(77, sp.csr_matrix((1, N_ITEMS)), recalculate_user=True, no_history="error")


def test_an_empty_row_given_does_not_make_a_stored_user_new(model):
    ids, scores = model.recommend(3, sp.csr_matrix((1, N_ITEMS)), N=5)
    assert np.isfinite(scores).all()
    same((ids, scores), model.recommend(3, N=5, filter_already_liked_items=False))


def test_a_model_without_histories(model):
    bare = without_histories(model)
    with pytest.raises(MissingHistories, match="pass user_items or filter_already_liked_items=False"):
        bare.recommend(3)
    with pytest.raises(MissingHistories, match=r"change the fairness: pass user_items\."):
        bare.recommend(3, fairness=2.0, filter_already_liked_items=False)
    same(bare.recommend([3, 7], CSR[[3, 7]], N=5), model.recommend([3, 7], N=5))
    free = {"N": 5, "filter_already_liked_items": False}
    same(bare.recommend([3, 7], **free), model.recommend([3, 7], **free))
    same(bare.recommend([3], CSR[[3]], N=5, fairness=2.0), model.recommend([3], N=5, fairness=2.0))
    zero = without_histories(IALS(factors=4, epochs=2).fit(PLAIN))  # iALS leaves zeros for a user without history
    assert zero.recommend(0, **free)[0].tolist() == POPULAR[:5]


def test_values_of_user_items_warn_only_where_they_would_count(model):
    twos = CSR[[3]] * 2
    same(model.recommend([3], twos, N=5), model.recommend([3], N=5))
    with pytest.warns(UserWarning, match="values other than 1"):
        model.recommend([3], twos, N=5, recalculate_user=True)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((3, 10), {}, InvalidParameter, "second argument of recommend is user_items.*write N=10"),
        (([3, 4], CSR[3]), {}, InvalidData, "one row per user asked for, in their order: 2 users, 1 rows"),
        ((3, CSR), {}, InvalidData, "1 users, 30 rows"),
        ((3, CSR[3][:, :9]), {}, InvalidData, "has 9 items"),
        ((3, np.ones((1, N_ITEMS))), {}, InvalidData, "SciPy sparse matrix"),
        ((3,), {"filter_items": 4}, InvalidParameter, "filter_items must be a list of items"),
        ((3,), {"filter_items": "item 4"}, InvalidParameter, "filter_items must be a list of items"),
        ((3,), {"filter_items": [4, 99]}, InvalidData, "Item rows go from 0 to 19; got 4..99"),
        (([3, 4],), {"filter_items": [[1]]}, InvalidData, "1 lists for 2 users"),
        (([3, 4],), {"filter_items": CSR[3]}, InvalidData, "must be 2 users x 20 items. Got 1 x 20"),
        ((3,), {"items": 4}, InvalidParameter, "items must be a list of items"),
        ((3,), {"items": [-1]}, InvalidData, "Item rows go from 0 to 19"),
        ((3,), {"items": ["item 1"]}, InvalidData, "Items are named by row number here"),
        ((3,), {"items": [1.5]}, InvalidData, "Items are named by row number here"),
        ((3,), {"no_history": "ignore"}, InvalidParameter, "no_history must be 'popular' or 'error'. Got 'ignore'"),
        ((3,), {"by": "name"}, InvalidParameter, "by must be 'id' or 'row'. Got 'name'"),
        ((3,), {"fairness": -1}, InvalidParameter, "'fairness' parameter must be a number >= 0"),
    ],
)  # fmt: skip
def test_bad_arguments(model, arguments, options, kind, message):
    with pytest.raises(kind, match=message):
        model.recommend(*arguments, **options)


def test_unknown_item_names(named):
    for option in ("items", "filter_items"):
        with pytest.raises(InvalidData, match=r"1 of 2 items are unknown, the first is 'sofa'"):
            named.recommend("u3", **{option: ["item 1", "sofa"]})
    with pytest.raises(InvalidData, match="the first is 'sofa'"):
        named.recommend(["u3", "u4"], filter_items=[["item 1"], ["sofa"]])


def test_tuples_are_names_not_lists_of_items():
    ids = Ids([("shop", j) for j in range(N_ITEMS)])
    model = Popularity().fit(Interactions(ROWS, N_ITEMS, None, ids))
    kept = model.recommend(0, N=2, filter_items=[("shop", POPULAR[0])])[0]
    assert kept.tolist() == [("shop", POPULAR[1]), ("shop", POPULAR[2])]
