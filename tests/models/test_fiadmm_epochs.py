"""Whole fiADMM epochs: the order of the steps, the automatic step sizes between them, and the theorem's conditions."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_factors, random_item_weights, random_problem, random_rows
from naive import fiadmm as naive
from naive.objective import dense

from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.models import fiadmm, step_sizes
from fairmf.models.fiadmm import FiADMM, TrainingState, balanced, relative_residuals

N, M, D = 14, 9, 3
RHO, GAMMA, LAMBDA_F = 60.0, 0.02, 2.5
SETTINGS = {"factors": D, "regularization": 0.05, "regularization_exponent": 0.7, "unobserved_weight": 0.15}


def data(weighted=True, n=N, seed=4):
    return Interactions(random_rows(n, M, weighted=weighted, seed=seed), M)


def ridges(C):
    alpha0, lambda2, eta = (SETTINGS[k] for k in ("unobserved_weight", "regularization", "regularization_exponent"))
    users, items = C.sum(axis=1) + alpha0 * C.shape[1], C.sum(axis=0) + alpha0 * C.shape[0]
    return lambda2 * users**eta, lambda2 * items**eta


def users_epoch(C, U, V, s, w, rho, gamma, lambda_f, item_weights=None):
    U = naive.user_step(C, U, V, s, w, rho, gamma, ridges(C)[0], SETTINGS["unobserved_weight"])
    t = U.mean(axis=0)
    s = naive.consensus_step(V, t, w, rho, lambda_f, item_weights=item_weights)
    return U, s, w + t - s


CASES = {"binary": (False, None), "weighted": (True, None), "item weights": (True, random_item_weights(M))}


@pytest.fixture(scope="module", params=CASES)
def run(request):
    """Four epochs, and the same by double loops: (data, model, states after each epoch)."""
    weighted, own = CASES[request.param]
    interactions = data(weighted)
    C = dense(interactions)
    generator = np.random.default_rng(2)
    start = generator.normal(0, 0.6, (N, D)), generator.normal(0, 0.6, (M, D))
    settings = {**SETTINGS, "lambda_f": LAMBDA_F, "rho": RHO, "gamma": GAMMA, "backend": "reference"}
    model = FiADMM(**settings, epochs=4).fit(interactions, init=start, fairness_weights=own)
    U, s, w = start[0], start[0].mean(axis=0), np.zeros(D)
    states = []
    for _ in range(4):
        V = naive.item_step(C, U, s, ridges(C)[1], SETTINGS["unobserved_weight"], LAMBDA_F, own)
        U, s, w = users_epoch(C, U, V, s, w, RHO, GAMMA, LAMBDA_F, own)
        states.append((U, V, s, w))
    return interactions, model, states


def test_a_fit_is_the_steps_in_the_papers_order(run):
    _, model, states = run
    U, V, _, _ = states[-1]
    np.testing.assert_allclose(model.user_factors, U, atol=1e-10)
    np.testing.assert_allclose(model.item_factors, V, atol=1e-10)


def test_items_by_conjugate_gradients_are_the_papers_items_once_converged(run):
    interactions, model, states = run
    settings = {**SETTINGS, "lambda_f": LAMBDA_F, "rho": RHO, "gamma": GAMMA, "backend": "reference"}
    start = np.random.default_rng(2)
    start = start.normal(0, 0.6, (N, D)), start.normal(0, 0.6, (M, D))

    def fitted(steps):
        by_cg = FiADMM(**settings, epochs=4, solver="eigenbasis_cg", cg_steps=steps)
        return by_cg.fit(interactions, init=start, fairness_weights=model.fitted.fairness_weights)

    many, one = fitted(30), fitted(1)
    np.testing.assert_allclose(many.item_factors, states[-1][1], atol=1e-8)
    np.testing.assert_allclose(many.user_factors, states[-1][0], atol=1e-8)
    expected = model.history.records[-1]["residuals"]  # one basis throughout: otherwise these would be meaningless
    assert many.history.records[-1]["residuals"] == pytest.approx(expected, rel=1e-6)
    assert np.abs(one.item_factors - states[-1][1]).max() > 1e-4  # the steps asked for are the steps taken


def test_residuals_are_the_movements_of_one_epoch(run):
    _, model, states = run
    (U0, V0, s0, w0), (U1, V1, s1, w1) = states[-2:]
    moved = {"items": V1 - V0, "users": U1 - U0, "consensus": s1 - s0, "dual": w1 - w0}
    expected = {name: np.sqrt((x**2).sum()) for name, x in moved.items()}
    assert model.history.records[-1]["residuals"] == pytest.approx(expected, rel=1e-8)


def test_the_theorem_is_checked_with_the_largest_norms_seen(run):
    interactions, model, states = run
    c_v, c_u, c_s = (max((state[k] ** 2).sum() for state in states) for k in (1, 0, 2))
    check = model.history.records[-1]["theorem"]
    assert check["bounds"] == pytest.approx({"items": c_v, "users": c_u, "consensus": c_s})
    C = dense(interactions)
    ridge_u, ridge_v = ridges(C)
    own = model.fitted.fairness_weights
    lambda_f = LAMBDA_F if own is None else LAMBDA_F * max(own) ** 2  # the strongest pull on any item
    first = 24 * lambda_f**2 * c_v * c_s / ridge_v.min()
    assert check["required_rho"] == pytest.approx(max(first, 0.5 + np.sqrt(0.25 + 6 * lambda_f**2 * c_v**2)))
    smoothness = (C.max() + SETTINGS["unobserved_weight"]) * c_v + ridge_u.max()
    assert check["allowed_gamma"] == pytest.approx(1 / (np.sqrt(N) * smoothness + 1))


def test_each_of_the_theorems_conditions_counts():
    problem = random_problem(weighted=True, lambda_f=LAMBDA_F)
    calm, loud = fiadmm.Bounds(items=2.0, consensus=0.0), fiadmm.Bounds(items=2.0, consensus=1e3)
    assert fiadmm.required_rho(problem, calm) == pytest.approx(0.5 + np.sqrt(0.25 + 6 * LAMBDA_F**2 * 4))
    assert fiadmm.required_rho(problem, loud) == pytest.approx(24 * LAMBDA_F**2 * 2e3 / problem.item_ridge.min())
    rho, gamma = fiadmm.required_rho(problem, calm), fiadmm.allowed_gamma(problem, calm)
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    zero = np.zeros(D)
    state = TrainingState(U, V, zero, zero, rho=rho, gamma=gamma, seen=calm, epochs_done=3)
    assert fiadmm.check(problem, state)["satisfied"]
    assert not fiadmm.check(problem, replace(state, rho=0.99 * rho))["satisfied"]
    assert not fiadmm.check(problem, replace(state, gamma=1.01 * gamma))["satisfied"]
    assert not fiadmm.check(problem, state, exact_items=False)["satisfied"]
    assert fiadmm.check(problem, replace(state, constant_since=3))["satisfied"]
    assert not fiadmm.check(problem, replace(state, constant_since=4))["satisfied"]  # the last epoch moved a step size


def test_the_theorem_says_since_when_the_step_sizes_are_constant():
    data = Interactions(random_rows(N, M, density=0.3), M)
    fixed = FiADMM(factors=D, epochs=16, rho=RHO, gamma=0.01).fit(data, progress=False)
    assert [one["theorem"]["constant_since"] for one in fixed.history.records] == [1] * 16
    both = FiADMM(factors=D, epochs=5).fit(data, progress=False)  # gamma and scale are set anew in every epoch
    assert [one["theorem"]["constant_since"] for one in both.history.records] == [2, 3, 4, 5, 6]
    assert not any(one["theorem"]["satisfied"] for one in both.history.records)
    moving = FiADMM(factors=D, epochs=40, rho="auto", gamma=0.01).fit(data, progress=False)
    rhos = moving.history.column("rho")
    since, expected = 1, []
    for k, rho in enumerate(rhos):
        since = k + 2 if k and rho != rhos[k - 1] else since
        expected.append(since)
    assert len(set(rhos)) > 1
    assert [one["theorem"]["constant_since"] for one in moving.history.records] == expected


def test_bounds_never_shrink():
    assert fiadmm.Bounds(5, 5, 5).grown(items=1, users=9, consensus=2) == fiadmm.Bounds(5, 9, 5)
    assert fiadmm.Bounds(5, 5, 5).grown(items=9, users=1, consensus=8) == fiadmm.Bounds(9, 5, 8)


# -- automatic step sizes --------------------------------------------------------------------------------------------


def test_balancing_scales_every_variable_alike():
    problem = random_problem(weighted=True)
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    U = 3 * U
    s, w = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -0.4])
    after = balanced(problem, TrainingState(U, V, s, w, rho=RHO, gamma=GAMMA))
    c = step_sizes.balancing_scale(problem, U, V)
    assert abs(c - 1) > 0.1
    np.testing.assert_allclose(after.user_factors @ after.item_factors.T, U @ V.T)
    np.testing.assert_allclose(after.user_factors, c * U)
    np.testing.assert_allclose(after.consensus, c * s)
    np.testing.assert_allclose(after.dual, c * w)


def test_automatic_gamma_finds_the_heaviest_user_among_many():
    """More users than are examined; the one with the largest Hessian has a single interaction, of great weight."""
    many = random_rows(300, 20, density=0.5)
    rows = Rows(
        np.append(many.indptr, many.nnz + 1),
        np.append(many.indices, np.int32(3)),
        np.append(np.ones(many.nnz, dtype=np.float32), np.float32(500)),
    )
    problem = replace(random_problem(), interactions=Interactions(rows, 20))
    _, V = random_factors(problem.backend, 301, 20, D)
    hessian = 500 * np.outer(V[3], V[3]) + 0.15 * V.T @ V + problem.user_ridge[300] * np.eye(D)
    assert step_sizes.safe_gamma(problem, V) == pytest.approx(0.9 / np.linalg.eigvalsh(hessian)[-1], rel=0.01)


def test_automatic_rho_starts_large():
    problem = random_problem(lambda_f=LAMBDA_F)
    V = random_factors(problem.backend, *problem.interactions.shape, D)[1]
    assert step_sizes.first_rho(problem, V) == 1000 * LAMBDA_F
    without = step_sizes.first_rho(random_problem(lambda_f=0.0), V)
    largest = np.linalg.eigvalsh(V.T @ V)[-1]
    own = random_problem(lambda_f=LAMBDA_F, fairness_weights=np.linspace(0, 3, 20))
    assert step_sizes.first_rho(own, V) == pytest.approx(1000 * LAMBDA_F * np.mean(np.linspace(0, 3, 20) ** 2))
    assert without == pytest.approx(0.15 * problem.n_users * largest)


def test_relative_residuals():
    problem = random_problem()
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    t = U.mean(axis=0)
    before = TrainingState(U, V, t + np.array([0.0, 0.5, 0.0]), np.zeros(D), RHO, GAMMA)
    after = TrainingState(U, V, t + np.array([0.3, 0.0, 0.4]), np.array([0.0, 0.0, 2.0]), RHO, GAMMA)
    primal, dual = relative_residuals(problem, before, after)
    assert primal == pytest.approx(0.5 / max(np.linalg.norm(t), np.linalg.norm(after.consensus)))
    assert dual == pytest.approx(np.sqrt(0.5) / 2.0)


@pytest.mark.parametrize(("start", "grows"), [(1e-3, True), (1e9, False)])
def test_automatic_rho_follows_the_residuals_after_ten_epochs(monkeypatch, start, grows):
    monkeypatch.setattr(step_sizes, "first_rho", lambda problem, V: start)
    rho = np.array(FiADMM(**SETTINGS, fairness=2.0, epochs=40).fit(data()).history.column("rho"))
    assert (rho[: step_sizes.SETTLING] == start).all()
    assert set(np.round(rho[1:] / rho[:-1], 6)) <= {0.5, 1.0, 2.0}
    assert rho[-1] > 100 * start if grows else rho[-1] < start / 100


def test_the_least_rho_is_the_theorems_with_the_largest_eigenvalue(item_weights):
    own = item_weights(20)
    problem = random_problem(lambda_f=LAMBDA_F, fairness_weights=own)
    V = random_factors(problem.backend, *problem.interactions.shape, D)[1]
    weighted = V if own is None else np.asarray(own)[:, None] * V
    steepest = LAMBDA_F * np.linalg.svd(weighted, compute_uv=False)[0] ** 2
    least = step_sizes.least_rho(problem, V)
    assert least == pytest.approx(0.5 + np.sqrt(0.25 + 6 * steepest**2))
    bounds = fiadmm.Bounds(items=float((V**2).sum()))
    assert least < fiadmm.required_rho(problem, bounds)  # the theorem's own has |V|_F^2, d times as much


@pytest.mark.parametrize(
    ("rho", "primal", "dual", "expected"),
    [
        (64.0, 11.0, 1.0, 128.0),
        (64.0, 9.0, 1.0, 64.0),
        (64.0, 1.0, 9.0, 64.0),
        (64.0, 1.0, 11.0, 32.0),
        (40.0, 1.0, 11.0, 20.0),
        (39.0, 1.0, 11.0, 39.0),
        (19.0, 1.0, 11.0, 38.0),
    ],
)
def test_rho_balances_the_residuals_above_the_least(rho, primal, dual, expected):
    w = np.array([3.0, -1.0])
    found, rescaled = step_sizes.balanced_rho(rho, w, primal, dual, least=20.0)
    assert found == expected
    np.testing.assert_allclose(found * rescaled, rho * w)  # the multiplier itself stays


@pytest.mark.parametrize("guarded", [True, False])
def test_balancing_stops_before_the_iteration_becomes_unstable(monkeypatch, guarded):
    """Dense data with a strong popularity: without the least rho, balancing goes to an eighth of it and F explodes."""
    if not guarded:
        monkeypatch.setattr(step_sizes, "least_rho", lambda problem, V: 0.0)
    settings = {"factors": 16, "fairness": 4.0, "regularization": 0.01, "unobserved_weight": 0.1}
    model = FiADMM(**settings, epochs=100).fit(synthetic(400, 200, 16_000), settle=False)
    totals = np.array(model.history.column("objective.total"))
    if guarded:
        assert (np.diff(totals) < 0).all()
        assert model.history.records[-1]["residuals"]["dual"] < 1e-3
    else:
        assert totals[totals.argmin() :].max() > 1.1 * totals.min()


# -- prediction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "factor"), [("phi", 6 / N), ("paper", 1.0), ("authors", (6 / N) ** 2)])
@pytest.mark.parametrize("gamma", [GAMMA, "auto"])
def test_a_cohorts_first_epochs(scale, factor, gamma, item_weights):
    """Far from convergence, where rho and gamma still show: both lambda_f and rho follow the batch's size."""
    train, cohort, own = data(), data(n=6, seed=11), item_weights(M)
    settings = {**SETTINGS, "lambda_f": LAMBDA_F, "rho": RHO, "gamma": gamma, "backend": "reference"}
    model = FiADMM(**settings, epochs=3).fit(train, fairness_weights=own)
    C, V = dense(cohort), model.item_factors
    step = gamma
    if gamma == "auto":
        hessians = [(V.T * (row + 0.15)) @ V + r * np.eye(D) for row, r in zip(C, ridges(C)[0], strict=True)]
        step = 0.9 / max(np.linalg.eigvalsh(h)[-1] for h in hessians)
    U, s, w = np.zeros((6, D)), np.zeros(D), np.zeros(D)
    for _ in range(3):
        U, s, w = users_epoch(C, U, V, s, w, RHO * factor, step, LAMBDA_F * factor, own)
    folded = model.fold_in(cohort, method="cohort", scale=scale, epochs=3)
    np.testing.assert_allclose(folded, U, atol=1e-10 if gamma != "auto" else 0.03 * np.abs(U).max())
