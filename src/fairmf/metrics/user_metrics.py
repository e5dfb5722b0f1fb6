"""Compute fairness and diversity of ranked lists, one number per user (definitions in docs/metrics.md).

The functions take a `ListBlock`. Users for whom a metric is not defined get NaN and are left out of its mean. No array
is as large as users x items: of the exposure that every item should have, only the two values are computed that a
user's targets and all other items have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.data.groups import Groups
from fairmf.metrics.accuracy import dcg, discounts
from fairmf.metrics.exposure import slot_weights, tail
from fairmf.metrics.given import ListBlock

Values = NDArray[np.float64]
PerUser = NDArray[np.float64]
ENVIED = 100
"""Number of users whose lists every user compares the own list with, if there are more."""
_CELLS = 2_000_000  # numbers in memory at a time where users x features, groups or sampled users are needed


# -- expected exposure (Diaz et al. 2020) -----------------------------------------------------------------------------


def ideal_exposure(n_targets: NDArray[np.integer], K: int, n_items: int) -> tuple[Values, Values]:
    """Return the exposure that each target, and each other item, of a user has in random ideal lists.

    In an ideal list the targets come first. If their order is random, and that of the others too, the attention of the
    first |T| slots is divided equally among the targets, and the rest among the other items.
    """
    running = np.concatenate(([0.0], np.cumsum(slot_weights(K, "rbp"))))
    top = running[np.minimum(n_targets, K)]
    others = n_items - n_targets
    none = np.zeros(len(top))
    on = np.divide(top, n_targets, out=none.copy(), where=n_targets > 0)
    off = np.divide(running[K] - top, others, out=none.copy(), where=others > 0)
    return on, off


def ee_disparity(block: ListBlock, K: int) -> PerUser:
    """Return the sum over items of the squared exposure: more, the more of it goes to few items."""
    worth = _worth(block, K)
    return _only_scored((worth**2).sum(axis=1), block)


def ee_relevance(block: ListBlock, K: int) -> PerUser:
    """Return twice the inner product of exposure and ideal exposure."""
    worth = _worth(block, K)
    on, off = ideal_exposure(block.n_targets, K, block.given.n_items)
    hits = block.hits[:, :K]
    return _only_scored(2 * (worth * np.where(hits, on[:, None], off[:, None])).sum(axis=1), block)


def ee_loss(block: ListBlock, K: int) -> PerUser:
    """Return the squared distance between exposure and ideal exposure, over all items."""
    on, off = ideal_exposure(block.n_targets, K, block.given.n_items)
    ideal = block.n_targets * on**2 + (block.given.n_items - block.n_targets) * off**2
    return ee_disparity(block, K) - ee_relevance(block, K) + ideal


# -- joint multisided exposure, members that are means over users (Wu et al. 2022) ------------------------------------


def jme_ii(block: ListBlock, K: int) -> PerUser:
    """Return the mean over items of the squared difference between exposure and ideal exposure."""
    return ee_loss(block, K) / block.given.n_items


def jme_ig(block: ListBlock, K: int) -> PerUser:
    """Return the mean over groups of items of the squared mean difference between exposure and ideal exposure."""
    return _by_item_groups(block, K, lambda shown, ideal: (shown - ideal) ** 2)


def jme_ig_disparity(block: ListBlock, K: int) -> PerUser:
    """Return the mean over groups of items of their squared mean exposure."""
    return _by_item_groups(block, K, lambda shown, ideal: shown**2)  # noqa: ARG005


def jme_ig_relevance(block: ListBlock, K: int) -> PerUser:
    """Return the mean over groups of items of twice the product of mean exposure and mean ideal exposure."""
    return _by_item_groups(block, K, lambda shown, ideal: 2 * shown * ideal)


def _by_item_groups(block: ListBlock, K: int, cell: Callable[[PerUser, PerUser], PerUser]) -> PerUser:
    groups = block.given.groups
    assert groups is not None  # `parse_metrics` refuses the metric without groups
    sizes = groups.weights
    result = np.full(len(block.items), np.nan)
    for start, stop in _parts(len(result), len(groups.names)):
        part = _part(block, start, stop)
        on, off = ideal_exposure(part.n_targets, K, block.given.n_items)
        shown = _by_group(part.items[:, :K], groups, _worth(part, K))
        row = np.repeat(np.arange(stop - start), part.n_targets)
        places = (row, part.targets.indices)
        targets = sp.csr_array(((on - off)[row], places), shape=(stop - start, block.given.n_items))
        wanted = (targets @ groups.matrix).toarray()
        result[start:stop] = cell(shown / sizes, wanted / sizes + off[:, None]).mean(axis=1)
    return _only_scored(result, block)


# -- groups, popularity and diversity of single lists -----------------------------------------------------------------


def awrf(block: ListBlock, K: int) -> PerUser:
    """Return 1 - Jensen-Shannon divergence (in bits) between the groups' shares of attention and their targets."""
    groups, target = block.given.groups, block.given.group_target
    assert groups is not None
    assert target is not None
    result = np.full(len(block.items), np.nan)
    for start, stop in _parts(len(result), len(groups.names)):
        items = block.items[start:stop, :K]
        worth = np.where(items >= 0, discounts(K)[: items.shape[1]], 0.0)
        shown = _by_group(items, groups, worth)
        total = shown.sum(axis=1, keepdims=True)
        share = np.divide(shown, total, out=np.full(shown.shape, np.nan), where=total > 0)
        middle = (share + target) / 2
        divergence = (_relative_entropy(share, middle) + _relative_entropy(target[None, :], middle)) / 2
        result[start:stop] = 1 - divergence
    return result


