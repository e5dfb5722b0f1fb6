"""Define the interface of backends: what a half-step is, and which methods a backend has to solve it.

A backend says *where* arithmetic runs and nothing else. A half-step fixes one side and solves all rows i of the other:

    (sum_j c_ij y_j y_j' + shared + ridge_i I + rank-one term of i) x_i  =  sum_j c_ij y_j - shift + own_i

For users, shared = alpha0 G_V and shift = psi q1 (zero without fairness). For items, shared = alpha0 G_U plus
lambda_f s s' and shift = 0 (docs/mathematics.md 4 and 5). Rows with features have own_i = ridge_i times the vector
that their features predict (docs/mathematics.md 11), all others 0. Each x_i minimises a strictly convex quadratic, so
solvers differ in cost alone.

Conventions. `this` is the side being solved, `other` the fixed one, so a half-step is written once and called twice.
Arrays of rows x factors are of the backend's own array type and `dtype`. d x d matrices and d-vectors are float64:
backends return them in their own array type (NumPy's functions work on it), and accept that type or NumPy's. Arguments
that are overwritten come last. Every reduction (Gramian, mean, loss) runs in fixed blocks in a fixed order and is
summed in float64: the same input gives the same bits for any number of threads. A read-only array is a constant
(`frozen`): while it exists, a backend may cache what it derives from it, such as a copy on a device.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsFloat, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.csr import frozen as frozen  # part of the contract
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.backends.random_start import Stream

Factors = Array  # rows x d, the backend's dtype
Matrix = NDArray[np.float64]  # d x d
Vector = NDArray[np.float64]  # d, or one number per row


class Deferred:
    """Hold an array that stays on a device until it is read. Pickling it, or forking the process, reads it too."""

    def __init__(self, factors: Factors, host: Callable[[Factors], Array]):
        self._fetch: Callable[[], Array] | None = lambda: host(factors)
        self._array: Array | None = None
        self._size, self._lock, key = int(factors.nbytes), threading.Lock(), id(self)
        _deferred[key] = weakref.ref(self, lambda _: _deferred.pop(key, None))

    def host(self) -> Array:
        """Return the array on the host. The first call copies it there, and gives up that on the device."""
        with self._lock:
            if self._fetch is not None:
                self._array, self._fetch = self._fetch(), None
            return cast(Array, self._array)

    @property
    def nbytes(self) -> int:
        """The bytes it takes on the device."""
        return 0 if self._fetch is None else self._size

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Array]]:
        return np.asarray, (self.host(),)


# To add to a dictionary, and to copy its values, are atomic in CPython: there is no lock that a fork could catch held.
_deferred: dict[int, weakref.ref[Deferred]] = {}


def deferred_bytes() -> int:
    """Return how many bytes of device memory hold arrays that nobody has read yet."""
    return sum(array.nbytes for reference in list(_deferred.values()) if (array := reference()) is not None)


def fetch_deferred() -> None:
    """Bring all such arrays to the host: a device needs the memory, or a child process could not read them."""
    for reference in list(_deferred.values()):
        if (array := reference()) is not None:
            array.host()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(before=fetch_deferred)


class ItemScale(NamedTuple):
    """Change the scores of each item: multiply them by `scale`, then add `offset`."""

    scale: NDArray[np.float32] | None = None
    """None: 1 for all."""
    offset: NDArray[np.float32] | None = None
    """None: 0 for all."""


class ScoreWindow(NamedTuple):
    """Say which scores of each row the caller of `top_k` asks about; a backend may look at all of them nevertheless.

    Items below `lowest` may be missing from the end of a row's list. A row with k items above `highest` may get any k
    of these. It is enough to see where given items are in the lists, and lets a backend skip most of the others.
    """

    lowest: NDArray[np.float32]
    highest: NDArray[np.float32]


class RankOne(NamedTuple):
    """Add weight_i y y' to every row's matrix, like one more interaction with the same y and target 0.

    Items with different fairness weights need it for the part of lambda_f w_j^2 s s' that differs between items
    (docs/mathematics.md 5a). Weights are >= 0.
    """

    vector: Vector
    weights: Vector


class Diagonalised(NamedTuple):
    """Hold a symmetric matrix in another basis: vectors @ (diag(values) + rest) @ vectors.T."""

    values: Vector
    vectors: Matrix
    rest: Matrix | None = None
    """The off-diagonal part; None where the matrix is exactly diagonal."""


@dataclass(frozen=True)
class HalfStep:
    """Hold the linear systems of one side, in the letters of the module's docstring."""

    backend: Backend
    rows: Rows
    """The interactions, one sparse row for each row of the side being solved."""
    other: Factors
    """The fixed side."""
    shared: Matrix | Vector
    """d x d; a d-vector stands for a diagonal matrix, which `Backend.improve` needs."""
    ridge: Vector
    """The regularization of each row, one number per row."""
    shift: Vector
    """A d-vector, subtracted from every right-hand side."""
    rank_one: RankOne | None = None
    right: Vector | None = None
    """A d-vector that replaces the right-hand side of every row. Only `solve` and `residual` support it."""
    rest: Matrix | None = None
    """The off-diagonal part that `diagonalise` left: the matrix is diag(shared) + rest. Only `improve` supports it."""
    own: Factors | None = None
    """Added to each right-hand side (rows x d); None stands for 0. `right` replaces it as well."""

    @property
    def matrix(self) -> Matrix:
        """Return `shared` as a d x d matrix."""
        return np.diag(self.shared) if self.shared.ndim == 1 else self.shared


