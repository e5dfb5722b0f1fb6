"""Random lists and held-out users for the tests of metrics, and a model that hands out lists it was given."""

from __future__ import annotations

import numpy as np

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut


def matrix(rows, n_items, item_ids=None):
    indptr = np.concatenate(([0], np.cumsum([len(r) for r in rows]))).astype(np.int64)
    indices = np.array([j for r in rows for j in sorted(r)], dtype=np.int32)
    return Interactions(Rows(indptr, indices, None), n_items, None, None if item_ids is None else Ids(item_ids))


class Fixed:
    """A model whose lists are known beforehand; it yields them in blocks of `block` users."""

    def __init__(self, lists, n_items, block=3):
        self.lists, self.n_items, self.block, self.calls = np.asarray(lists, dtype=np.int32), n_items, block, []

    def rank(self, history, N, *, known_users=False, **options):
        self.calls.append({"history": history, "N": N, "known_users": known_users, **options})
        for first in range(0, len(self.lists), self.block):
            yield first, self.lists[first : first + self.block, :N]


def random_case(seed, n_users=12, n_items=15, length=8):
    """Lists with empty slots at the end, targets (some users without), popularity with ties."""
    random = np.random.default_rng(seed)
    lists = np.full((n_users, length), -1, dtype=np.int32)
    targets = []
    for i in range(n_users):
        k = random.integers(0, min(length, n_items) + 1)
        lists[i, :k] = random.permutation(n_items)[:k]
        targets.append(set(random.permutation(n_items)[: random.integers(0, min(6, n_items + 1))].tolist()))
    train = [random.permutation(n_items)[: random.integers(0, n_items // 2 + 1)].tolist() for _ in range(6)]
    return lists, targets, train


def held_out_of(targets, n_items, item_ids=None):
    nothing = matrix([[] for _ in targets], n_items, item_ids)
    return HeldOut(nothing, matrix(targets, n_items, item_ids))
