"""Assign users to items for synthetic data: every user and item gets its planned number of interactions, no pair twice.

There is a pool of users for each taste, and a last one for any taste; a user is in a pool once for each interaction
that is still to be assigned. Items take users from the pools one after the other, the most popular item first, because
it is the hardest to fill. The pools arrive shuffled: the kernels draw no random numbers.

Order of calls: `deal` fills most places, `fill` takes users of other tastes, `repair` swaps users for the last places.
"""

from __future__ import annotations

from fairmf.kernels import kernel


def _take(pool, heads, ends, which, wanted, out, position, marks, mark):
    """Move up to `wanted` users of a pool, who do not have the mark yet, to `out`; skipped users stay in the pool."""
    i = heads[which]
    while wanted > 0 and i < ends[which]:
        user = pool[i]
        if marks[user] != mark:
            marks[user] = mark
            out[position] = user
            position += 1
            wanted -= 1
            # Move the head's user to the place that became free, and drop the head: no shifting is needed.
            pool[i] = pool[heads[which]]
            heads[which] += 1
        i += 1
    return position


take = kernel(_take)


def _deal(order, starts, tastes, from_taste, pool, heads, ends, marks, out, filled):
    """Fill every item's part of `out` (out): `from_taste` users of its taste, the others from the last pool."""
    # The mark of a user is the item that was given last, so one array serves all items without clearing.
    anyone = len(heads) - 1
    for item in order:
        position, end = starts[item], starts[item + 1]
        taste = tastes[item]
        position = take(pool, heads, ends, taste, from_taste[item], out, position, marks, item)
        # If the last pool has too few new users, the pool of the taste gives more than planned.
        position = take(pool, heads, ends, anyone, end - position, out, position, marks, item)
        position = take(pool, heads, ends, taste, end - position, out, position, marks, item)
        filled[item] = position - starts[item]


def _fill(order, starts, pool, heads, ends, marks, out, filled):
    """Fill the places that are left in `out` (out) from one pool of all users that are left, whatever their taste."""
    for item in order:
        position, end = starts[item] + filled[item], starts[item + 1]
        if position == end:
            continue
        # Mark the users whom the item has already.
        for k in range(starts[item], position):
            marks[out[k]] = item
        position = take(pool, heads, ends, 0, end - position, out, position, marks, item)
        filled[item] = position - starts[item]


def _repair(items, users, candidates, starts, item_of, marks, out, filled):
    """Assign the last users: swap with a random other interaction, or else take any user who does not have the item."""
    n_users = len(marks)
    for k in range(len(items)):
        item, user = items[k], users[k]
        position = starts[item] + filled[item]
        for e in range(starts[item], position):
            marks[out[e]] = item
        filled[item] += 1
        if marks[user] != item:
            out[position] = user
            continue
        # The user has this item already. Look for an interaction (partner, other) such that user can take `other`
        # and partner can take this item.
        out[position] = -1
        for e in candidates[k]:
            other, partner = item_of[e], out[e]
            if e >= starts[other] + filled[other] or partner < 0 or marks[partner] == item:
                continue
            known = False
            for f in range(starts[other], starts[other] + filled[other]):
                known |= out[f] == user
            if not known:
                out[e] = user
                out[position] = partner
                break
        if out[position] < 0:
            # No swap was possible: any user without the item, though that user then has one interaction too many.
            partner = candidates[k, 0] % n_users
            while marks[partner] == item:
                partner = (partner + 1) % n_users
            out[position] = partner


deal = kernel(_deal)
fill = kernel(_fill)
repair = kernel(_repair)
