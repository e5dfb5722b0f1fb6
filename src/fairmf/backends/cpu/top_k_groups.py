"""Find the best items of a few users among the items of some groups, each user at its own level of the item dial.

It is `top_k_each` for a part of the catalogue (models/ann_requests.py): a user looks into groups of items that were
chosen for it. Scores and the rules for ties are the same; an item outside the groups is missed.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.top_k import ITEMS_AT_ONCE, LOWEST, drop_hopeless, item_of, most_kept, score_bits_of
from fairmf.backends.cpu.top_k_each import dialled, keys_of, write_best
from fairmf.kernels import kernel


@kernel(fastmath={"reassoc", "contract"})
def score(user, item):
    """Return the inner product in float32."""
    total = np.float32(0.0)
    for c in range(len(user)):
        total += user[c] * item[c]
    return total


@kernel
def is_in(value, ascending):
    """Return whether a value is in an ascending array."""
    low, high = 0, len(ascending)
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < len(ascending) and ascending[low] == value


@kernel
def top_k_groups(
    low, high, users, other, dial64, packed, strengths, errors, ks, chosen, members, starts, barred, ends, items, scores
):  # fmt: skip
    """Find the ks[i] best items of each user in its groups.   in: all but the last two   out: items, scores

    The groups of user i are chosen[i]; group q holds members[starts[q]:starts[q + 1]]. `packed` has the vectors and the
    `dial32` of all items in the order of `members`, so that a group is read from one place: reading rows here and there
    takes several times as long. The rest is as in `top_k_each`.
    """
    spread, offsets, logs, prices = dial64
    vectors, logs2, added, logs32, prices32 = packed
    row, scale = np.empty(ITEMS_AT_ONCE, dtype=np.float32), np.empty(ITEMS_AT_ONCE, dtype=np.float32)
    scale_bits, whole = scale.view(np.int32), np.empty(ITEMS_AT_ONCE, dtype=np.int32)
    for i in range(low, high):
        k, hidden = ks[i], barred[ends[i] : ends[i + 1]]
        room = most_kept(k) + ITEMS_AT_ONCE
        found, positions = np.empty(room, dtype=np.float32), np.empty(room, dtype=np.int32)
        bits, scratch, keys = found.view(np.int32), np.empty(room, dtype=np.float32), np.empty(room, dtype=np.int64)
        size, floor = 0, LOWEST
        for group in chosen[i]:
            for first in range(starts[group], starts[group + 1], ITEMS_AT_ONCE):
                own = members[first : min(first + ITEMS_AT_ONCE, starts[group + 1])]
                for c in range(len(own)):
                    row[c] = score(users[i], vectors[first + c])
                dialled(
                    row[: len(own)], first, strengths[i], logs2, added, logs32, prices32, scale, scale_bits, whole
                )  # fmt: skip
                for c in range(len(own)):
                    if row[c] >= floor and not is_in(own[c], hidden):
                        found[size], positions[size] = row[c], own[c]
                        size += 1
                if size > most_kept(k):
                    size, floor = drop_hopeless(k, errors[i], found, positions, size, scratch)
                if size > most_kept(k):  # so many are nearly equal: keep the best by exact scores
                    keys_of(
                        users[i], other, strengths[i], spread, offsets, logs, prices, positions, size, found, bits, keys
                    )  # fmt: skip
                    for c in range(k):
                        key = keys[size - 1 - c]
                        bits[c], positions[c] = score_bits_of(key), item_of(key)
                    size = k
        if size > k:
            size, _ = drop_hopeless(k, errors[i], found, positions, size, scratch)
        keys_of(users[i], other, strengths[i], spread, offsets, logs, prices, positions, size, found, bits, keys)
        write_best(keys, size, k, found, bits, items[i], scores[i])
