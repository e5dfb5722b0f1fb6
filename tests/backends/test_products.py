"""Products of matrices and passes over gathered rows, against NumPy in float64, for sizes that no vector divides."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairmf.backends.contract import Effort, HalfStep
from fairmf.backends.cpu import simd, top_k
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.threads import run

CPU = get_backend("cpu")
SIZES = (1, 2, 5, simd.LANES - 1, simd.LANES, simd.TILE_COLUMNS, simd.TILE_COLUMNS + 1, 100)


def normal(rows, columns, seed=0):
    out = CPU.empty(rows, columns)
    out[:] = np.random.default_rng(seed).normal(size=(rows, columns))
    return out


def close(found, wanted, terms):
    np.testing.assert_allclose(found, wanted, atol=terms * 2e-7 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("n", [1, simd.TILE_ROWS, simd.TILE_ROWS + 1, 10 * simd.TILE_ROWS + 7])
def test_products(n, d):
    this = normal(n, d)
    for columns in (d, d + 3):
        matrix = np.random.default_rng(1).normal(size=(d, columns))
        wanted, out = this.astype(float) @ matrix, np.full((n + 1, columns), 7.0, dtype=np.float32)
        CPU.multiply(this, matrix, out[:n])
        close(out[:n], wanted, d)
        assert (out[n] == 7.0).all()  # a tile reaches beyond the last row, the product does not
    CPU.multiply(this, np.eye(d)[::-1], kept := this.copy())
    CPU.multiply(this, np.eye(d)[::-1], this)  # in place
    np.testing.assert_array_equal(this, kept)


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("n", [1, 255, 256, 257, 5000])
def test_gramians(n, d):
    this, weights = normal(n, d), np.random.default_rng(2).uniform(0, 2, size=n)
    exact = this.astype(float)
    close(CPU.gramian(this), exact.T @ exact, 20)
    close(CPU.gramian(this, weights), exact.T * weights @ exact, 20)
    found = CPU.gramian(this)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("m", [1, 7, 33, top_k.ITEMS_AT_ONCE + 1])
def test_scores_of_few_users_and_of_many_are_products(m, d):
    users, items = normal(70, d), normal(m, d, seed=1)
    wanted = users.astype(float) @ items.astype(float).T
    for n in (3, 70):  # few users are scored row by row, many in tiles
        found, scores = np.empty((n, m), dtype=np.int32), np.empty((n, m), dtype=np.float32)
        CPU.top_k(users[:n], items, m, None, found, scores)
        assert (np.sort(found, axis=1) == np.arange(m)).all()
        close(scores, np.take_along_axis(wanted[:n], found.astype(int), axis=1), d)


@pytest.mark.parametrize("d", SIZES)
def test_a_row_has_the_same_bits_wherever_it_stands(d):
    """Each number is summed from first to last, whatever tile or thread it falls to."""
    this, matrix = normal(500, d), np.random.default_rng(1).normal(size=(d, d))
    whole, part = CPU.empty(500, d), CPU.empty(123, d)
    with CPU.threads(2):
        CPU.multiply(this, matrix, whole)
    CPU.multiply(this[300:423], matrix, part)
    np.testing.assert_array_equal(whole[300:423], part)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", SIZES)
def test_a_gradient_step_over_rows_of_every_length(d, weighted):
    """Rows of 0 to 40 entries: whole groups of eight, and ends of up to four and up to seven."""
    generator = np.random.default_rng(3)
    n, m = 41, 60
    lists = [np.sort(generator.choice(m, size=i, replace=False)).astype(np.int32) for i in range(n)]
    indptr = np.concatenate(([0], np.cumsum([len(x) for x in lists])))
    weights = generator.uniform(0.5, 2, size=indptr[-1]).astype(np.float32) if weighted else None
    rows = Rows(indptr, np.concatenate(lists), weights)
    users, items = normal(n, d), normal(m, d, seed=1) / np.float32(np.sqrt(d))
    diagonal, ridge, shift = generator.uniform(1, 2, d), generator.uniform(1, 2, n), generator.normal(size=d)
    x, y = users.astype(float), items.astype(float)
    loss = 0.0
    for i, own in enumerate(lists):
        c = np.ones(len(own)) if weights is None else weights[indptr[i] : indptr[i + 1]].astype(float)
        h = diagonal + ridge[i]
        r = y[own].T @ (c * (1 - y[own] @ x[i])) - shift - h * x[i]
        p = r / h
        x[i] += (r @ p) / (p @ (h * p) + c @ (y[own] @ p) ** 2) * p
        loss += c @ (1 - y[own] @ x[i]) ** 2
    sums = CPU.improve(HalfStep(CPU, rows, items, diagonal, ridge, shift), users, Effort(1))
    np.testing.assert_allclose(users, x, atol=2e-5)
    assert sums.loss == pytest.approx(loss, rel=1e-4)
    assert sums.ridge_squares == pytest.approx(ridge @ (x**2).sum(axis=1), rel=1e-4)


def test_factors_begin_at_the_border_of_a_cache_line():
    assert all(CPU.empty(n, 5).ctypes.data % (4 * simd.LINE) == 0 for n in range(1, 40))


def test_zero_columns_beyond_the_last_one_of_a_packed_matrix():
    items, packed = normal(5, 3), np.full((1, 3, simd.TILE_COLUMNS), 9.0, dtype=np.float32)
    run(top_k.pack_rows, 1, items, out=(packed,), work=1.0)
    np.testing.assert_array_equal(packed[0, :, :5], items.T)
    assert not packed[0, :, 5:].any()


AS_ON = """
import platform, sys
machine, *arguments = sys.argv[1:]
platform.machine = lambda: machine
import pytest
sys.exit(pytest.main(arguments))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of the processors are those of x86")
@pytest.mark.parametrize(
    ("processor", "machine"),
    [("x86-64-v3", "x86_64"), ("generic", "x86_64"), ("generic", "arm64")],
    ids=["eight numbers", "eight without fused instructions", "four numbers"],
)
def test_other_processors(processor, machine, tmp_path):
    """Vectors of other widths, as processors without AVX-512 have them; four numbers as on ARM, in x86 instructions."""
    chosen = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    folder = Path(__file__).parent
    files = [str(folder / name) for name in ("test_products.py", "test_kernels.py")]
    command = [sys.executable, "-c", AS_ON, machine, "-q", "-p", "no:cacheprovider", "-m", "not slow", *files]
    done = subprocess.run(
        command,
        env=os.environ | chosen,
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder.parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
