"""FairRec as it is told, on a dense matrix of scores: one user and one item at a time."""

import math
from fractions import Fraction

import numpy as np


def best_item(scores, user, forbidden, allowed):
    """The best-scored item that is allowed and not forbidden, the lower index first; None if there is none."""
    best = None
    for item in range(scores.shape[1]):
        if allowed(item) and item not in forbidden and (best is None or scores[user, item] > scores[user, best]):
            best = item
    return best


def fair_rec(scores, K, share, excluded, random_state):
    """Lists in the order of allocation, and ell. `excluded` holds a set of items for every user."""
    n, m = scores.shape
    K = min(K, m)
    ell = max(1, math.floor(Fraction(str(share)) * K * n / m))
    order = np.random.default_rng(random_state).permutation(n).tolist()
    stock = [ell] * m
    lists = [[] for _ in range(n)]
    rounds, last = 0, None  # how many rounds were begun, and who took last
    going = sum(stock) > 0
    while going:
        going = False
        rounds += 1
        for user in order:
            if sum(stock) == 0:
                going = False
                break
            if len(lists[user]) == K:
                continue
            item = best_item(scores, user, excluded[user] | set(lists[user]), lambda j: stock[j] > 0)
            if item is not None:
                lists[user].append(item)
                stock[item] -= 1
                going, last = True, user
    if last is not None:  # a broken round: those who came after the last one are one short, and go next
        for user in order[order.index(last) + 1 :]:
            if len(lists[user]) == rounds - 1 and len(lists[user]) < K:
                item = best_item(scores, user, excluded[user] | set(lists[user]), lambda j: True)
                if item is not None:
                    lists[user].append(item)
    for user in order:
        while len(lists[user]) < K:
            item = best_item(scores, user, excluded[user] | set(lists[user]), lambda j: True)
            if item is None:
                break
            lists[user].append(item)
    return lists, ell
