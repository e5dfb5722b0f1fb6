"""Share what backends on NumPy arrays have in common: allocation, eigenvectors and d-vector arithmetic."""

from __future__ import annotations

import abc
from typing import Any, SupportsFloat

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fairmf.backends.contract import Diagonalised, Factors, HalfStep, Matrix, Vector
from fairmf.data.csr import Rows
from fairmf.types import Array

SUMMED_AT_ONCE = 8192  # rows whose products are computed at a time, to bound memory
NEARLY = 0.3  # off the diagonal, beside diagonal + ridge: a step that ignores it stays below twice the best length
ROUNDED = 1e-6  # ridges below this part of a matrix are lost when it is multiplied in float32
LARGE = 128  # rows from which on float32 saves time that counts: eigenvectors of smaller matrices stay in float64
CLEAR = 1e-3  # ridges above this part of a matrix: what rounding to float32 adds to it is far below them
HUGE = 1e30  # ridges below this are far from the largest number of float32, and so are the matrices below them
POWER_STEPS = 8  # of the power iteration that measures what is off the diagonal


class NumpyArrays(abc.ABC):
    """Implement the methods of `contract.Backend` that need no kernels."""

    dtype: np.dtype[Any]
    slow_eigenvectors = False

    def array(self, values: Array) -> Factors:
        """See contract."""
        return np.ascontiguousarray(values, dtype=self.dtype)

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract."""
        return np.empty((rows, factors), dtype=self.dtype)

    def host(self, factors: Factors) -> Array:
        """See contract."""
        return factors

    deferred = host  # nothing to wait for

    def vector(self, values: Array) -> Array:
        """See contract."""
        return np.asarray(values, dtype=np.float64)

    def numbers(self, *values: SupportsFloat) -> list[float]:
        """See contract."""
        return [float(value) for value in values]

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:
        """See contract. Measuring what a guess leaves off the diagonal takes a fraction of the time of eigenvectors."""
        # LAPACK may loop forever on NaN. The fit loop finds the NaN in the factors and reports it.
        if not np.isfinite(matrix).all():
            return Diagonalised(np.full(len(matrix), np.nan), np.full_like(matrix, np.nan))
        if guess is not None and ridge > ROUNDED * matrix.diagonal().max():
            # Contiguous once, rather than in every product: transposing takes half as long as multiplying.
            transposed, guess = self.array(guess.T), np.ascontiguousarray(guess)
            half, turned = self.empty(*matrix.shape), self.empty(*matrix.shape)
            self.multiply(self.array(matrix), guess, half)
            self.multiply(transposed, half, turned)
            values = np.maximum(turned.diagonal().astype(np.float64), 0.0)
            np.fill_diagonal(turned, 0.0)
            if _largest_eigenvalue(turned, 1.0 / np.sqrt(values + ridge)) < NEARLY:
                return Diagonalised(values, guess, turned.astype(np.float64))
        rounded = self.dtype == np.float32 and len(matrix) >= LARGE and CLEAR * np.linalg.norm(matrix) < ridge < HUGE
        if rounded:
            # At 256 rows float32 takes little more than half as long. NumPy would compute in float64 whatever the type.
            # LAPACK wants contiguous columns, which the transpose of this symmetric matrix has.
            columns = matrix.astype(np.float32).T
            values, vectors = scipy.linalg.eigh(
                columns, lower=False, driver="evd", overwrite_a=True, check_finite=False
            )
        else:
            values, vectors = np.linalg.eigh(matrix)
        values = np.maximum(values.astype(np.float64), 0.0)
        return Diagonalised(values, np.ascontiguousarray(fixed_signs(vectors), dtype=np.float64))

    def column_products(self, this: Factors, other: Factors) -> Vector:
        """See contract."""
        total = np.zeros(this.shape[1])
        for start in range(0, len(this), SUMMED_AT_ONCE):
            part = slice(start, start + SUMMED_AT_ONCE)
            total += np.einsum("ij,ij->j", this[part], other[part], dtype=np.float64)
        return total

    def score_sum(self, rows: Rows, this: Factors, other: Factors) -> float:
        """See contract."""
        total = 0.0
        for start in range(0, rows.count, SUMMED_AT_ONCE):
            part = rows.block(start, min(start + SUMMED_AT_ONCE, rows.count)).read_only()
            product = self.sparse_product(part, other)
            total += float(np.einsum("ij,ij->", product, this[start : start + SUMMED_AT_ONCE], dtype=np.float64))
        return total

    def mean_response(
        self, shares: Vector, ridge: Vector, slopes: Vector, values: Vector, typical: Vector, mix: float
    ) -> Vector:
        """See contract."""
        base = values[None, :] + ridge[:, None]
        upper = np.einsum("g,gk->k", shares, 1.0 / base)
        base += slopes[:, None] * typical
        mean: Vector = (1.0 - mix) * upper + mix * np.einsum("g,gk->k", shares, 1.0 / base)
        return mean

    def corrected_shift(
        self, shift: Vector, mean: Vector, strength: Vector, response: Vector, rest: Vector | None
    ) -> tuple[Vector, Vector]:
        """See contract."""
        target = strength * mean if rest is None else strength * mean + rest
        better: Vector = shift + (target - shift) / (1.0 + strength * response)
        return better, -(response * (better - shift))

    def residual(self, step: HalfStep, this: Factors) -> Factors:
        """See contract."""
        ridge, out = step.ridge.astype(self.dtype), self.empty(*this.shape)
        if step.shared.ndim == 1:
            np.multiply(this, step.shared.astype(self.dtype), out=out)
        else:
            self.multiply(this, step.shared, out)
        out += this * ridge[:, None]
        out += (step.shift if step.right is None else -step.right).astype(self.dtype)
        if step.own is not None and step.right is None:
            out -= step.own
        if step.rank_one is not None:
            vector, weights = (x.astype(self.dtype) for x in step.rank_one)
            out += (weights * (this @ vector))[:, None] * vector
        # `right` replaces sum_j c_ij y_j: with target 0 only the entries' part of H x is added.
        self._add_entries(step, this, 1.0 if step.right is None else 0.0, out)
        return out

    @abc.abstractmethod
    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """See contract."""

    @abc.abstractmethod
    def sparse_product(self, rows: Rows, other: Factors) -> Factors:
        """See contract."""

    @abc.abstractmethod
    def _add_entries(self, step: HalfStep, this: Factors, target: float, out: Factors) -> None:
        """Add sum_j c_ij (x_i.y_j - target) y_j to out_i, for every row."""

    def turned(self, this: Factors, matrix: Matrix) -> Factors:
        """See contract."""
        self.multiply(this, matrix, this)
        return this

    def put(self, values: Factors, rows: NDArray[np.integer] | slice, out: Factors) -> None:
        """See contract."""
        out[rows] = values


def _largest_eigenvalue(matrix: Factors, scale: Vector) -> float:
    """Return about the largest absolute eigenvalue of S M S for a symmetric M and the diagonal S; never more."""
    scale = scale.astype(matrix.dtype)
    scaled = matrix * scale[:, None]
    scaled *= scale
    # Irregular, so that no eigenvector of a regular matrix is orthogonal to it.
    irregular = 1.0 + np.arange(len(scaled)) * 0.6180339887 % 1.0
    vector = np.abs(scaled).sum(axis=0) * irregular.astype(matrix.dtype)
    length = 1.0
    for _ in range(POWER_STEPS):
        if (size := np.linalg.norm(vector)) == 0.0:
            return 0.0
        vector = scaled @ (vector / size)
        length = float(np.linalg.norm(vector))
    return length


def fixed_signs(vectors: Array) -> Array:
    """Flip eigenvectors (columns) so that the largest entry of each is positive; on ties the first entry decides.

    The sign of an eigenvector is arbitrary, and the one LAPACK returns depends on rounding. Without this rule two
    backends, two builds of a library, or one machine and a cluster would find factors whose columns differ by a sign.
    Entries of about the same size count as ties, so that rounding does not decide there either.
    """
    size, alike = abs(vectors), max(1e-6, 1e3 * np.finfo(vectors.dtype).eps)
    first = (size >= (1.0 - alike) * size.max(axis=0)).argmax(axis=0)
    signs: Vector = np.copysign(1.0, np.take_along_axis(vectors, first[None, :], axis=0))
    return vectors * signs
