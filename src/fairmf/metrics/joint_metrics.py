"""Compute metrics that are neither a mean over users nor a function of exposure alone (docs/metrics.md).

Each function prepares all lists once, and returns a function from weights of the users (users x replicates: how often
each was drawn) to values. With all weights 1 that is the metric itself, with drawn weights its bootstrap replicates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fairmf.data.groups import Groups
from fairmf.errors import InvalidData
from fairmf.metrics.accuracy import dcg
from fairmf.metrics.exposure import slot_weights
from fairmf.metrics.given import ListBlock
from fairmf.metrics.user_metrics import ideal_exposure

Values = NDArray[np.float64]
OfWeights = Callable[[Values], Values]


# -- joint multisided exposure (Wu et al. 2022) -----------------------------------------------------------------------


def jme(members: str, part: str = "loss") -> Callable[[ListBlock, int], OfWeights]:
    """Return a member of JME: "ai" (all users, single items), "ag" (groups of items), "gi" or "gg" (groups of users).

    With mean exposures e and mean ideal exposures e* of a cell of users and items, the loss (e - e*)^2 is the disparity
    e^2 minus the relevance 2 e e* plus a part that does not depend on the lists.
    """

    def prepare(block: ListBlock, K: int) -> OfWeights:
        user_groups = block.given.user_groups if members[0] == "g" else None
        return _jme(block, K, user_groups, block.given.groups if members[1] == "g" else None, JME_PARTS[part])

    return prepare


JME_PARTS: dict[str, Callable[[Values, Values], Values]] = {
    "loss": lambda shown, ideal: (shown - ideal) ** 2,
    "disparity": lambda shown, ideal: shown**2,  # noqa: ARG005
    "relevance": lambda shown, ideal: 2 * shown * ideal,
}


def _jme(
    block: ListBlock,
    K: int,
    user_groups: Groups | None,
    groups: Groups | None,
    cell: Callable[[Values, Values], Values],
) -> OfWeights:
    n, m = len(block.items), block.given.n_items
    scored = block.n_targets > 0
    on, off = ideal_exposure(block.n_targets, K, m)
    items = block.items[:, :K]
    slot = np.broadcast_to(slot_weights(K, "rbp")[: items.shape[1]], items.shape)
    row, column = filled = np.nonzero((items >= 0) & scored[:, None])
    of_target = np.repeat(np.arange(n), block.n_targets)
    shown = sp.csr_array(sp.coo_array((slot[row, column], (items[filled], row)), shape=(m, n)))
    # Ideal exposure is a sparse matrix plus one number per user, `off`, which all items share.
    above = sp.csr_array(
        sp.coo_array(((on - off)[of_target], (block.targets.indices, of_target)), shape=(m, n)),
    )
    if groups is not None:
        share = sp.csr_array(sp.diags_array(1 / groups.weights) @ groups.matrix.T)
        shown, above = share @ shown, share @ above
    codes = np.zeros(n, dtype=np.int64) if user_groups is None else user_groups.codes
    # Groups without a user who has targets are left out.
    present = np.unique(codes[scored])

    def measured(weights: Values) -> Values:
        total, count = np.zeros(weights.shape[1]), np.zeros(weights.shape[1])
        for code in present:
            own = weights * (scored & (codes == code))[:, None]
            drawn = own.sum(axis=0)
            users = np.where(drawn > 0, drawn, 1)
            value = cell((shown @ own) / users, (above @ own + off @ own) / users)
            total += np.where(drawn > 0, value.mean(axis=0), 0)
            count += drawn > 0
        return _ratio(total, count)

    return measured


# -- popularity lift (Abdollahpouri et al. 2020) ----------------------------------------------------------------------


def popularity_lift(block: ListBlock, K: int) -> OfWeights:
    """Return by what share recommended items are more popular than those of the users' histories."""
    popularity = block.given.popularity
    assert popularity is not None  # `parse_metrics` refuses the metric without training data
    items = block.items[:, :K]
    filled, own = (items >= 0).sum(axis=1), np.diff(block.history.indptr)
    shown = np.where(items >= 0, popularity[items], 0.0).sum(axis=1) / np.maximum(filled, 1)
    users = np.repeat(np.arange(len(items)), own)
    past = np.bincount(users, popularity[block.history.indices], len(items)) / np.maximum(own, 1)
    both = (filled > 0) & (own > 0)

    def measured(weights: Values) -> Values:
        now, before = np.where(both, shown, 0) @ weights, np.where(both, past, 0) @ weights
        return _ratio(now - before, before)

    return measured


# -- the users' side of Lorenz efficiency (Do et al. 2021) ------------------------------------------------------------


def user_gini(block: ListBlock, K: int) -> OfWeights:
    """Inequality of the users' utilities (DCG of their lists)."""
    utility, order = _utilities(block, K)

    def measured(weights: Values) -> Values:
        drawn = weights[order]
        last = np.cumsum(drawn, axis=0)
        n = last[-1] if len(last) else np.zeros(weights.shape[1])
        # A user drawn w times holds w ranks; the sum of 2 rank - n - 1 over them is w times this.
        place = 2 * last - drawn - n
        return _ratio(utility @ (drawn * place), n * (utility @ drawn))

    return measured


def worst25_utility(block: ListBlock, K: int) -> OfWeights:
    """The utility of the quarter of users who are worst off, divided by the number of users."""
    utility, order = _utilities(block, K)

    def measured(weights: Values) -> Values:
        drawn = weights[order]
        last = np.cumsum(drawn, axis=0)
        n = last[-1] if len(last) else np.zeros(weights.shape[1])
        taken = np.clip(np.floor(n / 4) - (last - drawn), 0, drawn)
        return _ratio(utility @ taken, n)

    return measured


def generalised_lorenz(utilities: ArrayLike) -> Values:
    """Return n + 1 points; point k is the sum of the k lowest utilities divided by n. NaN are left out."""
    values = np.asarray(utilities, dtype=np.float64)
    ordered = np.sort(values[np.isfinite(values)])
    return np.concatenate(([0.0], np.cumsum(ordered))) / max(len(ordered), 1)


def lorenz_dominates(one: ArrayLike, other: ArrayLike, tolerance: float = 1e-12) -> bool:
    """Return whether the generalised Lorenz curve of `one` is never below that of `other`, and above it somewhere.

    Then every worst-off part of the users has at least as much with `one`, whatever its size (Do et al. 2021).

    Examples
    --------
    >>> lorenz_dominates([1.0, 2.0], [0.0, 3.0])
    True
    """
    a, b = generalised_lorenz(one), generalised_lorenz(other)
    if len(a) != len(b):
        raise InvalidData(f"The two sides have {len(a) - 1:,} and {len(b) - 1:,} utilities: compare the same users.")
    return bool((a >= b - tolerance).all() and (a > b + tolerance).any())


def _utilities(block: ListBlock, K: int) -> tuple[Values, NDArray[np.int64]]:
    """Return the utilities of users with targets, ascending, and their rows."""
    values = dcg(block.hits, block.n_targets, K)
    rows = np.flatnonzero(block.n_targets > 0)
    order = rows[np.argsort(values[rows], kind="stable")]
    return values[order], order


def _ratio(above: Values, below: Values) -> Values:
    result: Values = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=np.asarray(below) > 0)
    return result
