"""Test every kernel of every backend against double loops. A backend that is registered is tested here."""

import contextlib
import inspect
import os
from dataclasses import replace

import numpy as np
import pytest
import threadpoolctl
from conftest import BACKENDS, as_numpy, random_factors, random_rows, slow_values

from fairmf import threads
from fairmf.backends.contract import Effort, HalfStep, RankOne, frozen
from fairmf.backends.cpu import cg, reductions
from fairmf.backends.cpu.products import multiply
from fairmf.backends.cpu.rows import solve_rows
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.errors import InvalidParameter
from fairmf.ranking.top_n import merged

N, M, D = 41, 29, 7


@pytest.fixture
def setup(backend, weighted):
    rows = random_rows(N, M, weighted=weighted)
    this, other = random_factors(backend, N, M, D)
    with backend.threads(2):
        yield backend, rows, this, other


def entries(rows):
    for i in range(rows.count):
        columns, weights = rows.row(i)
        for position, j in enumerate(columns):
            yield i, j, 1.0 if weights is None else float(weights[position])


def close(backend, actual, expected):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(as_numpy(actual), expected, rtol=0, atol=backend.tolerance * scale)


def test_gramian_and_mean(setup):
    backend, _, this, _ = setup
    x = as_numpy(this, np.float64)
    close(backend, backend.gramian(this), sum(np.outer(row, row) for row in x))
    close(backend, backend.mean(this), sum(x) / N)
    weights = np.maximum(np.linspace(-1, 3, N), 0)
    expected = sum(w * np.outer(row, row) for w, row in zip(weights, x, strict=True))
    close(backend, backend.gramian(this, weights), expected)
    assert backend.gramian(this).dtype == backend.mean(this).dtype == np.float64


def test_gramian_of_many_rows_keeps_float64_accuracy(backend):
    """100,000 equal rows: a float32 running sum would be off by far more than this."""
    limit = 2e-5 if backend.name == "cuda" else 2e-6  # blocks of more rows: equal rows are the worst case there
    this = backend.array(np.full((100_000, 3), 0.1, dtype=np.float64))
    exact = 100_000 * float(this[0, 0]) ** 2
    with backend.threads(1):
        np.testing.assert_allclose(as_numpy(backend.gramian(this)), exact, rtol=limit)
        several = np.arange(100_000) % 3
        weighted = as_numpy(backend.gramian(this, several.astype(float)))
        np.testing.assert_allclose(weighted, exact * several.mean(), rtol=limit)
        np.testing.assert_allclose(as_numpy(backend.mean(this)), float(this[0, 0]), rtol=1e-11)


def test_norms_and_distances(setup):
    backend, _, this, _ = setup
    x = as_numpy(this, np.float64)
    close(backend, backend.squared_norms(this), [float(row @ row) for row in x])
    weights = np.arange(N, dtype=float)
    close(backend, backend.weighted_squares(this, weights), [weights @ x[:, k] ** 2 for k in range(D)])
    moved = this + backend.dtype.type(0.5)
    assert backend.squared_distance(this, moved) == pytest.approx(0.25 * N * D, rel=1e-5)


def test_all_finite(backend):
    values = np.ones((70_000, 2))
    assert backend.all_finite(backend.array(values))
    for bad in (np.nan, np.inf):
        values[-1, 1] = bad
        assert not backend.all_finite(backend.array(values))


def test_observed_loss(setup):
    backend, rows, this, other = setup
    x, y = as_numpy(this, float), as_numpy(other, float)
    expected = sum(c * (1 - x[i] @ y[j]) ** 2 for i, j, c in entries(rows))
    assert backend.observed_loss(rows, this, other) == pytest.approx(expected, rel=backend.tolerance)


def test_multiply(setup):
    backend, _, this, _ = setup
    matrix = np.random.default_rng(3).normal(size=(D, D))
    out = backend.empty(N, D)
    backend.multiply(this, matrix, out)
    close(backend, out, as_numpy(this, float) @ matrix)


def further_term(wanted):
    """A term of every row's own weight, 0 for some; and the same as one matrix per row."""
    generator = np.random.default_rng(7)
    vector, weights = generator.normal(size=D), 5 * generator.random(N) * (np.arange(N) % 4 > 0)
    matrices = [w * np.outer(vector, vector) if wanted else np.zeros((D, D)) for w in weights]
    return RankOne(vector, weights) if wanted else None, matrices


