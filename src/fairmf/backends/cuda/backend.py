"""The cuda backend: sends what a kernel needs to the device, starts it, and brings small results back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Diagonalised, Factors, Matrix, RankOne, RowSums, Vector
from fairmf.backends.cuda import cholesky, modules
from fairmf.backends.cuda import top_k as best
from fairmf.backends.cuda.long_rows import improve_long_rows, residual_of_long_rows
from fairmf.backends.cuda.uploads import Uploads, cut, device_rows
from fairmf.interactions import Rows

GRAMIAN_ROWS = 2048  # rows summed in float32 before they are added in float64
REDUCED_ROWS = 512  # rows a block of threads sums up
NEARLY = 0.2  # a basis counts as right where what is off the diagonal is at most this, beside the diagonal


class CudaBackend:
    """CUDA kernels in float32; see `contract.Backend` for what each method does."""

    name = "cuda"
    dtype = np.dtype(np.float32)
    tolerance = 2e-4

    def __init__(self, half: bool = False) -> None:
        self._half = half
        self._pool = cp.cuda.MemoryPool()
        self._uploads = Uploads()
        self._depth = 0

    @contextlib.contextmanager
    def threads(self, num_threads: int) -> Iterator[None]:  # noqa: ARG002 - of the host; none is used
        """See contract. On leaving, everything taken from the device is given back."""
        self._depth += 1
        try:
            with cp.cuda.using_allocator(self._pool.malloc):
                yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._uploads.clear()
                self._pool.free_all_blocks()

    def compiles_now(self) -> bool:
        """See contract."""
        return modules.row_kernels.cache_info().currsize == 0

    def array(self, values: NDArray[Any]) -> Factors:
        """See contract."""
        return cp.ascontiguousarray(cp.asarray(values, dtype=self.dtype))

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract."""
        return cp.empty((rows, factors), dtype=self.dtype)

    def host(self, factors: Factors) -> NDArray[Any]:
        """See contract."""
        return cp.asnumpy(factors)

    def vector(self, values: NDArray[Any]) -> NDArray[Any]:
        """See contract."""
        return self._uploads.array(values, "float64")

    def numbers(self, *values: Any) -> list[float]:
        """See contract."""
        found: list[float] = cp.stack([cp.asarray(value, dtype=cp.float64) for value in values]).tolist()
        return found

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:
        """See contract. Eigenvectors take as long as all other work of a half-step on the device."""
        matrix = cp.asarray(matrix)
        if guess is not None:
            values, rest, scaled = self._split(guess.T @ matrix @ guess, ridge)
            square = scaled @ scaled
            fourth = (square @ square).ravel()
            # The trace of the 8th power bounds that of the largest eigenvalue.
            if fourth.dot(fourth) < NEARLY**8:
                return Diagonalised(values, guess, rest)
        if not cp.isfinite(matrix).all():
            return Diagonalised(cp.full(len(matrix), cp.nan), cp.full_like(matrix, cp.nan))
        return Diagonalised(*cp.linalg.eigh(matrix))

    def _split(self, matrix: Any, ridge: float) -> tuple[Any, Any, Any]:
        """Diagonal, rest, and the rest beside diagonal + ridge."""
        d = len(matrix)
        values, rest, scaled = cp.empty(d), cp.empty((d, d)), cp.empty((d, d))
        self._kernel("reductions.cu", "split_diagonal")(
            (-(-d * d // 256),), (256,), (matrix, np.int32(d), np.float64(ridge), values, rest, scaled)
        )
        return values, rest, scaled

    def mean_reciprocal(self, shares: Vector, ridge: Vector, slopes: Vector, values: Vector, typical: Vector) -> Vector:
        """See contract."""
        out, groups, d = cp.empty(len(values)), np.int32(len(shares)), np.int32(len(values))
        self._kernel("reductions.cu", "mean_reciprocal")(
            (-(-len(values) // 32),), (32, 32), (shares, ridge, slopes, groups, values, typical, d, out)
        )
        return out

    # -- reductions -----------------------------------------------------------------------------------------------

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """See contract. Products of GRAMIAN_ROWS rows at a time in float32, added up in float64."""
        n, d = this.shape
        if weights is not None:
            this = this * cp.sqrt(self.vector(weights)).astype(self.dtype)[:, None]
        whole = n - n % GRAMIAN_ROWS
        blocks = this[:whole].reshape(-1, GRAMIAN_ROWS, d)
        total = cp.matmul(blocks.transpose(0, 2, 1), blocks).sum(axis=0, dtype=cp.float64)
        rest = this[whole:]
        total += cp.matmul(rest.T, rest)
        return (total + total.T) / 2

    def mean(self, this: Factors) -> Vector:
        """See contract."""
        return self._column_sums(this, 0, scale=1.0 / len(this))

    def squared_norms(self, this: Factors) -> Vector:
        """See contract."""
        n, d = this.shape
        out = cp.empty(n, dtype=cp.float64)
        if n:
            self._kernel("reductions.cu", "squared_norms")((-(-n // 8),), (256,), (this, np.int64(n), np.int32(d), out))
        return out

    def weighted_squares(self, this: Factors, weights: Vector) -> Vector:
        """See contract."""
        return self._column_sums(this, 1, weights=self.vector(weights))

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """See contract."""
        return float(self._column_sums(this, 2, other=other).sum())

    def _column_sums(
        self, this: Factors, mode: int, other: Any = None, weights: Any = None, scale: float = 1.0
    ) -> Vector:
        n, d = this.shape
        blocks = max(1, -(-n // REDUCED_ROWS))
        parts = cp.empty((blocks, d), dtype=cp.float64)
        nothing = np.uintp(0)
        self._kernel("reductions.cu", "column_sums")(
            (-(-d // 32), blocks), (32, 8),
            (
                this, nothing if other is None else other, nothing if weights is None else weights, np.int64(n),
                np.int32(d), np.int64(REDUCED_ROWS), np.int32(mode), parts,
            ),
        )  # fmt: skip
        out = cp.empty(d)
        self._kernel("reductions.cu", "sum_parts")(
            (-(-d // 32),), (32, 32), (parts, np.int32(blocks), np.int32(d), np.float64(scale), out)
        )
        return out

    def all_finite(self, this: Factors) -> bool:
        """See contract."""
        if isinstance(this, np.ndarray):
            return bool(np.isfinite(this).all())
        return bool(cp.isfinite(self._column_sums(this, 0)).all())

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:
        """See contract."""
        if rows.nnz == 0:
            return 0.0
        on = device_rows(rows, self._uploads)
        every = np.arange(rows.count, dtype=np.int32)
        chunks = self._uploads.derived(rows.indptr, "chunks", lambda: cut(rows.indptr, every))
        losses = cp.empty(len(chunks), dtype=cp.float64)
        self._rows(other, False).launch(
            "observed_loss", len(chunks),
            (on.indices, self._or_null(on.weights), chunks.of_row, chunks.start, chunks.stop, this, other, losses),
        )  # fmt: skip
        return float(losses.sum())

    # -- rows -----------------------------------------------------------------------------------------------------

    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """See contract."""
        factor = cp.asarray(matrix, dtype=self.dtype)
        if out is this:
            out[...] = cp.matmul(this, factor)
        else:
            cp.matmul(this, factor, out=out)

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """See contract."""
        n, d = out.shape
        if n:
            moved = self._single(vector)
            self._kernel("reductions.cu", "add_vector")((-(-n // 32),), (256,), (moved, np.int64(n), np.int32(d), out))

    def solve_rows(
        self,
        rows: Rows,
        other: Factors,
        shared: Matrix,
        ridge: Vector,
        shift: Vector,
        out: Factors,
        rank_one: RankOne | None = None,
    ) -> None:
        """See contract."""
        on = device_rows(rows, self._uploads)
        terms = self._single(shared), self._uploads.array(ridge, "float32"), *self._term(rank_one)
        right = self._single(shift)
        for chosen in cholesky.batches(rows.count, other.shape[1]):
            factors, definite = cholesky.factorised(on, chosen, other, terms)
            solution = cholesky.solved(factors, cholesky.right_sides(on, chosen, other, right))
            out[chosen] = cp.where(definite[:, None], solution, cp.nan)

    def mean_inverse(self, rows: Rows, other: Factors, shared: Matrix, ridge: Vector) -> tuple[Matrix, Vector]:
        """See contract."""
        d = other.shape[1]
        on = device_rows(rows, self._uploads)
        terms = self._single(shared), self._uploads.array(ridge, "float32"), None, None
        inverses, solutions = cp.zeros((d, d)), cp.zeros(d)
        for chosen in cholesky.batches(rows.count, 2 * d):
            factors, _ = cholesky.factorised(on, chosen, other, terms)
            right = cholesky.right_sides(on, chosen, other, cp.zeros(d, dtype=cp.float32))
            solutions += cholesky.solved(factors, right).sum(axis=0, dtype=cp.float64)
            inverses += cholesky.sum_of_inverses(factors)
        return inverses / rows.count, solutions / rows.count

    def improve_rows(
        self,
        rows: Rows,
        other: Factors,
        diagonal: Vector,
        ridge: Vector,
        shift: Vector,
        steps: int,
        tolerance: float,
        relaxation: float,
        this: Factors,
        rank_one: RankOne | None = None,
        rest: Matrix | None = None,
    ) -> RowSums:
        """See contract."""
        on, kernels = device_rows(rows, self._uploads), self._rows(other, self._half)
        gathered = other.astype(cp.float16) if self._half else other
        vector, pulls = self._term(rank_one)
        own = self._uploads.array(ridge, "float32")
        left_over = None if rest is None else cp.matmul(this, rest.astype(self.dtype))
        terms = (vector, pulls, left_over)
        shared = self._single(diagonal), own, self._single(shift), *map(self._or_null, terms)
        sums = cp.empty((rows.count, 3), dtype=cp.float64)
        limits = np.float32(tolerance), np.float32(relaxation)
        kernels.launch(
            "improve_rows", len(on.short),
            (
                on.indptr, on.indices, self._or_null(on.weights), on.short, gathered, *shared, np.int32(steps), *limits,
                this, sums,
            ),
            vectors=2 + kernels.groups, cache=True,
        )  # fmt: skip
        improve_long_rows(kernels, on, gathered, shared, steps, limits, this, sums)
        return RowSums(*sums.sum(axis=0))

    def residual_rows(self, rows: Rows, this: Factors, other: Factors, target: float, out: Factors) -> None:
        """See contract."""
        on, kernels = device_rows(rows, self._uploads), self._rows(other, False)
        number = np.float32(target)
        kernels.launch(
            "residual_rows", len(on.short),
            (on.indptr, on.indices, self._or_null(on.weights), on.short, this, other, number, out),
            vectors=kernels.groups,
        )  # fmt: skip
        residual_of_long_rows(kernels, on, this, other, number, out)

    def top_k(
        self,
        this: Factors,
        other: Factors,
        k: int,
        exclude: Rows | None,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
    ) -> None:
        """See contract."""
        barred = None
        if exclude is not None:
            barred = exclude.indptr, self._uploads.array(exclude.indices, "int32")
        if len(this):
            best.top_k(this, other, k, barred, items, scores)

    # -- small things ---------------------------------------------------------------------------------------------

    def _rows(self, other: Factors, half: bool) -> modules.RowKernels:
        return modules.row_kernels(other.shape[1], half, cp.cuda.Device().id)

    def _kernel(self, source: str, name: str) -> Any:
        return modules.kernel(source, name, cp.cuda.Device().id)

    def _single(self, values: Any) -> Any:
        return cp.ascontiguousarray(cp.asarray(values, dtype=self.dtype))

    def _term(self, rank_one: RankOne | None) -> tuple[Any, Any]:
        return (None, None) if rank_one is None else tuple(self._single(x) for x in rank_one)

    @staticmethod
    def _or_null(array: Any) -> Any:
        return np.uintp(0) if array is None else array


BACKEND = CudaBackend()
