"""Solve rows by Cholesky in batches: build their matrices with a kernel, factorise and solve them with cuSOLVER."""

from __future__ import annotations

from collections.abc import Iterator

import cupy as cp
import numpy as np
from cupy.cuda import device
from cupy_backends.cuda.libs import cublas, cusolver

from fairmf.backends.cuda import launch
from fairmf.backends.cuda.memory import DeviceRows

BATCH_BYTES = 1 << 30  # memory for the matrices of one batch
TILE = 64  # TILE of row_matrices.cu

# cuSOLVER is column-major: the lower triangle of a row-major matrix is the upper one to cuSOLVER.
_UPPER = cublas.CUBLAS_FILL_MODE_UPPER


def batches(count: int, d: int) -> Iterator[cp.ndarray]:
    """Yield row numbers in batches whose d x d matrices fit into BATCH_BYTES."""
    size = int(np.clip(BATCH_BYTES // (4 * d * d), 1, 65535))
    for first in range(0, count, size):
        yield cp.arange(first, min(first + size, count), dtype=cp.int32)


def factorised(
    rows: DeviceRows,
    chosen: cp.ndarray,
    other: cp.ndarray,
    terms: tuple[cp.ndarray, cp.ndarray, cp.ndarray | None, cp.ndarray | None],
) -> tuple[cp.ndarray, cp.ndarray]:
    """Return Cholesky factors L of the chosen rows' matrices (lower triangles), and which were positive definite.

    `terms` are the shared matrix, the ridge of each row, and the rank-one vector and weights or None.
    """
    shared, ridge, vector, pulls = terms
    d, tiles = other.shape[1], -(-other.shape[1] // TILE)
    matrices = cp.empty((len(chosen), d, d), dtype=cp.float32)
    _launch(
        "row_matrices", (len(chosen), tiles * (tiles + 1) // 2), rows,
        (chosen, other, np.int32(d), shared, ridge, _pointer(vector), _pointer(pulls), matrices),
    )  # fmt: skip
    info, starts = cp.empty(len(chosen), dtype=cp.int32), _starts(matrices)
    cusolver.spotrfBatched(device.get_cusolver_handle(), _UPPER, d, starts.data.ptr, d, info.data.ptr, len(chosen))
    return matrices, info == 0


def right_sides(
    rows: DeviceRows, chosen: cp.ndarray, other: cp.ndarray, shift: cp.ndarray, own: cp.ndarray | None
) -> cp.ndarray:
    """Return sum_j c_ij y_j - shift + own_i for the chosen rows; None for `own` means 0."""
    out = cp.empty((len(chosen), other.shape[1]), dtype=cp.float32)
    _launch("right_sides", (len(chosen),), rows, (chosen, other, np.int32(other.shape[1]), shift, _pointer(own), out))
    return out


def solved(factors: cp.ndarray, right: cp.ndarray) -> cp.ndarray:
    """Solve L L' x = right, in place of `right`, and return it."""
    count, d = right.shape
    info, of_factors, of_right = cp.empty(1, dtype=cp.int32), _starts(factors), _starts(right)
    cusolver.spotrsBatched(
        device.get_cusolver_handle(), _UPPER, d, 1, of_factors.data.ptr, d, of_right.data.ptr, d, info.data.ptr, count
    )
    return right


def sum_of_inverses(factors: cp.ndarray) -> cp.ndarray:
    """Return the sum of (L L')^-1 in float64."""
    count, d = factors.shape[:2]
    # To cuBLAS, which is column-major, the arrays hold L'. It solves L' X = 1, so X = L'^-1; read row by row X is L^-1.
    inverse = cp.zeros_like(factors)
    inverse[:, cp.arange(d), cp.arange(d)] = 1.0
    one, of_factors, of_inverse = np.ones(1, dtype=np.float32), _starts(factors), _starts(inverse)
    cublas.strsmBatched(
        device.get_cublas_handle(), cublas.CUBLAS_SIDE_LEFT, _UPPER, cublas.CUBLAS_OP_N, cublas.CUBLAS_DIAG_NON_UNIT,
        d, d, one.ctypes.data, of_factors.data.ptr, d, of_inverse.data.ptr, d, count,
    )  # fmt: skip
    return cp.matmul(inverse.transpose(0, 2, 1), inverse).sum(axis=0, dtype=cp.float64)


def _launch(name: str, grid: tuple[int, ...], rows: DeviceRows, arguments: tuple[object, ...]) -> None:
    entries = (rows.indptr, rows.indices, _pointer(rows.weights))
    launch.kernel("row_matrices.cu", name, cp.cuda.Device().id)(grid, (256,), (*entries, *arguments))


def _pointer(array: cp.ndarray | None) -> cp.ndarray | np.uintp:
    return np.uintp(0) if array is None else array


def _starts(arrays: cp.ndarray) -> cp.ndarray:
    """Return the addresses of the stacked arrays. Keep them until the call that reads them has been made."""
    return arrays.data.ptr + cp.arange(len(arrays), dtype=cp.uintp) * np.uint64(arrays[0].nbytes)
