"""Rows too long for one block of threads: all blocks work on chunks of them, whose sums are added in order."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from fairmf.backends.cuda.modules import RowKernels
from fairmf.backends.cuda.uploads import DeviceRows

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
