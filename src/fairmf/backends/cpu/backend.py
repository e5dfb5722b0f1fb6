"""Implement the cpu backend: check array bounds, allocate outputs and scratch, run Numba kernels on threads."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import (
    Effort,
    Factors,
    HalfStep,
    ItemScale,
    Matrix,
    RowSums,
    ScoreWindow,
    Vector,
)
from fairmf.backends.cpu import top_k as top_k_kernel
from fairmf.backends.cpu.simd import LINE, TILE_COLUMNS
from fairmf.backends.numpy_arrays import NumpyArrays
from fairmf.data.csr import Rows, check_rows
from fairmf.kernels import is_compiled
from fairmf.lazy import lazy_module
from fairmf.threads import balanced, even, run, use
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.backends.cpu import cg, products, reductions, subspace
    from fairmf.backends.cpu import rows as row_kernels
    from fairmf.backends.random_start import Stream
else:  # models that only answer do without the kernels of fits
    reductions = lazy_module("fairmf.backends.cpu.reductions")
    cg, subspace = lazy_module("fairmf.backends.cpu.cg"), lazy_module("fairmf.backends.cpu.subspace")
    row_kernels, products = lazy_module("fairmf.backends.cpu.rows"), lazy_module("fairmf.backends.cpu.products")

log = logging.getLogger("fairmf")
CANDIDATE_BYTES = 16 << 20  # memory for candidates of one thread in top_k
MOST_BINS, USERS_PER_BIN = 32, 128  # bins of users by length, for the bounds of top_k with offsets
ORDER_PAYS = 64  # number of users above which sorting the items by length in top_k saves more than it costs
PASS = 4  # flops that a number read from memory counts as
NONE = None, None  # in place of a rank-one term, where a step has none
SHIFTED_AT_ONCE = 1 << 16  # rows with right-hand sides of their own that `improve` takes at a time
REDUCTION_BLOCKS = 32  # blocks of a reduction that holds a d x d float64 matrix per block


class CpuBackend(NumpyArrays):
    """Compute in float32 with Numba kernels; see `contract.Backend` for what each method does."""

    name = "cpu"
    dtype = np.dtype(np.float32)
    tolerance = 2e-4
    rounding = 1e-6

    threads = staticmethod(use)

    def compiles_now(self) -> bool:
        """See contract."""
        return not is_compiled(cg.improve_rows)

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract. The first row begins at the border of a cache line: see `simd.LINE`."""
        memory = np.empty(rows * factors + LINE, dtype=self.dtype)
        first = -(memory.ctypes.data // memory.itemsize) % LINE
        return memory[first : first + rows * factors].reshape(rows, factors)

    def _panels(self, rows: int, columns: int) -> Factors:
        """Return uninitialised memory for a packed matrix (products.py)."""
        count = -(-columns // TILE_COLUMNS)
        return self.empty(count * rows, TILE_COLUMNS).reshape(count, rows, TILE_COLUMNS)

    def draw_normal(self, stream: Stream, numbers: NDArray[np.int64] | None, scale: float, out: Factors) -> None:
        """See contract."""
        rows = np.arange(len(out)) if numbers is None else np.ascontiguousarray(numbers, dtype=np.int64)
        bounds = even(len(out), row_kernels.BLOCK_ROWS)
        key, side = np.array(stream.key, dtype=np.uint64), np.uint64(stream.side)
        inputs = (key, side, rows, np.float32(scale), bounds)
        run(row_kernels.draw_rows, len(bounds) - 1, *inputs, out=(out,), work=50 * out.size)

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """See contract."""
        n, d = this.shape
        bounds = even(n, 4 * products.GRAMIAN_ROWS, most=REDUCTION_BLOCKS)
        parts, gramian = np.empty((len(bounds) - 1, d, d)), np.empty((d, d))
        # X' W X is the Gramian of sqrt(W) X.
        roots = None if weights is None else np.sqrt(weights).astype(np.float32)
        run(products.gramian_parts, len(parts), this, roots, bounds, out=(parts,), work=n * d * d)
        run(products.sum_triangles, -(-d // LINE), parts, out=(gramian,), work=parts.size)
        return gramian

    def mean(self, this: Factors) -> Vector:
        """See contract."""
        bounds = even(len(this), 1024)
        parts = np.zeros((len(bounds) - 1, this.shape[1]))
        run(reductions.sum_parts, len(parts), this, bounds, out=(parts,), work=PASS * this.size)
        mean: Vector = parts.sum(axis=0) / len(this)
        return mean

    def squared_norms(self, this: Factors) -> Vector:
        """See contract."""
        out = np.full(len(this), np.nan)
        run(top_k_kernel.squared_norms, len(this), this, out=(out,), work=2 * this.size)
        return out

    def weighted_squares(self, this: Factors, weights: Vector) -> Vector:
        """See contract."""
        bounds = even(len(this), 1024)
        parts = np.zeros((len(bounds) - 1, this.shape[1]))
        run(reductions.weighted_square_parts, len(parts), this, weights, bounds, out=(parts,), work=PASS * this.size)
        squares: Vector = parts.sum(axis=0)
        return squares

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """See contract."""
        bounds = even(len(this), 1024)
        parts = np.zeros(len(bounds) - 1)
        run(reductions.squared_distance_parts, len(parts), this, other, bounds, out=(parts,), work=PASS * this.size)
        return float(parts.sum())

    def all_finite(self, this: Factors) -> bool:
        """See contract."""
        bounds = even(len(this), 1024)
        largest = np.zeros(len(bounds) - 1, dtype=np.int32)
        bits = np.ascontiguousarray(this).view(np.int32)
        run(reductions.largest_exponents, len(largest), bits, bounds, out=(largest,), work=PASS * this.size)
        return bool(largest.max(initial=0) < reductions.NOT_FINITE)

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:
        """See contract."""
        check_rows(rows, this, other)
        bounds = balanced(rows.indptr, 1.0)
        parts = np.zeros(len(bounds) - 1)
        work = 2 * rows.nnz * this.shape[1]
        run(reductions.observed_loss_parts, len(parts), *rows, this, other, bounds, out=(parts,), work=work)
        return float(parts.sum())

    def multiply(self, this: Factors, matrix: Matrix, out: Factors, added: Vector | None = None) -> None:
        """See contract. The vector `added`, if given, is added to every row of the product."""
        single = np.ascontiguousarray(matrix, dtype=np.float32)
        packed = self._panels(*single.shape)
        run(products.pack_columns, len(packed), single, out=(packed,), work=single.size)
        blocks, work = -(-len(this) // products.ROWS_AT_ONCE), 2 * this.size * single.shape[1]
        vector = np.empty(0, dtype=np.float32) if added is None else added.astype(np.float32)
        run(products.multiply, blocks, this, packed, vector, out=(out,), work=work)

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """See contract."""
        bounds = even(len(out), 1024)
        run(
            row_kernels.add_vector, len(bounds) - 1, vector.astype(np.float32), bounds, out=(out,), work=PASS * out.size
        )

    def sparse_product(self, rows: Rows, other: Factors) -> Factors:
        """See contract."""
        out, bounds = self.empty(rows.count, other.shape[1]), balanced(rows.indptr, 1.0)
        check_rows(rows, out, other)
        inputs, work = (*rows, other, bounds), 2 * rows.nnz * other.shape[1]
        run(row_kernels.sum_rows, len(bounds) - 1, *inputs, out=(out,), work=work)
        return out

    def solve(self, step: HalfStep) -> Factors:
        """See contract."""
        rows, d = step.rows, step.other.shape[1]
        check_rows(rows, step.ridge, step.other)
        # An entry costs d^2 flops and a factorisation d^3/3: a row costs as much as d/3 entries.
        bounds, out = balanced(rows.indptr, d / 3), self.empty(rows.count, d)
        right = step.shift if step.right is None else step.right
        solver = row_kernels.solve_rows if step.right is None else row_kernels.solve_rows_for
        own = () if solver is row_kernels.solve_rows_for else (step.own,)
        inputs = (*rows, step.other, *_single(step.matrix, step.ridge, right), *own, *_single(*step.rank_one or NONE))
        run(solver, len(bounds) - 1, *inputs, bounds, out=(out,), work=d * d * (rows.nnz + rows.count * d / 3))
        return out

    def mean_inverse(self, step: HalfStep) -> tuple[Matrix, Vector]:
        """See contract."""
        rows, d = step.rows, step.other.shape[1]
        check_rows(rows, step.ridge, step.other)
        bounds = balanced(rows.indptr, d, count=REDUCTION_BLOCKS)
        outputs = np.zeros((len(bounds) - 1, d, d)), np.zeros((len(bounds) - 1, d))
        inputs = (*rows, step.other, *_single(step.matrix, step.ridge), step.own, bounds)
        run(row_kernels.inverse_parts, len(bounds) - 1, *inputs, out=outputs, work=d * d * (rows.nnz + rows.count * d))
        return _means(*outputs, rows.count)

    def improve(self, step: HalfStep, this: Factors, effort: Effort) -> RowSums:
        """See contract."""
        rows, shifts = step.rows, step.shift[None]
        check_rows(rows, this, step.other)
        own = step.rest is not None or step.own is not None
        if own and rows.count > SHIFTED_AT_ONCE:  # in parts, to bound memory
            starts = range(0, rows.count, SHIFTED_AT_ONCE)
            sums = [self.improve(_part(step, slice(s, s + SHIFTED_AT_ONCE)), this[s : s + SHIFTED_AT_ONCE], effort)
                    for s in starts]  # fmt: skip
            return RowSums(*map(sum, zip(*sums, strict=True)))
        # The work per row (on its vectors of length d) costs about as much as eight entries.
        bounds = balanced(rows.indptr, 8.0)
        parts = np.zeros((len(bounds) - 1, 3))
        limits = effort.steps, *map(np.float32, (effort.tolerance, effort.accuracy, effort.relaxation))
        if own:
            shifts = self._shifts(step, this)
        terms = _single(step.shared, step.ridge, shifts, *step.rank_one or NONE)
        work = 4 * (effort.steps + 1) * this.shape[1] * (rows.nnz + 8 * rows.count)
        run(cg.improve_rows, len(parts), *rows, step.other, *terms, *limits, bounds, out=(this, parts), work=work)
        return RowSums(*parts.sum(axis=0).tolist())

    def _shifts(self, step: HalfStep, this: Factors) -> Factors:
        """Return what is subtracted from the right-hand side of each row: the shift, its own part, and rest x_i."""
        shifts = self.empty(*this.shape)
        if step.rest is None:
            shifts[:] = step.shift
        else:
            self.multiply(this, step.rest, shifts, step.shift)
            shifts[np.diff(step.rows.indptr) == 0] = step.shift
        if step.own is not None:
            shifts -= step.own
        return shifts

    def _add_entries(self, step: HalfStep, this: Factors, target: float, out: Factors) -> None:
        rows = step.rows
        check_rows(rows, this, step.other)
        inputs, bounds = (*rows, this, step.other, np.float32(target)), balanced(rows.indptr, 1.0)
        run(row_kernels.residual_rows, len(bounds) - 1, *inputs, bounds, out=(out,), work=4 * rows.nnz * this.shape[1])

    def entry_scores(self, rows: Rows, this: Factors, other: Factors) -> Factors:
        """See contract."""
        check_rows(rows, this, other)
        out, bounds = np.full(rows.nnz, np.nan, dtype=self.dtype), balanced(rows.indptr, 1.0)
        inputs = (*rows[:2], this, other, bounds)
        run(subspace.scores_of, len(bounds) - 1, *inputs, out=(out,), work=2 * rows.nnz * this.shape[1])
        return out

    def improve_block(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> None:
        """See contract."""
        rows = step.rows
        check_rows(rows, this, step.other)
        pieces, cost, work = _block(step, block)
        vector, pulls = _single(*step.rank_one or NONE)
        near = None if vector is None else vector[block].copy()
        bounds = balanced(rows.indptr, cost)
        inputs = (*rows, *pieces, step.own, vector, near, pulls, block.start, bounds)
        run(subspace.improve_rows, len(bounds) - 1, *inputs, out=(scores, this), work=work)

    def block_response(self, step: HalfStep, block: slice, scores: Factors, this: Factors) -> tuple[Matrix, Vector]:
        """See contract."""
        rows, width = step.rows, block.stop - block.start
        check_rows(rows, this, step.other)
        pieces, cost, work = _block(step, block)
        bounds = balanced(rows.indptr, cost, count=REDUCTION_BLOCKS)
        outputs = np.zeros((len(bounds) - 1, width, width)), np.zeros((len(bounds) - 1, width))
        inputs = (*rows, *pieces, step.own, scores, this, block.start, bounds)
        run(subspace.response_parts, len(bounds) - 1, *inputs, out=outputs, work=work)
        return _means(*outputs, rows.count)

    def top_k(
        self,
        this: Factors,
        other: Factors,
        k: int,
        exclude: Rows | None,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
        dial: ItemScale | None = None,
        window: ScoreWindow | None = None,
    ) -> None:
        """See contract."""
        if not is_compiled(top_k_kernel.top_k):
            log.info("compiling kernels, once: about 5 s", extra={"kind": "compiling lists"})
        n, (m, d) = len(this), other.shape
        if exclude is None:
            exclude = Rows(np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int32), None)
        check_rows(exclude, this, other)
        scale, offset = ItemScale() if dial is None else dial
        lengths, of_items = np.sqrt(self.squared_norms(this)), np.sqrt(self.squared_norms(other))
        of_items = of_items if scale is None else of_items * scale
        largest = of_items.max(initial=0.0)
        blocks = slice(None, None, top_k_kernel.ITEMS_AT_ONCE)
        order, longest = np.arange(m, dtype=np.int32), np.full(-(-m // top_k_kernel.ITEMS_AT_ONCE), largest)
        reach = bins = None
        if offset is not None:
            reach, bins = np.full((len(longest), 1), np.inf, dtype=np.float32), np.zeros(n, dtype=np.int64)
        # With items sorted by length, the kernel can stop early: it needs the longest vector of each block of items.
        panels = self._panels(d, 0)
        if n >= ORDER_PAYS:
            # Items that may score highest come first: those with long vectors and, for a typical user, large offsets.
            most = of_items if offset is None else of_items * np.median(lengths) + offset
            order = np.argsort(-most, kind="stable").astype(np.int32)
            other, longest = other[order], of_items[order]
            if scale is not None:
                other *= scale[order, None]
                scale = None
            if offset is not None:
                offset = offset[order]
                reach, bins = _reach(lengths, longest, offset, blocks)
                other = np.column_stack((other, offset))
            longest = longest[blocks].copy()  # contiguous as above: another layout would be compiled again
            panels = self._panels(other.shape[1], m)
            run(top_k_kernel.pack_rows, len(panels), other, out=(panels,), work=other.size)
        rank = np.empty_like(order)
        rank[order] = np.arange(m, dtype=np.int32)
        # Bound on the rounding error of a float32 score: d products and sums, and the last rounding of the exact one.
        errors = ((d + 2) * 2.0**-24 * lengths * largest + 1e-37).astype(np.float32)
        if dial is not None:  # two more roundings
            errors += np.float32(2.0**-22) * (lengths * largest).astype(np.float32)
        if offset is not None:  # each of the sums may hold it
            errors += np.float32((d + 4) * 2.0**-24 * np.abs(offset).max())
        lowest, highest = np.full(n, top_k_kernel.LOWEST), np.full(n, np.inf, dtype=np.float32)
        if window is not None:  # a product may be off by `errors` where the window is exact
            lowest, highest = np.maximum(lowest, window.lowest - 2 * errors), window.highest + 2 * errors
        room = top_k_kernel.most_kept(k) + top_k_kernel.ITEMS_AT_ONCE
        at_once = int(np.clip(CANDIDATE_BYTES // (8 * room), 1, top_k_kernel.USERS_AT_ONCE))
        bounds = even(n, at_once)
        items.fill(-1)
        scores.fill(np.nan)
        inputs = (
            this, other, panels, scale, offset, order, rank, longest, reach, bins, lengths, errors, lowest, highest,
            k, exclude.indptr, exclude.indices, bounds, at_once,
        )  # fmt: skip
        run(top_k_kernel.top_k, len(bounds) - 1, *inputs, out=(items, scores), work=2 * n * m * d)


def _reach(
    lengths: Vector, of_items: Vector, offset: NDArray[np.float32], blocks: slice
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the highest score that items from each block on can have (blocks x bins), and the bin of every user.

    The users of a bin have about the same length. A bound for each bin is nearly as tight as one for each user.
    """
    count = int(np.clip(len(lengths) // USERS_PER_BIN, 1, MOST_BINS))
    edges = np.quantile(lengths, np.arange(1, count + 1) / count)
    edges[-1] = lengths.max()
    reach = np.empty((len(offset[blocks]), count), dtype=np.float32)
    for at, edge in enumerate(edges):
        # A little more, because lengths and floors are rounded.
        most = of_items * (edge * 1.000001) + offset
        reach[:, at] = np.maximum.accumulate(most[::-1])[::-1][blocks]
    return np.nextafter(reach, np.float32(np.inf)), np.minimum(np.searchsorted(edges, lengths), count - 1)


def _part(step: HalfStep, part: slice) -> HalfStep:
    """Return the half-step of some of the rows."""
    rows = step.rows.block(part.start, min(part.stop, step.rows.count)).read_only()
    own = None if step.own is None else step.own[part]
    term = None if step.rank_one is None else step.rank_one._replace(weights=step.rank_one.weights[part])
    return replace(step, rows=rows, ridge=step.ridge[part], own=own, rank_one=term)


def _single(*arrays: Array | None) -> list[NDArray[np.float32] | None]:
    """Return arrays in float32, as kernels read them. None stays None: Numba compiles the kernel without that term."""
    return [None if x is None else np.ascontiguousarray(x, dtype=np.float32) for x in arrays]


def _means(inverses: NDArray[np.float64], solutions: NDArray[np.float64], n: int) -> tuple[Matrix, Vector]:
    """Return means over n rows from the sums of blocks; kernels fill only the lower triangle of the inverses."""
    lower = inverses.sum(axis=0) / n
    return lower + np.tril(lower, -1).T, solutions.sum(axis=0) / n


def _block(step: HalfStep, block: slice) -> tuple[list[NDArray[np.float32] | None], float, float]:
    """Return the block's contiguous pieces, the cost of a row in entries, and the flops of a step over the block.

    Factorising a row's b x b matrix costs as much as b/3 entries, its product with `shared` as much as 2 d / b.
    """
    d, width = step.other.shape[1], block.stop - block.start
    pieces = _single(step.other[:, block], step.matrix[:, block], step.ridge, step.shift[block])
    cost = width / 3 + 2 * d / width
    return pieces, cost, float(width * width * (step.rows.nnz + step.rows.count * cost))


BACKEND = CpuBackend()
