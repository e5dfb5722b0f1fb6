"""Solve sparse rows by Cholesky, and compute residuals, products and the random start of rows of factors.

Each kernel works on one block of rows per thread at a time, and allocates its scratch memory once per block.
"""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numba.extending import get_cython_function_address

from fairmf.backends.random_start import (
    HALF,
    KEY_STEPS,
    LN_2_HIGH,
    LN_2_LOW,
    LOGARITHM,
    LOW,
    MIDDLE,
    MIDDLE_AT,
    MIDDLE_BELOW,
    MULTIPLIERS,
    ONE,
    ROOT_HALF,
    ROOT_TWO,
    ROUNDS,
    STEP,
    TAIL,
    TAIL_AT,
    WORD,
)
from fairmf.kernels import kernel

# SciPy's own BLAS and LAPACK, callable inside Numba kernels without the GIL and without allocation.
#
# The addresses are registered with LLVM under a name of ours, so that compiled kernels can be cached on disk (with a
# ctypes pointer inside they could not). All arguments are addresses, as in Fortran.


def _external(module: str, name: str, arguments: int) -> types.ExternalFunction:
    symbol = f"fairmf_{name}"
    llvm.add_symbol(symbol, get_cython_function_address(f"scipy.linalg.{module}", name))
    return types.ExternalFunction(symbol, types.void(*[types.uintp] * arguments))


# C = alpha A A' + beta C on one triangle: (uplo, trans, n, k, alpha, a, lda, beta, c, ldc)
ssyrk = _external("cython_blas", "ssyrk", 10)
# Solve A X = B for symmetric positive definite A, in place: (uplo, n, nrhs, a, lda, b, ldb, info)
sposv = _external("cython_lapack", "sposv", 8)
# Solve A X = B from the Cholesky factor that sposv leaves, in place: (uplo, n, nrhs, a, lda, b, ldb, info)
spotrs = _external("cython_lapack", "spotrs", 8)
# Inverse from the Cholesky factor that sposv leaves, in place, one triangle: (uplo, n, a, lda, info)
spotri = _external("cython_lapack", "spotri", 5)


GATHER = 256  # entries copied into a dense tile for one rank-256 update of the row's matrix


@kernel(fastmath=True, inner=True)
def _solve_row(indices, weights, start, stop, other, matrix, tile, letters, ints, one, row):
    """Add the row's entries to `matrix` and `row`, and solve in place; return whether it was positive definite.

    in and out: matrix (its factor afterwards), row (right-hand side, then solution)   scratch: tile, letters, ints, one
    """
    d = other.shape[1]
    at = ints.ctypes.data
    for first in range(start, stop, GATHER):
        last = min(first + GATHER, stop)
        for e in range(first, last):
            j = indices[e]
            # The tile's rows are sqrt(c_j) y_j, so that tile' tile is the sum of c_j y_j y_j'.
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


@kernel(fastmath=True, inner=True)
def solve_block(indptr, indices, weights, other, shared, ridge, shift, own, vector, pulls, first, last, out):
    """Solve rows first..last by Cholesky on this thread; `own`, `vector` and `pulls` (rank_one) may be None.

    in: all but out   out: out (rows x d)
    """
    d = other.shape[1]
    shifted = own is not None
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
            out[i, :] = 0.0  # without entries and shift the minimiser is the zero vector
            continue
        matrix[:, :] = shared
        if vector is not None:
            for k in range(d):
                for c in range(d):
                    matrix[k, c] += pulls[i] * vector[k] * vector[c]
        # `out[i]` starts as the right-hand side; `_solve_row` adds the entries and overwrites it with the solution.
        for k in range(d):
            matrix[k, k] += ridge[i]
            out[i, k] = -shift[k]
        if own is not None:
            for k in range(d):
                out[i, k] += own[i, k]
        if not _solve_row(indices, weights, start, stop, other, matrix, tile, letters, ints, one, out[i]):
            out[i, :] = np.nan


