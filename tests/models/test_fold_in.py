"""Fold-in of users who were not in training, frozen and as a cohort."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import paper_als, random_rows, slow_values
from naive.objective import dense

from fairmf import threads
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.models.als import IALS
from fairmf.models.fiadmm import FiADMM

TRAIN = Interactions(random_rows(40, 25, seed=1), 25)
NEW = Interactions(random_rows(12, 25, seed=2), 25)
SETTINGS = {"factors": 4, "regularization": 0.05, "backend": "reference"}


@pytest.fixture(scope="module")
def model():
    return FiADMM(**SETTINGS, fairness=2.0, epochs=60).fit(TRAIN)


def frozen_by_hand(model, psi):
    C, V = dense(NEW), model.item_factors
    t = model.user_factors.mean(axis=0)
    alpha0, lambda2 = model.unobserved_weight, model.regularization
    merit = alpha0 * sum(np.outer(v, v) for v in V) @ t
    vectors = []
    for row in C:
        matrix = (V.T * (row + alpha0)) @ V + lambda2 * (row.sum() + alpha0 * len(V)) * np.eye(V.shape[1])
        vectors.append(np.linalg.inv(matrix) @ (V.T @ row - psi * merit))
    return np.array(vectors)


def test_frozen_uses_the_training_populations_merit_direction(model):
    np.testing.assert_allclose(model.fold_in(NEW), frozen_by_hand(model, 2.0), atol=1e-8)
    np.testing.assert_allclose(model.fold_in(NEW, fairness=0.5), frozen_by_hand(model, 0.5), atol=1e-8)
    assert np.abs(frozen_by_hand(model, 2.0) - frozen_by_hand(model, 0.0)).max() > 0.01


def test_frozen_users_do_not_depend_on_each_other(model):
    together, alone = model.fold_in(NEW), model.fold_in(NEW.take_users(np.array([3])))
    np.testing.assert_allclose(together[3], alone[0], atol=1e-12)


def test_changing_settings_after_fit_does_not_change_the_fitted_model():
    model = IALS(**SETTINGS, epochs=3).fit(TRAIN)
    before = model.fold_in(NEW)
    model.regularization = 9.0
    np.testing.assert_array_equal(model.fold_in(NEW), before)


def test_a_batch_without_any_history_can_be_folded_in(model):
    nobody = sp.csr_matrix((2, 25))
    vectors = model.fold_in(nobody)
    np.testing.assert_allclose(vectors[0], vectors[1])
    assert next(model.rank(nobody, 3))[1].shape == (2, 3)


def cohort_by_hand(model, new, lambda_b):
    """V fixed, the batch's own mean: (H_i) u_i + (lambda_b/n_b) G_V t_b = b_i for all users at once."""
    C, V = dense(new), model.item_factors.astype(np.float64)
    alpha0, lambda2 = model.unobserved_weight, model.regularization
    n, d = len(C), V.shape[1]
    system = np.kron(np.ones((n, n)), (lambda_b / n**2) * (V.T @ V))
    right = np.zeros(n * d)
    for i, row in enumerate(C):
        block = slice(i * d, (i + 1) * d)
        ridge = lambda2 * (row.sum() + alpha0 * len(V))
        system[block, block] += (V.T * (row + alpha0)) @ V + ridge * np.eye(d)
        right[block] = V.T @ row
    return np.linalg.solve(system, right).reshape(n, d)


PHI, *OTHERS = [("phi", 12 / 40), ("paper", 1.0), ("authors", (12 / 40) ** 2)]
SCALES = pytest.mark.parametrize(("scale", "factor"), [PHI, *OTHERS])


@pytest.mark.parametrize(("scale", "factor"), [PHI, *slow_values(*OTHERS)])
def test_cohort_converges_to_the_minimum_over_the_batch(model, scale, factor):
    exact = cohort_by_hand(model, NEW, 2.0 * model.unobserved_weight * 40 * factor)
    folded = model.fold_in(NEW, method="cohort", scale=scale, epochs=2_500)
    np.testing.assert_allclose(folded, exact, atol=1e-4)


@SCALES
def test_cohort_of_fair_als_is_the_minimum_over_the_batch(scale, factor, backend, weighted):
    settings = SETTINGS | {"backend": backend.name}
    model = paper_als(**settings, fairness=2.0, epochs=5).fit(TRAIN)
    new = Interactions(random_rows(12, 25, seed=2, weighted=weighted), 25)
    exact = cohort_by_hand(model, new, 2.0 * model.unobserved_weight * 40 * factor)
    folded = model.fold_in(new, method="cohort", scale=scale)
    np.testing.assert_allclose(folded, exact, atol=10 * backend.tolerance)


