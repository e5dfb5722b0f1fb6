"""Split the events of known users: hold out some interactions of everybody, or all interactions of some items.

The model is trained on every user, and part of each user's history is held out (weak generalisation).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.events import Events
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Method, Split, events_of, matrix_of, positions_in, times_of, wanted
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.params import check_seed, check_share

FEWEST_ITEMS = 5  # users with fewer items have none held out


def draw_parts(users: NDArray[np.integer], share: float, n_parts: int, key: NDArray[Any]) -> NDArray[np.int8]:
    """Return the part of every row: 1..n_parts for floor(share * k) of a user's k rows each, 0 for all others.

    A user's rows are taken in the order of `key`: random numbers draw them. Users with fewer than five rows have all of
    them in part 0.
    """
    # One sort for all users orders each user's rows; the first `each` rows go to part 1, and so on.
    order = np.lexsort((key, users))
    _, start, counts = np.unique(users[order], return_index=True, return_counts=True)
    each = np.where(counts >= FEWEST_ITEMS, np.floor(share * counts), 0).astype(np.int64)
    # Number of each row among its user's rows, from 0, in that order.
    rank = np.arange(len(users)) - np.repeat(start, counts)
    number = rank // np.maximum(np.repeat(each, counts), 1) + 1
    held_out = (number <= n_parts) & (np.repeat(each, counts) > 0)
    parts = np.zeros(len(users), dtype=np.int8)
    parts[order] = np.where(held_out, number, 0)
    return parts


def split_by_interaction(
    data: Events | Interactions, *, target_share: float = 0.2, random_state: int = 0, recency: bool = False
) -> Split:
    """Hold out floor(target_share * k) of each user's k items for validation and as many others for test.

    Users with fewer than five items keep all of them in train. Items that no user has in train are dropped from the
    targets and from the catalogue. Both held-out sets have all users as rows, with train as their history
    (`known_users=True`), so an item that was held out for validation may be recommended when test is scored. Dislikes
    are never targets.

    Parameters
    ----------
    data : Events or Interactions
    target_share : float
        Share of a user's items that are targets of validation, and as many others of test: above 0 and below 0.5.
    random_state : int
        Seed of the draw; `recency` draws nothing.
    recency : bool
        Hold out each user's newest items for test and those before them for validation, instead of random ones. Needs
        Events with times; among equal times the later row counts as newer.

    Returns
    -------
    Split

    Raises
    ------
    InvalidParameter
        If the share or the seed is out of range.
    InvalidData
        If `recency` is asked of data without times.

    Examples
    --------
    >>> from fairmf import synthetic
    >>> split_by_interaction(synthetic(n_users=60, n_items=50, n_interactions=900)).test.known_users
    True
    """
    check_held_twice("split_by_interaction", "target_share", target_share)
    check_seed("split_by_interaction", random_state)
    # Otherwise a repeated pair could be in train and in the targets.
    events = events_of(data).without_duplicates()
    users = np.unique(events.users).astype(np.int64)
    place = positions_in(users, len(events.user_ids))[events.users]
    if recency:
        # Newest first, the later row first among equal times: parts 1 and 2 are test and validation.
        newest = np.empty(len(events), dtype=np.int64)
        newest[np.lexsort((np.arange(len(events)), times_of(events, "recency=True")))[::-1]] = np.arange(len(events))
        part = np.array([0, 2, 1], dtype=np.int8)[draw_parts(place, target_share, 2, newest)]
    else:
        part = draw_parts(place, target_share, 2, np.random.default_rng(random_state).random(len(events)))
    items = np.unique(events.items[part == 0]).astype(np.int64)
    part[positions_in(items, len(events.item_ids))[events.items] < 0] = -1  # belongs to no matrix
    return KnownUsers(events, users, items, part).split("by_interaction")


def split_by_item(
    data: Events | Interactions, *, cold_share: float = 0.1, target_share: float = 0.1, random_state: int = 0
) -> Split:
    """Hold out all interactions of some items (cold items), and some interactions of all others.

    It tests what a model does with items that nobody has touched: fit it with `item_features`. Cold items stay in the
    catalogue of every part. Both held-out sets have all users as rows, with train as their history.

    Parameters
    ----------
    data : Events or Interactions
    cold_share : float
        Share of the items that are cold for validation, and as many others for test: above 0 and below 0.5.
    target_share : float
        The same for the interactions with all other items.
    random_state : int
        Seed of both draws.

    Returns
    -------
    Split

    Raises
    ------
    InvalidParameter
        If a share or the seed is out of range.
    InvalidData
        If there are too few items.

    Examples
    --------
    >>> from fairmf import split_by_item, synthetic
    >>> split = split_by_item(synthetic(n_users=60, n_items=50, n_interactions=900))
    >>> int((split.train.by_item.sums() == 0).sum())
    10
    """
    check_held_twice("split_by_item", "cold_share", cold_share)
    check_held_twice("split_by_item", "target_share", target_share)
    check_seed("split_by_item", random_state)
    events = events_of(data).without_duplicates()
    users, items = (np.unique(codes).astype(np.int64) for codes in (events.users, events.items))
    item = positions_in(items, len(events.item_ids))[events.items]
    count = int(cold_share * len(items))
    if count == 0:
        raise InvalidData(f"A cold share of {cold_share:g} of {len(items):,} items is less than one item.")
    random = np.random.default_rng(random_state)
    drawn = random.permutation(len(items))
    part_of_item = np.zeros(len(items), dtype=np.int8)
    part_of_item[drawn[:count]], part_of_item[drawn[count : 2 * count]] = 1, 2
    chance = random.random(len(item))
    part = np.where(chance < target_share, 1, np.where(chance < 2 * target_share, 2, 0)).astype(np.int8)
    # An item whose every interaction was drawn would be cold as well: it keeps them all.
    left = np.bincount(item[part == 0], minlength=len(items))
    part[(left == 0)[item]] = 0
    part = np.where(part_of_item[item] > 0, part_of_item[item], part).astype(np.int8)
    return KnownUsers(events, users, items, part).split("by_item")


class KnownUsers(NamedTuple):
    """Say which part every event belongs to, in a split that holds out some interactions of known users.

    `users` and `items` are the codes that rows and columns stand for; `part` is 0 for train, 1 for validation, 2 for
    test and -1 for none of them.
    """

    events: Events
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    part: NDArray[np.int8]

    def split(self, method: Method) -> Split:
        """Return the split: both held-out sets have all users as rows, with train as their history."""
        events, users, items, part = self
        train = matrix_of(events, part == 0, users, items, weighted=True)
        targets = (matrix_of(events, (part == k) & wanted(events), users, items, weighted=False) for k in (1, 2))
        validation, test = (HeldOut(train, each, True) for each in targets)
        return Split(train, validation, test, method)


def check_held_twice(owner: str, name: str, share: float) -> None:
    """Raise InvalidParameter unless a share can be held out for validation and again for test."""
    check_share(owner, name, share)
    if share >= 0.5:
        raise InvalidParameter(
            f"The '{name}' parameter of {owner} is held out twice, for validation and for test, and must be below 0.5. "
            f"Got {share!r} instead."
        )
