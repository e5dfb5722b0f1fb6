"""Rows solved by Cholesky, a batch at a time: matrices by an own kernel, factorised and solved by cuSOLVER."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy as cp
import numpy as np
from cupy.cuda import device
from cupy_backends.cuda.libs import cublas, cusolver

from fairmf.backends.cuda import launch
from fairmf.backends.cuda.memory import DeviceRows

BATCH_BYTES = 1 << 30  # matrices of one batch
TILE = 64  # as in row_matrices.cu

# cuSOLVER counts by columns: what lies below the diagonal row by row lies above it to cuSOLVER.
_UPPER = cublas.CUBLAS_FILL_MODE_UPPER


def batches(count: int, d: int) -> Iterator[Any]:
    """Row numbers, as many at a time as their matrices may take."""
    size = int(np.clip(BATCH_BYTES // (4 * d * d), 1, 65535))
    for first in range(0, count, size):
        yield cp.arange(first, min(first + size, count), dtype=cp.int32)


def factorised(rows: DeviceRows, chosen: Any, other: Any, terms: tuple[Any, Any, Any, Any]) -> tuple[Any, Any]:
    """Cholesky factors L of the chosen rows' matrices (below the diagonal), and which were positive definite."""
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


def right_sides(rows: DeviceRows, chosen: Any, other: Any, shift: Any) -> Any:
    """sum_j c_ij y_j - shift of the chosen rows."""
    out = cp.empty((len(chosen), other.shape[1]), dtype=cp.float32)
    _launch("right_sides", (len(chosen),), rows, (chosen, other, np.int32(other.shape[1]), shift, out))
    return out


def solved(factors: Any, right: Any) -> Any:
    """L L' x = right, in place of `right`."""
    count, d = right.shape
    info, of_factors, of_right = cp.empty(1, dtype=cp.int32), _starts(factors), _starts(right)
    cusolver.spotrsBatched(
        device.get_cusolver_handle(), _UPPER, d, 1, of_factors.data.ptr, d, of_right.data.ptr, d, info.data.ptr, count
    )
    return right


def sum_of_inverses(factors: Any) -> Any:
    """sum of (L L')^-1 in float64."""
    count, d = factors.shape[:2]
    # To cuBLAS the arrays hold L'; L' X = 1 leaves X = L'^-1, which lies there column by column: row by row it is L^-1.
    inverse = cp.zeros_like(factors)
    inverse[:, cp.arange(d), cp.arange(d)] = 1.0
    one, of_factors, of_inverse = np.ones(1, dtype=np.float32), _starts(factors), _starts(inverse)
    cublas.strsmBatched(
        device.get_cublas_handle(), cublas.CUBLAS_SIDE_LEFT, _UPPER, cublas.CUBLAS_OP_N, cublas.CUBLAS_DIAG_NON_UNIT,
        d, d, one.ctypes.data, of_factors.data.ptr, d, of_inverse.data.ptr, d, count,
    )  # fmt: skip
    return cp.matmul(inverse.transpose(0, 2, 1), inverse).sum(axis=0, dtype=cp.float64)


def _launch(name: str, grid: tuple[int, ...], rows: DeviceRows, arguments: tuple[Any, ...]) -> None:
    entries = (rows.indptr, rows.indices, _pointer(rows.weights))
    launch.kernel("row_matrices.cu", name, cp.cuda.Device().id)(grid, (256,), (*entries, *arguments))


def _pointer(array: Any) -> Any:
    return np.uintp(0) if array is None else array


def _starts(arrays: Any) -> Any:
    """Where each of the stacked arrays begins. Must be kept until the call that reads it was made."""
    return arrays.data.ptr + cp.arange(len(arrays), dtype=cp.uintp) * np.uint64(arrays[0].nbytes)
