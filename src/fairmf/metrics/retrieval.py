"""Compare an approximate ranker with the exact one: recall of the exact lists, and accuracy and exposure of both.

A nearest-neighbour index may miss some items more often than others, so exposure is measured on its own lists.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData
from fairmf.metrics.evaluate import Evaluation, Ranker, evaluate_lists
from fairmf.metrics.plan import check_held_out
from fairmf.params import check_count
from fairmf.types import Record


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """The comparison of an approximate ranker with the exact one, on the same users."""

    recall: float
    """Mean share of a user's exact top-N that the approximate list holds."""
    per_user: NDArray[np.float64]
    """That share for every user; NaN if the exact list is empty."""
    exact: Evaluation
    approximate: Evaluation

    def __repr__(self) -> str:
        lines = [f"Retrieval(recall of the exact lists {self.recall:.4f})", f"  {'':<24}{'exact':>10}{'served':>10}"]
        for label, value in self.exact.values.items():
            lines.append(f"  {label:<24}{value:>10.4f}{self.approximate.values[label]:>10.4f}")
        return "\n".join(lines)


def evaluate_retrieval(
    exact: Ranker,
    approximate: Ranker,
    held_out: HeldOut,
    *,
    N: int = 100,
    at: int | tuple[int, ...] = (20, 100),
    rank_options: Record | None = None,
    **options: Any,
) -> Retrieval:
    """Rank the same held-out users with both rankers, and compare and evaluate the lists (docs/ann.md).

    `rank_options`, such as {"fairness": 3.0}, are passed to both rankers; the other options are those of `evaluate`.
    """
    check_held_out(held_out)
    check_count("evaluate_retrieval", "N", N, 1)
    cutoffs = tuple(np.atleast_1d(at).tolist())
    if max(cutoffs) > N:
        raise InvalidData(f"Lists of {N} items cannot be evaluated at {max(cutoffs)}.")
    lists = [_lists(ranker, held_out, N, rank_options or {}) for ranker in (exact, approximate)]
    found = recall_of_lists(*lists)
    evaluations = [evaluate_lists(items, held_out, at=cutoffs, **options) for items in lists]
    # NumPy warns about the mean of nothing but NaN.
    return Retrieval(float(np.nanmean(found)) if np.isfinite(found).any() else float("nan"), found, *evaluations)


def recall_of_lists(exact: NDArray[np.integer], approximate: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return, for every user, the share of the exact list that is in the approximate one; -1 is an empty slot."""
    if len(exact) != len(approximate):
        raise InvalidData(f"There are {len(exact):,} exact lists and {len(approximate):,} others.")
    # One key per pair of user and item, so that all users are compared in one call of isin.
    row = np.arange(len(exact), dtype=np.int64)[:, None]
    span = max(exact.max(initial=0), approximate.max(initial=0)) + 1
    # An empty slot, -1, makes the key of another user's item, so empty slots of both sides are left out.
    there = np.isin(row * span + exact, (row * span + approximate)[approximate >= 0]) & (exact >= 0)
    wanted = (exact >= 0).sum(axis=1)
    shares: NDArray[np.float64] = np.divide(
        there.sum(axis=1), wanted, out=np.full(len(exact), np.nan), where=wanted > 0
    )
    return shares


def _lists(ranker: Ranker, held_out: HeldOut, N: int, options: Record) -> NDArray[np.int32]:
    if ranker.n_items != held_out.fold_in.n_items:
        raise InvalidData(f"A ranker knows {ranker.n_items:,} items, the held-out data {held_out.fold_in.n_items:,}.")
    blocks = ranker.rank(held_out.fold_in, N, known_users=held_out.known_users, **options)
    # Copied, because a model may use one array for all blocks.
    return np.concatenate([np.array(items) for _, items in blocks])
