"""Make lists of K items with FairRec (Patro et al. 2020), which guarantees every item a minimum exposure.

With n users and m items, every item starts with ell = max(1, floor(share K n / m)) copies in stock. Exposure comes in
whole users: the paper's floor alone gives 0 copies for small shares, that is plain top-K under the name of a guarantee.
With fewer places K n than items, not even one user per item can be guaranteed, and FairRec refuses
(docs/decisions/0020-whole-users.md).

1. Users take turns in a seeded random order. Each takes the best item that it may have and that is in stock, until the
   stock is gone or nobody can take an item.
2. Users fill their lists with the best items that they may have, in stock or not. Here users do not affect each other,
   so the paper's rule that those who took one item fewer in phase 1 go first changes nothing.

Scores are compared but not multiplied, so they may be negative.

Memory is O(n K + n CHUNK): users are scored in blocks against the items in stock, and CHUNK candidates each are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.params import check_number, check_seed
from fairmf.ranking.top_n import check_exclusions, empty_lists, list_length
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.ranking import fairrec_kernels
else:
    fairrec_kernels = lazy_module("fairmf.ranking.fairrec_kernels")  # imports Numba

CHUNK = 32  # candidates kept per user; with more, users are scored less often, but selecting them takes longer
MOST_AHEAD = 4096  # users whose candidates are found at once
ORDERS = ("score", "allocation")
EXCLUDED = "fewer users may be given it than it is owed"
FULL = "every user who may be given it had it, or a full list"


@dataclass(frozen=True)
class FairLists:
    """Hold lists of item positions (-1 if missing), their scores (NaN), and the exposure that items got."""

    items: NDArray[np.int32]
    scores: NDArray[np.float32]
    certificate: Certificate


@dataclass(frozen=True)
class RunOptions:
    """Say from which seed and where FairRec runs; what it allocates are the arguments of `fair_rec`."""

    random_state: int | None = 0
    """Seed of the users' order in phase 1: the same seed gives the same lists."""
    backend: str = "cpu"
    """The backend that runs the arithmetic."""
    num_threads: int = 0
    """On how many threads; 0: on all cores. Lists are the same for any number."""


def fair_rec(
    users: Array,
    items: Array,
    K: int,
    share: float,
    *,
    exclude: Rows | None = None,
    offsets: Array | None = None,
    order: str = "score",
    run: RunOptions | None = None,
) -> FairLists:
    """Run FairRec on the scores users . items (+ offsets).

    A list has min(K, items) places. Of items with equal scores, the one with the lower position comes first.

    Parameters
    ----------
    users, items
        Vectors as rows.
    K
        Length of the lists.
    share
        Guaranteed exposure of an item, as a share of the uniform exposure K n / m; above 0, at most 1. It is rounded
        down to whole users, but to one user at least.
    exclude
        Row i holds the positions that user i must not get.
    offsets
        One number per item that is added to its scores.
    order
        "score" sorts every list by score, "allocation" keeps the order in which items were allocated.
    run
        The seed, and where arithmetic runs; by default seed 0, on all cores of the CPU.

    Returns
    -------
    FairLists
        Lists, scores, and a certificate of the exposure that items got.

    Raises
    ------
    InvalidParameter
        If there are fewer places in all lists than items, or an argument is out of its range.
    """
    U, V = _check_vectors(users, items, offsets)
    n, m = len(U), len(V)
    K = list_length(K, m, "K", "fair_rec")
    run = RunOptions() if run is None else run
    _check_choices(order, run.random_state)
    if exclude is not None:
        check_exclusions(exclude, n, m)
    engine = get_backend(run.backend)
    with engine.threads(run.num_threads):
        allocation = _Allocation(engine, engine.array(U), engine.array(V), K, exclude)
        ell = minimum_exposure(share, K, n, m)
        if ell > 0:
            allocation.share_stock(ell, np.random.default_rng(run.random_state).permutation(n))
        allocation.fill_up()
    lists = allocation.lists
    scores = np.full((n, K), np.nan, dtype=np.float32)
    _score(U, V, lists, scores, sort=order == "score")
    certificate = replace(certify(lists, m, ell, exclude), asked=float(share) * K * n / m)
    return FairLists(lists, scores, certificate)


