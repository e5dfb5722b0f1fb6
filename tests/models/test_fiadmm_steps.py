"""Each step of fiADMM against a naive double loop."""

import numpy as np
import pytest
from conftest import BACKENDS, as_numpy, random_factors, random_problem
from naive import fiadmm as naive
from naive.objective import dense

from fairmf.models import step_sizes
from fairmf.models.fiadmm import augmented_lagrangian
from fairmf.models.fiadmm_steps import AdmmState, consensus_step, coupling, dual_step, item_step, user_step
from fairmf.models.objective import objective

D = 4
RHO, GAMMA = 37.0, 0.03


@pytest.fixture(params=BACKENDS)
def world(request, weighted, item_weights):
    problem = random_problem(request.param, weighted=weighted, fairness_weights=item_weights(20))
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    generator = np.random.default_rng(9)
    s, w = generator.normal(size=D), generator.normal(size=D)
    return problem, U, V, s, w


def close(problem, actual, expected):
    np.testing.assert_allclose(
        as_numpy(actual), expected, rtol=0, atol=2 * problem.backend.tolerance * np.abs(expected).max()
    )


def test_item_step(world):
    problem, U, _, s, _ = world
    C = dense(problem.interactions)
    settings = problem.item_ridge, problem.unobserved_weight, problem.lambda_f, problem.fairness_weights
    expected = naive.item_step(C, as_numpy(U, float), s, *settings)
    close(problem, item_step(problem, U, s), expected)


def test_user_step_minimises_the_linearised_problem(world):
    """The closed form with Sherman-Morrison equals one dense n x n solve of the problem it stands for."""
    problem, U, V, s, w = world
    C = dense(problem.interactions)
    expected = naive.user_step(
        C, as_numpy(U, float), as_numpy(V, float), s, w, RHO, GAMMA, problem.user_ridge, problem.unobserved_weight
    )
    close(problem, user_step(problem, U, V, s, w, RHO, GAMMA), expected)


def test_coupling_is_the_sherman_morrison_inverse():
    n, a = 6, np.arange(6.0)
    dense_inverse = np.linalg.solve(np.eye(n) + (RHO * GAMMA / n**2) * np.ones((n, n)), a)
    np.testing.assert_allclose(a - coupling(a.sum(), n, RHO, GAMMA), dense_inverse)


def test_consensus_step(world):
    problem, _, V, t, w = world
    own = problem.fairness_weights
    expected = naive.consensus_step(as_numpy(V, float), t, w, RHO, problem.lambda_f, item_weights=own)
    close(problem, consensus_step(problem, V, *map(problem.backend.vector, (t, w)), RHO), expected)


def test_dual_step():
    assert dual_step(np.array([1.0]), np.array([5.0]), np.array([2.0])).tolist() == [4.0]


def test_augmented_lagrangian(world):
    problem, U, V, s, w = world
    state = AdmmState(U, V, *map(problem.backend.vector, (s, w)), RHO, GAMMA)
    t = as_numpy(U, float).mean(axis=0)
    expected = objective(problem, U, V, mean_user=s).total
    expected += RHO / 2 * np.sum((t - s + w) ** 2) - RHO / 2 * np.sum(w**2)
    assert augmented_lagrangian(problem, state, objective(problem, U, V)) == pytest.approx(expected, rel=1e-4)


def test_safe_gamma_is_nine_tenths_of_one_over_the_largest_eigenvalue(world):
    problem, _, V, _, _ = world
    C = dense(problem.interactions)
    y = as_numpy(V, float)
    largest = 0.0
    for i in range(len(C)):
        hessian = (y.T * (C[i] + problem.unobserved_weight)) @ y + problem.user_ridge[i] * np.eye(D)
        largest = max(largest, np.linalg.eigvalsh(hessian)[-1])
    assert step_sizes.safe_gamma(problem, V) == pytest.approx(0.9 / largest, rel=0.03)


def test_balancing_scale_is_the_least_l2(world):
    problem, U, V, _, _ = world
    c = step_sizes.balancing_scale(problem, U, V)

    def l2(factor):
        return objective(problem, U * U.dtype.type(factor), V / V.dtype.type(factor)).l2

    assert l2(c) < min(l2(0.97 * c), l2(1.03 * c))
    before, after = objective(problem, U, V), objective(problem, U * U.dtype.type(c), V / V.dtype.type(c))
    for term in ("observed", "unobserved", "fairness"):
        assert getattr(after, term) == pytest.approx(getattr(before, term), rel=1e-4)
