"""Weak generalisation: every user is trained on, and part of what each did is held out."""

from __future__ import annotations

import numpy as np

from fairmf.errors import InvalidParameter
from fairmf.interactions import Events, Interactions
from fairmf.splitting.assembly import build_matrix, events_of, positions_in
from fairmf.splitting.checks import check_seed, check_share
from fairmf.splitting.draw import draw_parts
from fairmf.splitting.split import HeldOut, Split


def split_by_interaction(data: Events | Interactions, *, target_share: float = 0.2, random_state: int = 0) -> Split:
    """Hold out floor(target_share * k) of each user's k items for validation and as many others for test.

    Users with fewer than five items keep all in train. Items that no user has in train are dropped from the
    targets and from the catalogue. All users are rows of both held-out sets, with train as their history
    (`known_users=True`): an item held out for validation may still be recommended when test is scored.
    """
    check_share("split_by_interaction", "target_share", target_share)
    check_seed("split_by_interaction", random_state)
    if target_share >= 0.5:
        raise InvalidParameter(
            "The 'target_share' parameter of split_by_interaction is held out twice, for validation "
            f"and for test, and must be below 0.5. Got {target_share!r} instead."
        )
    events = events_of(data).without_duplicates()
    users = np.unique(events.users).astype(np.int64)
    place = positions_in(users, len(events.user_ids))[events.users]
    part = draw_parts(place, target_share, 2, np.random.default_rng(random_state))
    items = np.unique(events.items[part == 0]).astype(np.int64)
    item_place = positions_in(items, len(events.item_ids))[events.items]
    part[item_place < 0] = -1
    user_ids, item_ids = events.user_ids.take(users), events.item_ids.take(items)

    def matrix(number: int) -> Interactions:
        rows = part == number
        weights = events.weights[rows] if number == 0 and events.weights is not None else None
        sizes = len(users), len(items)
        return build_matrix(
            place[rows], item_place[rows], *sizes, weights=weights, user_ids=user_ids, item_ids=item_ids
        )

    train = matrix(0)
    return Split(train, HeldOut(train, matrix(1), True), HeldOut(train, matrix(2), True), "by_interaction")
