"""The reference backend: float64 NumPy, row by row, as close to the formulas as code gets. Slow, and the oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, Matrix, RankOne, RowSums, Vector
from fairmf.backends.numpy_arrays import NumpyArrays
from fairmf.backends.random_start import Stream, normal_rows
from fairmf.data.csr import Rows


class ReferenceBackend(NumpyArrays):
    """Plain NumPy in float64; see `contract.Backend` for what each method does."""

    name = "reference"
    dtype = np.dtype(np.float64)
    tolerance = 1e-10
    rounding = 1e-6

    @contextlib.contextmanager
    def threads(self, num_threads: int) -> Iterator[None]:  # noqa: ARG002 - always one
        """Nothing to set: the reference runs on one thread."""
        yield

    def compiles_now(self) -> bool:
        """Nothing is compiled."""
        return False

    def draw_normal(self, stream: Stream, numbers: NDArray[np.int64] | None, scale: float, out: Factors) -> None:
        """See contract."""
        out[:] = normal_rows(stream, np.arange(len(out)) if numbers is None else numbers, out.shape[1], scale)

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """See contract."""
        gramian: Matrix = np.einsum("ia,ib->ab", this, this if weights is None else weights[:, None] * this)
        return gramian

    def mean(self, this: Factors) -> Vector:
        """See contract."""
        mean: Vector = this.mean(axis=0)
        return mean

    def squared_norms(self, this: Factors) -> Vector:
        """See contract."""
        norms: Vector = np.einsum("ia,ia->i", this, this)
        return norms

    def weighted_squares(self, this: Factors, weights: Vector) -> Vector:
        """See contract."""
        squares: Vector = np.einsum("i,ia,ia->a", weights, this, this)
        return squares

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """See contract."""
        return float(np.square(this - other).sum())

    def all_finite(self, this: Factors) -> bool:
        """See contract."""
        return bool(np.isfinite(this).all())

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:
        """See contract."""
        loss = 0.0
        for i in range(rows.count):
            columns, weights = _row(rows, i)
            loss += float(weights @ np.square(1.0 - other[columns] @ this[i]))
        return loss

    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """See contract."""
        out[:] = this @ matrix

    def turned(self, this: Factors, matrix: Matrix) -> Factors:
        """See contract."""
        self.multiply(this, matrix, this)
        return this

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """See contract."""
        out += vector

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
        for i in range(rows.count):
            columns, weights = _row(rows, i)
            y = other[columns]
            matrix = (y.T * weights) @ y + shared + ridge[i] * np.eye(other.shape[1])
            if rank_one is not None:
                matrix += _rank_one(rank_one, i)
            try:
                lower = np.linalg.cholesky(matrix)
                out[i] = np.linalg.solve(lower.T, np.linalg.solve(lower, y.T @ weights - shift))
            except np.linalg.LinAlgError:
                out[i] = np.nan

    def mean_inverse(self, rows: Rows, other: Factors, shared: Matrix, ridge: Vector) -> tuple[Matrix, Vector]:
        """See contract."""
        d = other.shape[1]
        inverses, solutions = np.zeros((d, d)), np.zeros(d)
        for i in range(rows.count):
            columns, weights = _row(rows, i)
            y = other[columns]
            inverse = np.linalg.inv((y.T * weights) @ y + shared + ridge[i] * np.eye(d))
            inverses += inverse
            solutions += inverse @ (y.T @ weights)
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
        squared_residual = 0.0
        for i in range(rows.count):
            columns, weights = _row(rows, i)
            y = other[columns]
            known = np.diag(diagonal + ridge[i])
            if rank_one is not None:
                known += _rank_one(rank_one, i)
            matrix = (y.T * weights) @ y + known
            precondition = np.linalg.inv(known)
            x = this[i]
            r = y.T @ weights - shift - matrix @ x
            if rest is not None:
                r -= rest @ x
            squared_residual += float(r @ r)
            p = precondition @ r
            rz = r @ p
            goal = tolerance**2 * rz
            if len(columns) == 0:  # the preconditioner is the matrix: solved at once, whatever the relaxation
                x[:], rz = -precondition @ shift, 0.0
            for step in range(steps):
                if not rz > goal:
                    break
                length = rz / (p @ matrix @ p)
                if step + 1 == steps:
                    length *= relaxation
                x += length * p
                r = r - length * (matrix @ p)
                before, rz = rz, r @ precondition @ r
                p = precondition @ r + (rz / before) * p
        return RowSums(self.observed_loss(rows, this, other), squared_residual, float(ridge @ self.squared_norms(this)))

    def entry_scores(self, rows: Rows, this: Factors, other: Factors) -> Factors:
        """See contract."""
        scores = np.empty(rows.nnz)
        for i in range(rows.count):
            scores[rows.indptr[i] : rows.indptr[i + 1]] = other[_row(rows, i)[0]] @ this[i]
        return scores

    def improve_subspace(
        self,
        rows: Rows,
        other: Factors,
        shared: Matrix,
        ridge: Vector,
        shift: Vector,
        first: int,
        last: int,
        scores: Factors,
        this: Factors,
        rank_one: RankOne | None = None,
    ) -> None:
        """See contract. Scores are made anew rather than kept: this is the oracle."""
        for i in range(rows.count):
            matrix, step = _block_step(rows, other, shared, ridge, shift, first, last, this, i, rank_one)
            try:
                np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                step = np.full(last - first, np.nan)
            this[i, first:last] += step
        scores[:] = self.entry_scores(rows, this, other)

    def subspace_response(
        self,
        rows: Rows,
        other: Factors,
        shared: Matrix,
        ridge: Vector,
        shift: Vector,
        first: int,
        last: int,
        scores: Factors,  # noqa: ARG002 - made anew
        this: Factors,
    ) -> tuple[Matrix, Vector]:
        """See contract."""
        inverses, steps = np.zeros((last - first, last - first)), np.zeros(last - first)
        for i in range(rows.count):
            matrix, step = _block_step(rows, other, shared, ridge, shift, first, last, this, i, None)
            inverses += np.linalg.inv(matrix)
            steps += step
        return inverses / rows.count, steps / rows.count

    def residual_rows(self, rows: Rows, this: Factors, other: Factors, target: float, out: Factors) -> None:
        """See contract."""
        for i in range(rows.count):
            columns, weights = _row(rows, i)
            y = other[columns]
            out[i] += y.T @ (weights * (y @ this[i] - target))

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
        items[:] = -1
        scores[:] = np.nan
        for i in range(len(this)):
            score = (other @ this[i]).astype(np.float32)
            allowed = np.ones(len(other), dtype=bool)
            if exclude is not None:
                allowed[exclude.row(i)[0]] = False
            best = np.argsort(-score, kind="stable")
            best = best[allowed[best]][:k]
            items[i, : len(best)] = best
            scores[i, : len(best)] = score[best]


def _row(rows: Rows, i: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    columns, weights = rows.row(i)
    return columns, np.ones(len(columns)) if weights is None else weights.astype(np.float64)


def _rank_one(rank_one: RankOne, i: int) -> Matrix:
    term: Matrix = rank_one.weights[i] * np.outer(rank_one.vector, rank_one.vector)
    return term


def _block_step(
    rows: Rows,
    other: Factors,
    shared: Matrix,
    ridge: Vector,
    shift: Vector,
    first: int,
    last: int,
    this: Factors,
    i: int,
    rank_one: RankOne | None,
) -> tuple[Matrix, Vector]:
    """The piece of row i's matrix that belongs to coordinates first..last, and the step to their minimum."""
    columns, weights = _row(rows, i)
    y = other[columns]
    whole = (y.T * weights) @ y + shared + ridge[i] * np.eye(other.shape[1])
    if rank_one is not None:
        whole += _rank_one(rank_one, i)
    gradient = (whole @ this[i] - y.T @ weights)[first:last] + shift
    matrix: Matrix = whole[first:last, first:last]
    return matrix, -np.linalg.solve(matrix, gradient)


BACKEND = ReferenceBackend()