def cold_recall(block: ListBlock, K: int) -> PerUser:
    """Return the share of a user's cold targets that are in the list; NaN for users without any."""
    return _recall_of(block, K, block.given.is_cold)


def warm_recall(block: ListBlock, K: int) -> PerUser:
    """Return the share of a user's warm targets that are in the list; NaN for users without any."""
    return _recall_of(block, K, ~block.given.is_cold)


def _recall_of(block: ListBlock, K: int, chosen: NDArray[np.bool_]) -> PerUser:
    """Return recall as if the chosen items were the only targets."""
    row = np.repeat(np.arange(len(block.items)), block.n_targets)
    wanted = np.bincount(row[chosen[block.targets.indices]], minlength=len(block.items))
    items = block.items[:, :K]
    found = (block.hits[:, :K] & chosen[items] & (items >= 0)).sum(axis=1)
    result: PerUser = np.divide(found, np.minimum(wanted, K), out=np.full(len(found), np.nan), where=wanted > 0)
    return result


def aplt(block: ListBlock, K: int) -> PerUser:
    """Return the share of tail items in the list; NaN for an empty list."""
    filled = (block.items[:, :K] >= 0).sum(axis=1)
    result: PerUser = np.divide(aclt(block, K), filled, out=np.full(len(filled), np.nan), where=filled > 0)
    return result


def aclt(block: ListBlock, K: int) -> PerUser:
    """Return the number of tail items in the list."""
    assert block.given.popularity is not None
    items = block.items[:, :K]
    rare: PerUser = (tail(block.given.popularity)[items] & (items >= 0)).sum(axis=1).astype(np.float64)
    return rare


def ild(block: ListBlock, K: int) -> PerUser:
    """Return the mean of 1 - cosine over all pairs of items of the list; NaN for lists of fewer than two items."""
    features = block.given.features
    assert features is not None
    squares = np.asarray(features.multiply(features).sum(axis=1)).ravel()  # 1, or 0 for items without features
    result = np.full(len(block.items), np.nan)
    for start, stop in _parts(len(result), features.shape[1]):
        shown = _incidence(block.items[start:stop, :K], block.given.n_items)
        total = shown @ features
        count = np.diff(shown.indptr)
        # The square of a sum holds every pair twice, and every item with itself once.
        pairs = np.asarray(total.multiply(total).sum(axis=1)).ravel() - shown @ squares
        few = count < 2
        result[start:stop] = np.where(few, np.nan, 1 - pairs / np.where(few, 1, count * (count - 1)))
    return result


