"""Rows out of many pairs, in compiled code: dealt into blocks of users, each of which is then sorted in the cache.

A block is sorted by item, then by user, so that rows come sorted; blocks are independent, so that threads share them.
Takes 8 bytes a pair beside the pairs; a comparison sort would take as much and several times as long.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.kernels import kernel
from fairmf.types import Array

_MOST_THREADS = 4  # they wait for the memory more than they compute
_PAIRS_PER_BLOCK = 1 << 18  # 2 MB: what is sorted stays in the cache
_MOST_BLOCKS = 256  # more streams than that and writing to them all is as slow as writing anywhere


def distinct_pairs(
    users: NDArray[np.int32], items: NDArray[np.int32], shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and item indices of the rows of users; each pair once, indices ascending."""
    n_users, n_items = shape
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    indptr = np.zeros(n_users + 1, dtype=np.int64)
    with ThreadPoolExecutor(threads) as pool:
        parts = _parts(len(users), threads)
        counts = np.zeros((threads, n_users), dtype=np.int64)
        list(pool.map(lambda k: count(users[parts[k]], counts[k]), range(threads)))
        np.cumsum(counts.sum(axis=0), out=indptr[1:])
        block_of, bounds = _blocks(indptr)
        first, second = _deal(users, items, parts, counts, block_of, bounds, pool)
        ends = indptr[:-1].copy()
        starts = indptr[bounds]

        def sort(block: int) -> None:
            own = slice(starts[block], starts[block + 1])
            rows = slice(bounds[block], bounds[block + 1])
            sort_block(first[own], second[own], n_items, indptr[rows], ends[rows])

        list(pool.map(sort, range(len(bounds) - 1)))
    indices = second
    close_gaps(indptr, ends, indices)
    # Shrinks where it is: nobody else has seen this array.
    indices.resize(int(indptr[-1]), refcheck=False)
    return indptr, indices


def _parts(size: int, threads: int) -> list[slice]:
    bounds = [size * k // threads for k in range(threads + 1)]
    return [slice(*ends) for ends in itertools.pairwise(bounds)]


def _blocks(indptr: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The block of every user, and the users with which blocks begin: neighbours with about as many pairs each."""
    total = int(indptr[-1])
    wanted = int(np.clip(total // _PAIRS_PER_BLOCK, 1, _MOST_BLOCKS))
    block_of = np.minimum(indptr[:-1] * wanted // max(total, 1), wanted - 1).astype(np.int32)
    begins = np.flatnonzero(np.diff(block_of, prepend=-1))
    return np.cumsum(np.diff(block_of, prepend=block_of[:1]) > 0, dtype=np.int32), np.append(begins, len(block_of))


def _deal(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    parts: list[slice],
    counts: NDArray[np.int64],
    block_of: NDArray[np.int32],
    bounds: NDArray[np.int64],
    pool: ThreadPoolExecutor,
) -> tuple[Array, NDArray[np.int32]]:
    """Users, counted from their block's first, and items of block after block, in the order of the pairs.

    Each thread deals its own part of the pairs.
    """
    blocks = len(bounds) - 1
    # Two bytes where that is enough: memory that is touched for the first time costs more than the dealing.
    kind = np.uint16 if np.diff(bounds).max(initial=0) <= 1 << 16 else np.int32
    sizes = np.stack([np.bincount(block_of, own, minlength=blocks) for own in counts]).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes.sum(axis=0))))[:-1]
    # Where a part's first pair of a block goes: after those of all parts before.
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
    """Put each pair (out) to the next place of its user's block."""
    for k in range(len(users)):
        block = block_of[users[k]]
        place = places[block]
        first[place], second[place] = users[k] - bounds[block], items[k]
        places[block] = place + 1


def _sort_block(users, items, n_items, indptr, ends):
    """Sort a block's pairs by user, then item, each once; `items` (in and out) then holds the rows of its users.

    `indptr` and `ends` are those of the block's users; `ends` (out) says how far each row goes: a repeated pair is the
    one that came last.
    """
    size = len(users)
    if size == 0:
        return
    base = indptr[0]
    starts = np.zeros(n_items + 1, dtype=np.int32)
    for k in range(size):
        starts[items[k] + 1] += 1
    for item in range(n_items):
        starts[item + 1] += starts[item]
    by_item = np.empty_like(users)
    places = starts[:-1].copy()
    for k in range(size):
        item = items[k]
        by_item[places[item]] = users[k]
        places[item] += 1
    for item in range(n_items):
        for k in range(starts[item], starts[item + 1]):
            user = by_item[k]
            end = ends[user]
            if end == indptr[user] or items[end - 1 - base] != item:
                items[end - base] = item
                ends[user] = end + 1


def _close_gaps(indptr, ends, indices):
    """Move the rows together over the places that repeated pairs have left."""
    at = 0
    for user in range(len(ends)):
        start = indptr[user]
        indptr[user] = at
        for k in range(start, ends[user]):
            indices[at] = indices[k]
            at += 1
    indptr[len(ends)] = at


count: Any = kernel(_count)
deal: Any = kernel(_deal_pairs)
sort_block: Any = kernel(_sort_block)
close_gaps: Any = kernel(_close_gaps)