@pytest.mark.parametrize("ranked", [False, True])
def test_solve(setup, ranked):
    backend, rows, _, other = setup
    term, own = further_term(ranked)
    generator = np.random.default_rng(1)
    half = generator.normal(size=(D, D))
    shared, ridge, shift = half @ half.T, 0.5 + generator.random(N), generator.normal(size=D)
    step = HalfStep(backend, rows, other, shared, ridge, shift, term)
    out, answers = backend.solve(step), backend.solve(replace(step, right=shift))
    y = as_numpy(other, float)
    for i in range(N):
        matrix, right = shared + ridge[i] * np.eye(D) + own[i], -shift.copy()
        for row, j, c in entries(rows):
            if row == i:
                matrix += c * np.outer(y[j], y[j])
                right += c * y[j]
        close(backend, out[i], np.linalg.inv(matrix) @ right)
        close(backend, answers[i], np.linalg.inv(matrix) @ shift)


def test_solve_longer_than_one_tile(backend, weighted):
    """More entries than a kernel gathers at once, and not a multiple of it."""
    rows = random_rows(3, 1000, density=0.9, weighted=weighted)
    _, other = random_factors(backend, 3, 1000, D)
    with backend.threads(1):
        out = backend.solve(HalfStep(backend, rows, other, np.eye(D), np.ones(3), np.zeros(D)))
    columns, weights = rows.row(1)
    y, c = as_numpy(other, float)[columns], np.ones(len(columns)) if weights is None else weights.astype(float)
    close(backend, out[1], np.linalg.solve((y.T * c) @ y + 2 * np.eye(D), y.T @ c))


def test_solve_empty_row_is_zero_without_shift(setup):
    backend, rows, _, other = setup
    out = backend.solve(HalfStep(backend, rows, other, np.eye(D), np.ones(N), np.zeros(D)))
    assert (out[0] == 0).all()


def test_solve_says_nan_where_the_matrix_is_not_positive_definite(setup):
    backend, rows, _, other = setup
    step = HalfStep(backend, rows, other, -100 * np.eye(D), np.zeros(N), np.ones(D))
    for system in (step, replace(step, right=np.ones(D))):
        assert np.isnan(backend.solve(system)[0]).all()


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_residual(setup, ranked, diagonal):
    backend, rows, this, other = setup
    term, own = further_term(ranked)
    generator = np.random.default_rng(1)
    half = generator.normal(size=(D, D))
    shared = generator.random(D) if diagonal else half @ half.T
    ridge, shift, right = 0.5 + generator.random(N), generator.normal(size=D), generator.normal(size=D)
    step = HalfStep(backend, rows, other, shared, ridge, shift, term)
    matrices, rights = systems(rows, other, step.matrix, ridge)
    x = as_numpy(this, float)
    products = [(matrices[i] + own[i]) @ x[i] for i in range(N)]
    close(backend, backend.residual(step, this), np.array([products[i] - rights[i] + shift for i in range(N)]))
    close(backend, backend.residual(replace(step, right=right), this), np.array([p - right for p in products]))


def full_sort(scores, excluded, k):
    """Best first, ties to the lower index, by sorting everything."""
    order = sorted((j for j in range(len(scores)) if j not in excluded), key=lambda j: (-scores[j], j))
    return order[:k]


@pytest.mark.parametrize("k", [1, 5, M])
@pytest.mark.parametrize("exclude", ["each", "some twice", None])
def test_top_k_agrees_with_a_full_sort_ties_included(setup, k, exclude):
    backend, rows, _, _ = setup
    if exclude == "some twice":
        rows = merged(rows, rows.take(np.arange(N)[::-1]))
    generator = np.random.default_rng(k)
    # Small integers: scores are exact in float32 and tie often.
    this = backend.array(generator.integers(-2, 3, size=(N, 3)).astype(float))
    other = backend.array(generator.integers(-2, 3, size=(M, 3)).astype(float))
    items, scores = np.empty((N, k), np.int32), np.empty((N, k), np.float32)
    backend.top_k(this, other, k, rows if exclude else None, items, scores)
    for i in range(N):
        row = as_numpy(other, float) @ as_numpy(this, float)[i]
        expected = full_sort(row, set(rows.row(i)[0]) if exclude else set(), k)
        found = len(expected)
        assert items[i, :found].tolist() == expected
        assert scores[i, :found].tolist() == row[expected].tolist()
        assert (items[i, found:] == -1).all()
        assert np.isnan(scores[i, found:]).all()