# -- envy -------------------------------------------------------------------------------------------------------------


def envy(block: ListBlock, K: int) -> PerUser:
    """Return by how much nDCG would rise, on average, with the list of another user (0 where it would fall).

    Compares with the lists of all others, or of a random sample of `ENVIED` users if there are more. All lists are
    needed: the block must hold every user.
    """
    n, m = len(block.items), block.given.n_items
    random = np.random.default_rng(0)
    chosen = np.arange(n) if n <= ENVIED else np.sort(random.choice(n, ENVIED, replace=False))
    lists = _incidence(block.items[chosen, :K], m, discounts(K))
    n_targets = block.n_targets
    ideal = np.concatenate(([1.0], np.cumsum(discounts(K))))[np.minimum(n_targets, K)]
    own = dcg(block.hits, n_targets, K) / ideal
    others = np.full(n, len(chosen))
    others[chosen] -= 1  # nobody envies the own list
    result = np.zeros(n)
    for start, stop in _parts(n, len(chosen)):
        part = block.targets.block(start, stop)
        wanted = part.to_csr(np.ones(part.nnz), m)
        theirs = (wanted @ lists.T).toarray() / ideal[start:stop, None]
        more = np.maximum(theirs - own[start:stop, None], 0.0)
        more[_own_column(chosen, start, stop)] = 0.0  # not even by a rounding error
        result[start:stop] = more.sum(axis=1)
    return _only_scored(result / np.maximum(others, 1), block)


def _own_column(chosen: NDArray[np.integer], start: int, stop: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    column = np.flatnonzero((chosen >= start) & (chosen < stop))
    return chosen[column] - start, column


# -- helpers ----------------------------------------------------------------------------------------------------------


def _worth(block: ListBlock, K: int) -> Values:
    """Return the attention (RBP) of the first K slots, 0 for empty ones."""
    items = block.items[:, :K]
    return np.where(items >= 0, slot_weights(K, "rbp")[: items.shape[1]], 0.0)


def _only_scored(values: Values, block: ListBlock) -> PerUser:
    return np.where(block.n_targets > 0, values, np.nan)


def _by_group(items: NDArray[np.integer], groups: Groups, worth: Values) -> Values:
    """Add the worth of every slot to the groups of its item: users x groups."""
    row, _ = filled = np.nonzero(items >= 0)
    shown = sp.csr_array((worth[filled], (row, items[filled])), shape=(len(items), len(groups.codes)))
    return np.asarray((shown @ groups.matrix).toarray(), dtype=np.float64)


def _incidence(items: NDArray[np.integer], n_items: int, worth: Values | None = None) -> sp.csr_array:
    """Return lists as a sparse matrix users x items, with 1 or the worth of the slot at each item."""
    filled = items >= 0
    slots = np.ones(items.shape[1]) if worth is None else worth[: items.shape[1]]
    indptr = np.concatenate(([0], np.cumsum(filled.sum(axis=1))))
    values = np.broadcast_to(slots, items.shape)[filled]
    return sp.csr_array((values, items[filled], indptr), shape=(len(items), n_items))


def _relative_entropy(p: Values, q: Values) -> Values:
    """Return sum p log2(p / q) along the last axis; 0 log 0 is 0, and NaN stays NaN."""
    p, q = np.broadcast_arrays(p, q)
    ratio = np.divide(p, q, out=np.ones(p.shape), where=(p > 0) | np.isnan(p) | np.isnan(q))
    terms: Values = (p * np.log2(ratio)).sum(axis=-1)
    return terms


def _parts(n_users: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, _CELLS // max(width, 1))
    for start in range(0, n_users, step):
        yield start, min(start + step, n_users)


def _part(block: ListBlock, start: int, stop: int) -> ListBlock:
    return ListBlock(
        block.items[start:stop],
        block.hits[start:stop],
        block.targets.block(start, stop),
        block.history.block(start, stop),
        block.given,
    )
