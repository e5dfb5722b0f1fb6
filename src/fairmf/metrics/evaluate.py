"""Evaluate a model on held-out users: accuracy for users, exposure for items, with bootstrap intervals.

Lists come in blocks of users and are counted as they come: memory is O(users * K), never users x items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.interactions import Interactions
from fairmf.metrics.evaluation import Evaluation
from fairmf.metrics.groups import GroupLabels
from fairmf.metrics.lists import Ranker, given_lists, ranked_by
from fairmf.metrics.measuring import measure_lists
from fairmf.metrics.plan import check_resampling, make_plan
from fairmf.splitting import HeldOut


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
    check_resampling("evaluate", bootstrap, confidence, random_state)
    blocks = ranked_by(model, held_out, plan.longest, rank_options)
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
    plan = make_plan(held_out, at, metrics, groups, train, merit)
    check_resampling("evaluate", bootstrap, confidence, random_state)
    return measure_lists(given_lists(items), held_out, plan, bootstrap, confidence, random_state)
