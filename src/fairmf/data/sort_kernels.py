"""Build sparse rows from many (user, item) pairs in compiled code, with a radix sort by blocks of users.

1. `_distribute` copies the pairs into blocks of neighbouring users, each small enough for the CPU's cache.
2. `sort_block` sorts a block by item, then by user, with two counting sorts. Threads take a block each.
3. `close_gaps` removes the places that repeated pairs leave.

It needs 6 bytes a pair beside the pairs; a comparison sort needs more and takes several times as long. Pairs that may
be overwritten are moved to their blocks in place instead, which needs no memory of their size.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from fairmf.kernels import kernel
from fairmf.types import Array

_MOST_THREADS = 4  # more threads would only wait for the memory
_PAIRS_PER_BLOCK = 1 << 18  # 2 MB, which stays in the cache while it is sorted
_MOST_BLOCKS = 256  # writing to more blocks in turn is as slow as writing to random places


def distinct_pairs(
    users: NDArray[np.int32], items: NDArray[np.int32], shape: tuple[int, int], overwrite: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the offsets and item indices of the users' rows: each pair once, indices ascending.

    With `overwrite`, both arrays are used as scratch memory, and `items` becomes the result.
    """
    n_users, n_items = shape
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    indptr = np.zeros(n_users + 1, dtype=np.int64)
    with ThreadPoolExecutor(threads) as pool:
        parts = _parts(len(users), threads)
        counts = np.zeros((threads, n_users), dtype=np.int64)
        list(pool.map(lambda k: count(users[parts[k]], counts[k]), range(threads)))
        # Rows with room for all pairs; `close_gaps` shortens them where pairs are repeated.
        np.cumsum(counts.sum(axis=0), out=indptr[1:])
        block_of, bounds = _blocks(indptr)
        ends = indptr[:-1].copy()
        starts = indptr[bounds]
        if overwrite:
            gather(users, items, block_of, bounds, starts[:-1].copy(), starts[1:])
            first, second = users, items
        else:
            first, second = _distribute(users, items, parts, counts, block_of, bounds, pool)

        def sort(block: int) -> None:
            own = slice(starts[block], starts[block + 1])
            rows = slice(bounds[block], bounds[block + 1])
            sort_block(first[own], second[own], n_items, indptr[rows], ends[rows])

        list(pool.map(sort, range(len(bounds) - 1)))
    indices = second
    close_gaps(indptr, ends, indices)
    # Shrink in place; refcheck=False because no other code holds a reference to this array.
    indices.resize(int(indptr[-1]), refcheck=False)
    return indptr, indices