@pytest.mark.parametrize("solver", ["eigenbasis_cg", "cholesky"])
@pytest.mark.parametrize("fairness", [0.0, 1.0, 10.0])
def test_training_users_are_their_own_fold_in_and_their_own_cohort(solver, fairness, weighted):
    train = Interactions(random_rows(300, 60, density=0.1, weighted=weighted), 60)
    model = paper_als(factors=8, solver=solver, fairness=fairness, regularization=0.01, epochs=4).fit(train)
    size = np.abs(model.user_factors).max()
    np.testing.assert_allclose(model.fold_in(train), model.user_factors, atol=1e-3 * size)
    np.testing.assert_allclose(model.fold_in(train, method="cohort"), model.user_factors, atol=1e-3 * size)


def test_a_cohort_of_one_user_is_ials_with_a_larger_unobserved_weight():
    """Its mean is the user itself, so that nothing says what is popular: the fairness term only pulls scores to 0."""
    model = paper_als(**SETTINGS, fairness=2.0, epochs=5).fit(TRAIN)
    V, row = model.item_factors, dense(NEW)[5]
    ridge = model.regularization * (row.sum() + 0.1 * 25)
    for scale, weight in (("phi", 0.1 * (1 + 2.0)), ("paper", 0.1 * (1 + 2.0 * 40)), ("authors", 0.1 * (1 + 2.0 / 40))):
        by_hand = np.linalg.inv((V.T * (row + weight)) @ V + ridge * np.eye(4)) @ (V.T @ row)
        alone = model.fold_in(NEW.take_users(np.array([5])), method="cohort", scale=scale)
        np.testing.assert_allclose(alone[0], by_hand, atol=1e-10)


def test_a_cohort_without_fairness_is_the_frozen_fold_in():
    model = IALS(**SETTINGS, epochs=3).fit(TRAIN)
    np.testing.assert_allclose(model.fold_in(NEW, method="cohort"), model.fold_in(NEW), atol=1e-12)


def test_a_cohort_follows_the_dial():
    model = paper_als(**SETTINGS, fairness=2.0, epochs=5).fit(TRAIN).with_fairness(7.0)
    exact = cohort_by_hand(model, NEW, 7.0 * model.unobserved_weight * 12)
    np.testing.assert_allclose(model.fold_in(NEW, method="cohort"), exact, atol=1e-8)


def test_cohort_scales_differ(model):
    a, b = (model.fold_in(NEW, method="cohort", scale=s) for s in ("phi", "paper"))
    assert np.abs(a - b).max() > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "warm"}, "method must be 'frozen' or 'cohort'"),
        ({"method": "cohort", "scale": "mine"}, "scale must be one of 'phi', 'paper', 'authors'"),
        ({"method": "cohort", "fairness": 1.0}, "needs method='frozen'"),
        ({"method": "cohort", "epochs": 0}, "'epochs' parameter of fold_in must be an integer >= 1. Got 0 instead"),
        ({"method": "cohort", "epochs": 1.5}, "'epochs' parameter of fold_in must be an integer >= 1. Got 1.5 instead"),
        ({"fairness": -1}, "'fairness' parameter must be a number >= 0"),
        ({"fairness": float("nan")}, "'fairness' parameter must be a number >= 0"),
    ],
)
def test_bad_options(model, options, message):
    with pytest.raises(InvalidParameter, match=message):
        model.fold_in(NEW, **options)


def test_unknown_options_are_named(model):
    for method in ("frozen", "cohort"):
        with pytest.raises(TypeError, match="no option 'speed'"):
            model.fold_in(NEW, method=method, speed=1)
    with pytest.raises(TypeError, match="no option 'epochs'"):
        IALS(**SETTINGS, epochs=1).fit(TRAIN).fold_in(NEW, method="cohort", epochs=3)


@pytest.mark.parametrize("method", ["frozen", "cohort"])
def test_nobody_gives_no_vectors(model, method):
    nobody = NEW.take_users(np.zeros(0, dtype=np.int64))
    for folder in (model, paper_als(factors=4, epochs=1).fit(TRAIN)):
        assert folder.fold_in(nobody, method=method).shape == (0, 4)


