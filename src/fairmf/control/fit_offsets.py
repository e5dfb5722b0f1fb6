"""Learn one offset per item that keeps its exposure between a minimum and a maximum: `fit_offsets`."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.models.evenness import Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import on_snapshot
from fairmf.models.progress import progress_bar
from fairmf.params import check_count
from fairmf.ranking import learn_offsets
from fairmf.ranking.learn_offsets import Bounds, Schedule
from fairmf.types import Array

Model = TypeVar("Model", bound=FactorModel)
# Users whose lists are counted at the end: a tenth of what 300 iterations rank. If there are more, a sample is counted.
COUNTED = 250_000


@dataclass(frozen=True)
class Offsets(Generic[Model]):
    """The result of `fit_offsets`.

    Attributes
    ----------
    model
        A copy of the model that adds the offsets to its scores.
    share
        Exposure of every item among the users the offsets were learned on, as a multiple of an equal share. An equal
        share is the exposure of each item if all were shown equally often.
    violations
        How many items are below the minimum or above the maximum, and by how much.

    Examples
    --------
    >>> from fairmf import FairALS, fit_offsets, synthetic
    >>> model = FairALS(factors=8, epochs=4).fit(synthetic(400, 200, 9000))
    >>> found = fit_offsets(model, K=10, max_exposure=3, iterations=50)
    >>> found.share.shape, found.violations["items_below_floor"]
    ((200,), 0)
    """

    model: Model
    share: NDArray[np.float64]
    violations: dict[str, float]

    def __repr__(self) -> str:
        v = self.violations
        return (
            f"Offsets({v['items_below_floor']:,} of {len(self.share):,} items below the floor, "
            f"{v['items_above_cap']:,} above the cap; shares from {v['least_share']:.3g} to {v['greatest_share']:.3g})"
        )


@on_snapshot
def fit_offsets(
    model: Model,
    *,
    K: int = 20,
    min_exposure: float = 0.0,
    max_exposure: float = float("inf"),
    cohort: Interactions | HeldOut | None = None,
    evenness: float | Level | None = None,
    fairness: float | None = None,
    iterations: int = 300,
    users_at_once: int = 8192,
    random_state: int = 0,
    progress: bool | None = None,
) -> Offsets[Model]:
    """Learn how much to raise or lower each item's scores so that its exposure stays within bounds.

    The result has a copy of the model that adds the offsets in `recommend`, `rank`, `score` and `to_ann`, and saves
    them in its file. It can serve each user alone. The bounds are not guaranteed: `violations` counts items outside.
    Bounds are multiples of an equal share, K n / m: the exposure of each item if all were shown equally often.

    Parameters
    ----------
    model
        A fitted model.
    K
        Length of the lists in which exposure is counted.
    min_exposure
        Minimum exposure, between 0 and 1.
    max_exposure
        Maximum exposure, at least 1.
    cohort
        Users to learn on, who are folded in; by default the training users.
    evenness
        The level that the lists start from; by default the one the model serves with. The model with offsets serves
        with it.
    fairness
        For experts: the fairness of the lists; by default the model's own.
    iterations
        Number of learning steps.
    users_at_once
        Number of users ranked in each step.
    random_state
        Seed of the draw of these users.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Offsets
        The model with offsets, and the exposure of its lists.

    Raises
    ------
    InvalidParameter
        If no lists can satisfy the bounds, or a number is out of its range.

    Examples
    --------
    >>> from fairmf import FairALS, fit_offsets, synthetic
    >>> model = FairALS(factors=8, epochs=4).fit(synthetic(400, 200, 9000))
    >>> fair = fit_offsets(model, K=10, min_exposure=0.5, iterations=100).model
    >>> fair.fitted.item_offsets.shape
    (200,)
    """
    for name, value in (("K", K), ("iterations", iterations), ("users_at_once", users_at_once)):
        check_count("fit_offsets", name, value)
    bounds = Bounds(float(min_exposure), float(max_exposure))
    bounds.check(int(K), model.n_items)
    # Offsets are learned anew: those that the model may have are left out.
    plain = copy.copy(model)
    fitted = plain._fitted = dataclasses.replace(model.fitted, item_offsets=None)
    level = fitted.served(evenness, fairness)
    history, users = _users(plain, cohort, level.fairness)
    items, offset = fitted.dialled_items(level)
    base = np.zeros(len(items)) if offset is None else offset.astype(np.float64)
    backend = model._backend()
    with backend.threads(model.num_threads), progress_bar("offsets", int(iterations), progress) as advance:
        U, V = backend.array(users), backend.array(items)
        learned = learn_offsets.learn(
            backend, U, V, history.by_user, int(K), bounds,
            Schedule(int(iterations), int(users_at_once), random_state), advance, base,
        )  # fmt: skip
        share = _share(backend, U, V, (base + learned).astype(np.float32), history, int(K), random_state)
    turned = copy.copy(model) if evenness is None else plain.with_evenness(level)
    turned._fitted = dataclasses.replace(turned.fitted, item_offsets=learned)
    return Offsets(turned, share, bounds.violations(share))


def _users(
    model: FactorModel, cohort: Interactions | HeldOut | None, fairness: float | None
) -> tuple[Interactions, Array]:
    options = {} if fairness is None else {"fairness": fairness}
    if cohort is None:
        history = model.fitted.histories("fit_offsets")
        return history, model.fold_in(history, **options) if options else model.user_factors
    history = model._aligned(cohort.fold_in if isinstance(cohort, HeldOut) else cohort)
    return history, model.fold_in(history, **options)


def _share(
    backend: Backend, U: Factors, V: Factors, learned: NDArray[np.float32], history: Interactions, K: int, seed: int
) -> NDArray[np.float64]:
    """Measure the exposure of every item with the offsets; of very many users, on a sample."""
    chosen = np.arange(len(U))
    if len(chosen) > COUNTED:
        chosen = np.sort(np.random.default_rng(seed).choice(len(U), COUNTED, replace=False))
    # In blocks, to bound the memory; shares are means over users, so blocks are weighted by their size.
    parts = np.array_split(chosen, -(-len(chosen) // 8192))
    shares = [learn_offsets.exposure_share(backend, U, V, learned, history.by_user, part, K) for part in parts]
    return np.average(shares, axis=0, weights=[len(part) for part in parts]).astype(np.float64)
