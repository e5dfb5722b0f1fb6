"""Test solvers against the definition of the half-step: an exact solution has a zero gradient, on both sides."""

import numpy as np
import pytest
from conftest import BACKENDS, as_numpy, random_factors, random_problem
from naive import fiadmm as naive
from naive import objective as naive_objective

from fairmf.backends import solve
from fairmf.backends.contract import Effort
from fairmf.backends.solve import hessian_product

D = 5


@pytest.fixture(params=BACKENDS)
def problem(request, weighted, item_weights):
    return random_problem(request.param, weighted=weighted, fairness_weights=item_weights(20))


def sides(problem):
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    generator = np.random.default_rng(5)
    return {
        "users": (problem.user_half_step(V, shift=generator.normal(size=D)), U),
        "items": (problem.item_half_step(U, mean_user=generator.normal(size=D)), V),
    }


@pytest.mark.parametrize("side", ["users", "items"])
def test_cholesky_leaves_a_zero_gradient(problem, side):
    step, start = sides(problem)[side]
    before = np.abs(step.backend.residual(step, start)).max()
    after = np.abs(step.backend.residual(step, step.backend.solve(step))).max()
    assert before > 1
    assert after < 20 * problem.backend.tolerance


@pytest.mark.parametrize("side", ["users", "items"])
def test_conjugate_gradients_end_at_the_same_solution_in_the_same_basis(problem, side):
    step, start = sides(problem)[side]
    kept = start.copy()
    exact = step.backend.solve(step)
    np.testing.assert_allclose(
        as_numpy(solve.improve_by_cg(step, start, Effort(60))), as_numpy(exact), atol=50 * problem.backend.tolerance
    )
    np.testing.assert_array_equal(as_numpy(start), as_numpy(kept))
    one, three = (
        np.abs(step.backend.residual(step, solve.improve_by_cg(step, start, Effort(k)))).max() for k in (1, 3)
    )
    assert three < one < np.abs(step.backend.residual(step, start)).max()


@pytest.mark.parametrize("side", ["users", "items"])
def test_hessian_product_is_the_gradients_slope(problem, side):
    step, x = sides(problem)[side]
    slope = step.backend.residual(step, 2 * x) - step.backend.residual(step, x)
    np.testing.assert_allclose(as_numpy(hessian_product(step, x)), as_numpy(slope), atol=20 * problem.backend.tolerance)


def test_gradient_agrees_with_the_double_loop(problem):
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    C = naive_objective.dense(problem.interactions)
    expected = naive.user_gradient(
        C, as_numpy(U, float), as_numpy(V, float), problem.user_ridge, problem.unobserved_weight
    )
    actual = problem.backend.residual(problem.user_half_step(V), U)
    np.testing.assert_allclose(as_numpy(actual), expected, atol=problem.backend.tolerance * np.abs(expected).max())
