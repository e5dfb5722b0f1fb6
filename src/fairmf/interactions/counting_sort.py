"""Rows out of many pairs by two counting sorts, in compiled code: by item, then by user, so that rows come sorted.

Takes 8 bytes a pair beside the pairs; a comparison sort would take as much and several times as long.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

_MOST_THREADS = 4  # they wait for the memory more than they compute


def distinct_pairs(
    users: NDArray[np.int32], items: NDArray[np.int32], shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and item indices of the rows of users; each pair once, indices ascending."""
    n_users, n_items = shape
    starts, by_item = _sort_by_item(users, items, n_items, min(_MOST_THREADS, os.cpu_count() or 1))
    indptr = np.zeros(n_users + 1, dtype=np.int64)
    count(users, indptr[1:])
    np.cumsum(indptr, out=indptr)
    ends = indptr[:-1].copy()
    indices = np.empty(len(users), dtype=np.int32)
    deal_to_users(by_item, starts, indptr, ends, indices)
    del by_item
    close_gaps(indptr, ends, indices)
    # Shrinks where it is: nobody else has seen this array.
    indices.resize(int(indptr[-1]), refcheck=False)
    return indptr, indices


def _sort_by_item(
    users: NDArray[np.int32], items: NDArray[np.int32], n_items: int, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each item's users begin, and the users of item after item, in the order of the pairs.

    Each thread counts and places its own part of the pairs; the result does not depend on how many there are.
    """
    bounds = [len(users) * k // threads for k in range(threads + 1)]
    parts = [slice(*ends) for ends in itertools.pairwise(bounds)]
    counts = np.zeros((threads, n_items + 1), dtype=np.int64)
    by_item = np.empty(len(users), dtype=np.int32)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda k: count(items[parts[k]], counts[k, 1:]), range(threads)))
        starts = np.cumsum(counts.sum(axis=0))
        # Where a part's first pair with the item goes: after those of all parts before.
        places = starts[:-1] + np.cumsum(counts[:, 1:], axis=0) - counts[:, 1:]
        list(pool.map(lambda k: place(users[parts[k]], items[parts[k]], places[k], by_item), range(threads)))
    return starts, by_item


def _count(codes, totals):
    """Add to `totals` (out) how often each code occurs."""
    for k in range(len(codes)):
        totals[codes[k]] += 1


def _place(users, items, places, by_item):
    """Put each user (out) to the next place of the item."""
    for k in range(len(items)):
        item = items[k]
        by_item[places[item]] = users[k]
        places[item] += 1


def _deal_to_users(by_item, starts, indptr, ends, indices):
    """Items in ascending order to their users: a repeated pair is the one that came last. `ends` (out) says how far."""
    for item in range(len(starts) - 1):
        for k in range(starts[item], starts[item + 1]):
            user = by_item[k]
            end = ends[user]
            if end == indptr[user] or indices[end - 1] != item:
                indices[end] = item
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


count: Any = numba.njit(cache=True, nogil=True)(_count)
place: Any = numba.njit(cache=True, nogil=True)(_place)
deal_to_users: Any = numba.njit(cache=True, nogil=True)(_deal_to_users)
close_gaps: Any = numba.njit(cache=True, nogil=True)(_close_gaps)
