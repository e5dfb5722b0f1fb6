"""Improve a few coordinates of every row at a time (iALS++): small systems by Cholesky, a stored score per entry."""

from __future__ import annotations

from collections.abc import Iterator

import cupy as cp
import numpy as np

from fairmf.backends.contract import Factors, HalfStep
from fairmf.backends.cuda import cholesky, launch
from fairmf.backends.cuda.memory import DeviceRows, Placing, as_vector, device_rows
from fairmf.data.csr import Rows
from fairmf.errors import NotEnoughMemory


def entry_scores(placing: Placing, rows: Rows, this: Factors, other: Factors) -> cp.ndarray:
    """Implement `SubspaceKernels.entry_scores`."""
    on = _all_of(placing, rows, this)
    scores, chunks = cp.empty(rows.nnz, dtype=cp.float32), on.all_chunks()
    if len(chunks):
        entries = chunks.of_row, chunks.start, chunks.stop
        _kernel("entry_scores")(
            (len(chunks),), (256,),
            (on.indices, *entries, this, placing.whole(other), np.int32(this.shape[1]), scores),
        )  # fmt: skip
    return scores


def improve(placing: Placing, step: HalfStep, block: slice, scores: cp.ndarray, this: cp.ndarray) -> None:
    """Implement `SubspaceKernels.improve_block`."""
    on = _all_of(placing, step.rows, this)
    part, width = _part(placing, step.other, block), np.int32(block.stop - block.start)
    for own, factors, definite, gradient in _systems(placing, on, part, step, block, scores, this):
        move = cp.where(definite[:, None], cholesky.solved(factors, gradient), cp.nan)
        this[own, block] -= move
        _kernel("move_scores")(
            (len(move),), (256,), (on.indptr, on.indices, np.int64(own.start), part, width, move, scores)
        )


def response(
    placing: Placing, step: HalfStep, block: slice, scores: cp.ndarray, this: cp.ndarray
) -> tuple[cp.ndarray, cp.ndarray]:
    """Implement `SubspaceKernels.block_response`."""
    n, width = step.rows.count, block.stop - block.start
    on, part = _all_of(placing, step.rows, this), _part(placing, step.other, block)
    inverses, moves = cp.zeros((width, width)), cp.zeros(width)
    for _, factors, _, gradient in _systems(placing, on, part, step, block, scores, this):
        moves -= cholesky.solved(factors, gradient).sum(axis=0, dtype=cp.float64)
        inverses += cholesky.sum_of_inverses(factors)
    return inverses / n, moves / n


def _systems(
    placing: Placing,
    on: DeviceRows,
    part: cp.ndarray,
    step: HalfStep,
    block: slice,
    scores: cp.ndarray,
    this: cp.ndarray,
) -> Iterator[tuple[slice, cp.ndarray, cp.ndarray, cp.ndarray]]:
    """Yield batches: rows, Cholesky factors of (H_i)_PP, which of them are positive definite, and gradients."""
    count, width = len(this), block.stop - block.start
    columns = cp.asarray(step.matrix, dtype=cp.float32)[:, block]
    core, moved = (cp.ascontiguousarray(x) for x in (columns[block], cp.asarray(step.shift, dtype=cp.float32)[block]))
    ridges = as_vector(step.ridge, slice(0, count), placing.uploads, "float32")
    vector: cp.ndarray | None = None
    near: cp.ndarray | None = None
    pulls: cp.ndarray | None = None
    if step.rank_one is not None:
        vector = cp.asarray(step.rank_one.vector, dtype=cp.float32)
        near = cp.ascontiguousarray(vector[block])
        pulls = as_vector(step.rank_one.weights, slice(0, count), placing.uploads, "float32")
    start = 0
    for chosen in cholesky.batches(count, 2 * width):
        own = slice(start, start + len(chosen))
        x = this[own]
        gradient = x @ columns + ridges[own, None] * x[:, block] + moved
        if vector is not None and pulls is not None:
            gradient += (pulls[own] * (x @ vector))[:, None] * near
        if step.own is not None:
            gradient -= step.own[own, block]
        _kernel("entry_gradients")(
            (len(chosen),), (256,),
            (
                on.indptr, on.indices, np.uintp(0) if on.weights is None else on.weights, np.int64(start), part,
                np.int32(width), scores, gradient,
            ),
        )  # fmt: skip
        factors, definite = cholesky.factorised(on, chosen, part, (core, ridges, near, pulls))
        yield own, factors, definite, gradient
        start = own.stop


def _part(placing: Placing, other: Factors, block: slice) -> cp.ndarray:
    """Return these coordinates of the fixed side, contiguous by row."""
    return cp.ascontiguousarray(placing.whole(other)[:, block])


def _all_of(placing: Placing, rows: Rows, this: Factors) -> DeviceRows:
    """Return all rows on the device; raise NotEnoughMemory where they, or their scores, do not fit."""
    if not isinstance(this, cp.ndarray) or not placing.fits(rows):
        raise NotEnoughMemory(
            f"solver='subspace' keeps a score for each of {rows.nnz:,} interactions on the device, which has "
            f"{placing.limit() / 2**30:.1f} GiB free: use solver='eigenbasis_cg', which streams, or backend='cpu'."
        )
    return device_rows(rows, placing.uploads)


def _kernel(name: str) -> cp.RawKernel:
    return launch.kernel("subspace_rows.cu", name, cp.cuda.Device().id)