@dataclass(frozen=True)
class Effort:
    """Say when conjugate gradients stop."""

    steps: int
    """The most steps per row."""
    tolerance: float = 0.0
    """A row stops early when its preconditioned residual has fallen by this factor."""
    relaxation: float = 1.0
    """Factor by which the last step is lengthened; any factor below 2 still lowers the quadratic."""
    accuracy: float = 0.0
    """A row also stops when its relative error is certainly below this: r'P^-1 r <= accuracy^2 x'P x, where P is the
    preconditioner and at most H, so that r'P^-1 r bounds the squared error in the norm of P. A backend may ignore it,
    and then solves rows further than asked for."""


class RowSums(NamedTuple):
    """Hold sums that `Backend.improve` computes on the way; `Backend.numbers` turns them into Python floats."""

    loss: float
    """Sum of c_ij (1 - x_i.y_j)^2 after the steps."""
    squared_residual: float
    """Sum of |b_i - shift - H_i x_i|^2 before the steps: the squared gradient."""
    ridge_squares: float
    """Sum of ridge_i |x_i|^2 after the steps."""


def beside(backend: Backend, values: Vector, like: Factors) -> Array:
    """Return numbers in the dtype and the place of an array: a device may keep large arrays in the host's memory."""
    placed = backend.host(values) if isinstance(like, np.ndarray) else backend.vector(values)
    return placed.astype(like.dtype)


