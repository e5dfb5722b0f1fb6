"""Improve, solve and measure sparse rows, whether they stay on the GPU or are streamed through it."""

from __future__ import annotations

import cupy as cp
import numpy as np

from fairmf.backends.contract import Effort, Factors, HalfStep
from fairmf.backends.cuda import cholesky, launch
from fairmf.backends.cuda.launch import RowKernels
from fairmf.backends.cuda.memory import DeviceRows, Placing, as_vector
from fairmf.backends.cuda.reductions import sum_triples
from fairmf.data.csr import Rows
from fairmf.types import Array

# Long rows are split into chunks, so that many blocks of threads share a row. Sums of its chunks are added in order.

STATE_BYTES = 48  # sizeof(struct Row) of eigenbasis_rows.cu


def improve_long_rows(
    kernels: RowKernels,
    on: DeviceRows,
    other: cp.ndarray,
    shared: tuple[cp.ndarray | np.uintp, ...],
    steps: int,
    limits: tuple[np.float32, np.float32],
    this: cp.ndarray,
    sums: cp.ndarray,
) -> None:
    """Improve the long rows, all in lock-step; `improve_rows` does the others.   in and out: this   out: sums"""
    chunks, d = on.long, this.shape[1]
    count = len(chunks.rows)
    if count == 0:
        return
    diagonal, ridge, shift, vector, pulls, left_over, own = shared
    tolerance, relaxation = limits
    weights = np.uintp(0) if on.weights is None else on.weights
    entries = chunks.of_row, chunks.start, chunks.stop
    parts, numbers = cp.empty((len(chunks), d), dtype=cp.float32), cp.empty(len(chunks), dtype=cp.float64)
    residuals, directions = (cp.empty((count, d), dtype=cp.float32) for _ in range(2))
    state = cp.empty(count * STATE_BYTES, dtype=cp.uint8)
    kernels.launch(
        "residual_chunks", len(chunks),
        (on.indices, weights, chunks.rows, *entries, other, np.float32(1), this, parts, numbers),
        vectors=kernels.groups,
    )  # fmt: skip
    kernels.launch(
        "begin_long_rows", count,
        (
            chunks.rows, chunks.first, diagonal, ridge, shift, vector, pulls, left_over, own, tolerance, parts,
            numbers, this, residuals, directions, state,
        ),
    )  # fmt: skip
    for step in range(steps):
        last = np.int32(step + 1 == steps)
        kernels.launch(
            "product_chunks", len(chunks),
            (on.indices, weights, *entries, other, directions, state, last, parts, numbers),
            vectors=kernels.groups,
        )  # fmt: skip
        kernels.launch(
            "step_long_rows", count,
            (
                chunks.rows, chunks.first, diagonal, shift, vector, left_over, own, last, relaxation, parts, numbers,
                this, residuals, directions, state,
            ),
        )  # fmt: skip
    kernels.launch("finish_long_rows", count, (chunks.rows, this, state, sums))


def residual_of_long_rows(
    kernels: RowKernels, on: DeviceRows, this: cp.ndarray, other: cp.ndarray, target: np.float32, out: cp.ndarray
) -> None:
    """Add the residuals of the long rows to `out`; `residual_rows` does the others."""
    chunks = on.long
    if len(chunks.rows) == 0:
        return
    weights = np.uintp(0) if on.weights is None else on.weights
    parts = cp.empty((len(chunks), this.shape[1]), dtype=cp.float32)
    kernels.launch(
        "residual_chunks", len(chunks),
        (
            on.indices, weights, chunks.rows, chunks.of_row, chunks.start, chunks.stop, other, target, this, parts,
            cp.empty(len(chunks), dtype=cp.float64),
        ),
        vectors=kernels.groups,
    )  # fmt: skip
    kernels.launch("add_chunks", len(chunks.rows), (chunks.rows, chunks.first, parts, out))


def kernels_for(other: Factors, half: bool = False, own: bool = False) -> launch.RowKernels:
    """Return the kernels for the number of factors of this array."""
    return launch.row_kernels(other.shape[1], half, own, cp.cuda.Device().id)


