"""Test dislikes (docs/mathematics.md 12): target 0 with confidence |w|, in solvers, serving, files and splits."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import BACKENDS

from fairmf import (
    EASE,
    IALS,
    FairALS,
    FiADMM,
    HeldOut,
    HistoryRequest,
    Interactions,
    Popularity,
    evaluate,
    load_model,
    split_by_interaction,
)  # fmt: skip
from fairmf.data.weighting import Balance, BM25Weighting
from fairmf.errors import InvalidData
from fairmf.models import problem as problems
from fairmf.models.objective import gradients, objective
from fairmf.models.problem import problem_for

N, M, D = 30, 18, 4
SETTINGS = {
    "factors": D, "regularization": 0.05, "unobserved_weight": 0.1, "random_state": 3, "item_balance": 0.0,
    "user_balance": 0.0,
}  # fmt: skip
SOLVERS = ("eigenbasis_cg", "cholesky", "subspace")


@pytest.fixture(scope="module")
def signed():
    """Likes with weights 0.5 to 3, dislikes with -2 to -0.5; user 0 has dislikes alone, user 1 nothing."""
    generator = np.random.default_rng(4)
    values = generator.uniform(0.5, 3, (N, M)) * (generator.random((N, M)) < 0.3)
    values -= (values == 0) * (generator.random((N, M)) < 0.15) * generator.uniform(0.5, 2, (N, M))
    values[0] = np.minimum(values[0], 0)
    values[0, 2] = -1.5
    values[1] = 0
    return values.astype(np.float32)


@pytest.fixture(scope="module")
def data(signed):
    ids = {"user_ids": [f"u{i}" for i in range(N)], "item_ids": [f"i{j}" for j in range(M)]}
    return Interactions.from_csr(sp.csr_array(signed), weights="values", **ids)


def naive(R, U, V, lambda_f, model):
    """F by double loops: a dislike has target 0 and confidence |w|."""
    alpha0, l2 = model.unobserved_weight, model.regularization
    total = 0.0
    for i in range(len(U)):
        for j in range(len(V)):
            target = 1.0 if R[i, j] > 0 else 0.0
            total += 0.5 * abs(R[i, j]) * (target - U[i] @ V[j]) ** 2 + 0.5 * alpha0 * (U[i] @ V[j]) ** 2
    for i in range(len(U)):
        total += 0.5 * l2 * (sum(abs(R[i])) + alpha0 * len(V)) * (U[i] @ U[i])
    for j in range(len(V)):
        total += 0.5 * l2 * (sum(abs(R[:, j])) + alpha0 * len(U)) * (V[j] @ V[j])
    t = sum(U) / len(U)
    return total + 0.5 * lambda_f * sum((v @ t) ** 2 for v in V)


def test_data_say_how_many_dislikes_they_have(data, signed):
    assert data.n_dislikes == (signed < 0).sum()
    assert repr(data).endswith(f"{(signed != 0).sum()} weighted, {(signed < 0).sum()} of them dislikes)")
    np.testing.assert_array_equal(data.to_csr().toarray(), signed)
    np.testing.assert_array_equal(data.liked().to_csr().toarray(), np.maximum(signed, 0))
    assert data.fingerprint() != data.confidences().fingerprint()


def test_a_matrix_needs_weights_for_dislikes_and_equal_opposites_cancel(signed):
    with pytest.raises(InvalidData, match="negative values"):
        Interactions.from_csr(sp.csr_array(signed))
    pairs = sp.coo_array(([1.0, -1.0, 2.0], ([0, 0, 0], [0, 0, 1])), shape=(1, 2))
    assert Interactions.from_csr(pairs, weights="values").nnz == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_lowers_the_objective_of_double_loops(data, signed, solver, backend):
    epochs = 120 if backend == "reference" and solver == "cholesky" else 8
    model = FairALS(**SETTINGS, fairness=0.7, solver=solver, backend=backend, epochs=epochs, block_size=2)
    model.fit(data, progress=False)
    U, V = (x.astype(np.float64) for x in (model.user_factors, model.item_factors))
    values = [record["objective"]["total"] for record in model.history.records]
    assert (np.diff(values) < 1e-5 * values[0]).all()
    found = model.history.final["objective"]["total"]
    assert found == pytest.approx(naive(signed.astype(float), U, V, 0.7 * 0.1 * N, model), rel=1e-5)
    if epochs == 120:
        problem = problem_for(data, 0.7 * 0.1 * N, model.fitted.settings)
        for gradient in gradients(problem, U, V):
            assert np.abs(gradient).max() < 5e-3


def test_a_half_step_is_the_dense_solution(data, signed):
    """(sum |w| v v' + alpha0 G + ridge I) u = sum of w v over the likes."""
    model = IALS(**SETTINGS, backend="reference", epochs=3).fit(data, progress=False)
    V, U = model.item_factors, model.fold_in(data)
    for i in range(N):
        H = 0.1 * V.T @ V + 0.05 * (np.abs(signed[i]).sum() + 0.1 * M) * np.eye(D)
        b = np.zeros(D)
        for j in range(M):
            H += abs(signed[i, j]) * np.outer(V[j], V[j])
            b += max(signed[i, j], 0) * V[j]
        np.testing.assert_allclose(U[i], np.linalg.solve(H, b), atol=1e-6)


def test_without_dislikes_nothing_changes_and_no_code_for_them_runs(signed, monkeypatch):
    monkeypatch.setattr(problems, "Dislikes", None)
    likes = Interactions.from_csr(sp.csr_array(np.maximum(signed, 0)), weights="values")
    model = FairALS(**SETTINGS, epochs=2).fit(likes, progress=False)
    problem = problem_for(likes, 0.0, model.fitted.settings)
    assert problem.interactions is likes
    assert problem.dislikes is None


@pytest.mark.parametrize("backend", [case for case in BACKENDS if case.values != ("reference",)])
@pytest.mark.parametrize("solver", ["cholesky", "eigenbasis_cg"])
def test_fiadmm_lowers_the_same_objective(data, signed, solver, backend):
    model = FiADMM(**SETTINGS, fairness=0.5, epochs=80, solver=solver, backend=backend).fit(data, progress=False)
    values = [record["objective"]["total"] for record in model.history.records]
    U, V = (x.astype(np.float64) for x in (model.user_factors, model.item_factors))
    assert values[-1] < 0.6 * values[0]
    assert values[-1] == pytest.approx(naive(signed.astype(float), U, V, 0.5 * 0.1 * N, model), rel=1e-5)


def test_a_disliked_item_scores_lower_and_is_never_recommended(data, signed):
    model = FairALS(**SETTINGS, epochs=20).fit(data, progress=False)
    without = FairALS(**SETTINGS, epochs=20).fit(data.liked(), progress=False)
    scores, before = (m.user_factors @ m.item_factors.T for m in (model, without))
    assert scores[signed < 0].mean() < before[signed < 0].mean()
    ids, _ = model.recommend(data.user_ids.values, N=M)
    for i in range(N):
        assert not {f"i{j}" for j in np.flatnonzero(signed[i])} & set(ids[i])
    answer = model.recommend_for(items=["i1", "i2", "i5"], weights=[2.0, -1.0, 1.0], N=M)[0]
    assert not {"i1", "i2", "i5"} & set(answer.tolist())


def test_a_user_with_dislikes_alone_gets_popular_items(data, signed):
    model = FairALS(**SETTINGS, epochs=3).fit(data, progress=False)
    popular = [f"i{j}" for j in np.argsort(-np.maximum(signed, 0).sum(axis=0), kind="stable") if signed[0, j] == 0]
    ids, scores = model.recommend(["u0"], N=3)
    assert ids[0].tolist() == popular[:3]
    assert np.isnan(scores).all()
    asked = [HistoryRequest(["i2"], [-1.5], N=M), HistoryRequest(user="u0", N=M), HistoryRequest(user="u0", N=3)]
    given, stored, short = model.recommend_histories(asked)
    assert given.popular
    assert stored.popular
    assert "i2" not in {*given.ids.tolist(), *stored.ids.tolist()}
    assert short.ids.tolist() == popular[:3]


def test_popularity_counts_likes_alone(data, signed):
    for kind in (FairALS, IALS):
        fitted = kind(**SETTINGS, epochs=1).fit(data, progress=False).fitted
        np.testing.assert_allclose(fitted.popularity, np.maximum(signed, 0).sum(axis=0), rtol=1e-6)
        np.testing.assert_array_equal(fitted.item_counts, (signed > 0).sum(axis=0))
    np.testing.assert_allclose(Popularity().fit(data).fitted.popularity, np.maximum(signed, 0).sum(axis=0), rtol=1e-6)


def test_files_and_fold_ins_keep_dislikes(data, signed, tmp_path):
    model = FairALS(**SETTINGS, fairness=0.4, epochs=4).fit(data, progress=False)
    model.save(tmp_path / "model.fairmf")
    loaded = load_model(tmp_path / "model.fairmf")
    assert loaded.fitted.interactions.n_dislikes == data.n_dislikes
    np.testing.assert_array_equal(loaded.recommend(["u3"], N=5)[0], model.recommend(["u3"], N=5)[0])
    np.testing.assert_allclose(model.fold_in(data), model.user_factors, atol=1e-4)
    some = np.flatnonzero(signed[5])
    one = model.fold_in_user([f"i{j}" for j in some], signed[5, some])
    np.testing.assert_allclose(one, model.user_factors[5], atol=1e-4)
    for target in (data.take_users(np.arange(3)),):
        changed = model.partial_fit_users(["new", "u1", "u2"], Interactions(target.by_user, M, None, data.item_ids))
        np.testing.assert_allclose(changed.user_factors[N], model.user_factors[0], atol=1e-4)
        assert changed.fitted.interactions.n_dislikes == data.n_dislikes + (signed[0] < 0).sum()


def test_a_new_item_is_the_items_half_step(data, signed):
    model = IALS(**SETTINGS, backend="reference", epochs=3).fit(data, progress=False)
    users = Interactions(data.by_item, N)
    U, found = model.user_factors, model.fold_in_items(users)
    for j in range(M):
        H = 0.1 * U.T @ U + 0.05 * (np.abs(signed[:, j]).sum() + 0.1 * N) * np.eye(D)
        H += (U.T * np.abs(signed[:, j])) @ U
        np.testing.assert_allclose(found[j], np.linalg.solve(H, np.maximum(signed[:, j], 0) @ U), atol=1e-6)
    model.partial_fit_items(["i3"], Interactions(data.by_item.take(np.array([3])), N))
    np.testing.assert_array_equal(model.fitted.interactions.to_csr().toarray(), signed)
    assert model.fitted.popularity[3] == pytest.approx(np.maximum(signed[:, 3], 0).sum())


def test_an_explanation_adds_up_and_a_dislike_adds_nothing(data, signed):
    model = IALS(**SETTINGS, epochs=5).fit(data, progress=False)
    found = model.explain("u5", "i0")
    assert found.score == pytest.approx(float(model.user_factors[5] @ model.item_factors[0]), abs=1e-4)
    for item, amount in found.contributions:
        assert amount != 0 or signed[5, int(item[1:])] < 0


def test_balance_log_and_bm25_weight_dislikes_like_likes_of_the_same_strength(data, signed):
    likes = (signed > 0).sum(axis=0)
    busy = np.maximum((signed > 0).sum(axis=1), 1)
    how = Balance(0.5, 0.25, data.by_user.column_counts(M), 1.0)
    how = how.normalised([how.totals(data.by_user)])
    np.testing.assert_array_equal(how.item_counts, likes)
    expected = signed * np.maximum(likes, 1) ** -0.5 * busy[:, None] ** -0.25 / how.norm
    np.testing.assert_allclose(
        data.with_weights(how.balanced(data.by_user), how).to_csr().toarray(), expected, rtol=1e-5
    )
    assert np.abs(expected).sum() == pytest.approx(np.abs(signed).sum(), rel=1e-5)
    log = data.reweighted("log").to_csr().toarray()
    np.testing.assert_allclose(log, np.sign(signed) * np.log2(1 + np.abs(signed)), rtol=1e-5)
    bm25 = BM25Weighting.learn(data.by_user, M, 10.0, 0.5)
    lengths = np.maximum(signed, 0).sum(axis=0)
    np.testing.assert_allclose(bm25.item_lengths, lengths, rtol=1e-5)
    strength = np.abs(signed) * 11 / (10 * (0.5 + 0.5 * lengths / lengths.mean()) + np.abs(signed))
    strength *= np.log(M / (1 + (signed > 0).sum(axis=1)))[:, None]
    np.testing.assert_allclose(
        data.reweighted("bm25", K1=10.0, B=0.5).to_csr().toarray(), np.sign(signed) * strength, rtol=1e-4
    )
    columns = Interactions(data.by_item, N)
    np.testing.assert_allclose(
        how.item_weights(columns.by_user, busy), how.balanced(data.by_user)[transposed(data)], rtol=1e-5
    )


def transposed(data):
    return data.by_user.to_csr(np.arange(data.nnz), data.n_items).tocsc().data


def test_dislikes_are_never_targets(data, signed):
    split = split_by_interaction(data, target_share=0.3, random_state=1)
    for part in (split.validation, split.test):
        targets = part.targets.to_csr().toarray() > 0
        columns = [int(name[1:]) for name in part.targets.item_ids.values]
        rows = [int(name[1:]) for name in part.targets.user_ids.values]
        assert targets.any()
        assert not (targets & (signed[rows][:, columns] < 0)).any()
    assert split.train.n_dislikes
    model = FairALS(**SETTINGS, epochs=2).fit(split.train, progress=False)
    assert evaluate(model, split.test, metrics=["ndcg@5"], train=split.train)["ndcg@5"] > 0


def test_targets_that_are_dislikes_do_not_count(data):
    train = data.liked()
    empty = sp.csr_array((N, M), dtype=np.float32)
    held = HeldOut(Interactions.from_csr(empty, allow_empty=True), Interactions(data.by_user, M))
    assert held.targets.nnz == train.nnz


def test_what_cannot_use_dislikes_says_so(data):
    with pytest.raises(InvalidData, match=r"EASE cannot use dislikes.*data.liked"):
        EASE().fit(data)


def test_the_objective_at_any_point_is_that_of_double_loops(data, signed):
    generator = np.random.default_rng(0)
    U, V = generator.normal(size=(N, D)), generator.normal(size=(M, D))
    model = FairALS(**SETTINGS, backend="reference", epochs=1).fit(data, progress=False)
    problem = problem_for(data, 2.0, model.fitted.settings)
    assert objective(problem, U, V).total == pytest.approx(naive(signed.astype(float), U, V, 2.0, model), rel=1e-9)


def test_dislikes_and_features_together_lower_the_objective_and_pull_scores_to_0(data, signed):
    X = sp.csr_array(np.random.default_rng(1).normal(size=(M, 3)))
    options = {"item_features": X, "progress": False}
    settings = {**SETTINGS, "backend": "reference", "solver": "cholesky", "epochs": 30}
    model, without = IALS(**settings).fit(data, **options), IALS(**settings).fit(data.liked(), **options)
    values = [record["objective"]["total"] for record in model.history.records]
    assert (np.diff(values) < 1e-6 * values[0]).all()
    scores, before = (m.user_factors @ m.item_factors.T for m in (model, without))
    assert np.abs(scores[signed < 0]).mean() < 0.7 * np.abs(before[signed < 0]).mean()
