"""Test steps over a block of coordinates, on every backend, against whole matrices built by loops."""

import numpy as np
import pytest
from conftest import as_numpy, random_factors, random_rows

from fairmf.backends import solve
from fairmf.backends.contract import HalfStep, RankOne
from fairmf.backends.registry import get_backend
from fairmf.errors import InvalidParameter

N, M, D = 41, 29, 7


def pieces(n=N, seed=1):
    generator = np.random.default_rng(seed)
    half = generator.normal(size=(D, D))
    term = RankOne(generator.normal(size=D), 5 * generator.random(n) * (np.arange(n) % 4 > 0))
    return half @ half.T, 0.5 + generator.random(n), generator.normal(size=D), term


def systems(rows, other, shared, ridge, term=None):
    """Every row's matrix and right-hand side, one entry at a time."""
    y = as_numpy(other, float)
    matrices, rights = [], []
    for i in range(rows.count):
        matrix, right = shared + ridge[i] * np.eye(D), np.zeros(D)
        if term is not None:
            matrix = matrix + term.weights[i] * np.outer(term.vector, term.vector)
        columns, weights = rows.row(i)
        for position, j in enumerate(columns):
            c = 1.0 if weights is None else float(weights[position])
            matrix = matrix + c * np.outer(y[j], y[j])
            right = right + c * y[j]
        matrices.append(matrix)
        rights.append(right)
    return matrices, rights


def expected_step(matrix, right, shift, x, first, last):
    """Where the block's gradient vanishes with the other coordinates held: (H x)_P = (b - shift)_P solved for x_P."""
    rest = [k for k in range(D) if not first <= k < last]
    block = np.arange(first, last)
    held = matrix[np.ix_(block, rest)] @ x[rest]
    return np.linalg.inv(matrix[np.ix_(block, block)]) @ ((right - shift)[block] - held)


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize(("first", "last"), [(0, 3), (2, 6), (6, 7), (0, D)])
def test_improve_block_minimises_over_its_block_and_moves_nothing_else(backend, weighted, first, last, ranked):
    rows = random_rows(N, M, weighted=weighted)
    this, other = random_factors(backend, N, M, D)
    shared, ridge, shift, term = pieces()
    term = term if ranked else None
    start = as_numpy(this, float).copy()
    matrices, rights = systems(rows, other, shared, ridge, term)
    with backend.threads(2):
        scores = backend.entry_scores(rows, this, other)
        step = HalfStep(backend, rows, other, shared, ridge, shift, term)
        backend.improve_block(step, slice(first, last), scores, this)
    for i in range(N):
        step = expected_step(matrices[i], rights[i], shift, start[i], first, last)
        np.testing.assert_allclose(as_numpy(this)[i, first:last], step, atol=10 * backend.tolerance)
    outside = np.ones(D, dtype=bool)
    outside[first:last] = False
    np.testing.assert_array_equal(as_numpy(this, float)[:, outside], start[:, outside])
    scores, position = as_numpy(scores), 0
    for i in range(N):
        for j in rows.row(i)[0]:
            assert scores[position] == pytest.approx(
                float(as_numpy(this, float)[i] @ as_numpy(other, float)[j]), abs=10 * backend.tolerance
            )
            position += 1


def test_block_response_is_the_mean_inverse_and_the_mean_step(backend, weighted):
    rows = random_rows(N, M, weighted=weighted)
    this, other = random_factors(backend, N, M, D)
    kept = this.copy()
    shared, ridge, shift, _ = pieces()
    first, last = 2, 6
    matrices, rights = systems(rows, other, shared, ridge)
    with backend.threads(2):
        scores = backend.entry_scores(rows, this, other)
        before = scores.copy()
        system = HalfStep(backend, rows, other, shared, ridge, shift)
        inverse, step = backend.block_response(system, slice(first, last), scores, this)
    mean_inverse = sum(np.linalg.inv(matrix[first:last, first:last]) for matrix in matrices) / N
    x = as_numpy(this, float)
    moved = [
        expected_step(matrices[i], rights[i], shift, x[i], first, last) - x[i, first:last] for i in range(N)
    ]  # fmt: skip
    np.testing.assert_allclose(as_numpy(inverse), mean_inverse, atol=backend.tolerance * np.abs(mean_inverse).max())
    np.testing.assert_allclose(as_numpy(step), sum(moved) / N, atol=10 * backend.tolerance)
    np.testing.assert_array_equal(as_numpy(this), as_numpy(kept))
    np.testing.assert_array_equal(as_numpy(scores), as_numpy(before))


def test_more_rows_and_more_entries_than_are_taken_at_once(backend, weighted, monkeypatch):
    """Three hundred rows in one block of work are several tiles; a row of 900 entries is several gathers."""
    monkeypatch.setattr("fairmf.backends.cpu.backend.balanced", lambda indptr, *_, **__: np.array([0, len(indptr) - 1]))
    rows = random_rows(300, 1000, density=0.02, weighted=weighted)
    long = random_rows(3, 1000, density=0.9, weighted=weighted)
    for entries in (rows, long):
        n = entries.count
        this, other = random_factors(backend, n, 1000, D)
        shared, ridge, shift, _ = pieces(n)
        start = as_numpy(this, float).copy()
        with backend.threads(1):
            scores = backend.entry_scores(entries, this, other)
            step = HalfStep(backend, entries, other, shared, ridge, shift)
            backend.improve_block(step, slice(1, 5), scores, this)
        matrices, rights = systems(entries, other, shared, ridge)
        for i in range(n):
            step = expected_step(matrices[i], rights[i], shift, start[i], 1, 5)
            np.testing.assert_allclose(as_numpy(this)[i, 1:5], step, atol=20 * backend.tolerance)


def test_a_block_that_is_not_positive_definite_comes_out_as_nan(backend):
    rows = random_rows(N, M)
    this, other = random_factors(backend, N, M, D)
    with backend.threads(1):
        scores = backend.entry_scores(rows, this, other)
        step = HalfStep(backend, rows, other, -100 * np.eye(D), np.zeros(N), np.zeros(D))
        backend.improve_block(step, slice(2, 4), scores, this)
    assert np.isnan(as_numpy(this)[0, 2:4]).all()
    assert np.isfinite(as_numpy(this)[0, :2]).all()


def test_a_backend_without_these_kernels_is_named():
    class Other:
        name = "other"

    with pytest.raises(InvalidParameter, match="solver='subspace' does not support backend='other': use backend='cpu'"):
        solve.kernels_of(Other())
    assert solve.kernels_of(get_backend("cpu")) is get_backend("cpu")
