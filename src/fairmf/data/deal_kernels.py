"""Dealing users to items so that both have the number of interactions they were promised, and no pair comes twice.

A pool holds one entry per interaction a user still has to get: of one taste, or of any (the last pool). Items take
their users from the pools one item after the other, the most popular first, as these are the hardest to place. All
randomness is in the arguments: the kernels themselves are deterministic.
"""

from __future__ import annotations

from typing import Any

from fairmf.kernels import kernel


def _take(pool, heads, ends, which, wanted, out, position, marks, mark):
    """Move up to `wanted` users without the mark from a pool to `out`; those passed over stay for the next item."""
    i = heads[which]
    while wanted > 0 and i < ends[which]:
        user = pool[i]
        if marks[user] != mark:
            marks[user] = mark
            out[position] = user
            position += 1
            wanted -= 1
            pool[i] = pool[heads[which]]
            heads[which] += 1
        i += 1
    return position


take = kernel(_take)


def _deal(order, starts, tastes, from_taste, pool, heads, ends, marks, out, filled):
    """Fill every item's part of `out`: `from_taste` users of its taste, the others from the last pool."""
    anyone = len(heads) - 1
    for item in order:
        position, end = starts[item], starts[item + 1]
        taste = tastes[item]
        position = take(pool, heads, ends, taste, from_taste[item], out, position, marks, item)
        position = take(pool, heads, ends, anyone, end - position, out, position, marks, item)
        position = take(pool, heads, ends, taste, end - position, out, position, marks, item)
        filled[item] = position - starts[item]


def _fill(order, starts, pool, heads, ends, marks, out, filled):
    """Fill what is still missing from one pool of everybody left, whatever their taste."""
    for item in order:
        position, end = starts[item] + filled[item], starts[item + 1]
        if position == end:
            continue
        for k in range(starts[item], position):
            marks[out[k]] = item
        position = take(pool, heads, ends, 0, end - position, out, position, marks, item)
        filled[item] = position - starts[item]


def _repair(items, users, candidates, starts, item_of, marks, out, filled):
    """Place the last ones: swap with a random other interaction, or else give the item to somebody else."""
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
            partner = candidates[k, 0] % n_users
            while marks[partner] == item:
                partner = (partner + 1) % n_users
            out[position] = partner


deal: Any = kernel(_deal)
fill: Any = kernel(_fill)
repair: Any = kernel(_repair)
