"""Test the right-hand sides of single rows (`HalfStep.own`), which features need, on every backend that has them."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import as_numpy, random_factors, random_rows

from fairmf.backends.contract import Effort, HalfStep, RankOne
from fairmf.backends.cpu import backend as cpu
from fairmf.backends.registry import get_backend
from fairmf.backends.solve import improve_by_blocks, improve_by_cg, solve_to_convergence

N, M, D = 41, 29, 7


@pytest.fixture
def step(backend, weighted):
    """Systems in which every term differs from 0; some rows have no entries."""
    rows = random_rows(N, M, weighted=weighted)
    assert (np.diff(rows.indptr) == 0).any()
    _, other = random_factors(backend, N, M, D)
    generator = np.random.default_rng(1)
    half = generator.normal(size=(D, D))
    own = backend.array(generator.normal(size=(N, D)))
    with backend.threads(2):
        shared, shift = backend.vector(half @ half.T), backend.vector(generator.normal(size=D))
        yield HalfStep(backend, rows, other, shared, 0.5 + generator.random(N), shift, own=own)


def systems(step):
    """Every row's matrix and right-hand side, by loops."""
    y, own, shared, shift = (as_numpy(x, float) for x in (step.other, step.own, step.matrix, step.shift))
    matrices, rights = [], []
    for i in range(N):
        matrix, right = shared + step.ridge[i] * np.eye(D), own[i] - shift
        columns, weights = step.rows.row(i)
        for position, j in enumerate(columns):
            c = 1.0 if weights is None else float(weights[position])
            matrix, right = matrix + c * np.outer(y[j], y[j]), right + c * y[j]
        if step.rank_one is not None:
            matrix = matrix + step.rank_one.weights[i] * np.outer(step.rank_one.vector, step.rank_one.vector)
        matrices.append(matrix)
        rights.append(right)
    return matrices, np.array(rights)


def solutions(step):
    matrices, rights = systems(step)
    return np.array([np.linalg.solve(a, b) for a, b in zip(matrices, rights, strict=True)])


def close(backend, actual, expected, factor=1.0):
    np.testing.assert_allclose(
        as_numpy(actual), expected, rtol=0, atol=factor * backend.tolerance * np.abs(expected).max()
    )


@pytest.mark.parametrize("ranked", [False, True])
def test_solve_and_residual(step, ranked):
    backend = step.backend
    if ranked:
        step = replace(step, rank_one=RankOne(np.linspace(-1, 1, D), np.arange(N) % 3.0))
    close(backend, backend.solve(step), solutions(step))
    matrices, rights = systems(step)
    x = np.random.default_rng(5).normal(size=(N, D))
    expected = np.array([matrices[i] @ x[i] - rights[i] for i in range(N)])
    close(backend, backend.residual(step, backend.array(x)), expected)


def test_given_right_hand_sides_replace_those_of_rows(step):
    backend, right = step.backend, np.arange(1.0, D + 1)
    plain = replace(step, own=None, right=right)
    for call in (backend.solve, lambda given: backend.residual(given, step.own)):
        np.testing.assert_array_equal(as_numpy(call(replace(step, right=right))), as_numpy(call(plain)))


def test_mean_inverse(step):
    backend = step.backend
    matrices, rights = systems(replace(step, shift=np.zeros(D)))
    inverse, solution = backend.mean_inverse(step)
    close(backend, inverse, sum(np.linalg.inv(a) for a in matrices) / N)
    close(backend, solution, sum(np.linalg.solve(a, b) for a, b in zip(matrices, rights, strict=True)) / N)


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_improve_reports_the_loss_and_the_residual(step, steps, ranked):
    """The loss is updated from step to step, without a pass over the entries: `own` must not count as data."""
    backend = step.backend
    step = replace(step, shared=np.linspace(0.1, 2, D))
    if ranked:
        step = replace(step, rank_one=RankOne(np.linspace(-1, 1, D), np.arange(N) % 3.0))
    start, _ = random_factors(backend, N, M, D)
    matrices, rights = systems(step)
    before = sum(np.sum((rights[i] - matrices[i] @ as_numpy(start, float)[i]) ** 2) for i in range(N))
    sums = backend.improve(step, start, Effort(steps))
    loss, squared_residual = backend.numbers(sums.loss, sums.squared_residual)
    assert squared_residual == pytest.approx(before, rel=10 * backend.tolerance)
    assert loss == pytest.approx(backend.observed_loss(step.rows, start, step.other), rel=10 * backend.tolerance)
    empty = np.diff(step.rows.indptr) == 0
    close(backend, as_numpy(start)[empty], solutions(step)[empty])


def test_rows_without_a_term_of_their_own_keep_their_bits(step):
    backend, zeros = step.backend, step.backend.array(np.zeros((N, D)))
    start, _ = random_factors(backend, N, M, D)
    found = []
    for own in (None, zeros):
        this, given = start.copy(), replace(step, own=own)
        sums = backend.improve(replace(given, shared=np.linspace(0.1, 2, D)), this, Effort(2))
        found.append(
            [*backend.numbers(*sums), *map(as_numpy, (this, backend.solve(given), backend.residual(given, start)))]
        )
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_improve_converges_to_the_solution(step):
    backend = step.backend
    start, _ = random_factors(backend, N, M, D)
    close(backend, improve_by_cg(step, start, Effort(100, 1e-12)), solutions(step), 5)
    close(backend, solve_to_convergence(step), solutions(step), 5)


