"""Confidences computed from confidences: the logarithm, and BM25."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidParameter
from fairmf.interactions.rows import Rows


def log_weights(rows: Rows) -> NDArray[np.float32] | None:
    """log2(1 + c): a confidence of 1 stays 1, so binary rows stay binary (None)."""
    if rows.weights is None:
        return None
    weights: NDArray[np.float32] = np.log2(1 + rows.weights.astype(np.float64)).astype(np.float32)
    return weights


def bm25_weights(rows: Rows, n_items: int, K1: float, B: float) -> NDArray[np.float32]:
    """BM25 with items as the documents and users as the words; see `Interactions.reweighted` for the formula."""
    for name, value, top in (("K1", K1, np.inf), ("B", B, 1.0)):
        if not isinstance(value, (int, float)) or not 0 <= value <= top or (name == "K1" and not 0 < value < np.inf):
            allowed = "a number > 0" if name == "K1" else "a number >= 0 and <= 1"
            raise InvalidParameter(f"{name!r} must be {allowed}. Got {value!r} instead.")
    weights = np.ones(rows.nnz) if rows.weights is None else rows.weights.astype(np.float64)
    per_user = np.diff(rows.indptr)
    # A user with (nearly) every item would get a factor of zero or less, which is no confidence: the floor lies
    # below what any other user gets.
    rarity = np.maximum(np.log(n_items / (1.0 + per_user)), np.log1p(1.0 / n_items))
    length = np.bincount(rows.indices, weights=weights, minlength=n_items)
    norm = K1 * (1.0 - B + B * length / length.mean())
    weights *= (K1 + 1.0) / (norm[rows.indices] + weights)
    weights *= np.repeat(rarity, per_user)
    return weights.astype(np.float32)
