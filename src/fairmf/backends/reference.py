"""Run the arithmetic in float64 NumPy, row by row, just as the formulas say: slow, and the oracle of the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Effort, Factors, HalfStep, ItemScale, Matrix, RankOne, RowSums, ScoreWindow, Vector
from fairmf.backends.numpy_arrays import NumpyArrays
from fairmf.backends.random_start import Stream, normal_rows
from fairmf.data.csr import Rows


class ReferenceBackend(NumpyArrays):
    """Compute in float64 NumPy; see `contract.Backend` for what each method does."""

    name = "reference"
    dtype = np.dtype(np.float64)
    tolerance = 1e-10
    rounding = 1e-6

    @contextlib.contextmanager
    def threads(self, num_threads: int) -> Iterator[None]:  # noqa: ARG002 - always one
        """Do nothing: the reference runs on one thread."""
        yield

    def compiles_now(self) -> bool:
        """Return False: nothing is compiled."""
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

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """See contract."""
        out += vector

    def sparse_product(self, rows: Rows, other: Factors) -> Factors:
        """See contract."""
        out = self.empty(rows.count, other.shape[1])
        for i in range(rows.count):
            columns, weights = _row(rows, i)
            out[i] = weights @ other[columns]
        return out

    def solve(self, step: HalfStep) -> Factors:
        """See contract."""
        out = self.empty(step.rows.count, step.other.shape[1])
        for i in range(step.rows.count):
            matrix, right = _system(step, i)
            right = right - step.shift if step.right is None else step.right
            try:
                lower = np.linalg.cholesky(matrix)
                out[i] = np.linalg.solve(lower.T, np.linalg.solve(lower, right))
            except np.linalg.LinAlgError:
                out[i] = np.nan
        return out

    def mean_inverse(self, step: HalfStep) -> tuple[Matrix, Vector]:
        """See contract."""
        n, d = step.rows.count, step.other.shape[1]
        inverses, solutions = np.zeros((d, d)), np.zeros(d)
        for i in range(n):
            matrix, right = _system(replace(step, rank_one=None), i)
            inverse = np.linalg.inv(matrix)
            inverses += inverse
            solutions += inverse @ right
        return inverses / n, solutions / n

    def improve(self, step: HalfStep, this: Factors, effort: Effort) -> RowSums:
        """See contract."""
        squared_residual = 0.0
        for i in range(step.rows.count):
            columns, weights = _row(step.rows, i)
            y = step.other[columns]
            known = np.diag(step.shared + step.ridge[i])
            if step.rank_one is not None:
                known += _rank_one(step.rank_one, i)
            matrix = (y.T * weights) @ y + known
            precondition = np.linalg.inv(known)
            x = this[i]
            known_right = -step.shift if step.own is None else step.own[i] - step.shift
            r = y.T @ weights + known_right - matrix @ x
            if step.rest is not None and len(columns):
                r -= step.rest @ x
            squared_residual += float(r @ r)
            # Preconditioned conjugate gradients as in textbooks, but for the length of the last step.
            p = precondition @ r
            rz = r @ p
            goal = max(effort.tolerance**2 * rz, effort.accuracy**2 * (x @ known @ x))
            if len(columns) == 0:  # the preconditioner is the matrix itself: solve exactly, without relaxation
                x[:], rz = precondition @ known_right, 0.0
            for number in range(effort.steps):
                if not rz > goal:
                    break
                length = rz / (p @ matrix @ p)
                if number + 1 == effort.steps:
                    length *= effort.relaxation
                x += length * p
                r = r - length * (matrix @ p)
                before, rz = rz, r @ precondition @ r
                p = precondition @ r + (rz / before) * p
        loss = self.observed_loss(step.rows, this, step.other)
        return RowSums(loss, squared_residual, float(step.ridge @ self.squared_norms(this)))

    def _add_entries(self, step: HalfStep, this: Factors, target: float, out: Factors) -> None:
        for i in range(step.rows.count):
            columns, weights = _row(step.rows, i)
            y = step.other[columns]
            out[i] += y.T @ (weights * (y @ this[i] - target))

    def entry_scores(self, rows: Rows, this: Factors, other: Factors) -> Factors:
        """See contract."""
        scores = np.empty(rows.nnz)
        for i in range(rows.count):
            scores[rows.indptr[i] : rows.indptr[i + 1]] = other[_row(rows, i)[0]] @ this[i]
        return scores

    def improve_block(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> None:
        """See contract. Recomputes the scores instead of updating them: the other backends are tested against it."""
        for i in range(step.rows.count):
            matrix, move = _block_step(step, block, this, i)
            try:
                # Only to find out whether the matrix is positive definite; the step is known already.
                np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                move = np.full(len(matrix), np.nan)
            this[i, block] += move
        scores[:] = self.entry_scores(step.rows, this, step.other)

    def block_response(
        self,
        step: HalfStep,
        block: slice,
        scores: Factors,  # noqa: ARG002 - recomputed
        this: Factors,
    ) -> tuple[Matrix, Vector]:
        """See contract."""
        parts = [_block_step(step, block, this, i) for i in range(step.rows.count)]
        inverses, moves = sum(np.linalg.inv(matrix) for matrix, _ in parts), sum(move for _, move in parts)
        return np.asarray(inverses) / len(parts), np.asarray(moves) / len(parts)

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
        items[:] = -1
        scores[:] = np.nan
        scale, offset = ItemScale() if dial is None else dial
        if scale is not None:
            other = other * scale[:, None]
        for i in range(len(this)):
            score = (other @ this[i] + (0.0 if offset is None else offset)).astype(np.float32)
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


def _system(step: HalfStep, i: int) -> tuple[Matrix, Vector]:
    """Return H_i and sum_j c_ij y_j + own_i."""
    columns, weights = _row(step.rows, i)
    y = step.other[columns]
    matrix: Matrix = (y.T * weights) @ y + step.matrix + step.ridge[i] * np.eye(y.shape[1])
    if step.rank_one is not None:
        matrix += _rank_one(step.rank_one, i)
    right: Vector = y.T @ weights
    return matrix, right if step.own is None else right + step.own[i]


def _block_step(step: HalfStep, block: slice, this: Factors, i: int) -> tuple[Matrix, Vector]:
    """Return the piece of row i's matrix that belongs to a block of coordinates, and the step to their minimum."""
    whole, right = _system(step, i)
    gradient = (whole @ this[i] - right)[block] + step.shift[block]
    matrix: Matrix = whole[block, block]
    return matrix, -np.linalg.solve(matrix, gradient)


BACKEND = ReferenceBackend()
