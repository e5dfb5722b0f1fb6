"""Rank rows of scores at one level of the item dial, in compiled code: calibration tries hundreds of levels."""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.top_k import HIGH, collect, flip, item_of, kth_largest
from fairmf.kernels import kernel

STRIDE = 8  # every so many items are looked at to guess the score of the last item of a list


@kernel
def rank_rows(low, high, scores, scale, offset, bounds, lists):
    """Write the best items of every row of scores, best first, ties to the lower item; -1 where a score is -inf.

    Rows bounds[low]..bounds[high] of `scores` are ranked by score * scale + offset.   in: all but lists   out: lists
    """
    m, k = scores.shape[1], lists.shape[1]
    row, scratch = np.empty(m, dtype=np.float32), np.empty(m, dtype=np.float32)
    best, places = np.empty(m, dtype=np.float32), np.empty(m, dtype=np.int32)
    bits, keys = best.view(np.int32), np.empty(m, dtype=np.int64)
    sample = -(-m // STRIDE)
    for i in range(bounds[low], bounds[high]):
        for j in range(m):
            row[j] = scores[i, j] * scale[j] + offset[j]
        # A guess below the k-th best score, as a rule: then few candidates are left to sort.
        for s in range(sample):
            scratch[s] = row[s * STRIDE]
        guess = kth_largest(scratch, sample, min(sample, k // STRIDE * 3 // 2 + 4))
        size = collect(row, 0, guess, best, places, 0)
        if size < k:
            size = collect(row, 0, np.float32(-np.inf), best, places, 0)
        for c in range(size):
            keys[c] = np.int64(flip(bits[c])) * HIGH + (HIGH - 1 - np.int64(places[c]))
        keys[:size].sort()
        for c in range(k):
            item = item_of(keys[size - 1 - c])
            lists[i, c] = -1 if row[item] == -np.inf else item
