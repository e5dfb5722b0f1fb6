"""Find the best items of a few users among the items of some groups, each user at its own level of the item dial.

It is `top_k_each` for a part of the catalogue (models/ann_requests.py): `choose_groups` finds the groups that a user
looks into, `top_k_groups` ranks their items. Scores and the rules for ties are the same; an item outside the groups is
missed.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.fold_rows import products
from fairmf.backends.cpu.top_k import (
    ITEMS_AT_ONCE,
    LOWEST,
    drop_hopeless,
    item_of,
    kth_largest,
    most_kept,
    score_bits_of,
)
from fairmf.backends.cpu.top_k_each import dialled, keys_of, write_best
from fairmf.kernels import kernel


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
def choose_groups(low, high, users, metric, centres, facts, strengths, added, counts, chosen):
    """Write the counts[i] groups with the largest estimates for each user (ranking/level_groups.py).

    `facts` has rows log2 sigma_q, l_q, p_q, the reach of a group, and 0, or -inf for an empty group; `metric` is the
    transpose of W^-1; strengths[i] = (g, a, b); `added` may have length 0. Slots beyond counts[i] get -1.
    in: all but chosen   out: chosen
    """
    d, n = metric.shape[0], len(centres)
    turned, estimates, scratch = np.empty((1, d), np.float32), np.empty((1, n), np.float32), np.empty(n, np.float32)
    log_spread, logs, prices, reach, empty = facts
    for i in range(low, high):
        user, row = users[i : i + 1], estimates[0]
        products(user, metric, turned)
        products(user, centres, estimates)
        length = np.float32(0.0)
        for c in range(d):
            length += turned[0, c] * turned[0, c]
        length, left = np.sqrt(length), np.float32(1.0 - strengths[i, 0])
        lost, gained = np.float32(strengths[i, 1]), np.float32(strengths[i, 2])
        for q in range(n):
            row[q] = (row[q] + length * reach[q]) * np.exp2(left * log_spread[q])
            row[q] += gained * prices[q] - lost * logs[q] + empty[q]
        if len(added):
            for q in range(n):
                row[q] += added[q]
        for q in range(n):
            scratch[q] = row[q]
        least = kth_largest(scratch, n, counts[i])
        taken = 0
        for q in range(n):
            if row[q] > least:
                chosen[i, taken] = q
                taken += 1
        for q in range(n):  # of equal estimates the first groups, until there are enough
            if taken < counts[i] and row[q] == least:
                chosen[i, taken] = q
                taken += 1
        for c in range(taken, chosen.shape[1]):
            chosen[i, c] = -1


@kernel
def top_k_groups(
    low, high, users, other, dial64, packed, strengths, errors, ks, chosen, members, starts, barred, ends, items, scores
):  # fmt: skip
    """Find the ks[i] best items of each user in its groups.   in: all but the last two   out: items, scores

    The groups of user i are chosen[i], up to the first -1; group q holds members[starts[q]:starts[q + 1]]. `packed` has
    the vectors and the `dial32` of all items in the order of `members`, so that a group is read from one place: reading
    rows here and there takes several times as long. The rest is as in `top_k_each`.
    """
    spread, offsets, logs, prices = dial64
    vectors, logs2, added, logs32, prices32 = packed
    block, scale = np.empty((1, ITEMS_AT_ONCE), dtype=np.float32), np.empty(ITEMS_AT_ONCE, dtype=np.float32)
    row = block[0]
    scale_bits, whole = scale.view(np.int32), np.empty(ITEMS_AT_ONCE, dtype=np.int32)
    for i in range(low, high):
        k, hidden = ks[i], barred[ends[i] : ends[i + 1]]
        room = most_kept(k) + ITEMS_AT_ONCE
        found, positions = np.empty(room, dtype=np.float32), np.empty(room, dtype=np.int32)
        bits, keys = found.view(np.int32), np.empty(room, dtype=np.int64)
        size, floor = 0, LOWEST
        for group in chosen[i]:
            if group < 0:
                break
            for first in range(starts[group], starts[group + 1], ITEMS_AT_ONCE):
                own = members[first : min(first + ITEMS_AT_ONCE, starts[group + 1])]
                products(users[i : i + 1], vectors[first : first + len(own)], block)
                dialled(
                    row[: len(own)], first, strengths[i], logs2, added, logs32, prices32, scale, scale_bits, whole
                )  # fmt: skip
                for c in range(len(own)):
                    if row[c] >= floor and not is_in(own[c], hidden):
                        found[size], positions[size] = row[c], own[c]
                        size += 1
                if size > most_kept(k):
                    size, floor = drop_hopeless(k, errors[i], found, positions, size)
                if size > most_kept(k):  # so many are nearly equal: keep the best by exact scores
                    keys_of(
                        users[i], other, strengths[i], spread, offsets, logs, prices, positions, size, found, bits, keys
                    )  # fmt: skip
                    for c in range(k):
                        key = keys[size - 1 - c]
                        bits[c], positions[c] = score_bits_of(key), item_of(key)
                    size = k
        if size > k:
            size, _ = drop_hopeless(k, errors[i], found, positions, size)
        keys_of(users[i], other, strengths[i], spread, offsets, logs, prices, positions, size, found, bits, keys)
        write_best(keys, size, k, found, bits, items[i], scores[i])
