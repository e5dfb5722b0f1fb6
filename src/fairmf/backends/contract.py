"""The contract of every backend: what a half-step is, and which methods solve it.

A backend says *where* arithmetic runs and nothing else. A half-step fixes one side and solves the other, all rows i:

    (sum_j c_ij y_j y_j' + shared + ridge_i I + rank-one term of i) x_i  =  sum_j c_ij y_j - shift

For users, shared = alpha0 G_V and shift = psi q1 (zero without fairness). For items, shared = alpha0 G_U plus
lambda_f s s' and shift = 0 (docs/mathematics.md 4 and 5). Each x_i minimises a strictly convex quadratic, so solvers
differ in cost alone.

Conventions. `this` is the side being solved, `other` the fixed one, so a half-step is written once and called twice.
Arrays of rows x factors are of the backend's own kind and `dtype`. d x d matrices and d-vectors are float64: of the
backend's own kind where it returns them (NumPy's functions work on them), of that kind or NumPy's where it takes them.
Arguments that are overwritten come last. Every reduction (Gramian, mean, loss) runs in fixed blocks in a fixed order
and is summed in float64: the same input gives the same bits for any number of threads. An array that cannot be written
to is a constant (`frozen`): a backend may keep what it derives from it, such as a copy on a device, while it lives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.random_start import Stream
from fairmf.data.csr import Rows
from fairmf.errors import NotFinite

Factors = NDArray[Any]  # rows x d, the backend's dtype
Matrix = NDArray[np.float64]  # d x d
Vector = NDArray[np.float64]  # d, or one number per row
Method = TypeVar("Method", bound=Callable[..., Any])


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """Make an array a constant, and return it: nobody can write to it any more, so backends may cache by it."""
    values.flags.writeable = False
    return values


class ItemScale(NamedTuple):
    """What a level of the item dial does to the scores of each item: multiply by `scale`, then add `offset`."""

    scale: NDArray[np.float32] | None = None
    """None: 1 for all."""
    offset: NDArray[np.float32] | None = None
    """None: 0 for all."""


class RankOne(NamedTuple):
    """A term weight_i y y' of every row's matrix: one more interaction with the same y, of target 0.

    Items with different fairness weights need it: it is what of lambda_f w_j^2 s s' they do not share
    (docs/mathematics.md 5a). Weights are >= 0.
    """

    vector: Vector
    weights: Vector


class Diagonalised(NamedTuple):
    """A symmetric matrix in another basis: vectors @ (diag(values) + rest) @ vectors.T."""

    values: Vector
    vectors: Matrix
    rest: Matrix | None = None
    """What is off the diagonal; None for nothing."""


def fixed_signs(vectors: Matrix) -> Matrix:
    """Turn eigenvectors (columns) so that their largest entry is positive; of entries alike in size the first decides.

    A sign is arbitrary, and which one LAPACK returns depends on rounding: without this rule two backends, two builds
    of one library, or one machine and a cluster would find factors whose columns differ by a sign. Sizes within 1e-6
    count as alike, so that rounding does not decide there either.
    """
    size = abs(vectors)
    first = (size >= (1.0 - 1e-6) * size.max(axis=0)).argmax(axis=0)
    signs: Vector = np.copysign(1.0, np.take_along_axis(vectors, first[None, :], axis=0))
    return vectors * signs


@dataclass(frozen=True)
class HalfStep:
    """The linear systems of one side, as the module's docstring writes them."""

    backend: Backend
    rows: Rows
    """The interactions, one sparse row for each row of the side being solved."""
    other: Factors
    """The fixed side."""
    shared: Matrix | Vector
    """d x d; a d-vector stands for a diagonal matrix, which `Backend.improve` needs."""
    ridge: Vector
    """One number per row."""
    shift: Vector
    """A d-vector."""
    rank_one: RankOne | None = None
    right: Vector | None = None
    """A d-vector that replaces the right-hand side of every row; `solve` and `residual` alone take it."""
    rest: Matrix | None = None
    """What `diagonalise` left off the diagonal: the matrix is diag(shared) + rest. `improve` alone takes it."""

    @property
    def matrix(self) -> Matrix:
        """`shared` as a d x d matrix."""
        return np.diag(self.shared) if self.shared.ndim == 1 else self.shared


