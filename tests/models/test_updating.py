"""partial_fit_users and partial_fit_items: equal to a re-solve by hand, and everything else stays consistent."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import paper_als, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.objective import dense

from fairmf.data.csr import Rows, replace_rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, MissingHistories
from fairmf.models.als import IALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.fitted import Fitted

N, M, D = 40, 25, 4
ALPHA0, LAMBDA2, ETA = 0.2, 0.05, 0.7
SETTINGS = {
    "factors": D, "regularization": LAMBDA2, "regularization_exponent": ETA, "unobserved_weight": ALPHA0,
    "backend": "reference", "epochs": 3,
}  # fmt: skip
USERS = [f"u{i}" for i in range(N)]
ITEMS = [f"i{j}" for j in range(M)]


def data(weighted=False, ids=True):
    named = (Ids(USERS), Ids(ITEMS)) if ids else (None, None)
    return Interactions(random_rows(N, M, seed=1, weighted=weighted), M, *named)


def batch(rows, columns, weighted=False, seed=2):
    return Interactions(random_rows(rows, columns, seed=seed, weighted=weighted), columns)


def fair(weighted=False, ids=True, kind=paper_als, **settings):
    return kind(**(SETTINGS | {"fairness": 2.0} | settings)).fit(data(weighted, ids))


def user_by_hand(V, row, q):
    """SPEC's frozen fold-in: (sum_j c_j v_j v_j' + alpha0 G_V + lambda_U I) u = sum_j c_j v_j - q."""
    m, d = V.shape
    matrix = LAMBDA2 * (row.sum() + ALPHA0 * m) ** ETA * np.eye(d)
    right = -np.array(q)
    for j in range(m):
        matrix += (row[j] + ALPHA0) * np.outer(V[j], V[j])
        right += row[j] * V[j]
    return np.linalg.inv(matrix) @ right


def item_by_hand(U, column, phi):
    """(sum_i c_i u_i u_i' + alpha0 G_U + phi alpha0 n t t' + lambda_V I) v = sum_i c_i u_i."""
    n, d = U.shape
    t = sum(U) / n
    matrix = LAMBDA2 * (column.sum() + ALPHA0 * n) ** ETA * np.eye(d) + phi * ALPHA0 * n * np.outer(t, t)
    right = np.zeros(d)
    for i in range(n):
        matrix += (column[i] + ALPHA0) * np.outer(U[i], U[i])
        right += column[i] * U[i]
    return np.linalg.inv(matrix) @ right


# -- users -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [paper_als, FiADMM])
def test_users_are_solved_and_everything_else_stays(kind, weighted):
    model = fair(weighted, kind=kind)
    before, C = model.fitted, dense(model.fitted.interactions)
    new = batch(4, M, weighted)
    assert model.partial_fit_users(["u7", "new", "u0", "newer"], new) is model
    after = model.fitted
    for name, row in zip(["u7", "new", "u0", "newer"], dense(new), strict=True):
        at = after.user_ids.position(name)
        expected = user_by_hand(before.item_factors, row, 2.0 * before.merit)
        np.testing.assert_allclose(after.user_factors[at], expected, atol=1e-9)
    assert after.user_ids.values.tolist() == [*USERS, "new", "newer"]
    others = [i for i in range(N) if i not in (0, 7)]
    np.testing.assert_array_equal(after.user_factors[others], before.user_factors[others])
    wanted = np.vstack([C, dense(new)[[1, 3]]])
    wanted[[7, 0]] = dense(new)[[0, 2]]
    np.testing.assert_allclose(dense(after.interactions), wanted)
    np.testing.assert_allclose(after.popularity, wanted.sum(axis=0), rtol=1e-6)
    assert after.interactions.user_ids == after.user_ids
    for name in ("item_factors", "mean_user", "merit", "item_ids", "history"):
        assert getattr(after, name) is getattr(before, name)
    assert len(before.user_factors) == N  # what somebody else still holds did not change


def test_users_do_not_depend_on_their_order_or_on_who_came_before():
    new = batch(3, M)
    together = fair().partial_fit_users(["a", "b", "u5"], new)
    one_by_one = fair()
    for k, name in ((2, "u5"), (0, "a"), (1, "b")):
        one_by_one.partial_fit_users(name, new.take_users(np.array([k])))
    np.testing.assert_allclose(one_by_one.user_factors, together.user_factors, atol=1e-12)
    assert one_by_one.fitted.user_ids == together.fitted.user_ids
    np.testing.assert_array_equal(dense(one_by_one.fitted.interactions), dense(together.fitted.interactions))


def test_training_users_solved_again_stay_what_they_are(backend):
    model = fair(backend=backend.name)
    before = model.user_factors
    model.partial_fit_users(USERS, model.fitted.interactions)
    np.testing.assert_allclose(model.user_factors, before, atol=1e-3)


def test_a_dialled_model_adds_users_at_the_fairness_it_serves():
    model = fair().with_fairness(5.0)
    row = batch(2, M)
    model.partial_fit_users(["a", "b"], row)
    expected = user_by_hand(model.item_factors, dense(row)[1], 5.0 * model.fitted.merit)
    np.testing.assert_allclose(model.user_factors[-1], expected, atol=1e-9)
    again = model.with_fairness(2.0).user_factors[-1]
    np.testing.assert_allclose(
        again, user_by_hand(model.item_factors, dense(row)[1], 2 * model.fitted.merit), atol=1e-9
    )


def test_new_users_are_served_and_their_items_left_out():
    model = fair()
    row = sp.csr_array((np.ones(3), ([0, 0, 0], [2, 5, 9])), shape=(1, M))
    model.partial_fit_users(["new"], row)
    ids, scores = model.recommend("new", N=M)
    assert {"i2", "i5", "i9"}.isdisjoint(ids.tolist())
    np.testing.assert_allclose(
        scores[0], model.user_factors[-1] @ model.item_factors[model.fitted.item_ids.position(ids[0])]
    )


def test_without_ids_the_next_free_rows_are_added():
    model = fair(ids=False)
    model.partial_fit_users([N + 1, 3, N], batch(3, M))
    assert model.n_users == N + 2
    assert model.fitted.user_ids is None
    np.testing.assert_array_equal(dense(model.fitted.interactions)[[N + 1, 3, N]], dense(batch(3, M)))


# -- items -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [paper_als, FiADMM])
def test_items_are_solved_and_q1_follows(kind, weighted):
    model = fair(weighted, kind=kind)
    before, C = model.fitted, dense(model.fitted.interactions)
    new = batch(3, N, weighted)
    assert model.partial_fit_items(["new", "i4", "newer"], new) is model
    after = model.fitted
    for name, column in zip(["new", "i4", "newer"], dense(new), strict=True):
        at = after.item_ids.position(name)
        np.testing.assert_allclose(after.item_factors[at], item_by_hand(before.user_factors, column, 2.0), atol=1e-9)
    others = [j for j in range(M) if j != 4]
    np.testing.assert_array_equal(after.item_factors[others], before.item_factors[others])
    assert after.item_ids.values.tolist() == [*ITEMS, "new", "newer"]
    wanted = np.hstack([C, dense(new)[[0, 2]].T])
    wanted[:, 4] = dense(new)[1]
    np.testing.assert_allclose(dense(after.interactions), wanted)
    np.testing.assert_allclose(after.popularity, wanted.sum(axis=0), rtol=1e-6)
    assert after.user_factors is before.user_factors
    assert after.mean_user is before.mean_user
    V, V0, t = after.item_factors, before.item_factors, before.mean_user
    np.testing.assert_allclose(after.merit - before.merit, ALPHA0 * (V.T @ V - V0.T @ V0) @ t, atol=1e-10)
    # And what is folded in from now on sees the new items, in H as in q1.
    row = batch(2, M + 2, seed=9)
    np.testing.assert_allclose(model.fold_in(row)[1], user_by_hand(V, dense(row)[1], 2.0 * after.merit), atol=1e-9)


def test_all_items_solved_again_are_the_half_step_of_training(backend, weighted):
    """Solving every item for the model's users must leave no gradient in V; compare with the double loop."""
    model = fair(weighted, backend=backend.name)
    C, U = dense(model.fitted.interactions), model.user_factors.astype(np.float64)
    model.partial_fit_items(ITEMS, Interactions(model.fitted.interactions.by_item, N))
    by_hand = np.array([item_by_hand(U, C[:, j], 2.0) for j in range(M)])
    np.testing.assert_allclose(model.item_factors, by_hand, atol=10 * backend.tolerance)