@dataclass(frozen=True)
class Certificate:
    """Compare the exposure of items, in numbers of users, with the guarantee."""

    guaranteed: int
    """Guaranteed exposure of every item (ell)."""
    realised: int
    """Smallest exposure of any item."""
    short: NDArray[np.int64]
    """Positions of all items below `guaranteed`."""
    exposure: NDArray[np.int64]
    """Exposure of each item in `short`."""
    feasible: NDArray[np.int64]
    """Number of users who may get each item in `short`: all but those who exclude it."""
    asked: float = 0.0
    """Number of users that the share asks for, share K n / m; `guaranteed` is this in whole users, but at least one."""

    @property
    def kept(self) -> bool:
        """Whether no item is below the guarantee."""
        return len(self.short) == 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each item in `short` is below the guarantee.

        Phase 1 leaves copies of an item only if every user who may get it has it or has K items. If fewer users may get
        it than guaranteed, no lists could keep the guarantee.
        """
        return tuple(EXCLUDED if count < self.guaranteed else FULL for count in self.feasible.tolist())

    def __repr__(self) -> str:
        state = "kept" if self.kept else f"{len(self.short):,} items below it"
        asked = "" if self.asked in (0, self.guaranteed) else f" ({self.asked:.3g} asked for)"
        return f"Certificate(guaranteed {self.guaranteed:,} users{asked}, smallest {self.realised:,}, {state})"


def certify(lists: NDArray[np.int32], n_items: int, guaranteed: int, exclude: Rows | None) -> Certificate:
    """Count the exposure of every item in the lists and compare it with the guarantee."""
    exposure = np.bincount(lists[lists >= 0], minlength=n_items)
    short = np.flatnonzero(exposure < guaranteed)
    feasible = np.full(len(short), len(lists), dtype=np.int64)
    if exclude is not None and len(short):
        place = np.full(n_items, -1, dtype=np.int64)
        place[short] = np.arange(len(short))
        users = np.repeat(np.arange(exclude.count, dtype=np.int64), np.diff(exclude.indptr))
        entries = place[exclude.indices] >= 0
        # A user who names an item twice excludes it once.
        pairs = np.unique(users[entries] * len(short) + place[exclude.indices[entries]])
        feasible -= np.bincount(pairs % len(short), minlength=len(short))
    return Certificate(guaranteed, int(exposure.min()), short, exposure[short], feasible)


def minimum_exposure(share: float, K: int, n_users: int, n_items: int) -> int:
    """Return the number of users that every item is guaranteed: floor(share K n / m), but at least 1.

    The share counts as it is written: .29 of 100 is 29, though in floats it is 28.99... Raises InvalidParameter if the
    lists have fewer places than there are items.
    """
    check_number("fair_rec", "share", share, above=0, high=1)
    if n_users and K * n_users < n_items:
        raise InvalidParameter(
            f"FairRec cannot guarantee anything here: {n_users:,} users with {K} items each have {K * n_users:,} "
            f"places for {n_items:,} items.",
            hint=f"take at least {-(-n_items // K):,} users, longer lists, or recommend(..., evenness=)",
            parameter="K",
        )
    return max(int(Fraction(repr(float(share))) * K * n_users / n_items), min(n_users, 1))


class _Allocation:
    """Build the lists: `share_stock` is phase 1, `fill_up` phase 2."""

    def __init__(self, backend: Backend, U: Array, V: Array, K: int, exclude: Rows | None):
        self.backend, self.U, self.V, self.exclude = backend, U, V, exclude
        n = len(U)
        self.lists = np.full((n, K), -1, dtype=np.int32)
        self.taken = np.zeros(n, dtype=np.int64)

    def share_stock(self, ell: int, order: NDArray[np.int64]) -> None:
        """Let users take turns until the stock is gone or nobody can take an item (phase 1)."""
        n, m = len(self.U), len(self.V)
        width = min(CHUNK, m)
        self.stock = np.full(m, ell, dtype=np.int64)
        self.candidates = np.full((n, width), -1, dtype=np.int32)
        self.position = np.full(n, width, dtype=np.int64)  # all used up: no user has been scored yet
        self.complete, self.finished = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        # Rounds: stop if the stock is gone, or if nobody could take an item in a whole round.
        left, before = ell * m, -1
        while 0 < left != before:
            before = left
            order = order[~self.finished[order]]
            place, ahead = 0, MOST_AHEAD
            while place < len(order) and left > 0:
                stop = min(place + ahead, len(order))
                self._prepare(order[place:stop])
                at, left = fairrec_kernels.take_turns(
                    order, place, stop, self.candidates, self.complete, self.position, self.stock, left, self.lists,
                    self.taken, self.finished,
                )  # fmt: skip
                # Candidates may be out of stock before their user's turn. If that happened, prepare fewer users ahead.
                ahead = min(2 * (at - place), MOST_AHEAD) if at < stop else min(2 * ahead, MOST_AHEAD)
                place = at

    def _prepare(self, users: NDArray[np.int64]) -> None:
        """Find new candidates for users who have none left in stock."""
        used = np.empty(len(users), dtype=np.bool_)
        fairrec_kernels.used_up(users, self.candidates, self.position, self.stock, used)
        again = users[used & ~self.complete[users] & ~self.finished[users]]
        if len(again) == 0:
            return
        # Score only items in stock: the k best of them are the next candidates.
        in_stock = np.flatnonzero(self.stock > 0)
        width = self.candidates.shape[1]
        k = min(width, len(in_stock))
        found = self._best(again, self.V[in_stock], k, in_stock)
        self.candidates[again, :k], self.candidates[again, k:] = found, -1
        self.position[again] = 0
        # A chunk that is not full, or that had room for all items in stock, holds all that the user can ever take.
        self.complete[again] = (self.candidates[again, -1] < 0) | (k == len(in_stock))

    def fill_up(self) -> None:
        """Fill every list with the user's best items, in stock or not (phase 2)."""
        K = self.lists.shape[1]
        short = np.flatnonzero(self.taken < K)
        for start in range(0, len(short), MOST_AHEAD):
            users = short[start : start + MOST_AHEAD]
            found = self._best(users, self.V, K - int(self.taken[users].min()), np.arange(len(self.V)))
            # Users with equally many items are filled together: columns `have` to K of their lists.
            for have in np.unique(self.taken[users]):
                rows = self.taken[users] == have
                self.lists[users[rows], have:] = found[rows, : K - have]

    def _best(self, users: NDArray[np.int64], V: Array, k: int, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the k best items of `positions` (vectors V) that a user may get and does not have; -1 if missing."""
        found, scores = empty_lists(len(users), k)
        self.backend.top_k(self.U[users], V, k, self._hidden(users, positions), found, scores)
        best = positions[found].astype(np.int32)
        best[found < 0] = -1
        return best

    def _hidden(self, users: NDArray[np.int64], positions: NDArray[np.int64]) -> Rows:
        """Return the items that users must not get or have already, as indices into `positions`."""
        number = np.full(len(self.V), -1, dtype=np.int32)
        number[positions] = np.arange(len(positions), dtype=np.int32)
        lists = self.lists[users]
        row, column = np.nonzero(lists >= 0)
        item = lists[row, column]
        if self.exclude is not None:
            given = self.exclude.take(users)
            row = np.concatenate((row, np.repeat(np.arange(len(users)), np.diff(given.indptr))))
            item = np.concatenate((item, given.indices))
        kept = number[item] >= 0
        row, item = row[kept], number[item[kept]]
        by_row = np.argsort(row, kind="stable")
        indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(users))))).astype(np.int64)
        return Rows(indptr, item[by_row], None)


def _score(U: Array, V: Array, lists: NDArray[np.int32], scores: NDArray[np.float32], sort: bool) -> None:
    """Score the lists in blocks, and sort them by score if asked to.   out: lists, scores"""
    # At most 4 million numbers are gathered from V at a time.
    at_once = max(1, (1 << 22) // (lists.shape[1] * V.shape[1]))
    for start in range(0, len(lists), at_once):
        block = lists[start : start + at_once]
        value = np.einsum("id,ikd->ik", U[start : start + at_once], V[block], dtype=np.float64)
        value[block < 0] = -np.inf
        if sort:
            # By descending score, then by ascending position; missing items have score -inf and come last.
            best = np.lexsort((block, -value), axis=1)
            block, value = np.take_along_axis(block, best, 1), np.take_along_axis(value, best, 1)
        lists[start : start + at_once] = block
        scores[start : start + at_once] = np.where(block < 0, np.nan, value)


def _check_choices(order: str, random_state: int | None) -> None:
    if order not in ORDERS:
        raise InvalidParameter(f"The 'order' parameter of fair_rec must be one of {ORDERS}. Got {order!r} instead.")
    check_seed("fair_rec", random_state)


def _check_vectors(users: Array, items: Array, offsets: Array | None) -> tuple[Array, Array]:
    U, V = np.asarray(users), np.asarray(items)
    if U.ndim != 2 or V.ndim != 2 or U.shape[1] != V.shape[1] or len(V) == 0:
        raise InvalidData(
            f"users and items must be matrices with as many columns, and at least one item. Got {U.shape}, {V.shape}."
        )
    if not (np.isfinite(U).all() and np.isfinite(V).all()):
        raise InvalidData("users or items hold numbers that are not finite.")
    if offsets is None:
        return U, V
    extra = np.asarray(offsets, dtype=V.dtype)
    if extra.shape != (len(V),) or not np.isfinite(extra).all():
        raise InvalidData(f"offsets must be {len(V):,} finite numbers, one per item.")
    return np.column_stack((U, np.ones(len(U), dtype=U.dtype))), np.column_stack((V, extra))
