"""Implement the cuda backend: pass each method of the contract on to the file that computes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import SupportsFloat

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import (
    Deferred,
    Diagonalised,
    Effort,
    Factors,
    HalfStep,
    ItemScale,
    Matrix,
    RowSums,
    ScoreWindow,
    Vector,
)
from fairmf.backends.cuda import launch, reductions, subspace
from fairmf.backends.cuda import rows as row_work
from fairmf.backends.cuda import top_k as best
from fairmf.backends.cuda.memory import Placing
from fairmf.backends.numpy_arrays import fixed_signs
from fairmf.backends.random_start import Stream
from fairmf.data.csr import Rows
from fairmf.types import Array

NEARLY = 0.1  # a basis is good enough if the off-diagonal part is at most this, relative to the diagonal


class CudaBackend:
    """Compute in float32 on a GPU; see `contract.Backend` for what each method does."""

    name = "cuda"
    dtype = np.dtype(np.float32)
    tolerance = 2e-4
    slow_eigenvectors = True

    def __init__(self, half: bool = False) -> None:
        self.rounding = 1e-4 if half else 1e-6
        self._half = half
        self._placing = Placing()
        self._depth = 0
        self._rotation: tuple[Matrix, cp.ndarray] | None = None

    @contextlib.contextmanager
    def threads(self, num_threads: int) -> Iterator[None]:  # noqa: ARG002 - threads of the host, which are not used
        """See contract. Frees all device memory on exit."""
        self._depth += 1
        try:
            with cp.cuda.using_allocator(self._placing.pool.malloc):
                yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._rotation = None
                self._placing.clear()

    def compiles_now(self) -> bool:
        """See contract."""
        return launch.row_kernels.cache_info().currsize == 0

    # -- arrays ---------------------------------------------------------------------------------------------------

    def array(self, values: Array) -> Factors:
        """See contract."""
        return self._placing.array(values)

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract."""
        return self._placing.empty(rows, factors)

    def draw_normal(self, stream: Stream, numbers: NDArray[np.int64] | None, scale: float, out: Factors) -> None:
        """See contract."""
        kernel = launch.kernel("random_start.cu", "normal_rows", cp.cuda.Device().id)
        blocks = -(-out.shape[1] // 4)
        words = *(np.uint32(word) for word in stream.key), np.uint32(stream.side)
        for part, x in self._placing.parts(out):
            if len(x) == 0:
                continue
            own = np.uintp(0) if numbers is None else cp.asarray(numbers[part], dtype=cp.int64)
            sizes = np.int64(part.start), np.int64(len(x)), np.int32(x.shape[1])
            kernel((-(-len(x) * blocks // 256),), (256,), (*words, own, *sizes, np.float32(scale), x))
            self._placing.store(x, part, out)

    def host(self, factors: Factors) -> Array:
        """See contract."""
        return cp.asnumpy(factors)

    def deferred(self, factors: Factors) -> Array | Deferred:
        """See contract."""
        return Deferred(factors, cp.asnumpy) if isinstance(factors, cp.ndarray) else factors

    def vector(self, values: Array) -> Array:
        """See contract."""
        return self._placing.uploads.array(values, "float64")

    def numbers(self, *values: SupportsFloat) -> list[float]:
        """See contract."""
        # Stacked, so that one transfer brings all of them: each transfer waits for the device.
        arrays = [v if isinstance(v, cp.ndarray) else cp.asarray(v, dtype=cp.float64) for v in values]
        found: list[float] = cp.stack(arrays).tolist()
        return found

    # -- reductions -----------------------------------------------------------------------------------------------

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """See contract."""
        return reductions.gramian(self._placing, this, weights)

    def mean(self, this: Factors) -> Vector:
        """See contract."""
        return reductions.column_sums(self._placing, this, reductions.SUM, scale=1.0 / len(this))

    def squared_norms(self, this: Factors) -> Vector:
        """See contract."""
        return reductions.squared_norms(self._placing, this)

    def weighted_squares(self, this: Factors, weights: Vector) -> Vector:
        """See contract."""
        return reductions.column_sums(self._placing, this, reductions.SQUARES, weights=weights)

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """See contract."""
        return float(reductions.column_sums(self._placing, this, reductions.DIFFERENCE, other=other).sum())

    def column_products(self, this: Factors, other: Factors) -> Vector:
        """See contract."""
        return reductions.column_sums(self._placing, this, reductions.PRODUCT, other=other)

    def mean_response(
        self, shares: Vector, ridge: Vector, slopes: Vector, values: Vector, typical: Vector, mix: float
    ) -> Vector:
        """See contract."""
        return reductions.mean_response(shares, ridge, slopes, values, typical, mix)

    def corrected_shift(
        self, shift: Vector, mean: Vector, strength: Vector, response: Vector, rest: Vector | None
    ) -> tuple[Vector, Vector]:
        """See contract."""
        return reductions.corrected_shift(shift, mean, strength, response, rest)

    def all_finite(self, this: Factors) -> bool:
        """See contract."""
        # Sums in float64 of float32 numbers do not overflow: one is finite only if all its numbers are.
        return bool(cp.isfinite(reductions.column_sums(self._placing, this, reductions.SUM)).all())

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:
        """See contract."""
        return row_work.sum_over_entries(self._placing, "observed_loss", rows, this, other)

    def score_sum(self, rows: Rows, this: Factors, other: Factors) -> float:
        """See contract."""
        return row_work.sum_over_entries(self._placing, "score_sum", rows, this, other)

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:
        """See contract. Uses the guess: on a GPU eigenvectors take as long as all other work of a half-step."""
        matrix = cp.asarray(matrix)
        if guess is not None:
            values, rest, scaled = reductions.split_diagonal(guess.T @ matrix @ guess, ridge)
            square = scaled @ scaled
            fourth = (square @ square).ravel()
            # The trace of the 8th power of a symmetric matrix bounds the 8th power of its largest eigenvalue.
            if float(fourth.dot(fourth)) < NEARLY**8:
                return Diagonalised(cp.maximum(values, 0.0), guess, rest)
        if not cp.isfinite(matrix).all():
            return Diagonalised(cp.full(len(matrix), cp.nan), cp.full_like(matrix, cp.nan))
        values, vectors = cp.linalg.eigh(matrix)
        return Diagonalised(cp.maximum(values, 0.0), fixed_signs(vectors))

    # -- rows -----------------------------------------------------------------------------------------------------

    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """See contract."""
        factor = self._single(matrix)
        if isinstance(out, cp.ndarray) and out is not this:
            cp.matmul(this, factor, out=out)
            return
        for part, x in self._placing.parts(this):
            self._placing.store(cp.matmul(x, factor), part, out)

    def turned(self, this: Factors, matrix: Matrix) -> Factors:
        """See contract."""
        if isinstance(this, cp.ndarray):  # cuBLAS cannot multiply in place anyway
            return cp.matmul(this, self._single(matrix))
        self.multiply(this, matrix, this)
        return this

    def _single(self, matrix: Matrix) -> cp.ndarray:
        # Both sides are rotated by the same matrix, one after the other: cache the last one.
        if self._rotation is None or self._rotation[0] is not matrix:
            self._rotation = matrix, cp.asarray(matrix, dtype=self.dtype)
        return self._rotation[1]

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """See contract."""
        reductions.add_vector(self._placing, vector, out)

    def put(self, values: Factors, rows: NDArray[np.integer] | slice, out: Factors) -> None:
        """See contract."""
        if isinstance(out, cp.ndarray):
            out[rows] = cp.asarray(values)
        else:
            out[rows] = cp.asnumpy(values)

    def sparse_product(self, rows: Rows, other: Factors) -> Factors:
        """See contract."""
        out = self.empty(rows.count, other.shape[1])
        row_work.sparse_product(self._placing, rows, other, out)
        return out

    def solve(self, step: HalfStep) -> Factors:
        """See contract."""
        out = self.empty(step.rows.count, step.other.shape[1])
        row_work.solve(self._placing, step, out)
        return out

    def mean_inverse(self, step: HalfStep) -> tuple[Matrix, Vector]:
        """See contract."""
        return row_work.mean_inverse(self._placing, step)

    def improve(self, step: HalfStep, this: Factors, effort: Effort) -> RowSums:
        """See contract."""
        return RowSums(*row_work.improve(self._placing, self._half, step, this, effort))

    def residual(self, step: HalfStep, this: Factors) -> Factors:
        """See contract."""
        out = self.empty(*this.shape)
        if step.shared.ndim == 2:
            self.multiply(this, step.shared, out)
        row_work.add_residual(self._placing, step, this, out)
        return out

    def entry_scores(self, rows: Rows, this: Factors, other: Factors) -> Factors:
        """See contract."""
        return subspace.entry_scores(self._placing, rows, this, other)

    def improve_block(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> None:
        """See contract."""
        subspace.improve(self._placing, step, block, scores, this)

    def block_response(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> tuple[Matrix, Vector]:
        """See contract."""
        return subspace.response(self._placing, step, block, scores, this)

    def top_k(
        self,
        this: Factors,
        other: Factors,
        k: int,
        exclude: Rows | None,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
        dial: ItemScale | None = None,
        window: ScoreWindow | None = None,  # noqa: ARG002
    ) -> None:
        """See contract."""
        if len(this):
            best.top_k(self._placing, this, other, k, exclude, items, scores, dial)


BACKEND = CudaBackend()
HALF = CudaBackend(half=True)