@kernel(fastmath=True)
def solve_rows(low, high, indptr, indices, weights, other, shared, ridge, shift, own, vector, pulls, bounds, out):
    """Solve every row by Cholesky (`Backend.solve`).   in: all but out   out: out (rows x d)"""
    for b in range(low, high):
        solve_block(
            indptr, indices, weights, other, shared, ridge, shift, own, vector, pulls, bounds[b], bounds[b + 1], out
        )  # fmt: skip


@kernel(fastmath=True)
def solve_rows_for(low, high, indptr, indices, weights, other, shared, ridge, right, vector, pulls, bounds, out):
    """Solve every row for the same right-hand side.   in: all but out   out: out (rows x d)"""
    d = other.shape[1]
    matrix = np.empty((d, d), dtype=np.float32)
    tile = np.empty((GATHER, d), dtype=np.float32)
    row = np.empty(d, dtype=np.float32)
    letters = np.array([85, 78], dtype=np.uint8)
    ints = np.array([d, 0, 1, 0], dtype=np.int32)
    one = np.array([1.0], dtype=np.float32)
    at = ints.ctypes.data
    for i in range(bounds[low], bounds[high]):
        matrix[:, :] = shared
        if vector is not None:
            for k in range(d):
                for c in range(d):
                    matrix[k, c] += pulls[i] * vector[k] * vector[c]
        for k in range(d):
            matrix[k, k] += ridge[i]
        row[:] = 0.0
        # Only the Cholesky factor that this leaves in `matrix` is needed, not the solution in `row`.
        if _solve_row(indices, weights, indptr[i], indptr[i + 1], other, matrix, tile, letters, ints, one, row):
            out[i, :] = right
            spotrs(letters.ctypes.data, at, at + 8, matrix.ctypes.data, at, out[i].ctypes.data, at, at + 12)
        else:
            out[i, :] = np.nan


@kernel(fastmath=True)
def inverse_parts(low, high, indptr, indices, weights, other, shared, ridge, own, bounds, inverses, solutions):
    """Sum H_i^-1 (lower triangle) and H_i^-1 b_i over each block.   in: all but the last two   out: these two"""
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
            if own is not None:
                row[:] = own[i]
            _solve_row(indices, weights, indptr[i], indptr[i + 1], other, matrix, tile, letters, ints, one, row)
            spotri(letters.ctypes.data, at, matrix.ctypes.data, at, at + 12)
            for k in range(d):
                solutions[b, k] += row[k]
                for c in range(k + 1):
                    inverses[b, k, c] += matrix[k, c]


@kernel(fastmath=True)
def residual_rows(low, high, indptr, indices, weights, this, other, target, bounds, out):
    """Add sum_j c_ij (x_i.y_j - target) y_j to out_i.   in: all but out   in and out: out (rows x d)"""
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


@kernel(fastmath=True)
def sum_rows(low, high, indptr, indices, weights, other, bounds, out):
    """Set out_i = sum_j c_ij y_j.   in: all but out   out: out (rows x d)"""
    d = other.shape[1]
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            out[i, :] = 0.0
            e, stop = indptr[i], indptr[i + 1]
            while e + 4 <= stop:  # four at a time, so that out_i is read once per four gathered rows
                j0, j1, j2, j3 = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
                w0 = w1 = w2 = w3 = np.float32(1.0)
                if weights is not None:
                    w0, w1, w2, w3 = weights[e], weights[e + 1], weights[e + 2], weights[e + 3]
                for k in range(d):
                    out[i, k] += w0 * other[j0, k] + w1 * other[j1, k] + w2 * other[j2, k] + w3 * other[j3, k]
                e += 4
            while e < stop:
                j0 = indices[e]
                w0 = np.float32(1.0) if weights is None else weights[e]
                for k in range(d):
                    out[i, k] += w0 * other[j0, k]
                e += 1


@kernel
def add_vector(low, high, vector, bounds, out):
    """Add the same vector to every row.   in: vector, bounds   in and out: out"""
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(len(vector)):
                out[i, k] += vector[k]


