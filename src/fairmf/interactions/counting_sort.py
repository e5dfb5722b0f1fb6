"""Rows out of many pairs by two counting sorts, in compiled code: by item, then by user, so that rows come sorted.

Takes 8 bytes a pair beside the pairs; a comparison sort would take as much and several times as long.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray


def distinct_pairs(
    users: NDArray[np.int32], items: NDArray[np.int32], shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and item indices of the rows of users; each pair once, indices ascending."""
    n_users, n_items = shape
    by_item, starts = np.empty(len(users), dtype=np.int32), np.zeros(n_items + 1, dtype=np.int64)
    sort_by_item(users, items, starts, by_item)
    indptr = np.zeros(n_users + 1, dtype=np.int64)
    ends = np.empty(n_users, dtype=np.int64)
    indices = np.empty(len(users), dtype=np.int32)
    deal_to_users(by_item, starts, indptr, ends, indices)
    del by_item
    close_gaps(indptr, ends, indices)
    # Shrinks where it is: nobody else has seen this array.
    indices.resize(int(indptr[-1]), refcheck=False)
    return indptr, indices


def _sort_by_item(users, items, starts, by_item):  # type: ignore[no-untyped-def]
    """The users of every item (out), and where each item's begin (out)."""
    offset_counts(items, starts)
    place = starts[:-1].copy()
    for k in range(len(items)):
        item = items[k]
        by_item[place[item]] = users[k]
        place[item] += 1


def _offset_counts(codes, offsets):  # type: ignore[no-untyped-def]
    """Where each code's entries begin (out) once they are sorted."""
    for k in range(len(codes)):
        offsets[codes[k] + 1] += 1
    for code in range(len(offsets) - 1):
        offsets[code + 1] += offsets[code]


def _deal_to_users(by_item, starts, indptr, ends, indices):  # type: ignore[no-untyped-def]
    """Items in ascending order to their users: a repeated pair is the one that came last. `ends` (out) says how far."""
    offset_counts(by_item, indptr)
    ends[:] = indptr[:-1]
    for item in range(len(starts) - 1):
        for k in range(starts[item], starts[item + 1]):
            user = by_item[k]
            end = ends[user]
            if end == indptr[user] or indices[end - 1] != item:
                indices[end] = item
                ends[user] = end + 1


def _close_gaps(indptr, ends, indices):  # type: ignore[no-untyped-def]
    """Move the rows together over the places that repeated pairs have left."""
    at = 0
    for user in range(len(ends)):
        start = indptr[user]
        indptr[user] = at
        for k in range(start, ends[user]):
            indices[at] = indices[k]
            at += 1
    indptr[len(ends)] = at


offset_counts: Any = numba.njit(cache=True, nogil=True)(_offset_counts)
sort_by_item: Any = numba.njit(cache=True, nogil=True)(_sort_by_item)
deal_to_users: Any = numba.njit(cache=True, nogil=True)(_deal_to_users)
close_gaps: Any = numba.njit(cache=True, nogil=True)(_close_gaps)
