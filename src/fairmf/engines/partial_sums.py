"""A shard's part of the sums over users that every item's system needs, from rows of users alone where that can be."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import Backend, Factors
from fairmf.interactions import Rows
from fairmf.interactions.interactions import transpose


class PartialSums(Protocol):
    """What each shard adds to the items' step. Results are arrays of the host."""

    def residual(self, U: Factors, V: Factors) -> tuple[NDArray[Any], float]:
        """sum_i c_ij (1 - v_j.u_i) u_i of every item j, and sum_ij c_ij (1 - v_j.u_i)^2."""

    def product(self, U: Factors, P: Factors) -> NDArray[Any]:
        """sum_i c_ij (p_j.u_i) u_i of every item j."""

    def curvature(self, U: Factors, P: Factors) -> NDArray[np.float64]:
        """sum_i c_ij (p_j.u_i)^2 of every item j."""


def partial_sums(backend: Backend, rows: Rows, n_items: int) -> PartialSums:
    """The way of this backend."""
    if backend.name == "cpu":
        return ByUser(rows, n_items)
    return ByItem(backend, rows, n_items)


class ByUser:
    """Straight from the users' rows: each thread adds to items of its own, so no second copy of the rows is needed."""

    def __init__(self, rows: Rows, n_items: int):
        from fairmf.backends.cpu import blocks, shard_rows, threads

        self._kernels, self._blocks, self._threads = shard_rows, blocks, threads
        self._rows = rows.read_only()
        self._n_items = n_items
        self._ranges = shard_rows.item_ranges(rows, n_items)

    def residual(self, U: Factors, V: Factors) -> tuple[NDArray[Any], float]:
        """See PartialSums."""
        sums, losses = np.zeros((self._n_items, U.shape[1]), dtype=np.float32), np.zeros(self._n_items)
        self._run(self._kernels.residual, U, V, sums, losses)
        return sums, float(losses.sum())

    def product(self, U: Factors, P: Factors) -> NDArray[Any]:
        """See PartialSums."""
        sums = np.zeros((self._n_items, U.shape[1]), dtype=np.float32)
        self._run(self._kernels.product, U, P, sums)
        return sums

    def curvature(self, U: Factors, P: Factors) -> NDArray[np.float64]:
        """See PartialSums."""
        sums = np.zeros(self._n_items)
        self._run(self._kernels.curvature, U, P, sums)
        return sums

    def _run(self, kernel: Any, U: Factors, items: Factors, *sums: NDArray[Any]) -> None:
        self._blocks.check(self._rows, U, items)
        inputs, work = (*self._rows, U, items, self._ranges), 4 * self._rows.nnz * U.shape[1]
        self._threads.run(kernel, len(self._ranges) - 1, *inputs, *sums, work=work)


class ByItem:
    """By the contract's kernels on the shard's rows of items, a second copy: for every backend."""

    def __init__(self, backend: Backend, rows: Rows, n_items: int):
        self._backend = backend
        self._rows = rows
        self._by_item = transpose(rows, n_items)

    def _sums(self, U: Factors, this: Factors, target: float) -> NDArray[Any]:
        backend = self._backend
        out = backend.array(np.zeros(this.shape, dtype=backend.dtype))
        backend.residual_rows(self._by_item, this, U, target, out)
        return np.array(backend.host(out))

    def residual(self, U: Factors, V: Factors) -> tuple[NDArray[Any], float]:
        """See PartialSums."""
        return -self._sums(U, V, 1.0), float(self._backend.observed_loss(self._rows, U, V))

    def product(self, U: Factors, P: Factors) -> NDArray[Any]:
        """See PartialSums."""
        return self._sums(U, P, 0.0)

    def curvature(self, U: Factors, P: Factors) -> NDArray[np.float64]:
        """See PartialSums."""
        product = self._sums(U, P, 0.0)
        curvature: NDArray[np.float64] = np.einsum("ja,ja->j", product, self._backend.host(P), dtype=np.float64)
        return curvature
