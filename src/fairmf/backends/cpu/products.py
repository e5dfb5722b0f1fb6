"""Multiply matrices tile by tile: factors by a d x d matrix, and by themselves (Gramians). Scores are in top_k.py.

Not BLAS: its kernels may be older than the processor (on AMD's Zen 5 OpenBLAS 0.3.31 takes those of 2013, at half the
speed), its bits depend on its version, and it packs the same matrix again for every block of rows. A tile of the result
stays in registers (`simd.product_tile`) and each element is summed from first to last.

The right-hand matrix is packed first: panel p holds its columns from p TILE_COLUMNS on, row by row, and zeros after the
last one. So a tile reads memory from front to back.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.simd import LINE, TILE_COLUMNS, TILE_ROWS, first_line, product_tile
from fairmf.kernels import kernel

ROWS_AT_ONCE = 10 * TILE_ROWS  # rows that go through a panel while it is in the nearest cache
GRAMIAN_ROWS = 256  # rows summed in float32 before they are added in float64: a relative error of about 1e-6


@kernel
def pack_columns(low, high, matrix, out):
    """Pack the columns of a matrix: panels low to high.   in: matrix   out: out (panels x rows x TILE_COLUMNS)"""
    rows, columns = matrix.shape
    for p in range(low, high):
        first = p * TILE_COLUMNS
        for k in range(rows):
            for c in range(TILE_COLUMNS):
                out[p, k, c] = matrix[k, first + c] if first + c < columns else np.float32(0.0)


@kernel
def multiply(low, high, this, packed, added, out):
    """Set out = X M for a packed matrix M, low to high times ROWS_AT_ONCE rows; `out` may be `this`.

    The vector `added`, unless it is empty, is added to every row.   in: this, packed, added   out: out
    """
    d, m = this.shape[1], out.shape[1]
    source, tile = np.zeros(ROWS_AT_ONCE * d, dtype=np.float32), np.empty(TILE_ROWS * TILE_COLUMNS, dtype=np.float32)
    for start in range(low * ROWS_AT_ONCE, min(high * ROWS_AT_ONCE, len(this)), ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, len(this) - start)
        # Loops, here and elsewhere: Numba takes seconds to compile an assignment of one slice to another.
        for i in range(count):
            for k in range(d):
                source[i * d + k] = this[start + i, k]
        for p in range(len(packed)):
            first = p * TILE_COLUMNS
            for i in range(0, count, TILE_ROWS):
                begin = p * d * TILE_COLUMNS
                if i + TILE_ROWS <= count and first + TILE_COLUMNS <= m:
                    at = (start + i) * m + first
                    product_tile(source, i * d, d, 1, packed, begin, TILE_COLUMNS, d, out, at, m)
                    continue
                product_tile(source, i * d, d, 1, packed, begin, TILE_COLUMNS, d, tile, 0, TILE_COLUMNS)
                for row in range(min(TILE_ROWS, count - i)):
                    for c in range(min(TILE_COLUMNS, m - first)):
                        out[start + i + row, first + c] = tile[row * TILE_COLUMNS + c]
        for i in range(start, start + count):
            for k in range(len(added)):
                out[i, k] += added[k]


@kernel
def gramian_parts(low, high, this, roots, bounds, out):
    """Set out[b] to the lower triangle of X'X over the rows of block b, row i times roots[i] unless `roots` is None.

    in: this, roots, bounds   out: out (blocks x d x d)
    """
    d = this.shape[1]
    # Zeros after the last column, up to the end of the last tile.
    room = max(-(-d // TILE_ROWS) * TILE_ROWS, -(-d // TILE_COLUMNS) * TILE_COLUMNS)
    width = (room + LINE - 1) // LINE * LINE
    rows = np.zeros(GRAMIAN_ROWS * width + LINE, dtype=np.float32)
    at = first_line(rows)
    for b in range(low, high):
        total = np.zeros((room, room))
        for start in range(bounds[b], bounds[b + 1], GRAMIAN_ROWS):
            count = min(GRAMIAN_ROWS, bounds[b + 1] - start)
            for i in range(count):
                root = np.float32(1.0) if roots is None else roots[start + i]
                for k in range(d):
                    rows[at + i * width + k] = root * this[start + i, k]
            for j in range(0, d, TILE_COLUMNS):
                for i in range(j // TILE_ROWS * TILE_ROWS, d, TILE_ROWS):
                    product_tile(rows, at + i, 1, width, rows, at + j, width, count, total, i * room + j, room)
        for i in range(d):
            for j in range(i + 1):
                out[b, i, j] = total[i, j]


@kernel
def sum_triangles(low, high, parts, out):
    """Set rows low to high (times LINE) of `out`, and the columns that mirror them, to the sum of lower triangles.

    in: parts (blocks x d x d)   out: out (d x d)
    """
    d = len(out)
    for first in range(low * LINE, min(high * LINE, d), LINE):
        end = min(first + LINE, d)
        for i in range(first, end):
            for j in range(i + 1):
                out[i, j] = parts[0, i, j]
            for b in range(1, len(parts)):
                for j in range(i + 1):
                    out[i, j] += parts[b, i, j]
        for j in range(end):  # LINE rows are mirrored together, because writing single numbers of a line takes longer
            for i in range(max(first, j), end):
                out[j, i] = out[i, j]
