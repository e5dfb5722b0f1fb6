"""What backends whose arrays are NumPy's have in common: keeping them, and arithmetic that is the same on all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Diagonalised, Factors, Matrix, RankOne, Vector, fixed_signs


class NumpyArrays:
    """Part of a backend; see `contract.Backend` for what each method does."""

    dtype: np.dtype[Any]

    def array(self, values: NDArray[Any]) -> Factors:
        """See contract."""
        return np.ascontiguousarray(values, dtype=self.dtype)

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract."""
        return np.empty((rows, factors), dtype=self.dtype)

    def host(self, factors: Factors) -> NDArray[Any]:
        """See contract."""
        return factors

    def vector(self, values: NDArray[Any]) -> NDArray[Any]:
        """See contract."""
        return np.asarray(values, dtype=np.float64)

    def numbers(self, *values: Any) -> list[float]:
        """See contract."""
        return [float(value) for value in values]

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:  # noqa: ARG002
        """See contract. Always exact: a guess would save next to nothing."""
        if not np.isfinite(matrix).all():  # LAPACK would not return; the fit loop finds the NaN and says so
            return Diagonalised(np.full(len(matrix), np.nan), np.full_like(matrix, np.nan))
        values, vectors = np.linalg.eigh(matrix)
        return Diagonalised(values, fixed_signs(vectors))

    def mean_response(
        self, shares: Vector, ridge: Vector, slopes: Vector, values: Vector, typical: Vector, mix: float
    ) -> Vector:
        """See contract."""
        base, share = values[None, :] + ridge[:, None], shares[:, None]
        upper, lower = (share / base).sum(axis=0), (share / (base + slopes[:, None] * typical)).sum(axis=0)
        mean: Vector = (1.0 - mix) * upper + mix * lower
        return mean

    def corrected_shift(
        self, shift: Vector, mean: Vector, strength: Vector, response: Vector, rest: Vector | None
    ) -> tuple[Vector, Vector]:
        """See contract."""
        target = strength * mean if rest is None else strength * mean + rest
        better: Vector = shift + (target - shift) / (1.0 + strength * response)
        return better, -(response * (better - shift))

    def add_diagonal(self, this: Factors, ridge: Vector, shift: Vector, rank_one: RankOne | None, out: Factors) -> None:
        """See contract."""
        out += this * ridge.astype(self.dtype)[:, None]
        out += shift.astype(self.dtype)
        if rank_one is not None:
            vector, weights = (x.astype(self.dtype) for x in rank_one)
            out += (weights * (this @ vector))[:, None] * vector

    def put(self, values: Factors, rows: NDArray[np.integer], out: Factors) -> None:
        """See contract."""
        out[rows] = values
