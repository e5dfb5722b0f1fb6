"""Evaluate a model on held-out users: accuracy for users, exposure for items, with bootstrap intervals.

Lists come in blocks of users and are counted as they come: memory is O(users * K), never users x items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Interactions
from fairmf.metrics.evaluation import Evaluation
from fairmf.metrics.groups import GroupLabels
from fairmf.metrics.measuring import make_plan, measure_lists
from fairmf.splitting import HeldOut
from fairmf.splitting.checks import check_count, check_seed, check_share


class Ranker(Protocol):
    """What `evaluate` needs of a model."""

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        ...

    def rank(
        self, history: Interactions, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield (first row, items rows x N, best first, -1 if none) for consecutive blocks of users."""
        ...


def evaluate(
    model: Ranker,
    held_out: HeldOut,
    *,
    at: int | Sequence[int] = (20, 50, 100),
    metrics: Sequence[str] | None = None,
    groups: GroupLabels | None = None,
    train: Interactions | None = None,
    merit: ArrayLike | None = None,
    bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int = 0,
    **rank_options: Any,
) -> Evaluation:
    """Rank all items for every held-out user and measure the lists.

    `metrics` are names with a cut-off ("ndcg@100") or without, which means at every K of `at`; None means all
    that can be computed (docs/metrics.md defines each). `train` allows those that need popularity, `merit`
    (one non-negative number per item, default popularity) what exposure is held against, `groups` (a label
    per item, or a mapping from item id) adds the exposure of groups. `bootstrap` resamples of the users give
    the intervals; 0 gives none and keeps no lists. Further arguments go to the model's `rank`, such as
    fairness=.
    """
    plan = make_plan(held_out, at, metrics, groups, train, merit)
    m = plan.n_items
    if model.n_items != m:
        raise InvalidData(f"The model knows {model.n_items:,} items, the held-out data has {m:,}.")
    _check_resampling(bootstrap, confidence, random_state)
    N = min(max(w.K for w in plan.wanted), m)
    blocks = model.rank(held_out.fold_in, N, known_users=held_out.known_users, **rank_options)
    return measure_lists(blocks, held_out, plan, bootstrap, confidence, random_state)


def evaluate_lists(
    items: NDArray[np.integer],
    held_out: HeldOut,
    *,
    at: int | Sequence[int] = (20, 50, 100),
    metrics: Sequence[str] | None = None,
    groups: GroupLabels | None = None,
    train: Interactions | None = None,
    merit: ArrayLike | None = None,
    bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Evaluation:
    """As `evaluate`, for lists that are there already: users x N item positions, best first, -1 for none."""
    lists = np.asarray(items)
    if lists.ndim != 2 or lists.dtype.kind not in "iu":
        raise InvalidData("Lists must be a two-dimensional array of item positions, one row per held-out user.")
    ordered = np.sort(lists, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise InvalidData("A list holds the same item twice.")
    plan = make_plan(held_out, at, metrics, groups, train, merit)
    _check_resampling(bootstrap, confidence, random_state)
    return measure_lists([(0, lists)], held_out, plan, bootstrap, confidence, random_state)


def _check_resampling(bootstrap: int, confidence: float, random_state: int) -> None:
    check_count("evaluate", "bootstrap", bootstrap, 0)
    check_share("evaluate", "confidence", confidence)
    check_seed("evaluate", random_state)