class Backend(Protocol):
    """Run the arithmetic of a fit. `reference` is plain float64 NumPy; all others are tested against it."""

    name: str
    dtype: np.dtype[Any]
    tolerance: float
    """Relative error of one kernel call against the reference that the tests allow."""
    rounding: float
    """Relative change of the objective that rounding alone can cause."""
    slow_eigenvectors: bool
    """Whether eigenvectors take longer than multiplying all rows by a d x d matrix, however many rows there are."""

    def threads(self, num_threads: int) -> AbstractContextManager[None]:
        """Limit this backend and the libraries it calls to this many threads (0: all); restore the limit on exit."""

    def compiles_now(self) -> bool:
        """Return whether the next call has to compile kernels first, so that the user can be told."""

    def array(self, values: Array) -> Factors:
        """Return the values as a C-contiguous array of this backend's type and dtype; no copy if they are one."""

    def empty(self, rows: int, factors: int) -> Factors:
        """Return an uninitialised rows x factors array."""

    def draw_normal(self, stream: Stream, numbers: NDArray[np.int64] | None, scale: float, out: Factors) -> None:
        """Fill row i of `out` with scale times row numbers[i] of the stream's normal numbers; None is 0, 1, 2, ...

        Every backend draws the same bits (backends/random_start.py).
        """

    def host(self, factors: Factors) -> Array:
        """Return the values as a NumPy array."""

    def deferred(self, factors: Factors) -> Array | Deferred:
        """Return the values as a NumPy array, or what becomes one when it is first read. Nobody may change them."""

    def vector(self, values: Array) -> Array:
        """Return a d-vector, a d x d matrix or one number per row as a float64 array of this backend's type."""

    def numbers(self, *values: SupportsFloat) -> list[float]:
        """Return this backend's sums as Python floats, after waiting for all work in progress."""

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:
        """Return an orthogonal basis in which a positive semi-definite matrix is diagonal; NaN if it is not finite.

        Values that rounding has left below 0 become 0. The signs of eigenvectors are those of `fixed_signs`
        (numpy_arrays.py). Call it inside `threads`: otherwise BLAS uses several threads, and the bits depend on their
        number. What is far below `ridge`, the least that is added to the diagonal, may be lost in rounding: pass 0 to
        lose nothing. Given a `guess` of the basis in which the off-diagonal part is small beside diagonal + ridge, a
        backend may return the guess itself, with the off-diagonal part as `rest`.
        """

    # -- reductions -----------------------------------------------------------------------------------------------

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """Return X'X, or X' diag(weights) X with weights >= 0."""

    def mean(self, this: Factors) -> Vector:
        """Return the mean row."""

    def squared_norms(self, this: Factors) -> Vector:
        """Return |x_i|^2 of every row."""

    def weighted_squares(self, this: Factors, weights: Vector) -> Vector:
        """Return sum_i w_i x_ik^2 for every column k."""

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """Return the squared Frobenius norm of the difference."""

    def column_products(self, this: Factors, other: Factors) -> Vector:
        """Return sum_i x_ik y_ik for every column k."""

    def mean_response(
        self, shares: Vector, ridge: Vector, slopes: Vector, values: Vector, typical: Vector, mix: float
    ) -> Vector:
        """Return how strongly the mean user answers a shift, for every coordinate k (models/als_cg.py).

        That is sum_g share_g [(1 - mix) / (value_k + ridge_g) + mix / (value_k + ridge_g + slope_g typical_k)]. All
        five vectors are of the backend's array type.
        """

    def corrected_shift(
        self, shift: Vector, mean: Vector, strength: Vector, response: Vector, rest: Vector | None
    ) -> tuple[Vector, Vector]:
        """Return a better shift, and how far it moves the mean: (shift - better) response (models/als_cg.py).

        better = shift + (strength mean + rest - shift) / (1 + strength response). All vectors are of the backend's
        array type. None for `rest` means 0.
        """

    def all_finite(self, this: Factors) -> bool:
        """Return whether there is no NaN or infinity."""

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:
        """Return the sum of c_ij (1 - x_i.y_j)^2 over stored entries."""

    def score_sum(self, rows: Rows, this: Factors, other: Factors) -> float:
        """Return the sum of c_ij x_i.y_j over stored entries."""

    # -- rows -----------------------------------------------------------------------------------------------------

    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """Set out = X M, for a d x d matrix M."""

    def turned(self, this: Factors, matrix: Matrix) -> Factors:
        """Return X M. It may overwrite X to save memory, so do not use `this` afterwards."""

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """Add the same d-vector to every row."""

    def put(self, values: Factors, rows: NDArray[np.integer] | slice, out: Factors) -> None:
        """Write these values to the given rows of `out`."""

    def sparse_product(self, rows: Rows, other: Factors) -> Factors:
        """Return sum_j c_ij y_j for every row: the product of a sparse matrix with `other`. O(nnz d)."""

    def solve(self, step: HalfStep) -> Factors:
        """Solve every row by Cholesky; return NaN for rows whose matrix is not positive definite.

        Costs O(nnz d^2 + rows d^3).
        """

    def improve(self, step: HalfStep, this: Factors, effort: Effort) -> RowSums:
        """Take conjugate gradient steps from `this`, in place. `step.shared` is a diagonal. O(steps nnz d).

        The preconditioner is diagonal + ridge_i, plus the row's rank-one term if there is one. A row without entries is
        solved exactly, as if there were no `step.rest`: items without interactions are then exactly 0. `step.rest` is
        supported for a single step only: it counts in the residual and the loss, but not in the length of the step.
        """

    def residual(self, step: HalfStep, this: Factors) -> Factors:
        """Return H_i x_i - b_i for every row, the gradient of its quadratic, without forming any H_i.

        O(nnz d + rows d^2). The paper forms the d x d matrix of every user, at O(nnz d^2): docs/mathematics.md 4.
        """

    def mean_inverse(self, step: HalfStep) -> tuple[Matrix, Vector]:
        """Return the mean of H_i^-1 and of H_i^-1 (sum_j c_ij y_j + own_i); `shift` and `rank_one` are ignored."""

    def top_k(
        self,
        this: Factors,
        other: Factors,
        k: int,
        exclude: Rows | None,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
        dial: ItemScale | None = None,
        window: ScoreWindow | None = None,
    ) -> None:
        """Find the k best-scored rows of `other` for each row of `this`, best first, ties to the lower index.

        A score is the inner product in float64, rounded to float32. Rows are ordered by these rounded scores, so that
        a row's answer does not depend on the others. With `dial`, row j of `other` is first multiplied by its scale
        (and rounded to what a backend stores), and its offset is added to the inner product. Entries of `exclude` are
        left out. Slots that cannot be filled hold item -1 and score NaN. With `window`, lists need to be right only as
        far as it asks.
        """


@runtime_checkable
class SubspaceKernels(Protocol):
    """Define the methods that a backend needs in addition for solver='subspace' (models/als_subspace.py)."""

    def entry_scores(self, rows: Rows, this: Factors, other: Factors) -> Factors:
        """Return x_i.y_j of every stored entry, in their order. `improve_block` keeps them up to date."""

    def improve_block(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> None:
        """Minimise over the coordinates P of every row, the others held fixed: a step of iALS++, in place.

        x_P -= (H_i)_PP^-1 (H_i x - b_i)_P. `scores` are the `entry_scores` of `this`, before and after. Rows whose
        matrix is not positive definite become NaN.
        """

    def block_response(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> tuple[Matrix, Vector]:
        """Return the mean of (H_i)_PP^-1, and the mean step that `improve_block` would take. Changes nothing."""
