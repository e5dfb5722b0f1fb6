"""Test that PCG and Cholesky solve rows alike, and that rows on which PCG has not converged are found."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import as_numpy, random_factors, random_rows

from fairmf.backends import solve
from fairmf.backends.contract import HalfStep


def half_step(backend, n=300, m=60, d=20, weighted=False, scale=1.0, ridge=0.5, shift=0.3):
    _, V = random_factors(backend, n, m, d)
    rows = random_rows(n, m, density=0.3, weighted=True)
    weights = (rows.weights * scale).astype(np.float32) if weighted else None
    generator = np.random.default_rng(5)
    shared = 0.1 * backend.gramian(V)
    ridges = ridge * (0.5 + generator.random(n))
    shifted = backend.vector(shift * generator.normal(size=d))
    return HalfStep(backend, rows._replace(weights=weights), V, shared, ridges, shifted)


def difference(step):
    exact, found = as_numpy(step.backend.solve(step)), as_numpy(solve.solve_to_convergence(step))
    return np.abs(found - exact).max() / np.abs(exact).max()


def test_many_rows_go_to_pcg_and_come_out_exact(backend, weighted, monkeypatch):
    monkeypatch.setattr(solve, "pcg_pays", lambda _: True)
    assert difference(half_step(backend, weighted=weighted)) < backend.tolerance


def test_rows_where_pcg_has_not_arrived_are_solved_by_cholesky(backend, monkeypatch):
    """Confidences of thousands over an L2 of next to nothing: 16 steps are far from enough."""
    monkeypatch.setattr(solve, "pcg_pays", lambda _: True)
    solved = []

    def spy(step):
        solved.append(step.rows.count)
        return cholesky_solve(step)

    cholesky_solve = backend.solve
    step = half_step(backend, weighted=True, scale=3000.0, ridge=1e-2)
    exact = cholesky_solve(step)
    monkeypatch.setattr(backend, "solve", spy)
    found = solve.solve_to_convergence(step)
    assert solved
    assert solved[0] > 100
    exact = as_numpy(exact)
    np.testing.assert_allclose(as_numpy(found), exact, atol=backend.tolerance * np.abs(exact).max())


@pytest.mark.parametrize("direction", [0, -1], ids=["weakest", "strongest"])
def test_no_row_beyond_the_tolerance_passes(backend, direction):
    """Rows that are off by twice the tolerance, along an axis where H is weak (a small residual) or strong."""
    values = np.linspace(0.01, 50.0, 20)
    step = replace(half_step(backend, ridge=0.02), shared=backend.vector(values))
    exact = as_numpy(step.backend.solve(step))
    off = exact.copy()
    off[:, direction] += 2 * backend.tolerance * np.linalg.norm(exact, axis=1)
    assert not solve._converged(
        step, backend.array(off)
    ).any()  # of row 0, which has no entries, H is P: the bound is tight
    if backend.name == "reference":  # in float32, some rows cannot be told from those that are off
        assert solve._converged(step, backend.array(exact)).all()


def test_residuals_are_looked_at_in_blocks(backend, monkeypatch):
    monkeypatch.setattr(solve, "pcg_pays", lambda _: True)
    step = half_step(backend, weighted=True)
    whole = solve.solve_to_convergence(step)
    monkeypatch.setattr(solve, "CHECKED_AT_ONCE", 37)
    np.testing.assert_array_equal(as_numpy(solve.solve_to_convergence(step)), as_numpy(whole))


def test_who_goes_where(backend):
    few, many = half_step(backend, n=3, m=60, d=20), half_step(backend, n=4000, m=60, d=96)
    assert not solve.pcg_pays(few)
    assert solve.pcg_pays(many)
    assert not solve.pcg_pays(half_step(backend, n=4000, m=60, d=96, ridge=0.0))


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_rows(backend, n):
    step = half_step(backend, n=2)
    step = HalfStep(backend, step.rows.block(0, n), step.other, step.shared, step.ridge[:n], step.shift)
    assert solve.solve_to_convergence(step).shape == (n, 20)
