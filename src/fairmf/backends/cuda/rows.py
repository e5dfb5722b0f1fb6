"""Work over sparse rows, whether they are on the device for good or stream through it."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from fairmf.backends.contract import RankOne
from fairmf.backends.cuda import cholesky, launch
from fairmf.backends.cuda.launch import RowKernels
from fairmf.backends.cuda.memory import DeviceRows, Placing, as_vector
from fairmf.backends.cuda.reductions import sum_triples
from fairmf.data.csr import Rows

# Rows too long for one block of threads: all blocks work on chunks of them, whose sums are added in order.


STATE_BYTES = 48  # struct Row of eigenbasis_rows.cu


def improve_long_rows(
    kernels: RowKernels,
    on: DeviceRows,
    other: Any,
    shared: tuple[Any, ...],
    steps: int,
    limits: tuple[np.float32, np.float32],
    this: Any,
    sums: Any,
) -> None:
    """As `improve_rows`, in lock-step for all long rows.   in and out: this   out: sums, of these rows"""
    chunks, d = on.long, this.shape[1]
    count = len(chunks.rows)
    if count == 0:
        return
    diagonal, ridge, shift, vector, pulls, left_over = shared
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
            chunks.rows, chunks.first, diagonal, ridge, shift, vector, pulls, left_over, tolerance, parts, numbers,
            this, residuals, directions, state,
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
                chunks.rows, chunks.first, diagonal, shift, vector, left_over, last, relaxation, parts, numbers, this,
                residuals, directions, state,
            ),
        )  # fmt: skip
    kernels.launch("finish_long_rows", count, (chunks.rows, this, state, sums))


def residual_of_long_rows(kernels: RowKernels, on: DeviceRows, this: Any, other: Any, target: Any, out: Any) -> None:
    """As `residual_rows`.   out: out, of these rows"""
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


def kernels_for(other: Any, half: bool = False) -> launch.RowKernels:
    """The kernels for these factors."""
    return launch.row_kernels(other.shape[1], half, cp.cuda.Device().id)


def single(values: Any) -> Any:
    """A d-vector or d x d matrix in float32."""
    return cp.ascontiguousarray(cp.asarray(values, dtype=cp.float32))


def or_null(array: Any) -> Any:
    """What a kernel takes for an array that may be missing."""
    return np.uintp(0) if array is None else array


def improve(
    placing: Placing,
    half: bool,
    rows: Rows,
    other: Any,
    diagonal: Any,
    ridge: Any,
    shift: Any,
    steps: int,
    limits: tuple[np.float32, np.float32],
    this: Any,
    rank_one: RankOne | None,
    rest: Any,
) -> Any:
    """See contract; the three sums."""
    kernels, gathered = kernels_for(other, half), placing.whole(other)
    if half:
        gathered = gathered.astype(cp.float16)
    shared = single(diagonal), single(shift), None if rank_one is None else single(rank_one.vector)
    rest = None if rest is None else single(rest)
    sums = cp.empty((rows.count, 3))
    for part, on in placing.row_parts(rows, this):
        x = _block(this, part)
        terms = (
            shared[0], as_vector(ridge, part, placing.uploads, "float32"), shared[1], or_null(shared[2]),
            np.uintp(0) if rank_one is None else as_vector(rank_one.weights, part, placing.uploads, "float32"),
            np.uintp(0) if rest is None else cp.matmul(x, rest),
        )  # fmt: skip
        own = sums[part]
        kernels.launch(
            "improve_rows", len(on.short),
            (
                on.indptr, on.indices, or_null(on.weights), on.short, gathered, *terms, np.int32(steps), *limits, x,
                own,
            ),
            vectors=2 + kernels.groups, cache=True,
        )  # fmt: skip
        improve_long_rows(kernels, on, gathered, terms, steps, limits, x, own)
        placing.store(x, part, this)
    return sum_triples(sums)


def residual(placing: Placing, rows: Rows, this: Any, other: Any, target: float, out: Any) -> None:
    """out_i += sum_j c_ij (x_i.y_j - target) y_j."""
    kernels, gathered, number = kernels_for(other), placing.whole(other), np.float32(target)
    for part, on in placing.row_parts(rows, this, out):
        x, sums = _block(this, part), _block(out, part)
        kernels.launch(
            "residual_rows", len(on.short),
            (on.indptr, on.indices, or_null(on.weights), on.short, x, gathered, number, sums),
            vectors=kernels.groups,
        )  # fmt: skip
        residual_of_long_rows(kernels, on, x, gathered, number, sums)
        placing.store(sums, part, out)


def observed_loss(placing: Placing, rows: Rows, this: Any, other: Any) -> float:
    """sum of c_ij (1 - x_i.y_j)^2."""
    kernels, gathered = kernels_for(other), placing.whole(other)
    total = 0.0
    for part, on in placing.row_parts(rows, this):
        chunks = on.all_chunks()
        losses = cp.zeros(max(1, len(chunks)))
        kernels.launch(
            "observed_loss", len(chunks),
            (
                on.indices, or_null(on.weights), chunks.of_row, chunks.start, chunks.stop, _block(this, part), gathered,
                losses,
            ),
        )  # fmt: skip
        total += float(losses.sum())
    return total


def solve(
    placing: Placing, rows: Rows, other: Any, shared: Any, ridge: Any, shift: Any, rank_one: RankOne | None, out: Any
) -> None:
    """See contract."""
    gathered, matrix, right = placing.whole(other), single(shared), single(shift)
    vector = None if rank_one is None else single(rank_one.vector)
    for part, on in placing.row_parts(rows, out):
        pulls = None if rank_one is None else as_vector(rank_one.weights, part, placing.uploads, "float32")
        terms = matrix, as_vector(ridge, part, placing.uploads, "float32"), vector, pulls
        solution = _block(out, part)
        for chosen in cholesky.batches(part.stop - part.start, other.shape[1]):
            factors, definite = cholesky.factorised(on, chosen, gathered, terms)
            found = cholesky.solved(factors, cholesky.right_sides(on, chosen, gathered, right))
            solution[chosen] = cp.where(definite[:, None], found, cp.nan)
        placing.store(solution, part, out)


def mean_inverse(placing: Placing, rows: Rows, other: Any, shared: Any, ridge: Any) -> tuple[Any, Any]:
    """See contract."""
    d = other.shape[1]
    gathered, matrix, nothing = placing.whole(other), single(shared), cp.zeros(d, dtype=cp.float32)
    inverses, solutions = cp.zeros((d, d)), cp.zeros(d)
    for part, on in placing.row_parts(rows):
        terms = matrix, as_vector(ridge, part, placing.uploads, "float32"), None, None
        for chosen in cholesky.batches(part.stop - part.start, 2 * d):
            factors, _ = cholesky.factorised(on, chosen, gathered, terms)
            right = cholesky.right_sides(on, chosen, gathered, nothing)
            solutions += cholesky.solved(factors, right).sum(axis=0, dtype=cp.float64)
            inverses += cholesky.sum_of_inverses(factors)
    return inverses / rows.count, solutions / rows.count


def add_diagonal(placing: Placing, this: Any, ridge: Any, shift: Any, rank_one: RankOne | None, out: Any) -> None:
    """out_i += ridge_i x_i + shift + weight_i (x_i.y) y."""
    for part, x in placing.parts(this):
        sums = _block(out, part)
        sums += x * as_vector(ridge, part, placing.uploads, "float32")[:, None] + single(shift)
        if rank_one is not None:
            vector, weights = single(rank_one.vector), as_vector(rank_one.weights, part, placing.uploads, "float32")
            sums += (weights * (x @ vector))[:, None] * vector
        placing.store(sums, part, out)


def _block(factors: Any, part: slice) -> Any:
    """These rows on the device: a view of what is there, or a copy of what is not."""
    own = factors[part]
    return own if isinstance(own, cp.ndarray) else cp.asarray(own)
