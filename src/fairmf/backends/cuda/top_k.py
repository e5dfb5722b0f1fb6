"""Find the k best items of every user: score blocks of users by a matrix product, select the best with top_k.cu."""

from __future__ import annotations

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, ItemScale
from fairmf.backends.cuda import launch, reductions
from fairmf.backends.cuda.memory import Placing
from fairmf.data.csr import Rows

SCORE_BYTES = 1 << 30  # memory for scores, or more: that of as many users as keep all of a device busy
BUSY = 2048
KEY_BYTES = 256 << 20  # memory for sort keys, for users with too many items of nearly the same score
MOST_ROOM = 8192  # candidates that a block of threads can hold


def top_k(
    placing: Placing,
    users: Factors,
    items: Factors,
    k: int,
    exclude: Rows | None,
    found: NDArray[np.int32],
    scores: NDArray[np.float32],
    dial: ItemScale | None = None,
) -> None:
    """Implement `Backend.top_k`."""
    n, items = len(users), placing.whole(items)
    scale, offset = ItemScale() if dial is None else dial
    if scale is not None:
        items = items * cp.asarray(scale)[:, None]
    if offset is not None:  # one more coordinate, which is 1 in every user's vector
        items = cp.ascontiguousarray(cp.hstack([items, cp.asarray(offset)[:, None]]))
    m, d = items.shape
    longest = cp.sqrt(reductions.squared_norms(placing, items).max())
    score_bytes = min(max(SCORE_BYTES, 4 * m * BUSY), placing.limit() // 8)
    at_once = int(np.clip(score_bytes // (4 * m), 1, 65536))
    block = cp.empty((min(at_once, n), m), dtype=cp.float32)
    for start in range(0, n, at_once):
        part = slice(start, min(start + at_once, n))
        own = block[: part.stop - part.start]
        these = cp.asarray(users[part])
        if offset is not None:
            these = cp.hstack([these, cp.ones((len(these), 1), dtype=these.dtype)])
        cp.matmul(these, items.T, out=own)
        # Bound on the rounding error of a float32 score: d products and sums, and the last rounding of the exact one.
        lengths = cp.sqrt(reductions.squared_norms(placing, these))
        errors = ((d + 2) * 2.0**-24 * lengths * longest + 1e-37).astype(cp.float32)
        barred = None
        if exclude is not None:
            rows = exclude.block(part.start, part.stop)
            barred = cp.asarray(rows.indptr), cp.asarray(rows.indices)
        best, values = _select(these, items, k, barred, errors, own)
        found[part], scores[part] = best.get(), values.get()


def _select(
    users: cp.ndarray,
    items: cp.ndarray,
    k: int,
    barred: tuple[cp.ndarray, cp.ndarray] | None,
    errors: cp.ndarray,
    scores: cp.ndarray,
) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the k best items and their scores. `barred` are the excluded items as indptr and indices."""
    n, (m, d) = len(users), items.shape
    best, values = cp.empty((n, k), dtype=cp.int32), cp.empty((n, k), dtype=cp.float32)
    offsets, indices = (np.uintp(0), np.uintp(0)) if barred is None else barred
    # Room for k candidates and 128 more within the rounding error, rounded up to a power of 2 for the sort.
    room = 1 << int(np.ceil(np.log2(k + 128)))
    late = np.arange(n, dtype=np.int32)
    if room <= MOST_ROOM:
        overflow = cp.empty(n, dtype=cp.int32)
        kernel = _kernel("select_best")
        if 8 * room > 32 << 10:
            kernel.max_dynamic_shared_size_bytes = 8 * room
        sizes = (np.int32(d), np.int32(m), np.int32(k), np.int32(room))
        kernel(
            (n,), (256,), (users, items, *sizes, offsets, indices, errors, scores, best, values, overflow),
            shared_mem=8 * room,
        )  # fmt: skip
        late = np.flatnonzero(overflow.get()).astype(np.int32)
    # Users with too many candidates for the kernel's memory.
    for first in range(0, len(late), max(1, KEY_BYTES // (8 * m))):
        chosen = cp.asarray(late[first : first + max(1, KEY_BYTES // (8 * m))])
        _sort_all(users, items, k, barred, chosen, best, values)
    return best, values


def _sort_all(
    users: cp.ndarray,
    items: cp.ndarray,
    k: int,
    barred: tuple[cp.ndarray, cp.ndarray] | None,
    chosen: cp.ndarray,
    best: cp.ndarray,
    values: cp.ndarray,
) -> None:
    """Write the lists of the chosen users: score every item exactly, and sort them all."""
    m, d = items.shape
    keys = cp.empty((len(chosen), m), dtype=cp.uint64)
    _kernel("exact_keys")((len(chosen),), (256,), (users, items, np.int32(d), np.int32(m), chosen, keys))
    if barred is not None:
        _kernel("bar_items")((len(chosen),), (256,), (*barred, np.int32(m), chosen, keys))
    keys = cp.ascontiguousarray(cp.sort(keys, axis=1)[:, ::-1])
    _kernel("unpack")((len(chosen),), (256,), (keys, np.int32(m), np.int32(k), chosen, best, values))


def _kernel(name: str) -> cp.RawKernel:
    return launch.kernel("top_k.cu", name, cp.cuda.Device().id)