@dataclass(frozen=True)
class Effort:
    """How far conjugate gradients go."""

    steps: int
    """At most this many per row."""
    tolerance: float = 0.0
    """A row stops early when its preconditioned residual has fallen by this factor."""
    relaxation: float = 1.0
    """How many times as long the last step is made; below 2 that still lowers the quadratic."""


class RowSums(NamedTuple):
    """By-products of `Backend.improve`; `Backend.numbers` turns them into Python's numbers."""

    loss: float
    """sum of c_ij (1 - x_i.y_j)^2 after the steps."""
    squared_residual: float
    """sum of |b_i - shift - H_i x_i|^2 before the steps: the squared gradient."""
    ridge_squares: float
    """sum of ridge_i |x_i|^2 after the steps."""


def divides(method: Method) -> Method:
    """Turn a division by zero inside a kernel, which Numba's threads report as SystemError, into NotFinite."""

    @functools.wraps(method)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except (SystemError, ZeroDivisionError) as error:
            if not isinstance(error, ZeroDivisionError) and not isinstance(error.__cause__, ZeroDivisionError):
                raise
            raise NotFinite("A step of conjugate gradients divides by zero: numbers are too large or small.") from error

    return cast(Method, guarded)


class Backend(Protocol):
    """Where arithmetic runs. `reference` is plain float64 NumPy and the oracle of all others."""

    name: str
    dtype: np.dtype[Any]
    tolerance: float
    """Relative error that one kernel call may show against the reference."""
    rounding: float
    """Relative change of the objective that its arithmetic can show by itself."""

    def threads(self, num_threads: int) -> AbstractContextManager[None]:
        """Use this many threads (0 = all) and keep every library underneath to the same; restores on exit."""

    def compiles_now(self) -> bool:
        """True when the next call would first have to compile kernels (so that the user can be told)."""

    def array(self, values: NDArray[Any]) -> Factors:
        """A C-contiguous array of this backend's kind and dtype with these values (no copy if it is one)."""

    def empty(self, rows: int, factors: int) -> Factors:
        """An uninitialised rows x factors array."""

    def draw_normal(self, stream: Stream, numbers: NDArray[np.int64] | None, scale: float, out: Factors) -> None:
        """Fill row i with scale times the normal numbers of row numbers[i] of the stream; None is 0, 1, 2, ...

        The same bits on every backend (backends/random_start.py).
        """

    def host(self, factors: Factors) -> NDArray[Any]:
        """The same values as a NumPy array."""

    def vector(self, values: NDArray[Any]) -> NDArray[Any]:
        """A float64 d-vector, d x d matrix or one number per row as this backend's own kind of array."""

    def numbers(self, *values: Any) -> list[float]:
        """Sums of this backend as Python's numbers; waits for all work that was begun to be done."""

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:
        """An orthogonal basis in which a positive semi-definite matrix is diagonal; NaN for one that is not finite.

        The signs of eigenvectors are those of `fixed_signs`.
        Where a `guess` of the basis is given and is nearly right, beside `ridge` on the diagonal, a backend to which
        eigenvectors are dear may return it as it is, with what is left off the diagonal.
        """

    # -- reductions -----------------------------------------------------------------------------------------------

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """X'X, or X' diag(weights) X with weights >= 0."""

    def mean(self, this: Factors) -> Vector:
        """The mean row."""

    def squared_norms(self, this: Factors) -> Vector:
        """|x_i|^2 of every row."""

    def weighted_squares(self, this: Factors, weights: Vector) -> Vector:
        """sum_i w_i x_ik^2 for every column k."""

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """Squared Frobenius norm of the difference."""

    def mean_response(
        self, shares: Vector, ridge: Vector, slopes: Vector, values: Vector, typical: Vector, mix: float
    ) -> Vector:
        """sum_g share_g [(1 - mix) / (value_k + ridge_g) + mix / (value_k + ridge_g + slope_g typical_k)], every k.

        All five vectors are of the backend's own kind.
        """

    def corrected_shift(
        self, shift: Vector, mean: Vector, strength: Vector, response: Vector, rest: Vector | None
    ) -> tuple[Vector, Vector]:
        """better = shift + (strength mean + rest - shift) / (1 + strength response), and (shift - better) response.

        All vectors are of the backend's own kind (models/als_cg.py says what they stand for).
        No `rest` is one of zeros.
        """

    def all_finite(self, this: Factors) -> bool:
        """True when there is no NaN or infinity."""

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:
        """sum over stored entries of c_ij (1 - x_i.y_j)^2."""

    # -- rows -----------------------------------------------------------------------------------------------------

    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """out = X M, for a d x d matrix M."""

    def turned(self, this: Factors, matrix: Matrix) -> Factors:
        """X M, in the place of X where that saves memory: `this` is not to be used any more."""

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """Add the same d-vector to every row."""

    def put(self, values: Factors, rows: NDArray[np.integer] | slice, out: Factors) -> None:
        """Write these values to the given rows of `out`."""

    def solve(self, step: HalfStep) -> Factors:
        """Solve every row by Cholesky. A row whose matrix is not positive definite comes out as NaN.

        O(nnz d^2 + rows d^3).
        """

    def improve(self, step: HalfStep, this: Factors, effort: Effort) -> RowSums:
        """Take conjugate gradient steps from `this`, in place. `step.shared` is a diagonal. O(steps nnz d).

        Preconditioned by diagonal + ridge_i, with `rank_one` by these and the row's term. A row without entries is
        solved at once, for good. With `step.rest`, which only a single step may have, the residual and the loss know
        the rest; the length of the step leaves it out.
        """

    def residual(self, step: HalfStep, this: Factors) -> Factors:
        """Return H_i x_i - b_i for every row, the gradient of its quadratic, without forming any H_i.

        O(nnz d + rows d^2). The paper forms the d x d matrix of every user, at O(nnz d^2): docs/mathematics.md 4.
        """

    def mean_inverse(self, step: HalfStep) -> tuple[Matrix, Vector]:
        """Return the mean of H_i^-1 and the mean of H_i^-1 sum_j c_ij y_j; `shift` and `rank_one` do not count."""

    def top_k(
        self,
        this: Factors,
        other: Factors,
        k: int,
        exclude: Rows | None,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
        dial: ItemScale | None = None,
    ) -> None:
        """The k best-scored rows of `other` for each row of `this`, best first, ties to the lower index.

        A score is the inner product in float64, rounded to float32; the order is that of these numbers, so that a
        row's answer does not depend on the others. With `dial`, row j of `other` is multiplied by its scale (and
        rounded to what a backend stores), and its offset is added to the inner product.
        Entries of `exclude` are left out. Slots that cannot be filled hold item -1 and score NaN.
        """


@runtime_checkable
class SubspaceKernels(Protocol):
    """The methods that solver='subspace' (models/als_subspace.py) needs besides."""

    def entry_scores(self, rows: Rows, this: Factors, other: Factors) -> Factors:
        """x_i.y_j of every stored entry, in their order: `improve_block` keeps them up to date."""

    def improve_block(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> None:
        """Move the coordinates P of every row to their minimum, the others held: a step of iALS++, in place.

        x_P -= (H_i)_PP^-1 (H_i x - b_i)_P. `scores` are the `entry_scores` of `this`, before and after. NaN where a
        matrix is not positive definite.
        """

    def block_response(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> tuple[Matrix, Vector]:
        """Return the mean of (H_i)_PP^-1, and the mean step that `improve_block` would take. Nothing is moved."""
