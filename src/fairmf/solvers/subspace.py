"""iALS++ (Rendle et al. 2021): blocks of coordinates in turn, each moved to its exact minimum with the others held.

Scores are kept per observed entry, so that a block of b coordinates costs O(nnz b^2 + rows (b^3 + d b)) and a sweep
over all of them O(nnz d b + rows (d b^2 + d^2)), where Cholesky's d^3 per row could not be paid. The quadratic never
rises, and sweeps go to Cholesky's answer; with block_size >= d one sweep is Cholesky's answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairmf.backends import Backend, Factors, SubspaceKernels
from fairmf.errors import InvalidParameter
from fairmf.solvers.half_step import HalfStep


def blocks(factors: int, block_size: int) -> Iterator[tuple[int, int]]:
    """First and last (exclusive) coordinate of every block; the last block may be shorter."""
    for first in range(0, factors, block_size):
        yield first, min(first + block_size, factors)


def kernels_of(backend: Backend) -> SubspaceKernels:
    """The backend, if it has these kernels."""
    if not isinstance(backend, SubspaceKernels):
        raise InvalidParameter(f"solver='subspace' is not there for backend={backend.name!r}: use backend='cpu'.")
    return backend


def start_from(step: HalfStep, start: Factors) -> Factors:
    """A copy of `start`, in which rows without entries are 0 where that is their solution."""
    this: Factors = start.copy()
    if not step.shift.any():
        empty = np.flatnonzero(np.diff(step.rows.indptr) == 0)
        step.backend.put(step.backend.array(np.zeros((len(empty), this.shape[1]))), empty, this)
    return this


def improve(step: HalfStep, start: Factors, block_size: int, sweeps: int = 1) -> Factors:
    """The rows after that many sweeps over all coordinates from `start`."""
    kernels, this = kernels_of(step.backend), start_from(step, start)
    scores = kernels.entry_scores(step.rows, this, step.other)
    for _ in range(sweeps):
        for first, last in blocks(this.shape[1], block_size):
            kernels.improve_subspace(
                step.rows, step.other, step.shared, step.ridge, step.shift[first:last], first, last, scores, this,
                step.rank_one,
            )  # fmt: skip
    return this
