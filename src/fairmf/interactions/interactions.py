"""Interactions: who interacted with what. Immutable, sparse, in both orientations, with the ids of users and items."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions.ids import Ids
from fairmf.interactions.rows import Rows


class Interactions:
    """Implicit feedback of users (rows) on items (columns).

    Build one with `from_frame`, `from_csv`, `from_parquet`, `from_csr` or `from_events`. The object never changes: its
    arrays are read-only. Binary data (the default) stores no values in either orientation.
    """

    def __init__(self, by_user: Rows, n_items: int, user_ids: Ids | None = None, item_ids: Ids | None = None):
        self._by_user = by_user
        self._n_items = n_items
        self.user_ids = user_ids
        self.item_ids = item_ids
        for kind, ids, size in (("user", user_ids, by_user.count), ("item", item_ids, n_items)):
            if ids is not None and len(ids) != size:
                raise InvalidData(f"{kind}_ids holds {len(ids):,} ids, but the matrix has {size:,} {kind}s.")
        _freeze(by_user)

    @classmethod
    def from_csr(
        cls,
        matrix: Any,
        *,
        user_ids: Sequence[Hashable] | NDArray[Any] | None = None,
        item_ids: Sequence[Hashable] | NDArray[Any] | None = None,
        weights: str | None = None,
    ) -> Interactions:
        """Take a SciPy sparse matrix, users as rows. `weights="values"` keeps its values as confidences.

        Without `weights` every stored entry counts as 1. Explicit zeros are dropped, duplicate entries merged.
        """
        raise NotImplementedError

    # -- size and shape -----------------------------------------------------------------------------------------

    @property
    def n_users(self) -> int:
        """Number of users (rows), those without interactions included."""
        return self._by_user.count

    @property
    def n_items(self) -> int:
        """Number of items (columns), those without interactions included."""
        return self._n_items

    @property
    def nnz(self) -> int:
        """Number of distinct user-item pairs."""
        return self._by_user.nnz

    @property
    def shape(self) -> tuple[int, int]:
        """(n_users, n_items)."""
        return self.n_users, self.n_items

    @property
    def is_binary(self) -> bool:
        """True when every interaction has weight 1 (then no values are stored)."""
        return self._by_user.weights is None

    def __repr__(self) -> str:
        kind = "binary" if self.is_binary else "weighted"
        return f"Interactions({self.n_users:,} users x {self.n_items:,} items, {self.nnz:,} {kind})"

    # -- the two orientations -----------------------------------------------------------------------------------

    @property
    def by_user(self) -> Rows:
        """One sparse row per user, item indices ascending."""
        return self._by_user

    @functools.cached_property
    def by_item(self) -> Rows:
        """One sparse row per item, user indices ascending. Built on first use."""
        rows = transpose(self._by_user, self._n_items)
        _freeze(rows)
        return rows

    def to_csr(self) -> sp.csr_array:
        """A SciPy CSR array (float32 values; ones when binary) that shares this object's index arrays."""
        rows = self._by_user
        values = np.ones(rows.nnz, dtype=np.float32) if rows.weights is None else rows.weights
        return sp.csr_array((values, rows.indices, rows.indptr), shape=self.shape)

    def take_users(self, rows: NDArray[np.integer]) -> Interactions:
        """The given users, in the given order; the items stay all."""
        ids = None if self.user_ids is None else self.user_ids.take(rows)
        return Interactions(self._by_user.take(rows), self._n_items, ids, self.item_ids)


def transpose(rows: Rows, n_columns: int) -> Rows:
    """The other orientation, with sorted indices; binary rows need and make no values."""
    # SciPy's transposition carries a value per entry; one byte of zeros is the least it takes.
    values = np.zeros(rows.nnz, dtype=np.int8) if rows.weights is None else rows.weights
    other = sp.csr_array((values, rows.indices, rows.indptr), shape=(rows.count, n_columns)).tocsc()
    weights = None if rows.weights is None else np.ascontiguousarray(other.data, dtype=np.float32)
    return Rows(other.indptr.astype(np.int64), other.indices.astype(np.int32, copy=False), weights)


def _freeze(rows: Rows) -> None:
    for array in rows:
        if array is not None:
            array.flags.writeable = False
