"""Compute sums over rows, in float64 and over blocks of rows in a fixed order."""

from __future__ import annotations

import cupy as cp
import numpy as np
from cupy.cuda import cublas

from fairmf.backends.contract import Factors, Vector
from fairmf.backends.cuda import launch
from fairmf.backends.cuda.memory import Placing, as_vector

GRAMIAN_ROWS = 512  # rows summed in float32 before they are added in float64
REDUCED_ROWS = 512  # rows that a block of threads sums up
TRIPLES = 1024  # rows of three numbers that a block of threads sums up

SUM, SQUARES, DIFFERENCE, PRODUCT = 0, 1, 2, 3  # modes of `column_sums` in reductions.cu


def kernel(name: str) -> cp.RawKernel:
    """Return a kernel of reductions.cu."""
    return launch.kernel("reductions.cu", name, cp.cuda.Device().id)


def gramian(placing: Placing, this: Factors, weights: Vector | None) -> cp.ndarray:
    """Return X' diag(weights) X: products of GRAMIAN_ROWS rows in float32, added in float64."""
    d = this.shape[1]
    total = cp.zeros((d, d))
    for part, x in placing.parts(this):
        # X' W X is the Gramian of sqrt(W) X.
        if weights is not None:
            x = x * cp.sqrt(as_vector(weights, part, placing.uploads, "float64")).astype(cp.float32)[:, None]
        # As many blocks at a time as keep their d x d products within 1 GiB.
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


def _products(blocks: cp.ndarray) -> cp.ndarray:
    """Return X'X of each block. It calls cuBLAS directly: CuPy's matmul would copy every block to transpose it."""
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
    placing: Placing,
    this: Factors,
    mode: int,
    other: Factors | None = None,
    weights: Vector | None = None,
    scale: float = 1.0,
) -> cp.ndarray:
    """Return `scale` times each column's sum of x (SUM), w x^2 (SQUARES), (x - y)^2 (DIFFERENCE) or x y (PRODUCT)."""
    total = None
    for part, x in placing.parts(this):
        y = None if other is None else _on_device(other[part])
        w = None if weights is None else as_vector(weights, part, placing.uploads, "float64")
        sums = _column_sums(x, mode, y, w, scale)
        total = sums if total is None else total + sums
    return cp.zeros(this.shape[1]) if total is None else total


def _column_sums(
    x: cp.ndarray, mode: int, y: cp.ndarray | None, weights: cp.ndarray | None, scale: float
) -> cp.ndarray:
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


def squared_norms(placing: Placing, this: Factors) -> cp.ndarray:
    """Return |x_i|^2 of every row."""
    out = cp.empty(len(this))
    for part, x in placing.parts(this):
        if len(x):
            sizes = np.int64(len(x)), np.int32(x.shape[1])
            kernel("squared_norms")((-(-len(x) // 8),), (256,), (x, *sizes, out[part]))
    return out


def mean_response(
    shares: cp.ndarray, ridge: cp.ndarray, slopes: cp.ndarray, values: cp.ndarray, typical: cp.ndarray, mix: float
) -> cp.ndarray:
    """See contract."""
    d, out = len(values), cp.empty(len(values))
    kernel("mean_response")(
        (-(-d // 32),), (32, 32),
        (shares, ridge, slopes, np.int32(len(shares)), values, typical, np.float64(mix), np.int32(d), out),
    )  # fmt: skip
    return out


def corrected_shift(
    shift: cp.ndarray, mean: cp.ndarray, strength: cp.ndarray, response: cp.ndarray, rest: cp.ndarray | None
) -> tuple[cp.ndarray, cp.ndarray]:
    """See contract."""
    d, better, answer = len(shift), cp.empty(len(shift)), cp.empty(len(shift))
    rest = np.uintp(0) if rest is None else rest
    kernel("corrected_shift")(
        (-(-d // 256),), (256,), (shift, mean, strength, response, rest, np.int32(d), better, answer)
    )  # fmt: skip
    return better, answer


def sum_triples(triples: cp.ndarray) -> cp.ndarray:
    """Return the three column sums of an n x 3 array."""
    blocks = max(1, -(-len(triples) // TRIPLES))
    parts, out = cp.empty((blocks, 3)), cp.empty(3)
    kernel("sum_triples")((blocks,), (256,), (triples, np.int64(len(triples)), np.int64(TRIPLES), parts))
    kernel("sum_parts")((1,), (32, 32), (parts, np.int32(blocks), np.int32(3), np.float64(1), out))
    return out


def split_diagonal(matrix: cp.ndarray, ridge: float) -> tuple[cp.ndarray, cp.ndarray, cp.ndarray]:
    """Return the diagonal, the off-diagonal rest, and the rest scaled by diagonal + ridge."""
    d = len(matrix)
    values, rest, scaled = cp.empty(d), cp.empty((d, d)), cp.empty((d, d))
    kernel("split_diagonal")(
        (-(-d * d // 256),), (256,), (matrix, np.int32(d), np.float64(ridge), values, rest, scaled)
    )  # fmt: skip
    return values, rest, scaled


def add_vector(placing: Placing, vector: Vector, out: Factors) -> None:
    """Add a vector to every row."""
    moved = cp.ascontiguousarray(cp.asarray(vector, dtype=cp.float64))
    for part, x in placing.parts(out):
        if len(x):
            sizes = np.int64(len(x)), np.int32(x.shape[1])
            kernel("add_vector")((-(-len(x) // 32),), (256,), (moved, *sizes, x))
            placing.store(x, part, out)


def _on_device(values: Factors) -> cp.ndarray:
    return values if isinstance(values, cp.ndarray) else cp.asarray(values)
