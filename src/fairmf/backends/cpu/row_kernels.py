"""Kernels over sparse rows: one block of rows per thread at a time, scratch allocated once per block."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from fairmf.backends.cpu.lapack import sposv, ssyrk

GATHER = 256  # entries gathered into a dense tile for one rank-256 update of the row's matrix


@njit(cache=True, parallel=True, fastmath=True)
def solve_rows(indptr, indices, weights, other, shared, ridge, shift, bounds, out):  # type: ignore[no-untyped-def]
    """Cholesky for every row, see contract.   in: all but out   out: out (rows x d)"""
    d = other.shape[1]
    shifted = False
    for k in range(d):
        shifted = shifted or shift[k] != 0.0
    for b in prange(len(bounds) - 1):
        matrix = np.empty((d, d), dtype=np.float32)
        tile = np.empty((GATHER, d), dtype=np.float32)
        letters = np.array([85, 78], dtype=np.uint8)  # "U", "N"
        ints = np.array([d, 0, 1, 0], dtype=np.int32)  # d, entries in the tile, right-hand sides, info
        one = np.array([1.0], dtype=np.float32)
        at = ints.ctypes.data
        for i in range(bounds[b], bounds[b + 1]):
            if indptr[i] == indptr[i + 1] and not shifted:
                out[i, :] = 0.0  # nothing observed: the minimiser is the zero vector
                continue
            matrix[:, :] = shared
            for k in range(d):
                matrix[k, k] += ridge[i]
                out[i, k] = -shift[k]
            for start in range(indptr[i], indptr[i + 1], GATHER):
                stop = min(start + GATHER, indptr[i + 1])
                for e in range(start, stop):
                    j = indices[e]
                    if weights is None:
                        for k in range(d):
                            tile[e - start, k] = other[j, k]
                            out[i, k] += other[j, k]
                    else:
                        root = np.sqrt(weights[e])
                        for k in range(d):
                            tile[e - start, k] = root * other[j, k]
                            out[i, k] += weights[e] * other[j, k]
                ints[1] = stop - start
                ssyrk(
                    letters.ctypes.data, letters.ctypes.data + 1, at, at + 4, one.ctypes.data,
                    tile.ctypes.data, at, one.ctypes.data, matrix.ctypes.data, at,
                )  # fmt: skip
            row = out[i]
            sposv(letters.ctypes.data, at, at + 8, matrix.ctypes.data, at, row.ctypes.data, at, at + 12)
            if ints[3] != 0:
                out[i, :] = np.nan


@njit(cache=True, parallel=True, fastmath=True)
def residual_rows(indptr, indices, weights, this, other, target, bounds, out):  # type: ignore[no-untyped-def]
    """out_i += sum_j c_ij (x_i.y_j - target) y_j.   in: all but out   out: out (rows x d)"""
    d = other.shape[1]
    for b in prange(len(bounds) - 1):
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


@njit(cache=True, parallel=True)
def multiply(this, matrix, bounds, out):  # type: ignore[no-untyped-def]
    """out = X M, block by block so that a row's bits do not depend on the number of threads."""
    for b in prange(len(bounds) - 1):
        np.dot(this[bounds[b] : bounds[b + 1]], matrix, out[bounds[b] : bounds[b + 1]])