def test_items_after_users_are_solved_for_the_users_there_are():
    model = fair()
    model.partial_fit_users(["a", "b", "c"], batch(3, M))
    U = model.user_factors
    column = batch(2, N + 3, seed=5)
    model.partial_fit_items(["x", "y"], column)
    np.testing.assert_allclose(model.item_factors[-1], item_by_hand(U, dense(column)[1], 2.0), atol=1e-9)


def test_a_dialled_model_solves_items_for_the_users_as_trained():
    column = batch(2, N)
    # Solved exactly, so that the users solved again are the users that were stored.
    plain, dialled = fair(solver="cholesky"), fair(solver="cholesky").with_fairness(6.0)
    plain.partial_fit_items(["x", "y"], column)
    dialled.partial_fit_items(["x", "y"], column)
    np.testing.assert_allclose(dialled.item_factors, plain.item_factors, atol=1e-8)
    np.testing.assert_allclose(dialled.fitted.merit, plain.fitted.merit, atol=1e-8)
    without = fair().with_fairness(6.0)
    without._fitted = dataclasses.replace(without.fitted, interactions=None)
    with pytest.raises(MissingHistories, match="after with_fairness needs"):
        without.partial_fit_items(["x", "y"], column)


def test_an_item_nobody_has_gets_the_zero_vector_and_can_be_filled_later():
    model = fair()
    model.partial_fit_items("x", sp.csr_array((1, N)))
    assert (model.item_factors[-1] == 0).all()
    assert model.fitted.popularity[-1] == 0
    column = batch(2, N).take_users(np.array([1]))
    model.partial_fit_items("x", column)
    assert model.n_items == M + 1
    np.testing.assert_allclose(
        model.item_factors[-1], item_by_hand(model.user_factors, dense(column)[0], 2.0), atol=1e-9
    )


