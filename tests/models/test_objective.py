"""F against double loops, and its gradient against finite differences."""

import numpy as np
import pytest
from conftest import BACKENDS, as_numpy, random_factors, random_problem
from naive import objective as naive

from fairmf.errors import InvalidData
from fairmf.models.objective import gradient_norm, gradients, objective
from fairmf.models.problem import frequency_scaled

D = 4


@pytest.mark.parametrize("name", BACKENDS)
def test_every_term_agrees_with_the_double_loop(name, weighted, item_weights):
    of_items = item_weights(20)
    problem = random_problem(name, weighted=weighted, fairness_weights=of_items)
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    C = naive.dense(problem.interactions)
    settings = (problem.regularization, problem.regularization_exponent, problem.unobserved_weight, problem.lambda_f)
    expected = naive.terms(C, as_numpy(U, float), as_numpy(V, float), *settings, item_weights=of_items)
    actual = objective(problem, U, V)
    for term, value in expected.items():
        assert value > 1e-3  # a term that vanishes would prove nothing
        assert getattr(actual, term) == pytest.approx(value, rel=problem.backend.tolerance)
    assert actual.total == pytest.approx(sum(expected.values()), rel=problem.backend.tolerance)
    s = np.linspace(-1, 1, D)
    split = naive.terms(C, as_numpy(U, float), as_numpy(V, float), *settings, mean=s, item_weights=of_items)["fairness"]
    assert objective(problem, U, V, mean_user=s).fairness == pytest.approx(split, rel=problem.backend.tolerance)


def test_gradient_by_finite_differences(weighted, item_weights):
    problem = random_problem(weighted=weighted, fairness_weights=item_weights(20))
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    grad_u, grad_v = gradients(problem, U, V)
    h = 1e-5
    for X, grad in ((U, grad_u), (V, grad_v)):
        for i in range(len(X)):
            for k in range(D):
                kept = X[i, k]
                X[i, k] = kept + h
                above = objective(problem, U, V).total
                X[i, k] = kept - h
                below = objective(problem, U, V).total
                X[i, k] = kept
                assert grad[i, k] == pytest.approx((above - below) / (2 * h), abs=1e-5)
    assert gradient_norm(problem, U, V) == pytest.approx(np.sqrt((grad_u**2).sum() + (grad_v**2).sum()))


def test_frequency_scaled_weights():
    sums = np.array([0.0, 3.0])
    np.testing.assert_allclose(frequency_scaled(sums, 10, 0.5, 1.0, 0.1), [0.5, 2.0])
    np.testing.assert_allclose(frequency_scaled(sums, 10, 0.5, 0.0, 0.1), [0.5, 0.5])


def test_frequency_scaled_weight_that_cannot_be_finite():
    with pytest.raises(InvalidData, match="negative regularization_exponent"):
        frequency_scaled(np.zeros(2), 10, 0.5, -1.0, 0.0)
