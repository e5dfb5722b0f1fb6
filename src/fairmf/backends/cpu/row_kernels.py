"""Kernels over sparse rows: one block of rows per thread at a time, scratch allocated once per block."""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.lapack import sposv, spotri, ssyrk
from fairmf.kernels import kernel

GATHER = 256  # entries gathered into a dense tile for one rank-256 update of the row's matrix
MULTIPLY_ROWS = 256  # rows of one matrix product: its result stays in the cache until it is copied out


@kernel(fastmath=True)
def _solve_row(indices, weights, start, stop, other, matrix, tile, letters, ints, one, row):
    """Add the row's entries to `matrix` and `row`, solve in place; True if it was positive definite.

    in and out: matrix (its factor afterwards), row (right-hand side, then solution)   scratch: tile, letters, ints, one
    """
    d = other.shape[1]
    at = ints.ctypes.data
    for first in range(start, stop, GATHER):
        last = min(first + GATHER, stop)
        for e in range(first, last):
            j = indices[e]
            if weights is None:
                for k in range(d):
                    tile[e - first, k] = other[j, k]
                    row[k] += other[j, k]
            else:
                root = np.sqrt(weights[e])
                for k in range(d):
                    tile[e - first, k] = root * other[j, k]
                    row[k] += weights[e] * other[j, k]
        ints[1] = last - first
        ssyrk(
            letters.ctypes.data, letters.ctypes.data + 1, at, at + 4, one.ctypes.data,
            tile.ctypes.data, at, one.ctypes.data, matrix.ctypes.data, at,
        )  # fmt: skip
    sposv(letters.ctypes.data, at, at + 8, matrix.ctypes.data, at, row.ctypes.data, at, at + 12)
    return ints[3] == 0


@kernel(fastmath=True)
def solve_block(indptr, indices, weights, other, shared, ridge, shift, vector, pulls, first, last, out):
    """Cholesky for rows first..last on this thread, see contract; `vector` and `pulls` (rank_one) may be None.

    in: all but out   out: out (rows x d)
    """
    d = other.shape[1]
    shifted = False
    for k in range(d):
        shifted = shifted or shift[k] != 0.0
    matrix = np.empty((d, d), dtype=np.float32)
    tile = np.empty((GATHER, d), dtype=np.float32)
    letters = np.array([85, 78], dtype=np.uint8)  # "U", "N"
    ints = np.array([d, 0, 1, 0], dtype=np.int32)  # d, entries in the tile, right-hand sides, info
    one = np.array([1.0], dtype=np.float32)
    for i in range(first, last):
        start, stop = indptr[i], indptr[i + 1]
        if start == stop and not shifted:
            out[i, :] = 0.0  # nothing observed: the minimiser is the zero vector
            continue
        matrix[:, :] = shared
        if vector is not None:
            for k in range(d):
                for c in range(d):
                    matrix[k, c] += pulls[i] * vector[k] * vector[c]
        for k in range(d):
            matrix[k, k] += ridge[i]
            out[i, k] = -shift[k]
        if not _solve_row(indices, weights, start, stop, other, matrix, tile, letters, ints, one, out[i]):
            out[i, :] = np.nan


@kernel(fastmath=True)
def solve_rows(low, high, indptr, indices, weights, other, shared, ridge, shift, vector, pulls, bounds, out):
    """Cholesky for every row, as `solve_block`.   in: all but out   out: out (rows x d)"""
    for b in range(low, high):
        solve_block(
            indptr, indices, weights, other, shared, ridge, shift, vector, pulls, bounds[b], bounds[b + 1], out
        )  # fmt: skip


@kernel(fastmath=True)
def inverse_parts(low, high, indptr, indices, weights, other, shared, ridge, bounds, inverses, solutions):
    """Sums over each block of H_i^-1 (lower triangle) and H_i^-1 b_i.   in: all but the last two   out: these two"""
    d = other.shape[1]
    for b in range(low, high):
        matrix = np.empty((d, d), dtype=np.float32)
        tile = np.empty((GATHER, d), dtype=np.float32)
        row = np.empty(d, dtype=np.float32)
        letters = np.array([85, 78], dtype=np.uint8)
        ints = np.array([d, 0, 1, 0], dtype=np.int32)
        one = np.array([1.0], dtype=np.float32)
        at = ints.ctypes.data
        for i in range(bounds[b], bounds[b + 1]):
            matrix[:, :] = shared
            for k in range(d):
                matrix[k, k] += ridge[i]
            row[:] = 0.0
            _solve_row(indices, weights, indptr[i], indptr[i + 1], other, matrix, tile, letters, ints, one, row)
            spotri(letters.ctypes.data, at, matrix.ctypes.data, at, at + 12)
            for k in range(d):
                solutions[b, k] += row[k]
                for c in range(k + 1):
                    inverses[b, k, c] += matrix[k, c]


@kernel(fastmath=True)
def residual_rows(low, high, indptr, indices, weights, this, other, target, bounds, out):
    """out_i += sum_j c_ij (x_i.y_j - target) y_j.   in: all but out   out: out (rows x d)"""
    d = other.shape[1]
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                score = np.float32(0.0)
                for k in range(d):
                    score += this[i, k] * other[j, k]
                miss = score - target
                if weights is not None:
                    miss *= weights[e]
                for k in range(d):
                    out[i, k] += miss * other[j, k]


@kernel
def multiply(low, high, this, matrix, bounds, out):
    """out = X M, block by block so that a row's bits do not depend on the number of threads; out may be this."""
    for b in range(low, high):
        scratch = np.empty((MULTIPLY_ROWS, matrix.shape[1]), dtype=np.float32)
        for start in range(bounds[b], bounds[b + 1], MULTIPLY_ROWS):
            stop = min(start + MULTIPLY_ROWS, bounds[b + 1])
            np.dot(this[start:stop], matrix, scratch[: stop - start])
            out[start:stop] = scratch[: stop - start]


@kernel
def add_vector(low, high, vector, bounds, out):
    """Add the same vector to every row.   in: vector, bounds   in and out: out"""
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(len(vector)):
                out[i, k] += vector[k]