# -- random start -----------------------------------------------------------------------------------------------------
#
# These kernels compute the bits that backends/random_start.py defines. Three short loops over a row instead of one, so
# that the compiler vectorises each: it cannot vectorise a loop that writes bits and reads them back as floats.

BLOCK_ROWS = 256  # rows that a block draws


@kernel
def draw_rows(low, high, key, side, numbers, scale, bounds, out):
    """Set out[i] to scale * the normal numbers of row numbers[i].   in: key, side, numbers, scale, bounds   out: out"""
    d = out.shape[1]
    padded = 4 * ((d + 3) // 4)
    for b in range(low, high):
        words = np.empty(padded, dtype=np.uint32)
        uniform, exponents = np.empty(padded, dtype=np.float32), np.empty(padded, dtype=np.float32)
        values, mantissas = np.empty(padded, dtype=np.float32), np.empty(padded, dtype=np.float32)
        for i in range(bounds[b], bounds[b + 1]):
            _words(key, np.uint64(numbers[i]), side, words)
            _split(words, uniform, values, values.view(np.int32), exponents, mantissas.view(np.int32))
            _normal(uniform, exponents, mantissas, scale, out[i])


@kernel(inner=True)
def _words(key, row, side, words):
    """Compute Philox4x32-10 for every counter of a row.   in: key, row, side   out: words"""
    for block in range(len(words) // 4):
        first, second = key[0], key[1]
        c0, c1, c2, c3 = np.uint64(block), row & LOW, row >> WORD, side
        for _ in range(ROUNDS):
            left, right = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
            c0, c2 = (right >> WORD) ^ c1 ^ first, (left >> WORD) ^ c3 ^ second
            c1, c3 = right & LOW, left & LOW
            first, second = (first + KEY_STEPS[0]) & LOW, (second + KEY_STEPS[1]) & LOW
        words[4 * block] = np.uint32(c0)
        words[4 * block + 1] = np.uint32(c1)
        words[4 * block + 2] = np.uint32(c2)
        words[4 * block + 3] = np.uint32(c3)


@kernel(inner=True)
def _split(words, uniform, values, bits, exponents, mantissa_bits):
    """Compute uniform x, and exponent and mantissa of 1 - x^2; `bits` is `values` as int32.   in: words   out: rest"""
    for k in range(len(words)):
        x = (np.float32(np.int32(words[k] >> np.uint32(9))) + HALF) * STEP - ONE
        uniform[k] = x
        values[k] = (ONE - x) * (ONE + x)
    for k in range(len(words)):
        # Numba widens int32 arithmetic to int64, for which there is no vector conversion to float: cast at each step.
        exponents[k] = np.float32(np.int32(np.int32(bits[k] >> np.int32(23)) - np.int32(126)))
        mantissa_bits[k] = np.int32(np.int32(bits[k] & np.int32(0x007FFFFF)) | np.int32(0x3F000000))


@kernel(inner=True)
def _normal(uniform, exponents, mantissas, scale, out):
    """Turn uniform into normal numbers.   in: uniform, exponents, mantissas, scale   out: out"""
    for k in range(len(out)):
        mantissa, exponent, x = mantissas[k], exponents[k], uniform[k]
        small = mantissa < ROOT_HALF
        exponent = exponent - ONE if small else exponent
        m = (mantissa + mantissa if small else mantissa) - ONE
        square = m * m
        rest = _polynomial(LOGARITHM, m) * m * square + LN_2_LOW * exponent - HALF * square
        w = -(m + rest + LN_2_HIGH * exponent)
        middle, tail = _polynomial(MIDDLE, w - MIDDLE_AT), _polynomial(TAIL, np.sqrt(w) - TAIL_AT)
        ratio = middle if w < MIDDLE_BELOW else tail
        out[k] = ratio * x * ROOT_TWO * scale


@kernel(inline="always")
def _polynomial(c, x):
    return (((((((c[0] * x + c[1]) * x + c[2]) * x + c[3]) * x + c[4]) * x + c[5]) * x + c[6]) * x + c[7]) * x + c[8]
