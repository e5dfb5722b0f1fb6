"""Compute a shard's part of the sums over users in the items' systems, on any backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, HalfStep
from fairmf.data.csr import Rows, check_rows, transpose
from fairmf.lazy import lazy_module
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf import threads
    from fairmf.backends.cpu import reductions
else:  # a worker with another backend needs no Numba
    reductions, threads = lazy_module("fairmf.backends.cpu.reductions"), lazy_module("fairmf.threads")


class PartialSums(Protocol):
    """Compute a shard's part of the sums over users in the items' systems. Results are NumPy arrays."""

    def residual(self, U: Factors, V: Factors) -> tuple[Array, float]:
        """Return sum_i c_ij (1 - v_j.u_i) u_i of every item j, and sum_ij c_ij (1 - v_j.u_i)^2."""

    def product(self, U: Factors, P: Factors) -> Array:
        """Return sum_i c_ij (p_j.u_i) u_i of every item j."""

    def curvature(self, U: Factors, P: Factors) -> NDArray[np.float64]:
        """Return sum_i c_ij (p_j.u_i)^2 of every item j."""


def partial_sums(backend: Backend, rows: Rows, n_items: int) -> PartialSums:
    """Return the implementation for this backend."""
    if backend.name == "cpu":
        return ByUser(rows, n_items)
    return ByItem(backend, rows, n_items)


class ByUser:
    """Compute partial sums from the users' rows, without a copy by item: each thread adds to items of its own."""

    def __init__(self, rows: Rows, n_items: int):
        self._rows = rows
        self._n_items = n_items
        self._ranges = reductions.item_ranges(rows, n_items)

    def residual(self, U: Factors, V: Factors) -> tuple[Array, float]:
        """See PartialSums."""
        sums, losses = np.zeros((self._n_items, U.shape[1]), dtype=np.float32), np.zeros(self._n_items)
        self._run(reductions.residual, U, V, sums, losses)
        return sums, float(losses.sum())

    def product(self, U: Factors, P: Factors) -> Array:
        """See PartialSums."""
        sums = np.zeros((self._n_items, U.shape[1]), dtype=np.float32)
        self._run(reductions.product, U, P, sums)
        return sums

    def curvature(self, U: Factors, P: Factors) -> NDArray[np.float64]:
        """See PartialSums."""
        sums = np.zeros(self._n_items)
        self._run(reductions.curvature, U, P, sums)
        return sums

    def _run(self, kernel: Callable[..., None], U: Factors, items: Factors, *sums: Array) -> None:
        check_rows(self._rows, U, items)
        inputs, work = (*self._rows, U, items, self._ranges), 4 * self._rows.nnz * U.shape[1]
        threads.run(kernel, len(self._ranges) - 1, *inputs, out=sums, work=work)


class ByItem:
    """Compute partial sums on any backend, with the contract's methods and a copy of the shard by item."""

    def __init__(self, backend: Backend, rows: Rows, n_items: int):
        self._backend = backend
        self._rows = rows
        self._by_item = transpose(rows, n_items)

    def _sums(self, U: Factors, this: Factors, target: float) -> Array:
        # With shared, ridge and shift 0 the residual is the sum over the entries alone; right = 0 makes the target 0.
        backend, nothing = self._backend, np.zeros(U.shape[1])
        right = None if target else nothing
        step = HalfStep(backend, self._by_item, U, nothing, np.zeros(len(this)), nothing, right=right)
        return np.array(backend.host(backend.residual(step, this)))

    def residual(self, U: Factors, V: Factors) -> tuple[Array, float]:
        """See PartialSums."""
        return -self._sums(U, V, 1.0), float(self._backend.observed_loss(self._rows, U, V))

    def product(self, U: Factors, P: Factors) -> Array:
        """See PartialSums."""
        return self._sums(U, P, 0.0)

    def curvature(self, U: Factors, P: Factors) -> NDArray[np.float64]:
        """See PartialSums."""
        product = self._sums(U, P, 0.0)
        curvature: NDArray[np.float64] = np.einsum("ja,ja->j", product, self._backend.host(P), dtype=np.float64)
        return curvature
