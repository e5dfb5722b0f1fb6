"""Reductions over rows: float32 inside a short block, float64 across blocks, always in the same order."""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.lapack import ssyrk
from fairmf.kernels import kernel

GRAMIAN_ROWS = 512  # rows summed in float32 before float64 takes over: a relative error of about 1e-6


@kernel
def gramian_parts(low, high, this, roots, bounds, out):
    """out[b] = lower triangle of X'X over the rows of block b, row i times roots[i] unless `roots` is None.

    in: this, roots, bounds   out: out (blocks x d x d)
    """
    d = this.shape[1]
    for b in range(low, high):
        partial = np.zeros((d, d), dtype=np.float32)
        scaled = np.empty((0 if roots is None else GRAMIAN_ROWS, d), dtype=np.float32)
        # Row-major X is column-major X': the triangle LAPACK calls upper is the lower one here.
        letters = np.array([85, 78], dtype=np.uint8)  # "U", "N"
        ints = np.array([d, 0], dtype=np.int32)
        ones = np.array([1.0, 0.0], dtype=np.float32)
        for start in range(bounds[b], bounds[b + 1], GRAMIAN_ROWS):
            block = this[start : min(start + GRAMIAN_ROWS, bounds[b + 1])]
            if roots is not None:
                for i in range(len(block)):
                    for k in range(d):
                        scaled[i, k] = roots[start + i] * block[i, k]
                block = scaled[: len(block)]
            ints[1] = len(block)
            ssyrk(
                letters.ctypes.data, letters.ctypes.data + 1, ints.ctypes.data, ints.ctypes.data + 4,
                ones.ctypes.data, block.ctypes.data, ints.ctypes.data, ones.ctypes.data + 4,
                partial.ctypes.data, ints.ctypes.data,
            )  # fmt: skip
            for i in range(d):
                for j in range(i + 1):
                    out[b, i, j] += partial[i, j]


@kernel
def sum_parts(low, high, this, bounds, out):
    """out[b] = sum of the rows of block b.   in: this, bounds   out: out (blocks x d)"""
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(this.shape[1]):
                out[b, k] += this[i, k]


@kernel
def weighted_square_parts(low, high, this, weights, bounds, out):
    """out[b, k] = sum of w_i x_ik^2 over the rows of block b.   in: this, weights, bounds   out: out (blocks x d)"""
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(this.shape[1]):
                out[b, k] += weights[i] * this[i, k] * this[i, k]


@kernel(fastmath=True)
def squared_norms(low, high, this, out):
    """out[i] = |x_i|^2.   in: this   out: out"""
    for i in range(low, high):
        total = 0.0
        for k in range(this.shape[1]):
            total += np.float64(this[i, k]) * np.float64(this[i, k])
        out[i] = total


@kernel(fastmath=True)
def squared_distance_parts(low, high, this, other, bounds, out):
    """out[b] = squared distance over the rows of block b.   in: this, other, bounds   out: out (blocks)"""
    for b in range(low, high):
        total = 0.0
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(this.shape[1]):
                difference = np.float64(this[i, k]) - np.float64(other[i, k])
                total += difference * difference
        out[b] = total


@kernel(fastmath=True)
def observed_loss_parts(low, high, indptr, indices, weights, this, other, bounds, out):
    """out[b] = sum of c_ij (1 - x_i.y_j)^2 over the rows of block b.   in: all but out   out: out (blocks)"""
    d = this.shape[1]
    for b in range(low, high):
        total = 0.0
        for i in range(bounds[b], bounds[b + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                score = np.float32(0.0)
                for k in range(d):
                    score += this[i, k] * other[j, k]
                miss = 1.0 - np.float64(score)
                if weights is None:
                    total += miss * miss
                else:
                    total += weights[e] * miss * miss
        out[b] = total
