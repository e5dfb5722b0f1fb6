"""What every solver of a half-step keeps, one row of the table each, on every backend and both sides."""

import numpy as np
import pytest
from conftest import random_factors, random_problem

from fairmf.backends.contract import Effort
from fairmf.backends.solve import improve_by_blocks, improve_by_cg, solve_to_convergence

NAMES = ("cpu", "reference")  # the backends that have all solvers
D = 7  # no multiple of the blocks below

# Each: (half-step, start) -> rows at convergence, and the same after the least effort it can be asked for.
SOLVERS = {
    "cholesky": (lambda step, _: step.backend.solve(step), None),
    "converged": (lambda step, _: solve_to_convergence(step), None),
    "eigenbasis_cg": (
        lambda step, start: improve_by_cg(step, start, Effort(60, 1e-9)),
        lambda step, start: improve_by_cg(step, start, Effort(1)),
    ),
    "subspace": (
        lambda step, start: improve_by_blocks(step, start, 3, sweeps=30),
        lambda step, start: improve_by_blocks(step, start, 3),
    ),
    "subspace, one factor at a time": (
        lambda step, start: improve_by_blocks(step, start, 1, sweeps=45),
        lambda step, start: improve_by_blocks(step, start, 1),
    ),
    "subspace, one block": (lambda step, start: improve_by_blocks(step, start, D), None),
    "subspace, block_size beyond the factors": (lambda step, start: improve_by_blocks(step, start, 100), None),
}


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


@pytest.fixture(params=["users", "items"])
def posed(request, weighted, item_weights):
    def pose(backend):
        problem = random_problem(backend, 14, 10, weighted, regularization=1.0, fairness_weights=item_weights(10))
        U, V = random_factors(problem.backend, *problem.interactions.shape, D)
        generator = np.random.default_rng(5)
        if request.param == "users":
            return problem.user_half_step(V, shift=generator.normal(size=D)), U
        return problem.item_half_step(U, mean_user=0.3 * generator.normal(size=D)), V

    return pose


def value(step, x):
    """The half-step's quadratic, summed over its rows, by its definition."""
    x, y = np.asarray(x, float), np.asarray(step.other, float)
    total = 0.0
    for i in range(step.rows.count):
        columns, weights = step.rows.row(i)
        c = np.ones(len(columns)) if weights is None else weights.astype(float)
        total += 0.5 * float(c @ (1 - y[columns] @ x[i]) ** 2)
        total += 0.5 * float(x[i] @ step.shared @ x[i] + step.ridge[i] * x[i] @ x[i]) + float(step.shift @ x[i])
        if step.rank_one is not None:
            total += 0.5 * step.rank_one.weights[i] * float(step.rank_one.vector @ x[i]) ** 2
    return total


@pytest.mark.parametrize("backend", NAMES)
def test_at_convergence_it_is_the_solution_of_the_normal_equations(backend, solver, posed):
    step, start = posed(backend)
    kept = start.copy()
    found = solver[0](step, start)
    np.testing.assert_array_equal(start, kept)
    y = np.asarray(step.other, float)
    for i in range(step.rows.count):
        columns, weights = step.rows.row(i)
        c = np.ones(len(columns)) if weights is None else weights.astype(float)
        matrix = (y[columns].T * c) @ y[columns] + step.shared + step.ridge[i] * np.eye(D)
        if step.rank_one is not None:
            matrix += step.rank_one.weights[i] * np.outer(step.rank_one.vector, step.rank_one.vector)
        exact = np.linalg.solve(matrix, y[columns].T @ c - step.shift)
        np.testing.assert_allclose(found[i], exact, atol=50 * step.backend.tolerance)


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("name", [name for name, (_, little) in SOLVERS.items() if little])
def test_the_least_effort_lowers_the_quadratic_and_the_solution_stays_where_it_is(backend, name, posed):
    step, start = posed(backend)
    little = SOLVERS[name][1]
    assert value(step, little(step, start)) < value(step, start)
    exact = step.backend.solve(step)
    np.testing.assert_allclose(little(step, exact), exact, atol=50 * step.backend.tolerance)


@pytest.mark.parametrize("backend", NAMES)
def test_rows_without_entries_are_zero_where_nothing_shifts_them(backend, solver, weighted):
    problem = random_problem(backend, 14, 10, weighted)
    U, V = random_factors(problem.backend, *problem.interactions.shape, D)
    step = problem.user_half_step(V)
    empty = np.diff(step.rows.indptr) == 0
    assert empty.any()
    for solve in filter(None, solver):
        np.testing.assert_array_equal(solve(step, U)[empty], 0)