@pytest.mark.parametrize("wanted", [1, 2, 0, 10_000])
def test_cpu_threads_are_those_asked_for_and_given_back(wanted):
    most = threads.count()
    allowed = min(wanted, most) if wanted else most
    with threadpoolctl.threadpool_limits(min(2, os.cpu_count() or 1), "blas"):
        before = blas_threads()
        with contextlib.suppress(KeyError), get_backend("cpu").threads(wanted):
            assert threads.count() == allowed
            assert set(blas_threads()) == {1}  # or every one of our threads would start its own
            raise KeyError  # given back after an error too
        assert threads.count() == most
        assert blas_threads() == before


def blas_threads():
    return [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]


def test_unknown_backend_lists_the_known():
    with pytest.raises(InvalidParameter, match=r"no backend 'tpu'.*'cpu'"):
        get_backend("tpu")


def test_turned(setup):
    backend, _, this, _ = setup
    matrix = np.random.default_rng(3).normal(size=(D, D))
    expected = as_numpy(this, float) @ matrix
    close(backend, backend.turned(this, matrix), expected)


def test_multiply_in_place_and_add_vector(backend):
    this = backend.array(np.random.default_rng(0).normal(size=(1500, D)))
    matrix, vector = np.random.default_rng(3).normal(size=(D, D)), np.arange(D, dtype=float)
    expected = as_numpy(this, float) @ matrix + vector
    with backend.threads(2):
        backend.multiply(this, matrix, this)
        backend.add_vector(vector, this)
    close(backend, this, expected)


def systems(rows, other, shared, ridge):
    """Every row's matrix and right-hand side, by loops."""
    y = as_numpy(other, float)
    matrices = [shared + ridge[i] * np.eye(D) for i in range(rows.count)]
    rights = [np.zeros(D) for _ in range(rows.count)]
    for i, j, c in entries(rows):
        matrices[i] = matrices[i] + c * np.outer(y[j], y[j])
        rights[i] = rights[i] + c * y[j]
    return matrices, rights


def test_mean_inverse(setup):
    backend, rows, _, other = setup
    generator = np.random.default_rng(1)
    half = generator.normal(size=(D, D))
    shared, ridge = half @ half.T, 0.5 + generator.random(N)
    matrices, rights = systems(rows, other, shared, ridge)
    inverse, solution = backend.mean_inverse(HalfStep(backend, rows, other, shared, ridge, np.zeros(D)))
    close(backend, inverse, sum(np.linalg.inv(m) for m in matrices) / N)
    close(backend, solution, sum(np.linalg.inv(m) @ b for m, b in zip(matrices, rights, strict=True)) / N)


def conjugate_gradients(matrix, right, x, precondition, steps, relaxation):
    """The textbook iteration, one row; the last step made longer."""
    r = right - matrix @ x
    z = precondition @ r
    p = z.copy()
    for step in range(steps):
        length = (r @ z) / (p @ matrix @ p)
        x = x + length * p * (relaxation if step + 1 == steps else 1.0)
        after = r - length * (matrix @ p)
        new = precondition @ after
        p = new + (after @ new) / (r @ z) * p
        r, z = after, new
    return x


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize(("steps", "relaxation"), [(1, 1.0), (1, 1.3), (2, 1.0), (4, 1.3)])
def test_improve_takes_preconditioned_conjugate_gradient_steps(setup, steps, relaxation, ranked):
    backend, rows, this, other = setup
    term, own = further_term(ranked)
    generator = np.random.default_rng(2)
    diagonal, ridge, shift = generator.random(D), 0.5 + generator.random(N), generator.normal(size=D)
    matrices, rights = systems(rows, other, np.diag(diagonal), ridge)
    start = as_numpy(this, float).copy()
    matrices = [a + b for a, b in zip(matrices, own, strict=True)]
    inverses = [np.linalg.inv(np.diag(diagonal + ridge[i]) + own[i]) for i in range(N)]
    step = HalfStep(backend, rows, other, diagonal, ridge, shift, term)
    found = backend.improve(step, this, Effort(steps, relaxation=relaxation))
    expected = np.array(
        [
            conjugate_gradients(matrices[i], rights[i] - shift, start[i], inverses[i], steps, relaxation)
            if rows.indptr[i] < rows.indptr[i + 1]
            else -inverses[i] @ shift  # nothing observed: solved at once
            for i in range(N)
        ]
    )
    np.testing.assert_allclose(as_numpy(this), expected, atol=10 * backend.tolerance)
    y = as_numpy(other, float)
    loss = sum(c * (1 - expected[i] @ y[j]) ** 2 for i, j, c in entries(rows))
    residual = sum(np.sum((rights[i] - shift - matrices[i] @ start[i]) ** 2) for i in range(N))
    squares = sum(ridge[i] * expected[i] @ expected[i] for i in range(N))
    assert tuple(backend.numbers(*found)) == pytest.approx((loss, residual, squares), rel=10 * backend.tolerance)


