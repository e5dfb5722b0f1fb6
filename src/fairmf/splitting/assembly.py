"""From rows of events (parallel arrays) to the matrices of a split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Events, Ids, Interactions, Rows

Codes = NDArray[np.integer]


def build_matrix(
    users: Codes,
    items: Codes,
    n_users: int,
    n_items: int,
    *,
    weights: NDArray[np.float32] | None = None,
    user_ids: Ids | None = None,
    item_ids: Ids | None = None,
) -> Interactions:
    """The matrix with an entry at every (user, item) position given. The pairs must be distinct."""
    order = np.argsort(users.astype(np.int64) * n_items + items, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(users, minlength=n_users)))).astype(np.int64)
    values = None if weights is None else weights[order].astype(np.float32)
    rows = Rows(indptr, items[order].astype(np.int32), values)
    return Interactions(rows, n_items, user_ids, item_ids)


def first_appearance(codes: Codes, n_codes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct codes in order of first appearance, and each code's place in that list (-1 if absent)."""
    distinct, first = np.unique(codes, return_index=True)
    listed = distinct[np.argsort(first)].astype(np.int64)
    return listed, positions_in(listed, n_codes)


def positions_in(listed: NDArray[np.int64], n_codes: int) -> NDArray[np.int64]:
    """For every code 0..n_codes-1 its place in `listed`, -1 where it is not there."""
    place = np.full(n_codes, -1, dtype=np.int64)
    place[listed] = np.arange(len(listed))
    return place


def events_of(data: Events | Interactions) -> Events:
    """Events as they are; a matrix is read user by user, items ascending."""
    if isinstance(data, Events):
        return data
    if not isinstance(data, Interactions):
        raise InvalidData(f"A split needs Events or Interactions. Got {type(data).__name__} instead.")
    rows = data.by_user
    users = np.repeat(np.arange(rows.count, dtype=np.int32), np.diff(rows.indptr))
    # A matrix without ids is named by position, so that a split can still say which row went where.
    user_ids = Ids(np.arange(data.n_users)) if data.user_ids is None else data.user_ids
    item_ids = Ids(np.arange(data.n_items)) if data.item_ids is None else data.item_ids
    return Events(users, rows.indices, user_ids, item_ids, rows.weights, None)


def ascending(ids: Ids, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The codes, sorted by the ids they stand for."""
    values = ids.values[codes]
    try:
        return codes[np.argsort(values, kind="stable")]
    except TypeError:
        kinds = sorted({type(v).__name__ for v in values.tolist()})
        raise InvalidData(
            f"The public protocol sorts the user ids, and these cannot be compared: they are of kinds "
            f"{', '.join(kinds)}. Give ids of one kind, or use protocol='seeded'."
        ) from None
