"""Find the N best items of every user by score, or by popularity for users without scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, ItemScale, ScoreWindow
from fairmf.data.csr import Rows
from fairmf.errors import InvalidData
from fairmf.params import check_count
from fairmf.types import Array

Lists = tuple[NDArray[np.int32], NDArray[np.float32]]


def top_n(
    backend: Backend,
    users: Array,
    items: Array,
    N: int,
    exclude: Rows | None = None,
    allowed: NDArray[np.integer] | None = None,
    dial: ItemScale | None = None,
    window: ScoreWindow | None = None,
) -> Lists:
    """Return the N best items by inner product, best first, ties to the lower item; missing slots are -1 and NaN.

    User i never gets an item in row i of `exclude`. With `allowed` (ascending, no repeats) only these items are ranked.
    With `dial`, scores are multiplied by each item's scale, and its offset is added. With `window`, lists need to be
    right only as far as it asks. Call it inside `backend.threads`.
    """
    lists, scores = empty_lists(len(users), N)
    if exclude is not None:
        check_exclusions(exclude, len(users), len(items))  # kernels do not check bounds
    if allowed is not None:
        exclude = None if exclude is None else restricted(exclude, allowed, len(items))
        items = items[allowed]
        dial = None if dial is None else ItemScale(*(None if part is None else part[allowed] for part in dial))
    k = min(N, len(items))
    if k == 0 or len(users) == 0:
        return lists, scores
    best, value = empty_lists(len(users), k)
    backend.top_k(backend.array(users), backend.array(items), k, exclude, best, value, dial, window)
    # A missing slot is -1, but allowed[-1] would be a real item.
    lists[:, :k] = best if allowed is None else np.where(best < 0, -1, allowed[best])
    scores[:, :k] = value
    return lists, scores


def popular_n(
    most_popular: NDArray[np.int32],
    n_users: int,
    N: int,
    exclude: Rows | None = None,
    allowed: NDArray[np.integer] | None = None,
) -> NDArray[np.int32]:
    """Return the first N of `most_popular` that each user may get; `exclude` and `allowed` as in `top_n`."""
    if allowed is not None:
        may = np.zeros(len(most_popular), dtype=bool)
        may[allowed] = True
        most_popular = most_popular[may[most_popular]]
    lists, _ = empty_lists(n_users, N)
    for i in range(n_users):
        barred = np.zeros(0, dtype=np.int32) if exclude is None else exclude.row(i)[0]
        first = most_popular[: N + len(barred)]  # enough even if all excluded items are among them
        first = first[~np.isin(first, barred)][:N] if len(barred) else first[:N]
        lists[i, : len(first)] = first
    return lists


def list_length(N: object, n_items: int, name: str = "N", owner: str = "") -> int:
    """Check N and limit it to the number of items: no more slots can be filled."""
    return min(check_count(owner, name, N), n_items)


def empty_lists(n_users: int, N: int) -> Lists:
    """Return lists in which every slot is missing: item -1, score NaN."""
    return np.full((n_users, N), -1, dtype=np.int32), np.full((n_users, N), np.nan, dtype=np.float32)


# -- exclusions: the items that a user must not get, as sparse rows, one per user -------------------------------------


def merged(first: Rows | None, second: Rows | None) -> Rows | None:
    """Return the union of two sets of rows, row by row; an item may be in both, and is then repeated."""
    if first is None or second is None:
        return second if first is None else first
    lengths = np.diff(first.indptr) + np.diff(second.indptr)
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    indices = np.empty(indptr[-1], dtype=np.int32)
    for rows, starts in ((first, indptr[:-1]), (second, indptr[:-1] + np.diff(first.indptr))):
        # Move every entry from its place in `rows` to its place in the merged row.
        shift = np.repeat(starts - rows.indptr[:-1], np.diff(rows.indptr))
        indices[np.arange(rows.nnz) + shift] = rows.indices
    return Rows(indptr, indices, None)


def restricted(rows: Rows, allowed: NDArray[np.integer], n_items: int) -> Rows:
    """Return the rows over `allowed` items only, renumbered: column c of the result is item allowed[c]."""
    place = np.full(n_items, -1, dtype=np.int32)
    place[allowed] = np.arange(len(allowed), dtype=np.int32)
    places = place[rows.indices]
    kept = places >= 0
    before = np.concatenate(([0], np.cumsum(kept)))
    return Rows(before[rows.indptr].astype(np.int64), places[kept], None)


def check_exclusions(exclude: Rows, n_users: int, n_items: int) -> None:
    """Raise InvalidData unless there is one row per user, of item positions."""
    if exclude.count != n_users:
        raise InvalidData(f"exclude must have one row per user: {n_users:,}. Got {exclude.count:,} instead.")
    if len(exclude.indices) and (exclude.indices.min() < 0 or exclude.indices.max() >= n_items):
        raise InvalidData(f"exclude holds item positions outside 0..{n_items - 1:,}.")


def first_allowed(
    items: NDArray[np.int32], scores: NDArray[np.float32], N: int, exclude: Rows | None, n_items: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the first N entries of every row that are neither -1 nor excluded; -1 and NaN where there are fewer."""
    allowed = items >= 0
    if exclude is not None:
        row = np.arange(exclude.count, dtype=np.int64)
        # One number per (user, item) pair, so that one `isin` serves all rows.
        hidden = np.repeat(row, np.diff(exclude.indptr)) * n_items + exclude.indices
        allowed &= ~np.isin(row[:, None] * n_items + items, hidden)
    # Number of allowed entries before each one: its place in the result.
    slot = np.cumsum(allowed, axis=1) - 1
    taken = allowed & (slot < N)
    rows = np.nonzero(taken)[0]
    best = np.full((len(items), N), -1, dtype=np.int32)
    value = np.full((len(items), N), np.nan, dtype=np.float32)
    best[rows, slot[taken]], value[rows, slot[taken]] = items[taken], scores[taken]
    return best, value