def test_improve_leaves_nothing_of_the_start_where_nothing_is_observed(setup):
    backend, rows, this, other = setup
    empty = np.diff(rows.indptr) == 0
    assert empty.any()
    step = HalfStep(backend, rows, other, np.ones(D), np.ones(N), np.zeros(D))
    backend.improve(step, this, Effort(1, relaxation=1.3))
    np.testing.assert_array_equal(as_numpy(this)[empty], 0)


@pytest.mark.parametrize("ranked", [False, True])
def test_improve_converges_to_solve(setup, ranked):
    backend, rows, this, other = setup
    term, _ = further_term(ranked)
    generator = np.random.default_rng(2)
    diagonal, ridge, shift = generator.random(D), 0.5 + generator.random(N), generator.normal(size=D)
    step = HalfStep(backend, rows, other, diagonal, ridge, shift, term)
    exact = backend.solve(step)
    backend.improve(step, this, Effort(100, 1e-5))
    np.testing.assert_allclose(as_numpy(this), as_numpy(exact), atol=1e-4)


def test_improve_stops_a_row_at_its_tolerance(setup):
    backend, rows, this, other = setup
    step, one_step = HalfStep(backend, rows, other, np.ones(D), np.ones(N), np.zeros(D)), this.copy()
    backend.improve(step, one_step, Effort(1))
    backend.improve(step, this, Effort(50, 0.9999))
    # A single step always lowers the residual of some rows enough: those must not have moved any further.
    same = np.isclose(as_numpy(this), as_numpy(one_step), atol=1e-5).all(axis=1)
    assert same.sum() >= N // 2


@pytest.mark.parametrize("steps", [1, 3])
def test_improve_rows_of_every_length(backend, weighted, steps):
    """Kernels take several entries at a time, and what is left over apart: against the reference, row by row."""
    lengths, generator = np.arange(21), np.random.default_rng(4)
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    indices = np.concatenate([np.sort(generator.choice(30, k, replace=False)) for k in lengths]).astype(np.int32)
    weights = generator.random(len(indices)).astype(np.float32) if weighted else None
    start, other = generator.normal(size=(21, D)), generator.normal(size=(30, D))
    found = []
    for each in (backend, get_backend("reference")):
        this = each.array(start.copy())
        step = HalfStep(each, Rows(indptr, indices, weights), each.array(other), np.ones(D), np.ones(21), np.ones(D))
        sums = each.improve(step, this, Effort(steps))
        found.append((as_numpy(this), each.numbers(*sums)))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=10 * backend.tolerance)
    assert found[0][1] == pytest.approx(found[1][1], rel=10 * backend.tolerance)


def test_improve_stops_a_row_at_its_accuracy(setup):
    """No row is off by more, in the norm of diagonal + ridge, and rows are not solved much further than asked for."""
    backend, rows, this, other = setup
    if backend.name == "cuda":
        pytest.skip("the cuda backend ignores it, which the contract allows")
    step = HalfStep(backend, rows, other, np.full(D, 2.0), np.ones(N), np.zeros(D))
    exact = as_numpy(backend.solve(step), np.float64)
    size = np.linalg.norm(as_numpy(this, np.float64), axis=1)  # of the start, to which the bound is relative
    backend.improve(step, this, Effort(100, accuracy=0.1))
    off = np.linalg.norm(as_numpy(this, np.float64) - exact, axis=1)
    assert (off <= 0.1 * size + 1e-6).all()
    assert off.max() > 1e-3
    backend.improve(step, this, Effort(100, accuracy=1e-4))
    assert np.linalg.norm(as_numpy(this, np.float64) - exact, axis=1).max() < 1e-3


