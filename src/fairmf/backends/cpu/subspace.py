"""Improve a few coordinates of every row at a time (iALS++): b x b systems instead of d x d, a stored score per entry.

`part` holds the coordinates first..first+b of the fixed side, `columns` these columns of the shared matrix, `near` this
piece of the rank-one vector. The products of all rows of a tile with `columns` are one matrix product (GEMM).
"""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.rows import sposv, spotri, ssyrk
from fairmf.kernels import kernel

GATHER = 256  # entries copied into a dense tile for one rank-256 update of the row's matrix
TILE_ROWS = 128  # rows of one matrix product: few enough that its result stays in the cache until they are solved


@kernel(fastmath=True)
def _add_entries(indices, weights, scores, start, stop, part, matrix, right, tile, letters, ints, one):
    """Add sum_j c_j y_j y_j' to a triangle of `matrix`, sum_j c_j (score_j - 1) y_j to `right`; y_j is a row of `part`.

    in and out: matrix, right   scratch: tile, letters, ints, one
    """
    width = part.shape[1]
    # BLAS takes addresses: at + 4 k is the address of ints[k].
    at = ints.ctypes.data
    for begin in range(start, stop, GATHER):
        end = min(begin + GATHER, stop)
        for e in range(begin, end):
            j = indices[e]
            miss = scores[e] - np.float32(1.0)
            root = np.float32(1.0)
            if weights is not None:
                miss *= weights[e]
                root = np.sqrt(weights[e])
            for k in range(width):
                tile[e - begin, k] = root * part[j, k]
                right[k] += miss * part[j, k]
        ints[1] = end - begin
        ssyrk(
            letters.ctypes.data, letters.ctypes.data + 1, at, at + 4, one.ctypes.data,
            tile.ctypes.data, at, one.ctypes.data, matrix.ctypes.data, at,
        )  # fmt: skip


@kernel(fastmath=True)
def _solve_row(
    indices, weights, scores, start, stop, part, core, product, ridge, shift, own, x, first, vector, near, pull,
    matrix, right, tile, letters, ints, one,
):  # fmt: skip
    """Set right to the row's matrix^-1 times its gradient, both over the block; return if it was positive definite.

    out: matrix (its Cholesky factor), right   scratch: tile, letters, ints, one   in: all others
    """
    width = part.shape[1]
    at = ints.ctypes.data
    matrix[:, :] = core
    for k in range(width):
        matrix[k, k] += ridge
        right[k] = product[k] + ridge * x[first + k] + shift[k]
    if own is not None:
        for k in range(width):
            right[k] -= own[first + k]
    if vector is not None:
        along = np.float32(0.0)
        for k in range(len(x)):
            along += vector[k] * x[k]
        for k in range(width):
            right[k] += pull * along * near[k]
            for c in range(width):
                matrix[k, c] += pull * near[k] * near[c]
    _add_entries(indices, weights, scores, start, stop, part, matrix, right, tile, letters, ints, one)
    sposv(letters.ctypes.data, at, at + 8, matrix.ctypes.data, at, right.ctypes.data, at, at + 12)
    return ints[3] == 0


