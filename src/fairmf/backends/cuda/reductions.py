"""Sums over rows: float64 throughout, blocks of rows in a fixed order."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np
from cupy.cuda import cublas

from fairmf.backends.cuda import launch
from fairmf.backends.cuda.memory import Placing, as_vector

GRAMIAN_ROWS = 512  # rows summed in float32 before they are added in float64
REDUCED_ROWS = 512  # rows a block of threads sums up
TRIPLES = 1024  # likewise, of three numbers each

SUM, SQUARES, DIFFERENCE = 0, 1, 2  # as in reductions.cu


def kernel(name: str) -> Any:
    """A kernel of reductions.cu."""
    return launch.kernel("reductions.cu", name, cp.cuda.Device().id)


def gramian(placing: Placing, this: Any, weights: Any) -> Any:
    """X' diag(weights) X: products of GRAMIAN_ROWS rows at a time in float32, added up in float64."""
    d = this.shape[1]
    total = cp.zeros((d, d))
    for part, x in placing.parts(this):
        if weights is not None:
            x = x * cp.sqrt(as_vector(weights, part, placing.uploads, "float64")).astype(cp.float32)[:, None]
        # As many blocks at a time as their d x d products may take.
        at_once = max(1, (1 << 30) // (4 * d * d)) * GRAMIAN_ROWS
        for first in range(0, max(1, len(x)), at_once):
            own = x[first : first + at_once]
            whole = len(own) - len(own) % GRAMIAN_ROWS
            blocks, rest = own[:whole].reshape(-1, GRAMIAN_ROWS, d), own[whole:]
            products = _products(blocks)
            kernel("add_products")(
                (-(-d * d // 256),),
                (256,),
                (products, np.int32(len(blocks)), cp.matmul(rest.T, rest), np.int32(d), total),
            )
    return total


def _products(blocks: Any) -> Any:
    """X'X of each block. By cuBLAS itself: CuPy's matmul would copy every block to transpose it."""
    count, rows, d = blocks.shape
    products = cp.empty((count, d, d), dtype=cp.float32)
    if count:
        one, zero = np.array(1, dtype=np.float32), np.array(0, dtype=np.float32)
        cublas.sgemmStridedBatched(  # column-major: a block is d x rows there
            cp.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T, d, d, rows,
            one.ctypes.data, blocks.data.ptr, d, rows * d, blocks.data.ptr, d, rows * d,
            zero.ctypes.data, products.data.ptr, d, d * d, count,
        )  # fmt: skip
    return products


def column_sums(
    placing: Placing, this: Any, mode: int, other: Any = None, weights: Any = None, scale: float = 1.0
) -> Any:
    """Per column: `scale` times the sum of x, of w x^2, or of (x - y)^2."""
    total = None
    for part, x in placing.parts(this):
        y = None if other is None else _on_device(other[part])
        w = None if weights is None else as_vector(weights, part, placing.uploads, "float64")
        sums = _column_sums(x, mode, y, w, scale)
        total = sums if total is None else total + sums
    return cp.zeros(this.shape[1]) if total is None else total


def _column_sums(x: Any, mode: int, y: Any, weights: Any, scale: float) -> Any:
    n, d = x.shape
    blocks = max(1, -(-n // REDUCED_ROWS))
    parts, out, nothing = cp.empty((blocks, d)), cp.empty(d), np.uintp(0)
    kernel("column_sums")(
        (-(-d // 32), blocks), (32, 8),
        (
            x, nothing if y is None else y, nothing if weights is None else weights, np.int64(n), np.int32(d),
            np.int64(REDUCED_ROWS), np.int32(mode), parts,
        ),
    )  # fmt: skip
    kernel("sum_parts")((-(-d // 32),), (32, 32), (parts, np.int32(blocks), np.int32(d), np.float64(scale), out))
    return out


def squared_norms(placing: Placing, this: Any) -> Any:
    """|x_i|^2."""
    out = cp.empty(len(this))
    for part, x in placing.parts(this):
        if len(x):
            sizes = np.int64(len(x)), np.int32(x.shape[1])
            kernel("squared_norms")((-(-len(x) // 8),), (256,), (x, *sizes, out[part]))
    return out


def mean_response(shares: Any, ridge: Any, slopes: Any, values: Any, typical: Any, mix: float) -> Any:
    """See contract."""
    d, out = len(values), cp.empty(len(values))
    kernel("mean_response")(
        (-(-d // 32),), (32, 32),
        (shares, ridge, slopes, np.int32(len(shares)), values, typical, np.float64(mix), np.int32(d), out),
    )  # fmt: skip
    return out


def corrected_shift(shift: Any, mean: Any, strength: Any, response: Any, rest: Any) -> tuple[Any, Any]:
    """See contract."""
    d, better, answer = len(shift), cp.empty(len(shift)), cp.empty(len(shift))
    rest = np.uintp(0) if rest is None else rest
    kernel("corrected_shift")(
        (-(-d // 256),), (256,), (shift, mean, strength, response, rest, np.int32(d), better, answer)
    )  # fmt: skip
    return better, answer


def sum_triples(triples: Any) -> Any:
    """The three column sums of an n x 3 array."""
    blocks = max(1, -(-len(triples) // TRIPLES))
    parts, out = cp.empty((blocks, 3)), cp.empty(3)
    kernel("sum_triples")((blocks,), (256,), (triples, np.int64(len(triples)), np.int64(TRIPLES), parts))
    kernel("sum_parts")((1,), (32, 32), (parts, np.int32(blocks), np.int32(3), np.float64(1), out))
    return out


def split_diagonal(matrix: Any, ridge: float) -> tuple[Any, Any, Any]:
    """Diagonal, rest, and the rest beside diagonal + ridge."""
    d = len(matrix)
    values, rest, scaled = cp.empty(d), cp.empty((d, d)), cp.empty((d, d))
    kernel("split_diagonal")(
        (-(-d * d // 256),), (256,), (matrix, np.int32(d), np.float64(ridge), values, rest, scaled)
    )  # fmt: skip
    return values, rest, scaled


def add_vector(placing: Placing, vector: Any, out: Any) -> None:
    """x_i += vector."""
    moved = cp.ascontiguousarray(cp.asarray(vector, dtype=cp.float64))
    for part, x in placing.parts(out):
        if len(x):
            sizes = np.int64(len(x)), np.int32(x.shape[1])
            kernel("add_vector")((-(-len(x) // 32),), (256,), (moved, *sizes, x))
            placing.store(x, part, out)


def _on_device(values: Any) -> Any:
    return values if isinstance(values, cp.ndarray) else cp.asarray(values)
