"""Top-K: blocks of users meet blocks of items, longest item vectors first; a user leaves when no later item can matter.

|u.v| <= |u||v|, so once a user's k-th best score exceeds |u| times the longest vector of the next block, the list is
final. One small matrix product per pair of blocks, kept in the cache and scanned there. Never users x items.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel

# -- candidates of one user -------------------------------------------------------------------------------------------
#
# Rounded scores decide which candidates stay, exact ones which win. The scores of a matrix product carry rounding that
# depends on where in a block a pair stands. So nothing is decided by them within `2 * error`, where `error` bounds that
# rounding; the candidates left are scored once more, in float64, and ordered by score and item index. The answer is the
# same for any blocks, any batch of users and any number of threads.

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


@kernel(fastmath={"reassoc", "contract"})
def exact_dialled_score(user, item, scale, offset):
    """As `exact_score`, of an item whose vector is scaled, and whose offset is added; 1.0 and 0.0 leave it as it is."""
    total = np.float64(offset)
    for c in range(len(user)):
        total += np.float64(user[c]) * np.float64(item[c] * scale)
    return np.float32(total) + np.float32(0.0)


@kernel
def flip(pattern):
    """The bits of a float as an integer that sorts as the numbers do; applied twice, the bits again."""
    return pattern if pattern >= 0 else pattern ^ np.int32(0x7FFFFFFF)


@kernel
def rank_exactly(user, other, scale, offset, order, positions, scores, bits, size, keys):
    """Rescore the candidates and sort them, worst first, as keys: by score, then by falling item index.

    `bits` is the memory of `scores` seen as int32.   in: all but keys   out: scores, keys
    """
    if scale is None and offset is None:
        for c in range(size):
            scores[c] = exact_score(user, other[positions[c]])
    else:
        for c in range(size):
            own = np.float32(1.0) if scale is None else scale[positions[c]]
            added = np.float32(0.0) if offset is None else offset[positions[c]]
            scores[c] = exact_dialled_score(user, other[positions[c]], own, added)
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
def keep_exactly(k, user, other, scale, offset, order, rank, scores, bits, positions, size, keys):
    """Keep the k best and no more: for scores so close together that rounding hides their order."""
    rank_exactly(user, other, scale, offset, order, positions, scores, bits, size, keys)
    for c in range(k):
        key = keys[size - 1 - c]
        bits[c], positions[c] = score_bits_of(key), rank[item_of(key)]


USERS_AT_ONCE = 256
ITEMS_AT_ONCE = 512  # 256 x 512 scores fill half of a second-level cache of 1 MiB
COMPARED_AT_ONCE = 64
LOWEST = np.float32(-3.4028235e38)  # what is left out scores -inf, below this


@kernel
def most_kept(k):
    """Candidates beyond this number are thinned out before the next block."""
    return k + max(k // 2, 64)


@kernel
def collect(row, first, floor, scores, positions, size):
    """Append all scores of a row that reach the floor.   out: scores, positions   returns: how many there are now"""
    whole = len(row) - len(row) % COMPARED_AT_ONCE
    for start in range(0, whole, COMPARED_AT_ONCE):
        hits = np.int32(0)
        for c in range(COMPARED_AT_ONCE):  # fixed length, small integers, no branch: a few wide comparisons
            hits += np.int32(row[start + c] >= floor)
        if hits:
            size = collect_each(row, start, start + COMPARED_AT_ONCE, first, floor, scores, positions, size)
    return collect_each(row, whole, len(row), first, floor, scores, positions, size)


@kernel
def collect_each(row, start, stop, first, floor, scores, positions, size):
    """As `collect`, one by one."""
    for c in range(start, stop):
        if row[c] >= floor:
            scores[size], positions[size] = row[c], first + c
            size += 1
    return size


@kernel
def left_out(indptr, indices, rank, start, stop):
    """The positions each user of a block must not be given, ascending."""
    base = indptr[start]
    found = np.empty(indptr[stop] - base, dtype=np.int32)
    for e in range(len(found)):
        found[e] = rank[indices[base + e]]
    for i in range(start, stop):
        found[indptr[i] - base : indptr[i + 1] - base].sort()
    return found


@kernel
def mask(row, first, barred, at, end):
    """Bar positions from the part of a row that starts at `first`.   out: row   returns: the next barred position"""
    while at < end and barred[at] < first + len(row):
        row[barred[at] - first] = -np.inf
        at += 1
    return at


@kernel
def dial(row, first, scale, offset):
    """Multiply the scores of a row by its items' scales and add their offsets.   in, out: row"""
    if scale is not None:
        for c in range(len(row)):
            row[c] *= scale[first + c]
    if offset is not None:
        for c in range(len(row)):
            row[c] += offset[first + c]


