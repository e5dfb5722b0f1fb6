"""The catalogue in bands of equal size by training popularity: who gains and who loses, without picking items."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.reporting.content import Values

BANDS = 10



def band_of(popularity: Values, bands: int = BANDS) -> NDArray[np.int64]:
    """The band of every item, 0 for the least popular; of equally popular ones the higher index is in the lower."""
    m = len(popularity)
    count = max(1, min(bands, m))
    codes = np.empty(m, dtype=np.int64)
    codes[np.lexsort((-np.arange(m), popularity))] = np.arange(m) * count // max(m, 1)
    return codes


def band_shares(exposure: Values, codes: NDArray[np.int64]) -> Values:
    """Each band's share of the exposure; NaN where there is none."""
    totals = np.bincount(codes, weights=exposure)
    whole = totals.sum()
    shares: Values = totals / whole if whole > 0 else np.full(len(totals), np.nan)
    return shares