@pytest.mark.parametrize("block_size", [3, D])
def test_blocks_of_coordinates(step, block_size):
    backend = step.backend
    start, _ = random_factors(backend, N, M, D)
    close(backend, improve_by_blocks(step, start, block_size, sweeps=100 if block_size < D else 1), solutions(step), 20)
    block = slice(0, 3)
    matrices, rights = systems(step)
    x = as_numpy(start, float)
    gradient = np.array([matrices[i] @ x[i] - rights[i] for i in range(N)])
    expected = -np.mean([np.linalg.solve(matrices[i][block, block], gradient[i, block]) for i in range(N)], axis=0)
    scores = backend.entry_scores(step.rows, start, step.other)
    close(backend, backend.block_response(step, block, scores, start)[1], expected)


@pytest.mark.parametrize("columns", [M, 1500])  # 1,500: the last row, which is full, is cut into chunks on a device
def test_sums_over_entries(backend, weighted, columns):
    rows = random_rows(N, columns, weighted=weighted, density=min(0.2, 10 / columns))
    this, other = random_factors(backend, N, columns, D)
    x, y, expected = as_numpy(this, float), as_numpy(other, float), np.zeros((N, D))
    for i in range(N):
        found, weights = rows.row(i)
        for position, j in enumerate(found):
            expected[i] += (1.0 if weights is None else float(weights[position])) * y[j]
    with backend.threads(2):
        close(backend, backend.sparse_product(rows, other), expected)
        total = sum(float(expected[i] @ x[i]) for i in range(N))
        size = float(np.abs(expected * x).sum())
        assert backend.score_sum(rows, this, other) == pytest.approx(total, abs=backend.tolerance * size)


def test_column_products(backend):
    left, right = (backend.array(np.random.default_rng(seed).normal(size=(1100, D))) for seed in (0, 1))
    x, y = as_numpy(left, float), as_numpy(right, float)
    expected = [sum(x[i, k] * y[i, k] for i in range(len(x))) for k in range(D)]
    with backend.threads(2):
        np.testing.assert_allclose(as_numpy(backend.column_products(left, right)), expected, rtol=1e-10)


@pytest.mark.parametrize("ranked", [False, True])
def test_long_rows_have_right_hand_sides_of_their_own(backend, ranked, monkeypatch):
    """A device cuts long rows into chunks, which have kernels of their own: three steps must be those of short rows."""
    rows, (start, other) = random_rows(N, M), random_factors(backend, N, M, D)
    generator = np.random.default_rng(2)
    own, again = backend.array(generator.normal(size=(N, D))), start.copy()
    term = RankOne(backend.vector(np.linspace(-1, 1, D)), np.arange(N) % 3.0) if ranked else None
    ridge, diagonal, shift = 0.5 + generator.random(N), np.linspace(0.1, 2, D), generator.normal(size=D)
    step = HalfStep(backend, rows, other, diagonal, ridge, shift, rank_one=term, own=own)
    with backend.threads(2):
        expected = backend.improve(step, start, Effort(3))
    if backend.name == "cuda":
        for name, entries in {"LONG": 4, "CHUNK": 3}.items():
            monkeypatch.setattr(f"fairmf.backends.cuda.memory.{name}", entries)
    with backend.threads(2):
        sums = backend.improve(step, again, Effort(3))
        np.testing.assert_allclose(backend.numbers(*sums), backend.numbers(*expected), rtol=1e-5)
    close(backend, again, as_numpy(start))


def test_the_cpu_backend_takes_many_rows_in_parts(monkeypatch):
    """Their right-hand sides would otherwise take as much memory as the factors once more."""
    backend, generator = get_backend("cpu"), np.random.default_rng(8)
    rows = random_rows(N, M, weighted=True)
    ridge, weights = 0.5 + generator.random(N), generator.random(N)
    own, rest = backend.array(generator.normal(size=(N, D))), 0.02 * generator.normal(size=(D, D))
    found, sizes, shifts = [], [], cpu.CpuBackend._shifts

    def noted(backend, step, this):
        sizes.append(len(this))
        return shifts(backend, step, this)

    monkeypatch.setattr(cpu.CpuBackend, "_shifts", noted)
    for at_once in (cpu.SHIFTED_AT_ONCE, 1, 7):
        sizes.clear()
        monkeypatch.setattr(cpu, "SHIFTED_AT_ONCE", at_once)
        this, other = random_factors(backend, N, M, D)
        step = HalfStep(
            backend, rows, other, np.linspace(0.1, 2, D), ridge, np.ones(D), RankOne(np.ones(D), weights),
            rest=rest + rest.T, own=own,
        )  # fmt: skip
        found.append((this, backend.improve(step, this, Effort(1))))
        assert sum(sizes) == N
        assert max(sizes) == min(N, at_once)
    for this, sums in found[1:]:
        np.testing.assert_allclose(this, found[0][0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(sums, found[0][1], rtol=1e-6)
