"""Find the k best items of every user, longest item vectors first, and stop when no later item can enter the list.

|u.v| <= |u||v|: once a user's k-th best score exceeds |u| times the longest vector of the next block, the list is
final. Each pair of a block of users and a block of items is one small matrix product, scanned while it is in the cache.
The scores of all users and items are never stored.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends.cpu.simd import (
    LINE,
    TILE_COLUMNS,
    TILE_ROWS,
    first_line,
    lowest_bit,
    product_tile,
    reaching,
    scores_of_eight,
)
from fairmf.kernels import kernel

# -- candidates of one user -------------------------------------------------------------------------------------------
#
# Float32 scores decide which candidates stay, exact scores which of them win. The rounding of a matrix product depends
# on a pair's position in its block. So candidates within `2 * error` of the k-th best are kept, where `error` bounds
# the rounding; those left are scored again in float64, and ordered by score and item index. The answer is the same for
# any blocks, any batch of users and any number of threads.

HIGH = np.int64(2**32)  # a sort key is score * HIGH + item, both as integers


@kernel(inner=True)
def kth_largest(values, size, k):
    """Return the k-th largest of values[:size], and reorder them (Hoare's selection).   in, out: values"""
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


@kernel(inner=True)
def sort(values, low, high):
    """Sort values[low:high], ascending, by Shell's method.   in, out: values

    For the few hundred numbers of a list it is as fast as NumPy's sort, which takes Numba seconds to compile.
    """
    gap = 1
    while gap < high - low:
        gap = 3 * gap + 1
    while gap > 1:
        gap //= 3
        for i in range(low + gap, high):
            value, j = values[i], i
            while j >= low + gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value


@kernel(fastmath={"reassoc", "contract"}, inner=True)
def exact_score(user, item):
    """Return the inner product in float64, rounded once; never -0.0, which would sort below 0.0."""
    total = 0.0
    for c in range(len(user)):
        total += np.float64(user[c]) * np.float64(item[c])
    return np.float32(total) + np.float32(0.0)


@kernel(fastmath={"reassoc", "contract"}, inner=True)
def exact_dialled_score(user, item, scale, offset):
    """As `exact_score`, of an item whose vector is scaled, and whose offset is added; 1.0 and 0.0 leave it as it is."""
    total = np.float64(offset)
    for c in range(len(user)):
        total += np.float64(user[c]) * np.float64(item[c] * scale)
    return np.float32(total) + np.float32(0.0)


@kernel(inner=True)
def flip(pattern):
    """Turn the bits of a float into an integer that sorts like the floats; applied twice, it returns the bits."""
    return pattern if pattern >= 0 else pattern ^ np.int32(0x7FFFFFFF)


@kernel(inner=True)
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
    # Higher scores have higher keys; of equal scores the lower item has, because its index is subtracted.
    for c in range(size):
        keys[c] = np.int64(flip(bits[c])) * HIGH + (HIGH - 1 - np.int64(order[positions[c]]))
    sort(keys, 0, size)


@kernel(inner=True)
def item_of(key):
    """Return the item of a key."""
    return np.int32(HIGH - 1 - (key & (HIGH - 1)))


@kernel(inner=True)
def score_bits_of(key):
    """Return the score of a key, as bits."""
    return flip(np.int32(key >> 32))


@kernel(fastmath={"nnan", "nsz"}, inner=True)
def reached_by(values, size, k):
    """Return a number that at least k of values[:size] reach, and hardly more than k unless values are equal.

    By bisection: it takes a tenth of the time of finding the k-th largest, because counting has no branches.
    """
    low = high = values[0]
    for c in range(1, size):
        low, high = min(low, values[c]), max(high, values[c])
    for _ in range(BISECTIONS):
        middle = np.float32(0.5) * (low + high)
        count = np.int32(0)
        for c in range(size):
            count += np.int32(values[c] >= middle)
        if count < k:
            high = middle
        else:
            low = middle
            if count <= k + k // 16:
                break
    return low


@kernel(inner=True)
def drop_hopeless(k, error, scores, positions, size):
    """Keep candidates that may be among the k best.   in, out: scores, positions   returns: how many, lowest score"""
    floor = reached_by(scores, size, k) - np.float32(2.0) * error
    kept = 0
    for c in range(size):
        score, position = scores[c], positions[c]
        scores[kept], positions[kept] = score, position  # without a branch, whose outcome nobody could predict
        kept += 1 if score >= floor else 0
    return kept, floor


@kernel(inner=True)
def first_floor(row, k, peaks):
    """Return a bound that at least k scores of the row reach: the k-th largest of as many maxima as `peaks` has room.

    Few scores reach it that are not among the k best, so that few have to be collected from the first block. The
    maxima are those of interleaved parts of the row, which compile to wide instructions.   scratch: peaks
    """
    width = len(peaks)
    for c in range(width):
        peaks[c] = row[c]
    for start in range(width, len(row) - width + 1, width):
        for c in range(width):
            if row[start + c] > peaks[c]:
                peaks[c] = row[start + c]
    return reached_by(peaks, width, k)


@kernel(inline="always")
def keep_exactly(k, user, other, scale, offset, order, rank, scores, bits, positions, size, keys):
    """Keep exactly the k best, by exact scores: for candidates so close together that rounding hides their order."""
    rank_exactly(user, other, scale, offset, order, positions, scores, bits, size, keys)
    for c in range(k):
        key = keys[size - 1 - c]
        bits[c], positions[c] = score_bits_of(key), rank[item_of(key)]


USERS_AT_ONCE = 256
ITEMS_AT_ONCE = 512  # 256 x 512 scores fill half of a second-level cache of 1 MiB
COMPARED_AT_ONCE = 64  # as many as `reaching` has bits
NO_HITS, ONE_HIT = np.uint64(0), np.uint64(1)
BISECTIONS = 24  # enough for all but values that are nearly equal
PEAKS = (64, 256)  # numbers of maxima in `first_floor`; the first that is more than 1.5 k is taken
LOWEST = np.float32(-3.4028235e38)  # the lowest finite score; excluded items score -inf, below it


@kernel
def most_kept(k):
    """Return how many candidates a user may carry into the next block."""
    return k + max(k // 2, 64)


@kernel(inner=True)
def collect(row, first, floor, scores, positions, size):
    """Append all scores of a row that reach the floor.   out: scores, positions   returns: the new number of them"""
    whole = len(row) - len(row) % COMPARED_AT_ONCE
    for start in range(0, whole, COMPARED_AT_ONCE):
        hits = reaching(row, start, floor)
        while hits != NO_HITS:
            c = start + lowest_bit(hits)
            scores[size], positions[size] = row[c], first + c
            size += 1
            hits &= hits - ONE_HIT
    for c in range(whole, len(row)):
        if row[c] >= floor:
            scores[size], positions[size] = row[c], first + c
            size += 1
    return size


@kernel(inner=True)
def excluded(indptr, indices, rank, start, stop, blocks):
    """Return the pairs that are excluded for users start to stop, by block of items: starts, users, columns.

    Pairs starts[b] to starts[b + 1] belong to block b of items. Users are counted from `start`, columns from the first
    item of their block.
    """
    base, total = indptr[start], indptr[stop] - indptr[start]
    starts = np.zeros(blocks + 2, dtype=np.int64)
    for e in range(base, base + total):
        starts[rank[indices[e]] // ITEMS_AT_ONCE + 2] += 1
    for b in range(2, blocks + 2):
        starts[b] += starts[b - 1]
    users, columns = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int32)
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            position = rank[indices[e]]
            b = position // ITEMS_AT_ONCE
            at = starts[b + 1]  # where the next pair of block b goes; in the end, where the pairs of block b + 1 begin
            starts[b + 1] = at + 1
            users[at], columns[at] = i - start, position - b * ITEMS_AT_ONCE
    return starts, users, columns


@kernel(inline="always")
def dial(row, first, scale, offset):
    """Multiply the scores of a row by its items' scales and add their offsets.   in, out: row"""
    if scale is not None:
        for c in range(len(row)):
            row[c] *= scale[first + c]
    if offset is not None:
        for c in range(len(row)):
            row[c] += offset[first + c]


@kernel(inline="always")
def keep_active(b, lengths, longest, reach, bins, floors, highest, active, slots, packed, d, count):
    """Drop users whose lists no later item can enter.   in, out: active, slots, packed   returns: how many stay

    `active` holds the users that are left and `packed` their vectors, `slots` where a user is among them, or -1.

    `longest[b]` bounds the vectors of all items that are still to come. Where there are offsets, `reach[b]` bounds
    their scores instead, for each bin of users of about the same length. A user whose k best are all above `highest` is
    dropped too: the caller does not ask for more (`ScoreWindow`).
    """
    still = 0
    for a in range(count):  # item vectors get shorter and floors rise: a dropped user never has to come back
        i = active[a]
        # A little more than the bound, because lengths and floors are rounded.
        most = lengths[i] * longest[b] * 1.000001 if reach is None else reach[b, bins[i]]
        slots[i] = -1
        if most >= floors[i] and floors[i] <= highest[i]:
            slots[i] = still
            if still < a:
                active[still] = i
                for c in range(d):
                    packed[still * d + c] = packed[a * d + c]
            still += 1
    return still


@kernel(inline="always")
def write_list(k, user, other, scale, offset, order, error, found, bits, positions, size, keys, items, scores):
    """Write the final list of a user from its candidates.   in: all but the last two   out: items, scores"""
    if size > k:
        size, _ = drop_hopeless(k, error, found, positions, size)
    rank_exactly(user, other, scale, offset, order, positions, found, bits, size, keys)
    taken = min(size, k)
    for c in range(taken):
        key = keys[size - 1 - c]
        items[c], bits[c] = item_of(key), score_bits_of(key)
    for c in range(taken):
        scores[c] = found[c]
    for c in range(taken, len(items)):
        items[c], scores[c] = -1, np.nan


# -- scores -----------------------------------------------------------------------------------------------------------


@kernel(fastmath=True)
def squared_norms(low, high, this, out):
    """Set out[i] = |x_i|^2.   in: this   out: out"""
    for i in range(low, high):
        total = 0.0
        for k in range(this.shape[1]):
            total += np.float64(this[i, k]) * np.float64(this[i, k])
        out[i] = total


@kernel
def pack_rows(low, high, matrix, out):
    """Pack the rows of a matrix as columns (products.py): panels low to high.

    in: matrix   out: out (panels x d x TILE_COLUMNS)
    """
    rows, d = matrix.shape
    for p in range(low, high):
        for c in range(TILE_COLUMNS):
            row = p * TILE_COLUMNS + c
            for k in range(d):
                out[p, k, c] = matrix[row, k] if row < rows else np.float32(0.0)


@kernel(inner=True)
def score_block(users, count, items, packed, first, last, out, at):
    """Set out[at + i ITEMS_AT_ONCE + c] to the score of user i for item first + c, up to the last item.

    `users` holds one vector after the other, for whole tiles of users; `packed` the items, unless it is empty, which is
    faster for a few users. `first` begins a panel.   in: all but out   out: out
    """
    d = items.shape[1]
    if len(packed) == 0:
        for i in range(count):
            for c in range(first, last, 8):
                scores_of_eight(items, c, last - 1, users, i * d, out, at + i * ITEMS_AT_ONCE + c - first)
        return
    for p in range(first // TILE_COLUMNS, (last + TILE_COLUMNS - 1) // TILE_COLUMNS):
        begin = p * d * TILE_COLUMNS
        for i in range(0, count, TILE_ROWS):
            to = at + i * ITEMS_AT_ONCE + p * TILE_COLUMNS - first
            product_tile(users, i * d, d, 1, packed, begin, TILE_COLUMNS, d, out, to, ITEMS_AT_ONCE)


@kernel(inline="always")
def block_of_users(
    users, other, panels, scale, offset, order, rank, longest, reach, bins, lengths, errors, lowest, highest, k,
    starts, barred, columns, items, scores
):  # fmt: skip
    """Find the k best items of a block of users.   in: all but the last two   out: items, scores"""
    n, m = len(users), len(other)
    limit = most_kept(k)
    room = limit + ITEMS_AT_ONCE
    found, positions = np.empty((n, room), dtype=np.float32), np.empty((n, room), dtype=np.int32)
    bits = found.view(np.int32)
    sizes, floors = np.zeros(n, dtype=np.int64), lowest.copy()
    keys = np.empty(room, dtype=np.int64)
    tiles = -(-n // TILE_ROWS) * TILE_ROWS
    product = np.empty(tiles * ITEMS_AT_ONCE + LINE, dtype=np.float32)
    begin, d = first_line(product), other.shape[1]
    # Where items have a column more than users, it holds their offsets: the matrix product adds them.
    packed, active, count = np.zeros(tiles * d, dtype=np.float32), np.empty(n, dtype=np.int64), n
    for i in range(n):
        active[i] = i
        for c in range(d):
            packed[i * d + c] = users[i, c] if c < users.shape[1] else np.float32(1.0)
    added = other.shape[1] > users.shape[1]
    peaks = np.empty(PEAKS[0] if 3 * k < 2 * PEAKS[0] else PEAKS[1], dtype=np.float32)
    bounded = 3 * k < 2 * len(peaks) and len(peaks) <= min(m, ITEMS_AT_ONCE)
    slots = np.empty(n, dtype=np.int64)
    for b in range(len(longest)):
        # `packed` holds the vectors of the users still active, side by side for the matrix product.
        count = keep_active(b, lengths, longest, reach, bins, floors, highest, active, slots, packed, d, count)
        if count == 0:
            break
        first, last = b * ITEMS_AT_ONCE, min((b + 1) * ITEMS_AT_ONCE, m)
        score_block(packed, count, other, panels, first, last, product, begin)
        if not added:
            for a in range(count):
                at = begin + a * ITEMS_AT_ONCE
                dial(product[at : at + last - first], first, scale, offset)
        for e in range(starts[b], starts[b + 1]):
            a = slots[barred[e]]
            if a >= 0:
                product[begin + a * ITEMS_AT_ONCE + columns[e]] = -np.inf
        for a in range(count):
            i, at = active[a], begin + a * ITEMS_AT_ONCE
            row = product[at : at + last - first]
            if b == 0 and bounded:
                floors[i] = max(floors[i], first_floor(row, k, peaks) - np.float32(2.0) * errors[i])
            sizes[i] = collect(row, first, floors[i], found[i], positions[i], sizes[i])
            # There must be room for all items of the next block: drop candidates by rounded scores, which also raises
            # the floor, and if too many are nearly equal, by exact scores.
            if sizes[i] > limit:
                sizes[i], floors[i] = drop_hopeless(k, errors[i], found[i], positions[i], sizes[i])
            if sizes[i] > limit:
                keep_exactly(
                    k, users[i], other, scale, offset, order, rank, found[i], bits[i], positions[i], sizes[i], keys
                )
                sizes[i] = k
    for i in range(n):
        write_list(
            k, users[i], other, scale, offset, order, errors[i], found[i], bits[i], positions[i], sizes[i], keys,
            items[i], scores[i],
        )  # fmt: skip


@kernel
def top_k(
    low, high, this, other, panels, scale, offset, order, rank, longest, reach, bins, lengths, errors, lowest, highest,
    k, indptr, indices, bounds, at_once, items, scores
):  # fmt: skip
    """Find the k best items of all users (`Backend.top_k`).

    `other`, `scale` and `offset` are sorted by `order`, whose inverse is `rank`; `longest` bounds the item vectors from
    each block on, `reach` the scores of each bin of users (`keep_active`). `other` may have the offsets as a further
    column. Only scores from `lowest` to `highest` matter (`ScoreWindow`, widened by the rounding error).

    in: all but the last two   out: items, scores
    """
    for b in range(low, high):
        for start in range(bounds[b], bounds[b + 1], at_once):
            stop = min(start + at_once, bounds[b + 1])
            starts, barred, columns = excluded(indptr, indices, rank, start, stop, len(longest))
            block_of_users(
                this[start:stop], other, panels, scale, offset, order, rank, longest, reach,
                None if reach is None else bins[start:stop], lengths[start:stop], errors[start:stop],
                lowest[start:stop], highest[start:stop], k, starts, barred, columns,
                items[start:stop], scores[start:stop],
            )  # fmt: skip
