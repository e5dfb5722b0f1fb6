"""The reference backend: float64 NumPy, row by row, as close to the formulas as code gets. Slow, and the oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, Matrix, Vector
from fairmf.interactions import Rows


class ReferenceBackend:
    """Plain NumPy in float64; see `contract.Backend` for what each method does."""

    name = "reference"
    dtype = np.dtype(np.float64)
    tolerance = 1e-10

    @contextlib.contextmanager
    def threads(self, num_threads: int) -> Iterator[None]:  # noqa: ARG002 - always one
        """Nothing to set: the reference runs on one thread."""
        yield

    def compiles_now(self) -> bool:
        """Nothing is compiled."""
        return False

    def array(self, values: NDArray[Any]) -> Factors:
        """See contract."""
        return np.ascontiguousarray(values, dtype=self.dtype)

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract."""
        return np.empty((rows, factors), dtype=self.dtype)

    def host(self, factors: Factors) -> NDArray[Any]:
        """See contract."""
        return factors

    def gramian(self, this: Factors) -> Matrix:
        """See contract."""
        gramian: Matrix = np.einsum("ia,ib->ab", this, this)
        return gramian

    def mean(self, this: Factors) -> Vector:
        """See contract."""
        mean: Vector = this.mean(axis=0)
        return mean

    def squared_norms(self, this: Factors) -> Vector:
        """See contract."""
        norms: Vector = np.einsum("ia,ia->i", this, this)
        return norms

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
        out[:] = np.einsum("ia,ab->ib", this, matrix)

    def solve_rows(
        self, rows: Rows, other: Factors, shared: Matrix, ridge: Vector, shift: Vector, out: Factors
    ) -> None:
        """See contract."""
        for i in range(rows.count):
            columns, weights = _row(rows, i)
            y = other[columns]
            matrix = (y.T * weights) @ y + shared + ridge[i] * np.eye(other.shape[1])
            try:
                lower = np.linalg.cholesky(matrix)
                out[i] = np.linalg.solve(lower.T, np.linalg.solve(lower, y.T @ weights - shift))
            except np.linalg.LinAlgError:
                out[i] = np.nan

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
            score = other @ this[i]
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


BACKEND = ReferenceBackend()
