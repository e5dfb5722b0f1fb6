"""Rows put in place of others, or added at the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.interactions.rows import Rows


def replace_rows(rows: Rows, where: NDArray[np.integer], new: Rows) -> Rows:
    """`rows` with row k of `new` at where[k]. Places from `rows.count` on are added; they must leave no gap."""
    order = np.arange(max(rows.count, int(where.max(initial=-1)) + 1))
    order[where] = rows.count + np.arange(new.count)
    return _one_after_the_other(rows, new).take(order)


def _one_after_the_other(first: Rows, second: Rows) -> Rows:
    weights = None
    if first.weights is not None or second.weights is not None:
        parts = (np.ones(x.nnz, dtype=np.float32) if x.weights is None else x.weights for x in (first, second))
        weights = np.concatenate(list(parts))
    return Rows(
        np.concatenate([first.indptr, second.indptr[1:] + first.nnz]),
        np.concatenate([first.indices, second.indices]),
        weights,
    )
