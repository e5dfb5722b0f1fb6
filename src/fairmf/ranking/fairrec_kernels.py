"""Let users take turns and items run out of stock: the sequential part of FairRec, on integers only.

Every user has a chunk of candidates, best first, and a position in it. Stock only falls, so positions never move back.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel


@kernel
def used_up(users, candidates, position, stock, used):
    """Find the users who have no candidate left that is in stock.   in: all but the last   out: used"""
    width = candidates.shape[1]
    for row, user in enumerate(users):
        used[row] = True
        for c in range(position[user], width):
            item = candidates[user, c]
            if item >= 0 and stock[item] > 0:
                used[row] = False
                break


@kernel
def take_turns(order, start, stop, candidates, complete, position, stock, left, lists, taken, finished):
    """Give each of the users order[start:stop] one turn, in which the first candidate in stock is taken.

    Stop early if the stock is gone, or before a user who needs new candidates: the chunk is used up, and did not hold
    all items that the user could take (`complete`). Return the place in `order` where it stopped, and the copies left.
    in: order .. complete   in and out: position, stock, lists, taken, finished
    """
    width, most = candidates.shape[1], lists.shape[1]
    for place in range(start, stop):
        user = order[place]
        if finished[user]:
            continue
        c = position[user]
        while c < width and candidates[user, c] >= 0 and stock[candidates[user, c]] == 0:
            c += 1
        position[user] = c
        if c == width or candidates[user, c] < 0:
            if not complete[user]:
                return place, left
            finished[user] = True  # for good: an item that is out of stock stays so
            continue
        item = candidates[user, c]
        position[user] = c + 1
        stock[item] -= 1
        left -= 1
        lists[user, taken[user]] = item
        taken[user] += 1
        finished[user] = taken[user] == most
        if left == 0:
            return place + 1, left
    return stop, np.int64(left)