@kernel
def keep_active(lengths, longest, highest, floors, active, packed, count):
    """Drop users whom no later item can reach.   in, out: active, packed   returns: how many stay

    `longest` and `highest` bound the vectors and the offsets of all items that are still to come.
    """
    still = 0
    for a in range(count):  # blocks get shorter and floors higher: who leaves need not come back
        i = active[a]
        if lengths[i] * longest * 1.000001 + highest >= floors[i]:
            if still < a:
                active[still] = i
                packed[still] = packed[a]
            still += 1
    return still


@kernel
def write_list(k, user, other, scale, offset, order, error, found, bits, positions, size, scratch, keys, items, scores):
    """The final list out of the candidates.   in: all but the last two   out: items, scores"""
    if size > k:
        size, _ = drop_hopeless(k, error, found, positions, size, scratch)
    rank_exactly(user, other, scale, offset, order, positions, found, bits, size, keys)
    taken = min(size, k)
    for c in range(taken):
        key = keys[size - 1 - c]
        items[c], bits[c] = item_of(key), score_bits_of(key)
    scores[:taken] = found[:taken]
    items[taken:], scores[taken:] = -1, np.nan


@kernel
def block_of_users(
    users, other, scale, offset, order, rank, longest, highest, lengths, errors, k, barred, ends, items, scores
):
    """Top-K of a few users.   in: all but the last two   out: items, scores"""
    n, m = len(users), len(other)
    limit = most_kept(k)
    room = limit + ITEMS_AT_ONCE
    found, positions = np.empty((n, room), dtype=np.float32), np.empty((n, room), dtype=np.int32)
    bits = found.view(np.int32)
    sizes, floors = np.zeros(n, dtype=np.int64), np.full(n, LOWEST)
    scratch, keys = np.empty(room, dtype=np.float32), np.empty(room, dtype=np.int64)
    product = np.empty(n * min(m, ITEMS_AT_ONCE), dtype=np.float32)
    packed, active, count = users.copy(), np.arange(n), n
    at = ends[:-1].copy()  # how far along each user's barred positions are
    for b in range(len(longest)):
        above = np.float32(0.0) if offset is None else highest[b]
        count = keep_active(lengths, longest[b], above, floors, active, packed, count)
        if count == 0:
            break
        first, last = b * ITEMS_AT_ONCE, min((b + 1) * ITEMS_AT_ONCE, m)
        block = product[: count * (last - first)].reshape(count, last - first)
        np.dot(packed[:count], other[first:last].T, block)
        for a in range(count):
            i = active[a]
            dial(block[a], first, scale, offset)
            at[i] = mask(block[a], first, barred, at[i], ends[i + 1])
            sizes[i] = collect(block[a], first, floors[i], found[i], positions[i], sizes[i])
            if sizes[i] > limit:
                sizes[i], floors[i] = drop_hopeless(k, errors[i], found[i], positions[i], sizes[i], scratch)
            if sizes[i] > limit:
                keep_exactly(
                    k, users[i], other, scale, offset, order, rank, found[i], bits[i], positions[i], sizes[i], keys
                )
                sizes[i] = k
    for i in range(n):
        write_list(
            k, users[i], other, scale, offset, order, errors[i], found[i], bits[i], positions[i], sizes[i], scratch,
            keys, items[i], scores[i],
        )  # fmt: skip


@kernel
def top_k(
    low, high, this, other, scale, offset, order, rank, longest, highest, lengths, errors, k, indptr, indices, bounds,
    at_once, items, scores
):  # fmt: skip
    """See contract. `other` is in the order of `order`, whose inverse is `rank`, as `scale` and `offset` are.

    `longest` and `highest` bound the vectors and the offsets from each block on.

    in: all but the last two   out: items, scores
    """
    for b in range(low, high):
        for start in range(bounds[b], bounds[b + 1], at_once):
            stop = min(start + at_once, bounds[b + 1])
            barred = left_out(indptr, indices, rank, start, stop)
            ends = indptr[start : stop + 1] - indptr[start]
            block_of_users(
                this[start:stop], other, scale, offset, order, rank, longest, highest, lengths[start:stop],
                errors[start:stop], k, barred, ends, items[start:stop], scores[start:stop],
            )  # fmt: skip