def single(values: Array) -> cp.ndarray:
    """Return a d-vector or d x d matrix as float32 on the device."""
    return cp.ascontiguousarray(cp.asarray(values, dtype=cp.float32))


def or_null(array: cp.ndarray | None) -> cp.ndarray | np.uintp:
    """Return the array, or a null pointer for None: kernels take that for a missing array."""
    return np.uintp(0) if array is None else array


def improve(placing: Placing, half: bool, step: HalfStep, this: Factors, effort: Effort) -> cp.ndarray:
    """Implement `Backend.improve`; return its three sums on the device."""
    kernels, gathered = kernels_for(step.other, half, step.own is not None), placing.whole(step.other)
    if half:
        gathered = gathered.astype(cp.float16)
    diagonal, shift = single(step.shared), single(step.shift)
    vector = None if step.rank_one is None else single(step.rank_one.vector)
    rest = None if step.rest is None else single(step.rest)
    limits = np.float32(effort.tolerance), np.float32(effort.relaxation)
    sums = cp.empty((step.rows.count, 3))
    for part, on in placing.row_parts(step.rows, this):
        x = _block(this, part)
        ridge, pulls = _numbers_of_rows(placing, step, part)
        terms = (
            diagonal, ridge, shift, or_null(vector), or_null(pulls),
            np.uintp(0) if rest is None else cp.matmul(x, rest), or_null(_own(step, part)),
        )  # fmt: skip
        of_rows = sums[part]
        kernels.launch(
            "improve_rows", len(on.short),
            (
                on.indptr, on.indices, or_null(on.weights), on.short, gathered, *terms, np.int32(effort.steps),
                *limits, x, of_rows,
            ),
            vectors=2 + kernels.groups, cache=True,
        )  # fmt: skip
        # `improve_rows` gives each short row to one block of threads; many blocks share a long row.
        improve_long_rows(kernels, on, gathered, terms, effort.steps, limits, x, of_rows)
        placing.store(x, part, this)
    return sum_triples(sums)


def add_residual(placing: Placing, step: HalfStep, this: Factors, out: Factors) -> None:
    """Add to `out`, which holds X shared, the other terms of `Backend.residual`; apply a diagonal `shared` here."""
    kernels, gathered = kernels_for(step.other), placing.whole(step.other)
    target = np.float32(1 if step.right is None else 0)
    offset = single(step.shift) if step.right is None else -single(step.right)
    vector = None if step.rank_one is None else single(step.rank_one.vector)
    for part, on in placing.row_parts(step.rows, this, out):
        x, sums = _block(this, part), _block(out, part)
        ridge, pulls = _numbers_of_rows(placing, step, part)
        if step.shared.ndim == 1:
            sums[...] = x * single(step.shared)
        sums += x * ridge[:, None] + offset
        own = None if step.right is not None else _own(step, part)
        if own is not None:
            sums -= own
        if vector is not None:
            sums += (pulls * (x @ vector))[:, None] * vector
        kernels.launch(
            "residual_rows", len(on.short),
            (on.indptr, on.indices, or_null(on.weights), on.short, x, gathered, target, sums),
            vectors=kernels.groups,
        )  # fmt: skip
        residual_of_long_rows(kernels, on, x, gathered, target, sums)
        placing.store(sums, part, out)


def sum_over_entries(placing: Placing, name: str, rows: Rows, this: Factors, other: Factors) -> float:
    """Return a sum over stored entries: c_ij (1 - x_i.y_j)^2 (`observed_loss`) or c_ij x_i.y_j (`score_sum`)."""
    kernels, gathered = kernels_for(other), placing.whole(other)
    total = 0.0
    for part, on in placing.row_parts(rows, this):
        chunks = on.all_chunks()
        sums = cp.zeros(max(1, len(chunks)))
        kernels.launch(
            name, len(chunks),
            (
                on.indices, or_null(on.weights), chunks.of_row, chunks.start, chunks.stop, _block(this, part), gathered,
                sums,
            ),
        )  # fmt: skip
        total += float(sums.sum())
    return total