def test_improve_with_a_rest_off_the_diagonal(backend, weighted):
    """Against the reference: its residual knows the rest, its step length does not."""
    rows = random_rows(N, M, weighted=weighted)
    generator = np.random.default_rng(2)
    diagonal, ridge, shift = 1 + generator.random(D), 0.5 + generator.random(N), generator.normal(size=D)
    rest = 0.05 * generator.normal(size=(D, D))
    rest = rest + rest.T
    found = []
    for engine in (backend, get_backend("reference")):
        this, other = random_factors(engine, N, M, D)
        before = as_numpy(this, float).copy()
        step = HalfStep(engine, rows, other, diagonal, ridge, shift, rest=engine.vector(rest))
        sums = engine.improve(step, this, Effort(1, relaxation=1.3))
        found.append((as_numpy(this, float), engine.numbers(*sums)))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=10 * backend.tolerance)
    assert found[0][1] == pytest.approx(found[1][1], rel=10 * backend.tolerance)
    # The first residual by hand: with the rest, but for rows without entries, which are solved exactly without it.
    matrices, rights = systems(rows, other, np.diag(diagonal), ridge)
    filled = np.diff(rows.indptr) > 0
    assert 0 < filled.sum() < N
    residual = sum(np.sum((rights[i] - shift - (matrices[i] + rest * filled[i]) @ before[i]) ** 2) for i in range(N))
    assert found[1][1][1] == pytest.approx(residual)


# Comparing the reference with itself shows nothing; beyond 130 factors it takes seconds.
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name.values != ("reference",)], indirect=True)
@pytest.mark.parametrize("d", [1, 33, 64, 130, *slow_values(256, 1030)])
def test_rows_of_every_length_and_any_number_of_factors(backend, weighted, d):
    """Short rows, rows of several chunks and empty ones, at widths that fill a warp and that do not."""
    rows = random_rows(6, 2600, density=0.3, weighted=weighted)
    this, other = random_factors(backend, 6, 2600, d, scale=0.3 / np.sqrt(d))
    reference = get_backend("reference")
    ridge, zero = np.full(6, 3.0), np.zeros(d)
    begin = as_numpy(this, float).copy()
    step = HalfStep(backend, rows, other, np.ones(d), ridge, zero)
    exactly = replace(step, backend=reference, other=as_numpy(other, float))
    with backend.threads(2):
        for steps in (1, 2, 4):
            this, expected = backend.array(begin), begin.copy()
            sums = backend.improve(step, this, Effort(steps, relaxation=1.3))
            wanted = reference.improve(exactly, expected, Effort(steps, relaxation=1.3))
            np.testing.assert_allclose(as_numpy(this), expected, atol=10 * backend.tolerance)
            assert tuple(backend.numbers(*sums)) == pytest.approx(wanted, rel=20 * backend.tolerance)
        # The entries' part alone: beside `shared` and `ridge` an error in it might not show.
        bare = {"shared": np.zeros(d), "ridge": np.zeros(6)}
        naive = reference.residual(replace(exactly, **bare), expected)
        close(backend, backend.residual(replace(step, **bare), this), naive)
        loss = backend.observed_loss(rows, this, other)
        assert loss == pytest.approx(reference.observed_loss(rows, expected, as_numpy(other, float)), rel=1e-3)


def test_cpu_kernels_are_compiled_once_whoever_may_write_to_their_inputs(weighted):
    """Otherwise Numba would compile each again for rows of a fold-in, and for read-only arrays of a cluster."""
    backend, rows = get_backend("cpu"), random_rows(N, M, weighted=weighted)
    this, other = random_factors(backend, N, M, D)
    for fixed in (other, frozen(other.copy())):
        backend.observed_loss(rows, this, fixed)
        backend.multiply(fixed, np.eye(D), backend.empty(M, D))
        step = HalfStep(backend, rows, fixed, np.ones(D), np.ones(N), np.zeros(D))
        backend.solve(step)
        backend.improve(step, this, Effort(1))
    for kernel in (reductions.observed_loss_parts, multiply, solve_rows, cg.improve_rows):
        names = list(inspect.signature(kernel.py_func).parameters)
        inputs = [names.index(name) for name in ("indptr", "indices", "other", "matrix", "bounds") if name in names]
        assert kernel.signatures
        for signature in kernel.signatures:
            assert not any(signature[position].mutable for position in inputs)
    assert rows.indices.flags.writeable  # as its owner has it