def test_fold_in_items_changes_nothing():
    model = IALS(**SETTINGS).fit(data())
    before = model.fitted
    vectors = model.fold_in_items(batch(3, N))
    by_hand = [item_by_hand(model.user_factors, column, 0.0) for column in dense(batch(3, N))]
    np.testing.assert_allclose(vectors, by_hand, atol=1e-9)
    assert model.fitted is before


# -- models that hold less, or more ------------------------------------------------------------------------------------


def test_a_model_without_histories_is_updated_all_the_same():
    model, full = fair(), fair()
    popularity = model.fitted.popularity
    model._fitted = dataclasses.replace(model.fitted, interactions=None)
    rows, columns = (batch(4, size).take_users(np.array([1, 2])) for size in (M, N + 1))
    assert dense(rows).sum(axis=1).min() > 0
    for each in (model, full):
        each.partial_fit_users(["u3", "new"], rows)
        each.partial_fit_items(["item", "i2"], columns)
    np.testing.assert_array_equal(model.user_factors, full.user_factors)
    np.testing.assert_array_equal(model.item_factors, full.item_factors)
    assert model.fitted.interactions is None
    # u3's old history is not known, so only the new user is counted; items are counted anew.
    counted = np.append(popularity + dense(rows)[1], dense(columns)[0].sum())
    counted[2] = dense(columns)[1].sum()
    np.testing.assert_allclose(model.fitted.popularity, counted)


@dataclasses.dataclass(frozen=True)
class Richer(Fitted):
    anything: str = ""


def test_what_else_a_model_holds_per_user_or_item_grows_along():
    model = fair(solver="cholesky")
    parts = {f.name: getattr(model.fitted, f.name) for f in dataclasses.fields(Fitted)}
    sensitivity = model.fold_in(model.fitted.interactions, fairness=0) - model.fold_in(
        model.fitted.interactions, fairness=1
    )
    offsets = np.arange(M) / M
    model._fitted = Richer(**parts | {"user_sensitivity": sensitivity, "item_offsets": offsets}, anything="kept")
    row = batch(2, M)
    model.partial_fit_users(["u3", "new"], row)
    for at, history in ((3, 0), (N, 1)):
        V, q1 = model.item_factors, model.fitted.merit
        by_hand = user_by_hand(V, dense(row)[history], 0 * q1) - user_by_hand(V, dense(row)[history], q1)
        np.testing.assert_allclose(model.fitted.user_sensitivity[at], by_hand, atol=1e-9)
    np.testing.assert_array_equal(model.fitted.user_sensitivity[4:N], sensitivity[4:])
    model.partial_fit_items(["i2", "x"], batch(2, N + 1))
    np.testing.assert_array_equal(model.fitted.item_offsets, [*offsets, 0.0])
    assert model.fitted.user_sensitivity is None  # V has changed, and with it every H_i and q1
    assert model.fitted.anything == "kept"


def test_binary_models_take_weights_and_the_other_way_round():
    binary, weighted = fair(), fair(weighted=True)
    binary.partial_fit_users(["new", "u2"], batch(2, M, weighted=True))
    np.testing.assert_allclose(dense(binary.fitted.interactions)[N], dense(batch(2, M, weighted=True))[0])
    np.testing.assert_array_equal(dense(binary.fitted.interactions)[3], dense(data())[3])
    weighted.partial_fit_users(["u2"], batch(2, M).take_users(np.array([1])))
    np.testing.assert_array_equal(dense(weighted.fitted.interactions)[2], np.ones(M))


