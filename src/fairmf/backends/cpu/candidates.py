"""One user's candidates while the catalogue goes by: rounded scores decide who may stay, exact ones who wins.

The scores of a matrix product carry rounding that depends on where in a block a pair stands. So nothing is decided by
them within `2 * error`, where `error` bounds that rounding; what is left is scored once more, in float64, and ordered
by score and item index. The answer is the same for any blocks, any batch of users and any number of threads.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel

HIGH = np.int64(2**32)  # a key is score * HIGH + item, both as whole numbers


@kernel
def kth_largest(values, size, k):
    """The k-th largest of values[:size], which are reordered (Hoare's selection).   in, out: values"""
    low, high, wanted = 0, size - 1, k - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return values[wanted]


@kernel(fastmath={"reassoc", "contract"})
def exact_score(user, item):
    """The inner product in float64, rounded once; never -0.0, which would sort below 0.0."""
    total = 0.0
    for c in range(len(user)):
        total += np.float64(user[c]) * np.float64(item[c])
    return np.float32(total) + np.float32(0.0)


@kernel
def flip(pattern):
    """The bits of a float as an integer that sorts as the numbers do; applied twice, the bits again."""
    return pattern if pattern >= 0 else pattern ^ np.int32(0x7FFFFFFF)


@kernel
def rank_exactly(user, other, order, positions, scores, bits, size, keys):
    """Rescore the candidates and sort them, worst first, as keys: by score, then by falling item index.

    `bits` is the memory of `scores` seen as int32.   in: all but keys   out: scores, keys
    """
    for c in range(size):
        scores[c] = exact_score(user, other[positions[c]])
    for c in range(size):
        keys[c] = np.int64(flip(bits[c])) * HIGH + (HIGH - 1 - np.int64(order[positions[c]]))
    keys[:size].sort()


@kernel
def item_of(key):
    """The item of a key."""
    return np.int32(HIGH - 1 - (key & (HIGH - 1)))


@kernel
def score_bits_of(key):
    """The score of a key, as bits."""
    return flip(np.int32(key >> 32))


@kernel
def drop_hopeless(k, error, scores, positions, size, scratch):
    """Keep what may still be among the k best.   in, out: scores, positions   returns: how many, the score to reach"""
    scratch[:size] = scores[:size]
    floor = kth_largest(scratch, size, k) - np.float32(2.0) * error
    kept = 0
    for c in range(size):
        if scores[c] >= floor:
            scores[kept], positions[kept] = scores[c], positions[c]
            kept += 1
    return kept, floor


@kernel
def keep_exactly(k, user, other, order, rank, scores, bits, positions, size, keys):
    """Keep the k best and no more: for scores so close together that rounding hides their order."""
    rank_exactly(user, other, order, positions, scores, bits, size, keys)
    for c in range(k):
        key = keys[size - 1 - c]
        bits[c], positions[c] = score_bits_of(key), rank[item_of(key)]