def test_a_cohort_that_diverges_is_an_error_not_a_list_of_nan():
    model = FiADMM(factors=4, epochs=2, gamma=50.0, rho=1.0).fit(TRAIN)
    with pytest.raises(NotFinite, match=r"this cohort diverged.*gamma=50 is probably too large"):
        model.fold_in(NEW, method="cohort", epochs=200)


# -- one user ----------------------------------------------------------------------------------------------------------


NAMES = Ids([f"item {j}" for j in range(25)])
NAMED = paper_als(**SETTINGS, solver="cholesky", epochs=2).fit(Interactions(TRAIN.by_user, 25, None, NAMES))


def test_one_user_in_every_form():
    columns = NEW.by_user.row(4)[0]
    expected = frozen_by_hand(NAMED, 1.0)[4]
    row = NEW.to_csr()[[4]]
    for form in (row, sp.csr_matrix(row), sp.coo_array(row), NEW.take_users(np.array([4]))):
        np.testing.assert_allclose(NAMED.fold_in(form)[0], expected, atol=1e-10)
    names = [f"item {j}" for j in columns]
    np.testing.assert_allclose(NAMED.fold_in_user(names), expected, atol=1e-10)
    np.testing.assert_allclose(NAMED.fold_in_user(names[::-1] + names[:1]), expected, atol=1e-10)  # once is once
    np.testing.assert_allclose(NAMED.fold_in_user(names, fairness=0.5), frozen_by_hand(NAMED, 0.5)[4], atol=1e-10)
    plain = paper_als(**SETTINGS, solver="cholesky", epochs=2).fit(TRAIN)
    np.testing.assert_allclose(plain.fold_in_user(columns), expected, atol=1e-10)


def test_one_user_with_confidences():
    V, alpha0 = NAMED.item_factors, 0.1
    c = np.zeros(25)
    c[[3, 8]] = 2.0, 0.75
    matrix = (V.T * (c + alpha0)) @ V + 0.05 * (c.sum() + alpha0 * 25) * np.eye(4)
    by_hand = np.linalg.solve(matrix, V.T @ c - NAMED.fitted.merit)
    # Item 8 twice: its weights add up; item 5 has none.
    vector = NAMED.fold_in_user(["item 8", "item 3", "item 5", "item 8"], [0.5, 2.0, 0.0, 0.25])
    np.testing.assert_allclose(vector, by_hand, atol=1e-6)


def test_a_user_without_items_is_what_fairness_makes_of_nobody():
    np.testing.assert_allclose(NAMED.fold_in_user([]), NAMED.fold_in(sp.csr_matrix((1, 25)))[0])
    np.testing.assert_allclose(NAMED.fold_in_user([], fairness=0), 0.0)


@pytest.mark.parametrize(
    ("items", "weights", "message"),
    [
        (["item 1", "nothing"], None, "1 of 2 items are unknown, the first is 'nothing'"),
        ([3], None, "1 of 1 items are unknown"),
        (["item 1", "item 2"], [1.0], "one weight for each of the 2 items; got 1"),
        (["item 1"], [float("nan")], "must be finite"),
        (["item 1"], [1e300], "must be finite"),
    ],
)
def test_bad_single_users(items, weights, message):
    with pytest.raises(InvalidData, match=message), np.errstate(over="ignore"):
        NAMED.fold_in_user(items, weights)


def test_the_gramian_is_made_once_and_no_thread_is_woken_for_one_user(monkeypatch, backend):
    model = paper_als(factors=4, epochs=1, backend=backend.name).fit(TRAIN)
    alone = NEW.take_users(np.array([3]))
    expected = model.fold_in(alone)

    def never(*_):
        raise AssertionError("not for one user of a warm model")

    monkeypatch.setattr(type(backend), "gramian", never)
    monkeypatch.setattr(threads, "_Job", never)
    np.testing.assert_array_equal(model.fold_in(alone), expected)


def test_systems_without_a_solution_are_an_error_not_nan():
    model = IALS(factors=4, epochs=2, backend="reference").fit(TRAIN)
    model.fitted.settings.update(regularization=0.0, unobserved_weight=0.0)
    with pytest.raises(NotFinite, match="these users have no finite vectors"):
        model.fold_in(Interactions(Rows(np.array([0, 1]), np.array([2], dtype=np.int32), None), 25))
