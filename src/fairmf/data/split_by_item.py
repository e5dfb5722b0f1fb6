"""Split events by item: hold out all interactions of some items, as if these were new, and some of all others."""

from __future__ import annotations

import numpy as np

from fairmf.data.events import Events
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split, build_matrix, events_of, positions_in
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.params import check_seed, check_share


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
        Share of the interactions with all other items that are targets of validation, and as many others of test.
    random_state : int

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
    for name, share in (("cold_share", cold_share), ("target_share", target_share)):
        check_share("split_by_item", name, share)
        if share >= 0.5:
            raise InvalidParameter(
                f"The '{name}' parameter of split_by_item is held out twice, for validation and for test, and must be "
                f"below 0.5. Got {share!r} instead."
            )
    check_seed("split_by_item", random_state)
    events = events_of(data).without_duplicates()
    users, items = (np.unique(codes).astype(np.int64) for codes in (events.users, events.items))
    user = positions_in(users, len(events.user_ids))[events.users]
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
    part = np.where(part_of_item[item] > 0, part_of_item[item], part)
    user_ids, item_ids = events.user_ids.take(users), events.item_ids.take(items)

    def matrix(number: int) -> Interactions:
        rows = part == number
        weights = events.weights[rows] if number == 0 and events.weights is not None else None
        sizes = len(users), len(items)
        return build_matrix(user[rows], item[rows], *sizes, weights=weights, user_ids=user_ids, item_ids=item_ids)

    train = matrix(0)
    return Split(train, HeldOut(train, matrix(1), True), HeldOut(train, matrix(2), True), "by_item")
