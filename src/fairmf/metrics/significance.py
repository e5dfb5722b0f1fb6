"""Test differences between two models over the same users: sign flips, the paired bootstrap, and Holm's correction.

Randomisation (Fisher 1935): if both models were alike, a user's two scores could be swapped. The p-value is the share
of random swaps whose difference is at least as large as the one found. Bootstrap (Efron and Tibshirani 1993): users are
drawn with replacement, and the differences of the draws, shifted to 0, say how large one gets by chance. Holm (1979):
the k-th smallest of n p-values is multiplied by n - k + 1, so that the chance of any false finding stays below alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fairmf.metrics.bootstrap import CELLS_AT_ONCE

Values = NDArray[np.float64]
Swapped = Callable[[Values], Values]
"""A function from swaps (users x replicates; 1 keeps a user's two lists, 0 swaps them) to differences."""
_TOLERANCE = 1e-9  # differences that are equal except for rounding count as equally large


def swaps(n_users: int, count: int, width: int, random_state: int) -> Iterator[Values]:
    """Draw whether each user's lists are kept (1) or swapped (0), in blocks of users x replicates.

    `width` is the longest other array that is computed per replicate, such as the number of items.
    """
    random = np.random.default_rng([random_state, 1])
    at_once = max(1, CELLS_AT_ONCE // max(2 * n_users, width, 1))
    for start in range(0, count, at_once):
        # One replicate at a time, so that the draws do not depend on the size of the blocks.
        draws = [random.integers(0, 2, n_users, dtype=np.int8) for _ in range(min(at_once, count - start))]
        yield np.ascontiguousarray(np.stack(draws, axis=1), dtype=np.float64)


def sign_flip_p(differences: Values, count: int, random_state: int) -> tuple[float, bool]:
    """Return the p-value of the mean of paired differences, and whether it is exact.

    Two-sided. Users without a difference do not matter, whatever their sign. If the others have at most `count`
    patterns of signs, all of them are tried; otherwise `count` random ones, and the one found counts as one more.
    """
    own = differences[np.isfinite(differences)]
    own = own[own != 0]
    if not len(own):
        return 1.0, True
    found = abs(own.sum())
    limit = found - _TOLERANCE * np.abs(own).sum()
    if len(own) < 63 and 2 ** len(own) <= count:
        patterns = np.arange(2 ** len(own))
        signs = 1.0 - 2.0 * ((patterns[:, None] >> np.arange(len(own))) & 1)
        return float((np.abs(signs @ own) >= limit).mean()), True
    larger = sum(int((np.abs(own @ (2 * keep - 1)) >= limit).sum()) for keep in swaps(len(own), count, 0, random_state))
    return (larger + 1) / (count + 1), False


def swap_p(difference: float, swapped: Values) -> float:
    """Return the p-value of a difference, from the differences after random swaps; NaN if it is not defined."""
    found = swapped[np.isfinite(swapped)]
    if not np.isfinite(difference) or not len(found):
        return float("nan")
    limit = abs(difference) * (1 - _TOLERANCE)
    return float(((np.abs(found) >= limit).sum() + 1) / (len(found) + 1))


def bootstrap_p(difference: float, replicates: Values) -> float:
    """Return the two-sided p-value of a difference, from its bootstrap replicates shifted to mean 0."""
    found = replicates[np.isfinite(replicates)]
    if not np.isfinite(difference) or not len(found):
        return float("nan")
    limit = abs(difference) * (1 - _TOLERANCE)
    return float(((np.abs(found - found.mean()) >= limit).sum() + 1) / (len(found) + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method, in the given order; NaN stay NaN and do not count.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    result = np.full(len(given), np.nan)
    known = np.flatnonzero(np.isfinite(given))
    order = known[np.argsort(given[known], kind="stable")]
    factors = len(order) - np.arange(len(order))
    # A larger p-value never gets a smaller corrected one.
    result[order] = np.minimum(np.maximum.accumulate(given[order] * factors), 1.0)
    return [float(p) for p in result]
