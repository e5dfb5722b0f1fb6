"""Fixed partitions of rows: the unit of work of one thread, and the unit of every ordered reduction.

They depend on the data alone, never on the number of threads: that is what makes results bit-identical.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.interactions import Rows

COUNT = 256  # enough pieces for any machine's cores, few enough that one scratch buffer per piece costs nothing


def even(n: int, size: int, most: int = COUNT) -> NDArray[np.int64]:
    """Bounds of blocks of about equal length: at most `size` rows each, unless that took more than `most` blocks."""
    count = max(1, min(most, -(-n // size)))
    return (np.arange(count + 1, dtype=np.int64) * n) // count


def balanced(rows: Rows, cost_per_row: float, count: int = COUNT) -> NDArray[np.int64]:
    """Bounds of blocks of about equal cost, where a row costs its entries plus `cost_per_row`."""
    n = rows.count
    count = max(1, min(count, n))
    cost = rows.indptr + np.arange(n + 1) * cost_per_row
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1], count + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, n
    return bounds
