"""Sparse rows: one orientation of the interaction matrix, as every kernel reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


class Rows(NamedTuple):
    """Compressed sparse rows. `weights` is None when all entries are 1, so that binary data stores no values."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.indptr[-1])

    def to_csr(self, values: NDArray[Any], n_columns: int) -> sp.csr_array:
        """A SciPy CSR array of these rows with the given values; it shares the indices below 2^31 entries."""
        # SciPy wants one index type: given 8-byte offsets it would copy all indices to 8 bytes too.
        indptr = self.indptr.astype(np.int32) if self.nnz < 2**31 else self.indptr
        return sp.csr_array((values, self.indices, indptr), shape=(self.count, n_columns))

    def sums(self) -> NDArray[np.float64]:
        """Sum of every row: its number of entries, or of confidences (c_i)."""
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float64)
        # A running sum in float64, differenced at the row ends: empty rows come out as exactly 0.
        running = np.concatenate(([0.0], np.cumsum(self.weights, dtype=np.float64)))
        sums: NDArray[np.float64] = running[self.indptr[1:]] - running[self.indptr[:-1]]
        return sums

    def row(self, i: int) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
        """The column indices and weights of row `i`, as views."""
        a, b = self.indptr[i], self.indptr[i + 1]
        return self.indices[a:b], None if self.weights is None else self.weights[a:b]

    def read_only(self) -> Rows:
        """These rows as views that cannot be written to; the arrays themselves stay as their owner has them.

        Kernels are given rows in this form alone, so that each is compiled once, whoever owns the memory.
        """
        weights = None if self.weights is None else read_only(self.weights)
        return Rows(read_only(self.indptr), read_only(self.indices), weights)

    def block(self, start: int, stop: int) -> Rows:
        """Rows start..stop as views (the offsets are re-based, nothing else is copied)."""
        a, b = self.indptr[start], self.indptr[stop]
        weights = None if self.weights is None else self.weights[a:b]
        return Rows(self.indptr[start : stop + 1] - a, self.indices[a:b], weights)

    def take(self, rows: NDArray[np.integer]) -> Rows:
        """The given rows, in the given order, copied."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths)
        weights = None if self.weights is None else self.weights[entries]
        return Rows(indptr, self.indices[entries], weights)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to. Kernels given such views alone are compiled once, whoever owns the memory."""
    view = array.view()
    view.flags.writeable = False
    return view
