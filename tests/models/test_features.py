"""Test fits with features (docs/mathematics.md 11): oracles, limits, items without interactions, backends, errors."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import BACKENDS, as_numpy
from small_features import D, M, N, P, matrix, model_of, some_data

from fairmf import IALS, FairALS, Features, FiADMM, Interactions, synthetic
from fairmf.backends.registry import get_backend
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models import feature_maps
from fairmf.models.feature_maps import SideFeatures
from fairmf.models.objective import Objective, gradients, objective
from fairmf.models.problem import problem_for

FAST = [case for case in BACKENDS if case.values != ("reference",)]


@pytest.fixture(scope="module")
def data():
    return some_data()


def problem_of(model, data):
    """The problem of a fitted model over its warm items and users, with its features."""
    from fairmf.models.feature_fit import FeatureFit
    from fairmf.models.fit_loop import balanced_like

    fitted = model.fitted
    rows, _ = balanced_like(model, data)
    sides = (fitted.item_features, fitted.user_features)
    given = FeatureFit(rows, *(side and _given(side) for side in sides), model.feature_regularization)
    problem = problem_for(given.reduced(), model.lambda_f_for(given.reduced().n_users), fitted.settings)
    return given.with_features(problem), given


def _given(side):
    from fairmf.data.features import FeatureRows

    return FeatureRows(side.rows, len(side.map))


def naive_objective(data, U, V, X, Mi, Z, Mu, kappas, ridges, alpha0, lambda_f):
    """F by double loops."""
    R = data.to_csr().toarray()
    total = 0.0
    for i in range(len(U)):
        for j in range(len(V)):
            total += 0.5 * R[i, j] * (1 - U[i] @ V[j]) ** 2 + 0.5 * alpha0 * (U[i] @ V[j]) ** 2
    for vectors, features, Mx, ridge, kappa in ((U, Z, Mu, ridges[0], kappas[0]), (V, X, Mi, ridges[1], kappas[1])):
        for i in range(len(vectors)):
            total += 0.5 * ridge[i] * np.sum((vectors[i] - Mx.T @ features[i]) ** 2)
        total += 0.5 * kappa * np.sum(Mx**2)
    t = U.mean(axis=0)
    return total + 0.5 * lambda_f * np.sum((V @ t) ** 2)


def test_the_objective_is_that_of_double_loops(data):
    model = model_of(FairALS, epochs=3, fairness=0.7)
    X, Z = matrix(M, P), matrix(N, P, 1)
    model.fit(data, item_features=X, user_features=Z, progress=False)
    problem, given = problem_of(model, data)
    users, items = given.warm_users, given.warm_items
    U, V = model.user_factors[users], model.item_factors[items]
    Mi, Mu = model.fitted.item_features.map, model.fitted.user_features.map
    expected = naive_objective(
        problem.interactions, U, V, X.toarray()[items], Mi, Z.toarray()[users], Mu,
        (problem.user_side.kappa, problem.item_side.kappa), (problem.user_ridge, problem.item_ridge),
        problem.unobserved_weight, problem.lambda_f,
    )  # fmt: skip
    assert objective(problem, U, V, None, Mu, Mi).total == pytest.approx(expected, rel=1e-6)
    assert model.history.final["objective"]["total"] == pytest.approx(expected, rel=1e-6)
    assert problem.item_side.kappa == pytest.approx(0.1 * problem.item_ridge.mean())


CASES = [
    (IALS, {"solver": "eigenbasis_cg"}),
    (IALS, {"solver": "cholesky"}),
    (IALS, {"solver": "subspace", "block_size": 2}),
    (FairALS, {"solver": "eigenbasis_cg", "fairness": 0.5}),
    (FairALS, {"solver": "cholesky", "fairness": 0.5}),
    (FairALS, {"solver": "subspace", "block_size": 2, "fairness": 0.5}),
    (FairALS, {"solver": "alternating_subspace", "block_size": 2, "fairness": 0.5}),
]


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize(("kind", "settings"), CASES, ids=lambda x: x.__name__ if isinstance(x, type) else x["solver"])
def test_the_objective_falls_to_a_point_where_all_gradients_are_zero(data, kind, settings, backend):
    X, Z = matrix(M, P), matrix(N, P, 1)
    model = model_of(kind, backend=backend, epochs=150, num_threads=1, **settings)
    model.fit(data, item_features=X, user_features=Z, progress=False)
    falling = np.array(model.history.column("objective.total"))
    assert (np.diff(falling) <= 1e-6 * falling[0]).all()
    problem, given = problem_of(model, data)
    problem = replace(problem, backend=get_backend("cpu"))
    U, V = model.user_factors[given.warm_users], model.item_factors[given.warm_items]
    Mi, Mu = model.fitted.item_features.map, model.fitted.user_features.map
    grad_u, grad_v = gradients(problem, U, V, Mu, Mi)
    plain_u, plain_v = gradients(replace(problem, item_side=None, user_side=None), U, V)
    assert np.abs(grad_u).max() < 0.02 * np.abs(plain_u).max()
    assert np.abs(grad_v).max() < 0.02 * np.abs(plain_v).max()
    Xw, L = X.toarray()[given.warm_items], problem.item_ridge
    exact = np.linalg.solve(Xw.T * L @ Xw + problem.item_side.kappa * np.eye(P), Xw.T * L @ V)
    np.testing.assert_allclose(Mi, exact, atol=2e-3 * np.abs(exact).max())


@pytest.mark.parametrize("backend", FAST)
def test_fiadmm_uses_features_of_items_and_users(data, backend):
    X, Z = matrix(M, P), matrix(N, P, 1)
    settings = {"epochs": 300, "fairness": 0.5, "backend": backend}
    model = model_of(FiADMM, **settings).fit(data, item_features=X, user_features=Z, progress=False)
    problem, given = problem_of(model, data)
    problem = replace(problem, backend=get_backend("cpu"))
    U, V = model.user_factors[given.warm_users], model.item_factors[given.warm_items]
    Mi, Mu = model.fitted.item_features.map, model.fitted.user_features.map
    grad_u, grad_v = gradients(problem, U, V, Mu, Mi)
    plain_u, plain_v = gradients(replace(problem, item_side=None, user_side=None), U, V)
    assert np.abs(grad_u).max() < 0.05 * np.abs(plain_u).max()
    assert np.abs(grad_v).max() < 0.05 * np.abs(plain_v).max()


def test_an_infinite_kappa_is_the_model_without_features():
    data = synthetic(N, M, 400)
    data = Interactions.from_csr(data.to_csr()[:, np.diff(data.by_item.indptr) > 0])
    X = matrix(data.n_items, P)
    for solver in ("eigenbasis_cg", "cholesky", "subspace"):
        settings = {"epochs": 4, "solver": solver}
        plain = model_of(**settings).fit(data, progress=False)
        limit = model_of(**settings, feature_regularization=1e12).fit(data, item_features=X, progress=False)
        np.testing.assert_allclose(limit.item_factors, plain.item_factors, atol=1e-8)
        np.testing.assert_allclose(limit.user_factors, plain.user_factors, atol=1e-8)
        assert np.abs(limit.fitted.item_features.map).max() < 1e-9


def test_one_feature_for_each_item_is_a_smaller_ridge(data):
    """With X = I the map can be minimised out: the ridge becomes lambda kappa / (lambda + kappa)."""
    model = model_of(solver="cholesky", epochs=400).fit(data, item_features=sp.eye_array(M).tocsr(), progress=False)
    problem, given = problem_of(model, data)
    U, V = model.user_factors, model.item_factors[given.warm_items]
    ridge, kappa = problem.item_ridge, problem.item_side.kappa
    step = problem.item_half_step(U)
    gradient = problem.backend.residual(replace(step, ridge=ridge * kappa / (ridge + kappa)), V)
    other = problem.backend.residual(step, V)
    assert np.abs(gradient).max() < 1e-3 * np.abs(other).max()


@pytest.mark.parametrize("rises", [False, True])
def test_what_features_predict_is_kept_up(data, monkeypatch, rises):
    """It is turned with the factors rather than computed anew; also after an epoch that was solved exactly."""
    from fairmf.models import als_cg

    if rises:  # every epoch seems to raise F, so that the exact one follows
        usual = als_cg.epoch
        worse = Objective(observed=1e9, unobserved=0.0, l2=0.0, fairness=0.0)
        monkeypatch.setattr(als_cg, "epoch", lambda *given: replace(usual(*given), objective=worse))
    X, seen = matrix(M, P), []

    class Check:
        def on_epoch(self, progress):
            items, state = np.setdiff1d(np.arange(M), [3, 7]), progress.state
            expected = X.toarray().astype(np.float32)[items] @ state.item_map
            np.testing.assert_allclose(state.item_predicted, expected, rtol=1e-6, atol=1e-9)
            seen.append(np.abs(expected).max())

    model_of(FairALS, epochs=5, fairness=0.5, solver="eigenbasis_cg").fit(
        data, item_features=X, callbacks=[Check()], progress=False
    )
    assert len(seen) == 5
    assert min(seen) > 0


def test_few_steps_of_the_map_lower_its_term_and_many_solve_it(backend):
    generator = np.random.default_rng(0)
    X, ridge, V = matrix(M, P), 0.5 + generator.random(M), generator.normal(size=(M, D))
    from fairmf.data.features import rows_of_features

    side = SideFeatures.of(rows_of_features(X, "item")[0], P, ridge, 0.3)
    start, given = backend.array(np.zeros((P, D))), backend.array(V)
    terms = [side.penalty(backend, side.improved_map(backend, start, given, steps)[0], given) for steps in (0, 1, 2, 4)]
    assert (np.diff(terms) < 0).all()
    dense = X.toarray().astype(np.float32).astype(float)
    exact = np.linalg.solve(dense.T * ridge @ dense + side.kappa * np.eye(P), dense.T * ridge @ V)
    found, predicted = feature_maps.settled(backend, side, start, given)
    np.testing.assert_allclose(as_numpy(found), exact, atol=1e-4)
    np.testing.assert_allclose(as_numpy(predicted), dense @ exact, atol=1e-4)
    expected = sum(ridge[j] * np.sum((V[j] - exact.T @ dense[j]) ** 2) for j in range(M))
    expected += side.kappa * np.sum(exact**2)
    assert side.penalty(backend, backend.array(exact), given) == pytest.approx(expected, rel=backend.tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
def test_items_without_interactions_are_left_out_and_served_by_their_features(data, backend):
    X, cold = matrix(M, P), [3, 7]
    model = model_of(FairALS, epochs=5, backend=backend, fairness=0.5).fit(data, item_features=X, progress=False)
    warm = np.setdiff1d(np.arange(M), cold)
    alone = Interactions.from_csr(data.to_csr()[:, warm], weights="values")
    reduced = model_of(FairALS, epochs=5, backend=backend, fairness=0.5)
    reduced.fit(alone, item_features=X[warm], progress=False)
    np.testing.assert_array_equal(model.item_factors[warm], reduced.item_factors)
    np.testing.assert_array_equal(model.user_factors, reduced.user_factors)
    expected = X[cold].toarray() @ model.fitted.item_features.map
    np.testing.assert_allclose(model.item_factors[cold], expected, rtol=1e-5)
    assert np.abs(expected).max() > 0
    # Users are served as if the cold items did not exist: G_V and m are those of the warm ones.
    np.testing.assert_allclose(model.fold_in(data), reduced.fold_in(alone), rtol=1e-4, atol=1e-6)
    # A short history takes another way (models/serving_state.py).
    one, same = np.zeros((1, M)), np.zeros((1, len(warm)))
    one[0, warm[4]] = same[0, 4] = 1
    one, same = (Interactions.from_csr(sp.csr_array(x)) for x in (one, same))
    np.testing.assert_allclose(model.fold_in(one), reduced.fold_in(same), rtol=1e-3, atol=1e-6)
    assert model.fitted.popularity[cold].tolist() == [0, 0]
    assert (model.fitted.item_spread[cold] > 0).all()
    assert model.fitted.item_counts.sum() == data.nnz
    lists, _ = model.recommend(data.user_ids.values[5:], N=M)
    assert {"i3", "i7"} <= set(lists.ravel().tolist())


def test_backends_solvers_and_shards_agree(data):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))
    from in_process import InProcess

    X = matrix(M, P)

    def scores(**changes):
        options = {"cluster": changes.pop("cluster")} if "cluster" in changes else {}
        settings = {"backend": "cpu", "epochs": 60, "fairness": 0.3, **changes}
        model = model_of(FairALS, **settings).fit(data, item_features=X, progress=False, **options)
        return model.user_factors @ model.item_factors.T

    expected = scores(backend="reference", solver="cholesky")
    for changes in (
        {},
        {"solver": "cholesky"},
        {"solver": "subspace"},
        {"engine": "ray", "cluster": InProcess(shards=3)},
    ):
        np.testing.assert_allclose(scores(**changes), expected, atol=3e-3 * np.abs(expected).max())


def test_input_errors(data):
    with pytest.raises(InvalidData, match="item_features has 3 rows, but there are 25 items"):
        model_of().fit(data, item_features=np.ones((3, 2)), progress=False)
    with pytest.raises(InvalidData, match="not finite"):
        model_of().fit(data, item_features=np.full((M, 2), np.nan), progress=False)
    with pytest.raises(InvalidParameter, match="'feature_regularization' parameter of IALS must be a number > 0"):
        model_of(feature_regularization=0).fit(data, item_features=np.ones((M, 2)), progress=False)
    with pytest.raises(InvalidParameter, match="fitted without item_features"):
        model_of(epochs=1).fit(data, progress=False).add_items(np.ones((1, 2)), ids=["x"])
    with pytest.raises(InvalidParameter, match="The kind of a column"):
        model_of().fit(data, item_features=Features(pd.DataFrame({"id": [1], "a": [1]}), kinds={"a": "b"}))
    with pytest.raises(InvalidParameter, match="regularization > 0"):
        model_of(regularization=0.0).fit(data, item_features=np.ones((M, 2)), progress=False)


def test_checkpoints_keep_the_map(data, tmp_path):
    X = matrix(M, P)
    whole = model_of(FairALS, epochs=6, backend="cpu").fit(data, item_features=X, progress=False)
    folder = tmp_path / "c"
    model_of(FairALS, epochs=3, backend="cpu").fit(data, item_features=X, progress=False, checkpoint=folder)
    model = model_of(FairALS, epochs=6, backend="cpu").fit(data, item_features=X, progress=False, checkpoint=folder)
    np.testing.assert_array_equal(model.item_factors, whole.item_factors)
    with pytest.raises(InvalidParameter):
        model_of(FairALS, epochs=6, backend="cpu").fit(data, item_features=2 * X, progress=False, checkpoint=folder)
