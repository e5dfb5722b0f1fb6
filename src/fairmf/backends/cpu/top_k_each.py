"""Find the best items of a few users, each at its own level of the item dial, with its own length and exclusions.

As in top_k.py, float32 scores decide which items stay in play and float64 scores which of them win: a list has the same
bits whoever else is asked for. The dial of a user is three numbers: item j's score s becomes

    s sigma_j^-g + o_j - a l_j + b p_j,   a = h S(g), b = t S(g), l_j = log f_j - mean (ranking/item_dial.py)

In play, sigma^-g is computed by a polynomial, block by block, so that a new level costs no pass over the catalogue
beforehand; the winners' is computed as `ItemDial` does it.
"""

from __future__ import annotations

import math

import numpy as np

from fairmf.backends.cpu.fold_rows import products
from fairmf.backends.cpu.top_k import (
    HIGH,
    ITEMS_AT_ONCE,
    LOWEST,
    collect,
    drop_hopeless,
    flip,
    item_of,
    most_kept,
    score_bits_of,
    sort,
)
from fairmf.kernels import kernel

POWERS = tuple(np.float32(math.log(2.0) ** k / math.factorial(k)) for k in range(7))  # 2^x = sum_k POWERS[k] x^k
SCALE_ERROR = 2.0**-18  # bounds the relative error of `powers`, for |g log2(sigma)| up to 64


@kernel(fastmath={"contract"}, inner=True)
def powers(exponent, logs, whole, out, bits):
    """Set out = 2^(exponent * logs); `bits` is the memory of `out` as int32.   scratch: whole (int32)

    in: exponent, logs   out: out. Two loops, so that the compiler vectorises each.
    """
    for c in range(len(logs)):
        x = exponent * logs[c]
        n = np.float32(np.rint(x))
        f = x - n
        whole[c] = np.int32(n)
        tail = POWERS[3] + f * (POWERS[4] + f * (POWERS[5] + f * POWERS[6]))
        out[c] = POWERS[0] + f * (POWERS[1] + f * (POWERS[2] + f * tail))
    for c in range(len(logs)):
        bits[c] = np.int32(bits[c] + np.int32(whole[c] << np.int32(23)))


@kernel(fastmath={"reassoc", "contract"}, inner=True)
def exact(user, item, scale, offset):
    """Return the score in float64, rounded once (top_k.exact_dialled_score)."""
    total = np.float64(offset)
    for c in range(len(user)):
        total += np.float64(user[c]) * np.float64(item[c] * scale)
    return np.float32(total) + np.float32(0.0)


@kernel(inner=True)
def scale_of(strength, spread, j):
    """Return sigma_j^-g as `ItemDial.scale` does."""
    return np.float32(1.0) if strength[0] == 0.0 else np.float32(spread[j] ** -strength[0])


@kernel(inner=True)
def offset_of(strength, offsets, logs, prices, j):
    """Return what a level adds to item j's score, in the order of `ItemDial.level`."""
    found = 0.0 if len(offsets) == 0 else offsets[j]
    if strength[1] > 0.0:
        found = found - strength[1] * logs[j]
    if strength[2] > 0.0:
        found = found + strength[2] * prices[j]
    return np.float32(found)


@kernel(inner=True)
def keys_of(user, other, strength, spread, offsets, logs, prices, positions, size, found, bits, keys):
    """Score candidates exactly and sort them, worst first, as keys (top_k.rank_exactly).   out: found, keys"""
    for c in range(size):
        j = positions[c]
        scale, offset = scale_of(strength, spread, j), offset_of(strength, offsets, logs, prices, j)
        found[c] = exact(user, other[j], scale, offset)
    for c in range(size):
        keys[c] = np.int64(flip(bits[c])) * HIGH + (HIGH - 1 - np.int64(positions[c]))
    sort(keys, 0, size)


@kernel(inner=True)
def write_best(keys, size, k, found, bits, items, scores):
    """Write the k best of sorted keys.   scratch: found, bits   out: items, scores"""
    taken = min(size, k)
    for c in range(taken):
        key = keys[size - 1 - c]
        items[c], bits[c] = item_of(key), score_bits_of(key)
    for c in range(taken):
        scores[c] = found[c]


@kernel(inner=True)
def rounding(user, strength):
    """Bound the error of a float32 score: d products and sums, the last rounding, and what a dial adds to them."""
    d, size = len(user), 0.0
    for c in range(d):
        size += np.float64(user[c]) * np.float64(user[c])
    size = np.sqrt(size) * strength[3]
    found = (d + 2) * 2.0**-24 * size + 1e-37 + (d + 64) * 2.0**-24 * strength[4]
    return np.float32(found + size * (SCALE_ERROR if strength[0] > 0.0 else 2.0**-22))


