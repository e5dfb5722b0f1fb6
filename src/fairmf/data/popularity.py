"""Compute the Gini index of popularity or exposure (docs/metrics.md), and make counts with a given Gini index."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.errors import InvalidParameter


def gini(values: ArrayLike) -> NDArray[np.float64]:
    """Return the Gini index sum_r (2r - m - 1) o_(r) / (m sum o), o ascending: 0 all equal, (m - 1)/m one takes all.

    Along the last axis; NaN where the values sum to 0.
    """
    ascending = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    m = ascending.shape[-1]
    spread = ascending @ (2.0 * np.arange(1, m + 1) - m - 1)
    total = np.asarray(m * ascending.sum(axis=-1))
    index: NDArray[np.float64] = np.divide(spread, total, out=np.full(total.shape, np.nan), where=total > 0)
    return index


_STEEPEST = 12.0  # largest exponent of the power law
_BISECTIONS = 45  # each halves the interval: 12 / 2^45 is below 1e-12


def counts_with_total(weights: NDArray[np.float64], total: int, least: int, most: int) -> NDArray[np.int64]:
    """Return counts in proportion to `weights`, limited to `least` .. `most`, that add up to `total`."""
    return _rounded(_scaled(weights, total, least, most), total)


def counts_with_gini(
    size: int, total: int, target: float, least: int, most: int, nearest: bool = False
) -> NDArray[np.int64]:
    """Return descending counts from `least` to `most` that add up to `total` and have the Gini index `target`.

    They are proportional to (rank + size/25)^-a, where a is found by bisection. The shift of the ranks keeps the top
    flat, as in real catalogues, where no item has a tenth of all interactions. If the Gini index cannot be reached,
    raise InvalidParameter, or return the nearest counts with `nearest`.
    """
    log_rank = np.log(np.arange(1, size + 1) + size / 25)
    # A larger exponent gives a larger Gini index.
    low, high = 0.0, _STEEPEST
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        reached = gini(_scaled(np.exp(-middle * log_rank), total, least, most))
        low, high = (middle, high) if reached < target else (low, middle)
    counts = counts_with_total(np.exp(-high * log_rank), total, least, most)
    # Rounding to whole interactions moves the index a little, most in small data.
    if not nearest and abs(gini(counts) - target) > 0.03:
        raise InvalidParameter(
            f"'popularity_gini' {target:g} cannot be reached with {total:,} interactions on {size:,} items of at most "
            f"{most:,} users each; the nearest is {gini(counts):.2f}."
        )
    return counts


def _scaled(weights: NDArray[np.float64], total: int, least: int, most: int) -> NDArray[np.float64]:
    """Return clip(s * weights, least, most) with s such that the sum is `total`."""
    low, high = 0.0, most / weights.min()
    for _ in range(_BISECTIONS):
        # Bisect the logarithm of s, which may span many orders of magnitude; from 0, first try small values.
        middle = float(np.sqrt(low * high)) if low > 0 else high * 1e-3
        if np.clip(middle * weights, least, most).sum() < total:
            low = middle
        else:
            high = middle
    scaled: NDArray[np.float64] = np.clip(high * weights, least, most)
    return scaled


def _rounded(values: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Round values to integers that add up to `total`: round the running sum, and difference it."""
    running = np.cumsum(values)
    running *= total / running[-1]
    whole = np.floor(running + 0.5).astype(np.int64)
    return np.diff(whole, prepend=0)