def sparse_product(placing: Placing, rows: Rows, other: Factors, out: Factors) -> None:
    """Implement `Backend.sparse_product`, into `out`."""
    kernels, gathered = kernels_for(other), placing.whole(other)
    for part, on in placing.row_parts(rows, out):
        sums, weights, chunks = _block(out, part), or_null(on.weights), on.long
        entries = on.indices, weights
        kernels.launch(
            "sum_rows", len(on.short), (on.indptr, *entries, on.short, gathered, sums), vectors=kernels.groups
        )
        if len(chunks):
            parts = cp.empty((len(chunks), other.shape[1]), dtype=cp.float32)
            kernels.launch(
                "sum_chunks", len(chunks), (*entries, chunks.start, chunks.stop, gathered, parts),
                vectors=kernels.groups,
            )  # fmt: skip
            kernels.launch("store_chunks", len(chunks.rows), (chunks.rows, chunks.first, parts, sums))
        placing.store(sums, part, out)


def solve(placing: Placing, step: HalfStep, out: Factors) -> None:
    """Implement `Backend.solve`, into `out`."""
    gathered, matrix, shift = placing.whole(step.other), single(step.matrix), single(step.shift)
    vector = None if step.rank_one is None else single(step.rank_one.vector)
    given = None if step.right is None else single(step.right)
    for part, on in placing.row_parts(step.rows, out):
        ridge, pulls = _numbers_of_rows(placing, step, part)
        own, solution = _own(step, part), _block(out, part)
        for chosen in cholesky.batches(part.stop - part.start, step.other.shape[1]):
            factors, definite = cholesky.factorised(on, chosen, gathered, (matrix, ridge, vector, pulls))
            if given is None:
                right = cholesky.right_sides(on, chosen, gathered, shift, own)
            else:
                right = cp.tile(given, (len(chosen), 1))
            solution[chosen] = cp.where(definite[:, None], cholesky.solved(factors, right), cp.nan)
        placing.store(solution, part, out)


def mean_inverse(placing: Placing, step: HalfStep) -> tuple[cp.ndarray, cp.ndarray]:
    """Implement `Backend.mean_inverse`."""
    n, d = step.rows.count, step.other.shape[1]
    gathered, matrix, nothing = placing.whole(step.other), single(step.matrix), cp.zeros(d, dtype=cp.float32)
    inverses, solutions = cp.zeros((d, d)), cp.zeros(d)
    for part, on in placing.row_parts(step.rows):
        terms, own = (matrix, as_vector(step.ridge, part, placing.uploads, "float32"), None, None), _own(step, part)
        # Batches of a quarter of the size: `sum_of_inverses` needs two more d x d matrices per row.
        for chosen in cholesky.batches(part.stop - part.start, 2 * d):
            factors, _ = cholesky.factorised(on, chosen, gathered, terms)
            right = cholesky.right_sides(on, chosen, gathered, nothing, own)
            solutions += cholesky.solved(factors, right).sum(axis=0, dtype=cp.float64)
            inverses += cholesky.sum_of_inverses(factors)
    return inverses / n, solutions / n


def _numbers_of_rows(placing: Placing, step: HalfStep, part: slice) -> tuple[cp.ndarray, cp.ndarray | None]:
    """Return the ridges of the rows of a part, and their rank-one weights if there is such a term."""
    weights = None if step.rank_one is None else as_vector(step.rank_one.weights, part, placing.uploads, "float32")
    return as_vector(step.ridge, part, placing.uploads, "float32"), weights


def _own(step: HalfStep, part: slice) -> cp.ndarray | None:
    """Return what is added to the right-hand sides of the rows of a part, or None for nothing."""
    return None if step.own is None else _block(step.own, part)


def _block(factors: Factors, part: slice) -> cp.ndarray:
    """Return these rows on the device: a view if they are there, else a copy."""
    own = factors[part]
    return own if isinstance(own, cp.ndarray) else cp.asarray(own)
