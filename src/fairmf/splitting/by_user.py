"""Strong generalisation: whole users are held out, and part of what they did is shown to the model.

`protocol="public"` repeats, bit for bit, the preprocessing of Liang et al. (2018) that the published numbers
on MovieLens-20M and the Million Song Dataset rest on (docs/splitting.md lists its steps). `protocol="seeded"`
has the same shape with a seed and a share of your choice.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions import Events, Interactions
from fairmf.splitting.assembly import ascending, build_matrix, events_of, first_appearance, positions_in
from fairmf.splitting.checks import check_count, check_seed, check_share
from fairmf.splitting.draw import FEWEST_ITEMS, draw_parts
from fairmf.splitting.split import HeldOut, Split

PUBLIC_SEED = 98765
PUBLIC_SHARE = 0.2


def split_by_user(
    data: Events | Interactions,
    heldout: int,
    *,
    min_user: int = 5,
    min_item: int = 0,
    rating_above: float | None = None,
    protocol: Literal["public", "seeded"] = "public",
    target_share: float = PUBLIC_SHARE,
    random_state: int = 0,
) -> Split:
    """Hold out `heldout` users for validation and as many for test.

    Items with fewer than `min_item` users are dropped first, then users with fewer than `min_user` items.
    With `rating_above` the weights are ratings: rows at or below it are dropped and the rest counts as 1. Of
    a repeated (user, item) pair the first row counts: otherwise an item could be both shown and asked for.

    "public" needs Events, because it depends on the order of the file's rows, fixes the seed and the share,
    and makes binary matrices. "seeded" also takes Interactions, keeps weights, and uses `target_share` and
    `random_state`.
    """
    check_count("split_by_user", "heldout", heldout, 1)
    check_share("split_by_user", "target_share", target_share)
    check_seed("split_by_user", random_state)
    if protocol not in ("public", "seeded"):
        raise InvalidParameter(
            f"The 'protocol' parameter of split_by_user must be 'public' or 'seeded'. Got {protocol!r} instead."
        )
    if protocol == "public":
        _check_public(data, target_share, random_state)
    events = _kept(events_of(data), min_user, min_item, rating_above)
    users = np.unique(events.users).astype(np.int64)
    if 2 * heldout >= len(users):
        raise InvalidData(
            f"heldout={heldout:,} users each for validation and test leaves nobody to train on: "
            f"{len(users):,} users remain after the filters (min_user={min_user}, min_item={min_item})."
        )
    if protocol == "public":
        return _public(events, ascending(events.user_ids, users), heldout)
    return _seeded(events, users, heldout, target_share, np.random.default_rng(random_state), rating_above is None)


def _check_public(data: Events | Interactions, target_share: float, random_state: int) -> None:
    if isinstance(data, Interactions):
        raise InvalidData(
            "The public protocol depends on the order of the file's rows, which Interactions no longer has. "
            "Pass Events, or use protocol='seeded'."
        )
    if target_share != PUBLIC_SHARE or random_state != 0:
        raise InvalidParameter(
            "The public protocol fixes target_share and the seed; use protocol='seeded' to choose them."
        )


def _kept(events: Events, min_user: int, min_item: int, rating_above: float | None) -> Events:
    check_count("split_by_user", "min_user", min_user, 0)
    check_count("split_by_user", "min_item", min_item, 0)
    if rating_above is not None:
        if events.weights is None:
            raise InvalidData("rating_above was given, but the events have no weights to compare it with.")
        events = events.select(events.weights > rating_above)
    return events.without_duplicates().at_least(min_user, min_item)


def _public(events: Events, users: NDArray[np.int64], heldout: int) -> Split:
    # RandomState is the generator behind np.random.seed; a private one leaves the caller's global state
    # alone.
    permuted = users[np.random.RandomState(PUBLIC_SEED).permutation(len(users))]
    train, validation, test = np.split(permuted, [len(users) - 2 * heldout, len(users) - heldout])
    in_train = positions_in(train, len(events.user_ids))[events.users] >= 0
    items, _ = first_appearance(events.items[in_train], len(events.item_ids))
    return Split(
        _matrix(events, in_train, train, items, weighted=False),
        _public_part(events, validation, items),
        _public_part(events, test, items),
        "by_user",
    )


def _public_part(events: Events, part: NDArray[np.int64], items: NDArray[np.int64]) -> HeldOut:
    rows = _rows_of(events, part, items)
    # The public code goes through users by ascending id, so that is the order in which random numbers are
    # used up.
    order = ascending(events.user_ids, np.unique(events.users[rows]).astype(np.int64))
    by_user = rows[np.argsort(positions_in(order, len(events.user_ids))[events.users[rows]], kind="stable")]
    counts = np.bincount(events.users[rows], minlength=len(events.user_ids))[order]
    random = np.random.RandomState(PUBLIC_SEED)
    is_target = np.zeros(len(by_user), dtype=bool)
    start = 0
    for k in counts.tolist():
        if k >= FEWEST_ITEMS:
            # int(0.2 * k) in floating point, as published.
            is_target[start + random.choice(k, size=int(PUBLIC_SHARE * k), replace=False)] = True
        start += k
    return _held_out(events, by_user, is_target, part, items, weighted=False)


def _seeded(
    events: Events,
    users: NDArray[np.int64],
    heldout: int,
    share: float,
    random: np.random.Generator,
    weighted: bool,
) -> Split:
    permuted = random.permutation(users)
    train, validation, test = np.split(permuted, [len(users) - 2 * heldout, len(users) - heldout])
    in_train = positions_in(train, len(events.user_ids))[events.users] >= 0
    items = np.unique(events.items[in_train]).astype(np.int64)
    parts = []
    for part in (validation, test):
        rows = _rows_of(events, part, items)
        is_target = draw_parts(events.users[rows], share, 1, random) == 1
        parts.append(_held_out(events, rows, is_target, part, items, weighted=weighted))
    return Split(_matrix(events, in_train, train, items, weighted=weighted), parts[0], parts[1], "by_user")


def _rows_of(events: Events, part: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row numbers, in file order, of these users with these items."""
    user_in = positions_in(part, len(events.user_ids)) >= 0
    item_in = positions_in(items, len(events.item_ids)) >= 0
    return np.flatnonzero(user_in[events.users] & item_in[events.items])


def _held_out(
    events: Events,
    rows: NDArray[np.int64],
    is_target: NDArray[np.bool_],
    part: NDArray[np.int64],
    items: NDArray[np.int64],
    *,
    weighted: bool,
) -> HeldOut:
    fold_in = _matrix(events, rows[~is_target], part, items, weighted=weighted)
    return HeldOut(fold_in, _matrix(events, rows[is_target], part, items, weighted=False))


def _matrix(
    events: Events,
    rows: NDArray[np.int64] | NDArray[np.bool_],
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    *,
    weighted: bool,
) -> Interactions:
    """Rows of the event list as a matrix whose row k is users[k] and whose column k is items[k]."""
    return build_matrix(
        positions_in(users, len(events.user_ids))[events.users[rows]],
        positions_in(items, len(events.item_ids))[events.items[rows]],
        len(users),
        len(items),
        weights=events.weights[rows] if weighted and events.weights is not None else None,
        user_ids=events.user_ids.take(users),
        item_ids=events.item_ids.take(items),
    )
