"""Fold-ins in the space of the history's items: the solution of the d x d system, to float32 rounding."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import random_rows

from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.fold_in_systems import weighted

N_ITEMS, D = 90, 48
DATA = Interactions(random_rows(70, N_ITEMS), N_ITEMS)
MODELS = {
    "ials": IALS(factors=D, epochs=3),
    "fair": FairALS(factors=D, epochs=3, fairness=3.0, regularization=0.02, regularization_exponent=0.5),
    "balanced": FairALS(factors=D, epochs=3, item_balance=0.5, user_balance=0.4),
    "no unobserved": IALS(factors=D, epochs=3, unobserved_weight=0.0, regularization=0.1),
    "fiadmm": FiADMM(factors=D, epochs=4),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    return MODELS[request.param].fit(DATA, progress=False)


def solved(model, columns, weights, psi):
    """The vector by NumPy in float64, from the formula."""
    fitted, V = model.fitted, model.item_factors.astype(float)
    s = fitted.settings
    ridge = s["regularization"] * (weights.sum() + s["unobserved_weight"] * N_ITEMS) ** s["regularization_exponent"]
    Y = V[columns]
    H = (Y.T * weights) @ Y + s["unobserved_weight"] * V.T @ V + ridge * np.eye(D)
    return np.linalg.solve(H, Y.T @ weights - psi * fitted.merit)


@pytest.mark.parametrize("length", [1, 2, 5, 16])
@pytest.mark.parametrize("given", [False, True])
def test_the_vector_is_the_solution_of_the_system(model, length, given):
    rng = np.random.default_rng(length)
    columns = np.sort(rng.choice(N_ITEMS, length, replace=False))
    raw = rng.uniform(0.2, 5.0, length).astype(np.float32) if given else np.ones(length, dtype=np.float32)
    assert model.fitted.serving.is_short(length)
    for psi in (None, 0.0, 2.5):
        rows = DATA.by_user._replace(indptr=np.array([0, length]), indices=columns.astype(np.int32), weights=raw)
        weighting = model.fitted.weighting
        weights = raw if weighting is None else weighting.weights(rows)
        expected = solved(model, columns, weights.astype(float), model.fitted.fairness if psi is None else psi)
        found = model.fold_in_user(columns, raw if given else None, fairness=psi)
        assert np.linalg.norm(found - expected) <= 2e-6 * np.linalg.norm(expected)


def test_one_row_of_ones_takes_a_short_way_to_the_same_bits(model):
    """`fold_binary` checks, weights and solves in one kernel; what it refuses is cleaned and solved as ever."""
    serving, rng = model.fitted.serving, np.random.default_rng(3)
    for length in (60, 1, 7, 20):  # 60 is not short
        columns = np.sort(rng.choice(N_ITEMS, length, replace=False)).astype(np.int32)
        ones = np.ones(length, dtype=np.float32)
        rows = weighted(model.fitted, Rows(np.array([0, length]), columns, None))
        expected = serving.fold(rows, np.array([1.5]))
        row = sp.csr_matrix((ones, columns, [0, length]), shape=(1, N_ITEMS))
        assert np.array_equal(serving.fold_binary(columns, ones, 1.5), expected)
        assert np.array_equal(model.fold_in(row, fairness=1.5), expected)
        assert np.array_equal(model.fold_in_user(columns, fairness=1.5), expected[0])
    assert serving.fold_binary(columns[::-1].copy(), ones, 1.5) is None  # does not ascend
    assert serving.fold_binary(columns, 2 * ones, 1.5) is None
    assert serving.fold_binary(np.append(columns[1:], np.int32(N_ITEMS)), ones, 1.5) is None  # no such item
    assert serving.fold_binary(np.append(np.int32(-1), columns[1:]), ones, 1.5) is None
    turned = sp.csr_matrix((ones, columns[::-1].copy(), [0, length]), shape=(1, N_ITEMS))
    assert np.array_equal(model.fold_in(turned, fairness=1.5), expected)


def test_long_histories_and_many_users_agree_with_short_ones(model):
    rows = DATA.take_users(np.flatnonzero(np.diff(DATA.by_user.indptr) > 0))
    together = model.fold_in(rows)
    for i in range(0, rows.n_users, 7):
        alone = model.fold_in(rows.take_users(np.array([i])))[0]
        assert np.linalg.norm(alone - together[i]) <= 5e-4 * np.linalg.norm(together[i])


def test_without_a_ridge_rows_are_solved_by_cholesky():
    model = IALS(factors=4, epochs=2, regularization=0.0).fit(DATA, progress=False)
    assert not model.fitted.serving.folds
    assert np.isfinite(model.fold_in_user([3])).all()
