"""Fold-in of users who were not in training, frozen and as a cohort."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import random_rows
from naive.objective import dense

from fairmf.errors import InvalidParameter, NotFinite
from fairmf.interactions import Interactions
from fairmf.models import IALS, FiADMM

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


@pytest.mark.parametrize(("scale", "factor"), [("phi", 12 / 40), ("paper", 1.0), ("authors", (12 / 40) ** 2)])
def test_cohort_converges_to_the_minimum_over_the_batch(model, scale, factor):
    """V fixed, the batch's own mean: (H_i) u_i + (lambda_b/n_b) G_V t_b = b_i for all users at once."""
    C, V = dense(NEW), model.item_factors
    alpha0, lambda2 = model.unobserved_weight, model.regularization
    lambda_b = 2.0 * alpha0 * 40 * factor
    n, d = len(C), V.shape[1]
    gramian = V.T @ V
    system = np.kron(np.ones((n, n)), (lambda_b / n**2) * gramian)
    right = np.zeros(n * d)
    for i, row in enumerate(C):
        block = slice(i * d, (i + 1) * d)
        ridge = lambda2 * (row.sum() + alpha0 * len(V))
        system[block, block] += (V.T * (row + alpha0)) @ V + ridge * np.eye(d)
        right[block] = V.T @ row
    exact = np.linalg.solve(system, right).reshape(n, d)
    folded = model.fold_in(NEW, method="cohort", scale=scale, epochs=20_000)
    np.testing.assert_allclose(folded, exact, atol=1e-4)


def test_cohort_scales_differ(model):
    a, b = (model.fold_in(NEW, method="cohort", scale=s) for s in ("phi", "paper"))
    assert np.abs(a - b).max() > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "warm"}, "method must be 'frozen' or 'cohort'"),
        ({"method": "cohort", "scale": "mine"}, "scale must be one of 'phi', 'paper', 'authors'"),
        ({"method": "cohort", "fairness": 1.0}, "needs method='frozen'"),
        ({"method": "cohort", "epochs": 0}, "epochs must be an integer >= 1. Got 0 instead"),
        ({"method": "cohort", "epochs": 1.5}, "epochs must be an integer >= 1. Got 1.5 instead"),
        ({"fairness": -1}, "fairness must be a number >= 0"),
        ({"fairness": float("nan")}, "fairness must be a number >= 0"),
    ],
)
def test_bad_options(model, options, message):
    with pytest.raises(InvalidParameter, match=message):
        model.fold_in(NEW, **options)


def test_unknown_options_are_named(model):
    for method in ("frozen", "cohort"):
        with pytest.raises(TypeError, match="no option 'speed'"):
            model.fold_in(NEW, method=method, speed=1)


def test_a_cohort_of_nobody(model):
    nobody = NEW.take_users(np.zeros(0, dtype=np.int64))
    assert model.fold_in(nobody, method="cohort").shape == (0, 4)


def test_a_cohort_that_diverges_is_an_error_not_a_list_of_nan():
    model = FiADMM(factors=4, epochs=2, gamma=50.0, rho=1.0).fit(TRAIN)
    with pytest.raises(NotFinite, match=r"this cohort diverged.*gamma=50 is probably too large"):
        model.fold_in(NEW, method="cohort", epochs=200)


def test_ials_has_no_cohort():
    with pytest.raises(TypeError, match="no option 'method'"):
        IALS(**SETTINGS, epochs=1).fit(TRAIN).fold_in(NEW, method="cohort")