# -- wrong input -------------------------------------------------------------------------------------------------------

WRONG = [
    ("users", ["a", "a"], (2, M), "Every user can be given once, but 'a' appears twice"),
    ("users", ["a"], (2, M), "1 users are named, but the matrix has 2 rows"),
    ("users", ["a", "b", "c"], (2, M), "3 users are named, but the matrix has 2 rows"),
    ("users", ["a", "b"], (2, M + 1), "has 26 items"),
    ("users", ["a"], (M, 2), "looks transposed"),
    ("users", [7], (1, M), "user ids are of type str; 7 is int"),
    ("users", [None], (1, M), "null or NaN"),
    ("users", [["a"]], (1, M), "user ids are of type str"),
    ("items", ["x", "x"], (2, N), "Every item can be given once, but 'x' appears twice"),
    ("items", ["x"], (2, N), "1 items are named, but the matrix has 2 rows"),
    ("items", ["x", "y"], (2, N + 3), "item_users has 43 users"),
    ("items", ["x", "y"], (N, 2), "looks transposed: items must be rows here"),
    ("items", [1.5], (1, N), "item ids are of type str; 1.5 is float"),
]


@pytest.mark.parametrize(("side", "names", "shape", "message"), WRONG)
def test_wrong_input_is_named_and_changes_nothing(side, names, shape, message):
    model = fair()
    before = model.fitted
    with pytest.raises(InvalidData, match=message):
        getattr(model, f"partial_fit_{side}")(names, sp.csr_array(np.ones(shape)))
    assert model.fitted is before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([N + 1], "the next free numbers, from 40 on without a gap. Got 41 instead"),
        ([N, N + 2], "Got 40 to 42 instead"),
        ([-1], "Row numbers start at 0; got -1"),
        ([3, 3], "Every user can be given once, but 3 appears twice"),
        (["a"], "Users are named by row number here"),
    ],
)
def test_wrong_row_numbers(rows, message):
    model = fair(ids=False)
    with pytest.raises(InvalidData, match=message):
        model.partial_fit_users(rows, batch(2, M).take_users(np.arange(len(rows))))
    assert model.n_users == N


def test_rows_that_are_named_otherwise():
    model = fair()
    named = Interactions(batch(2, M).by_user, M, Ids(["b", "a"]), Ids(ITEMS))
    with pytest.raises(InvalidData, match="rows of the matrix are not the given"):
        model.partial_fit_users(["a", "b"], named)
    model.partial_fit_users(["b", "a"], named)
    other = Interactions(batch(2, N + 2).by_user, N + 2, None, Ids(range(N + 2)))
    with pytest.raises(InvalidData, match="not the model's users, or in another order"):
        model.partial_fit_items(["x", "y"], other)


def test_weights_that_are_no_numbers():
    values = sp.csr_array(np.full((1, M), np.nan))
    with pytest.raises(InvalidData, match="NaN values"):
        fair().partial_fit_users(["a"], Interactions.from_csr(values, weights="values"))


@pytest.mark.parametrize("ids", [True, False])
def test_nobody(ids):
    model = fair(ids=ids)
    before = model.fitted
    model.partial_fit_users([], sp.csr_array((0, M))).partial_fit_items([], sp.csr_array((0, N)))
    np.testing.assert_array_equal(model.user_factors, before.user_factors)
    np.testing.assert_array_equal(model.item_factors, before.item_factors)
    np.testing.assert_array_equal(dense(model.fitted.interactions), dense(before.interactions))


# -- rows --------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 6), st.integers(0, 6), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_replace_rows(count, new, random, weighted, new_weighted):
    def some(rows, with_weights):
        C = np.array([[random.choice([0, 0, 1, 2.5 if with_weights else 1]) for _ in range(4)] for _ in range(rows)])
        matrix = sp.csr_array(C.reshape(rows, 4).astype(np.float32))
        return matrix.toarray(), Rows(
            matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data if with_weights else None
        )

    where = random.sample(range(count), random.randint(0, min(count, new)))
    where += range(count, count + new - len(where))
    random.shuffle(where)
    (C, rows), (C_new, rows_new) = some(count, weighted), some(new, new_weighted)
    wanted = np.zeros((max([count, *(w + 1 for w in where)]), 4))
    wanted[:count] = C
    for k, w in enumerate(where):
        wanted[w] = C_new[k]
    result = replace_rows(rows, np.array(where, dtype=np.int64), rows_new)
    values = np.ones(result.nnz) if result.weights is None else result.weights
    np.testing.assert_allclose(result.to_csr(values, 4).toarray(), wanted)