def _parts(size: int, threads: int) -> list[slice]:
    """Divide 0 to `size` into equal parts, one per thread."""
    bounds = [size * k // threads for k in range(threads + 1)]
    return [slice(*ends) for ends in itertools.pairwise(bounds)]


def _blocks(indptr: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Group neighbouring users into blocks with about equally many pairs.

    Return the block of every user, and the first user of every block, followed by the number of users.
    """
    total = int(indptr[-1])
    wanted = int(np.clip(total // _PAIRS_PER_BLOCK, 1, _MOST_BLOCKS))
    block_of = np.minimum(indptr[:-1] * wanted // max(total, 1), wanted - 1).astype(np.int32)
    begins = np.flatnonzero(np.diff(block_of, prepend=-1))
    return np.cumsum(np.diff(block_of, prepend=block_of[:1]) > 0, dtype=np.int32), np.append(begins, len(block_of))


def _distribute(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    parts: list[slice],
    counts: NDArray[np.int64],
    block_of: NDArray[np.int32],
    bounds: NDArray[np.int64],
    pool: ThreadPoolExecutor,
) -> tuple[Array, NDArray[np.int32]]:
    """Copy the pairs block after block, in their order; each thread copies its own part of the pairs.

    Return the users, as numbers within their block, and the items.
    """
    blocks = len(bounds) - 1
    # Two bytes where that is enough: touching fresh memory costs more time than the copying itself.
    kind = np.uint16 if np.diff(bounds).max(initial=0) <= 1 << 16 else np.int32
    # Pairs of each part (rows) in each block (columns).
    sizes = np.stack([np.bincount(block_of, own, minlength=blocks) for own in counts]).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes.sum(axis=0))))[:-1]
    # Where a part puts its first pair of a block: after the pairs of all earlier parts, to keep their order.
    places = starts + np.cumsum(sizes, axis=0) - sizes
    first, second = np.empty(len(users), dtype=kind), np.empty(len(users), dtype=np.int32)

    def deal_part(k: int) -> None:
        deal(users[parts[k]], items[parts[k]], block_of, bounds, places[k], first, second)

    list(pool.map(deal_part, range(len(parts))))
    return first, second


def _count(codes, totals):
    """Add to `totals` (out) how often each code occurs."""
    for k in range(len(codes)):
        totals[codes[k]] += 1


def _deal_pairs(users, items, block_of, bounds, places, first, second):
    """Copy each pair to the next free place of its user's block in `first` and `second` (out)."""
    for k in range(len(users)):
        block = block_of[users[k]]
        place = places[block]
        first[place], second[place] = users[k] - bounds[block], items[k]
        places[block] = place + 1


def _gather_pairs(users, items, block_of, bounds, free, stops):
    """Move the pairs of each block of users together, in place; users become numbers within their block.

    The pair at a block's next free place is exchanged with that at the next free place of its own block, until one
    comes up that belongs here (American flag sort).   in and out: users, items   scratch: free (where blocks start)
    """
    for block in range(len(stops)):
        while free[block] < stops[block]:
            here = free[block]
            user, item = users[here], items[here]
            own = block_of[user]
            while own != block:
                there = free[own]
                free[own] = there + 1
                next_user, next_item = users[there], items[there]
                users[there], items[there] = user - bounds[own], item
                user, item = next_user, next_item
                own = block_of[user]
            users[here], items[here] = user - bounds[block], item
            free[block] = here + 1


def _sort_block(users, items, n_items, indptr, ends):
    """Sort a block's pairs by user and item, and drop repeated pairs; `items` (in and out) then holds the rows.

    `indptr` and `ends` are those of the block's users. `ends` (out) says where each row ends. Pairs arrive at a row in
    ascending order of items, so a repeated pair equals the last entry of its row.
    """
    size = len(users)
    if size == 0:
        return
    base = indptr[0]
    # First counting sort: users in ascending order of their items.
    starts = np.zeros(n_items + 1, dtype=np.int32)
    for k in range(size):
        starts[items[k] + 1] += 1
    for item in range(n_items):
        starts[item + 1] += starts[item]
    # After this loop by_item[starts[j]:starts[j + 1]] are the users of item j, so `items` may be overwritten.
    by_item = np.empty_like(users)
    places = starts[:-1].copy()
    for k in range(size):
        item = items[k]
        by_item[places[item]] = users[k]
        places[item] += 1
    for item in range(n_items):
        for k in range(starts[item], starts[item + 1]):
            user = by_item[k]
            # Append the item to the user's row, unless it is there: equal items come one after the other.
            end = ends[user]
            if end == indptr[user] or items[end - 1 - base] != item:
                items[end - base] = item
                ends[user] = end + 1


def _close_gaps(indptr, ends, indices):
    """Move the rows together to close the gaps that repeated pairs left.   in and out: indptr, indices"""
    at = 0
    for user in range(len(ends)):
        start = indptr[user]
        indptr[user] = at
        for k in range(start, ends[user]):
            indices[at] = indices[k]
            at += 1
    indptr[len(ends)] = at


count = kernel(_count)
deal = kernel(_deal_pairs)
gather = kernel(_gather_pairs)
sort_block = kernel(_sort_block)
close_gaps = kernel(_close_gaps)