@kernel(inner=True)
def dialled(row, first, strength, logs2, added, logs, prices, scale, bits, whole):
    """Apply a user's level to its scores of a block of items, in float32.   in, out: row   scratch: the last three"""
    n = len(row)
    if strength[0] != 0.0:
        powers(np.float32(-strength[0]), logs2[first : first + n], whole[:n], scale[:n], bits[:n])
        for c in range(n):
            row[c] *= scale[c]
    if len(added):
        for c in range(n):
            row[c] += added[first + c]
    if strength[1] != 0.0:
        weight = np.float32(strength[1])
        for c in range(n):
            row[c] -= weight * logs[first + c]
    if strength[2] != 0.0:
        weight = np.float32(strength[2])
        for c in range(n):
            row[c] += weight * prices[first + c]


@kernel(inner=True)
def mask(row, first, barred, at, end):
    """Set excluded positions of a row that starts at `first` to -inf.   out: row   returns: the next one to exclude"""
    while at < end and barred[at] < first + len(row):
        row[barred[at] - first] = -np.inf
        at += 1
    return at


@kernel
def top_k_each(
    low, high, bounds, users, other, dial64, dial32, strengths, ks, barred, ends, items, scores
):  # fmt: skip
    """Find the ks[i] best items of each user.   in: all but the last two   out: items, scores (missing: as they were)

    `dial64` = (spread, offsets, logs, prices), `dial32` = (log2 of spread, offsets, logs, prices); offsets and prices
    may have length 0. strengths[i] = (g, a, b, longest item vector at that g, most that is added to a score).
    `barred` holds the excluded items of all users, ascending for each.
    """
    m = len(other)
    spread, offsets, logs, prices = dial64
    logs2, added, logs32, prices32 = dial32
    for part in range(low, high):
        start, n = bounds[part], bounds[part + 1] - bounds[part]
        most = np.int64(0)
        for i in range(start, start + n):
            most = max(most, ks[i])
        room = most_kept(most) + ITEMS_AT_ONCE
        found, positions = np.empty((n, room), dtype=np.float32), np.empty((n, room), dtype=np.int32)
        bits = found.view(np.int32)
        sizes, floors, errors = np.zeros(n, dtype=np.int64), np.full(n, LOWEST), np.empty(n, dtype=np.float32)
        for a in range(n):
            errors[a] = rounding(users[start + a], strengths[start + a])
        keys = np.empty(room, dtype=np.int64)
        block = np.empty((n, min(m, ITEMS_AT_ONCE)), dtype=np.float32)
        scale, whole = np.empty(ITEMS_AT_ONCE, dtype=np.float32), np.empty(ITEMS_AT_ONCE, dtype=np.int32)
        scale_bits, at = scale.view(np.int32), ends[start : start + n].copy()
        for first in range(0, m, ITEMS_AT_ONCE):
            last = min(first + ITEMS_AT_ONCE, m)
            products(users[start : start + n], other[first:last], block)
            for a in range(n):
                i, row = start + a, block[a, : last - first]
                dialled(row, first, strengths[i], logs2, added, logs32, prices32, scale, scale_bits, whole)
                at[a] = mask(row, first, barred, at[a], ends[i + 1])
                sizes[a] = collect(row, first, floors[a], found[a], positions[a], sizes[a])
                if sizes[a] > most_kept(ks[i]):
                    sizes[a], floors[a] = drop_hopeless(ks[i], errors[a], found[a], positions[a], sizes[a])
                if sizes[a] > most_kept(ks[i]):  # so many are nearly equal: keep the best by exact scores
                    keys_of(
                        users[i], other, strengths[i], spread, offsets, logs, prices, positions[a], sizes[a], found[a],
                        bits[a], keys,
                    )  # fmt: skip
                    for c in range(ks[i]):
                        key = keys[sizes[a] - 1 - c]
                        bits[a, c], positions[a, c] = score_bits_of(key), item_of(key)
                    sizes[a] = ks[i]
        for a in range(n):
            i = start + a
            if sizes[a] > ks[i]:
                sizes[a], _ = drop_hopeless(ks[i], errors[a], found[a], positions[a], sizes[a])
            keys_of(
                users[i], other, strengths[i], spread, offsets, logs, prices, positions[a], sizes[a], found[a], bits[a],
                keys,
            )  # fmt: skip
            write_best(keys, sizes[a], ks[i], found[a], bits[a], items[i], scores[i])


@kernel
def top_k_of(low, high, users, other, dial64, strengths, ks, candidates, ends, items, scores):
    """Rank given candidates of each user, all by exact scores.   in: all but the last two   out: items, scores

    `candidates` holds those of all users one after the other, `ends` where each user's begin and end; no repeats.
    """
    spread, offsets, logs, prices = dial64
    for i in range(low, high):
        size = ends[i + 1] - ends[i]
        found, keys = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.int64)
        bits, own = found.view(np.int32), candidates[ends[i] : ends[i + 1]]
        keys_of(users[i], other, strengths[i], spread, offsets, logs, prices, own, size, found, bits, keys)
        write_best(keys, size, ks[i], found, bits, items[i], scores[i])
