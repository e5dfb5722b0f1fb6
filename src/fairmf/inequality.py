"""The Gini index, its one home: of popularity in made-up data, and of exposure in metrics (docs/metrics.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def gini(values: ArrayLike) -> NDArray[np.float64]:
    """Gini index sum_r (2r - m - 1) o_(r) / (m sum o), o ascending: 0 all equal, (m - 1)/m one takes all.

    Along the last axis; NaN where the values sum to 0.
    """
    ascending = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    m = ascending.shape[-1]
    spread = ascending @ (2.0 * np.arange(1, m + 1) - m - 1)
    total = np.asarray(m * ascending.sum(axis=-1))
    index: NDArray[np.float64] = np.divide(spread, total, out=np.full(total.shape, np.nan), where=total > 0)
    return index