@kernel(fastmath=True)
def _improve_block(
    indptr, indices, weights, part, columns, ridge, shift, own, vector, near, pulls, first, begin, end, scores, this
):
    """Improve rows begin..end on this thread.   in: all but the last two   in and out: scores, this"""
    width = part.shape[1]
    core = columns[first : first + width]
    matrix = np.empty((width, width), dtype=np.float32)
    right = np.empty(width, dtype=np.float32)
    products = np.empty((TILE_ROWS, width), dtype=np.float32)
    tile = np.empty((GATHER, width), dtype=np.float32)
    letters = np.array([85, 78], dtype=np.uint8)  # "U", "N"
    ints = np.array([width, 0, 1, 0], dtype=np.int32)  # width, entries in the tile, right-hand sides, info
    one = np.array([1.0], dtype=np.float32)
    for top in range(begin, end, TILE_ROWS):
        bottom = min(top + TILE_ROWS, end)
        np.dot(this[top:bottom], columns, products[: bottom - top])
        for i in range(top, bottom):
            start, stop = indptr[i], indptr[i + 1]
            pull = np.float32(0.0) if vector is None else pulls[i]
            x = this[i]
            mine = None if own is None else own[i]
            solved = _solve_row(
                indices, weights, scores, start, stop, part, core, products[i - top], ridge[i], shift, mine, x, first,
                vector, near, pull, matrix, right, tile, letters, ints, one,
            )  # fmt: skip
            if not solved:
                right[:] = np.nan
            for k in range(width):
                x[first + k] -= right[k]
            # Keep the scores x.y_j up to date, so that the next block need not compute them.
            for e in range(start, stop):
                j = indices[e]
                change = np.float32(0.0)
                for k in range(width):
                    change += right[k] * part[j, k]
                scores[e] -= change


@kernel(fastmath=True)
def _response_block(
    indptr, indices, weights, part, columns, ridge, shift, own, scores, this, first, begin, end, inverse, solution
):
    """Sum inverses and steps of rows begin..end on this thread.   in: all but the last two   in and out: these two"""
    width = part.shape[1]
    core = columns[first : first + width]
    matrix = np.empty((width, width), dtype=np.float32)
    right = np.empty(width, dtype=np.float32)
    products = np.empty((TILE_ROWS, width), dtype=np.float32)
    tile = np.empty((GATHER, width), dtype=np.float32)
    letters = np.array([85, 78], dtype=np.uint8)
    ints = np.array([width, 0, 1, 0], dtype=np.int32)
    one = np.array([1.0], dtype=np.float32)
    at = ints.ctypes.data
    for top in range(begin, end, TILE_ROWS):
        bottom = min(top + TILE_ROWS, end)
        np.dot(this[top:bottom], columns, products[: bottom - top])
        for i in range(top, bottom):
            mine = None if own is None else own[i]
            _solve_row(
                indices, weights, scores, indptr[i], indptr[i + 1], part, core, products[i - top], ridge[i], shift,
                mine, this[i], first, None, None, np.float32(0.0), matrix, right, tile, letters, ints, one,
            )  # fmt: skip
            spotri(letters.ctypes.data, at, matrix.ctypes.data, at, at + 12)
            for k in range(width):
                solution[k] -= right[k]
                for c in range(k + 1):
                    inverse[k, c] += matrix[k, c]


@kernel(fastmath=True)
def improve_rows(
    low, high, indptr, indices, weights, part, columns, ridge, shift, own, vector, near, pulls, first, bounds, scores,
    this,
):  # fmt: skip
    """Improve rows over a block (`improve_block`); `own` to `pulls` may be None.   in and out: scores, this"""
    for b in range(low, high):
        _improve_block(
            indptr, indices, weights, part, columns, ridge, shift, own, vector, near, pulls, first, bounds[b],
            bounds[b + 1], scores, this,
        )  # fmt: skip


@kernel(fastmath=True)
def response_parts(
    low, high, indptr, indices, weights, part, columns, ridge, shift, own, scores, this, first, bounds, inverses,
    solutions,
):  # fmt: skip
    """Sum the inverses (lower triangle) and the steps over each block of rows.   out: the last two"""
    for b in range(low, high):
        _response_block(
            indptr, indices, weights, part, columns, ridge, shift, own, scores, this, first, bounds[b], bounds[b + 1],
            inverses[b], solutions[b],
        )  # fmt: skip


@kernel(fastmath=True)
def scores_of(low, high, indptr, indices, this, other, bounds, out):
    """Set out[e] = x_i.y_j for every stored entry.   in: all but out   out: out (entries)"""
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                score = np.float32(0.0)
                for k in range(this.shape[1]):
                    score += this[i, k] * other[j, k]
                out[e] = score
