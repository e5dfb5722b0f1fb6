"""Learn one offset per item that keeps its exposure between a minimum and a maximum: `fit_offsets`.

1. Hold a fifth of the users out, and learn offsets on the others until the held-out users gain no more.
2. Refuse offsets that do not help the held-out users (control/check_offsets.py).
3. Move the last items inside the bounds for all users (ranking/repair_offsets.py), and count their exposure.

With check=False, offsets are learned on all users, and nothing is refused.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Vector
from fairmf.control.check_offsets import Checked, HeldOutCheck, held_out_rows
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData
from fairmf.models.evenness import Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import on_snapshot
from fairmf.models.progress import progress_bar
from fairmf.params import check_count
from fairmf.ranking import learn_offsets, repair_offsets
from fairmf.ranking.learn_offsets import Bounds, Schedule
from fairmf.ranking.repair_offsets import Ranked
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
    n_users
        Number of users that `share` and `violations` count.
    check
        Gini (and nDCG, where targets are known) without and with offsets, for users on whom they were not learned.
        None if nothing was checked: with check=False, or where fewer than 50 users could be held out.

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
    n_users: int = 0
    check: HeldOutCheck | None = None

    def __repr__(self) -> str:
        v, m = self.violations, len(self.share)
        outside = v["items_below_floor"] + v["items_above_cap"]
        said = f"{m - outside:,} of {m:,} items ({1 - outside / m:.2%}) within the bounds for {self.n_users:,} users"
        if v["items_below_floor"]:
            lacking = v["missing_exposure"] * m / v["items_below_floor"]
            said += f"; {v['items_below_floor']:,} below the minimum, by {lacking:.3g} of an equal share on average"
        if v["items_above_cap"]:
            excess = v["excess_exposure"] * m / v["items_above_cap"]
            said += f"; {v['items_above_cap']:,} above the maximum, by {excess:.3g} of an equal share on average"
        said += f"; shares from {v['least_share']:.3g} to {v['greatest_share']:.3g}"
        return f"Offsets({said}; {self.check or 'not checked on other users'})"


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
    check: bool | HeldOut = True,
    progress: bool | None = None,
) -> Offsets[Model]:
    """Learn how much to raise or lower each item's scores so that its exposure stays within bounds.

    The result has a copy of the model that adds the offsets in `recommend`, `rank`, `score` and `to_ann`, and saves
    them in its file. It can serve each user alone. The bounds are not guaranteed: `violations` counts items outside.
    Offsets that do not help users on whom they were not learned are refused, with the numbers.
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
        Users to learn on, who are folded in; by default the training users. Those without a history are left out: they
        get the most popular items, whatever the offsets.
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
        Seed of the draw of these users, and of those held out.
    check
        True holds a fifth of the users out (at most 10,000) and refuses offsets that do not lower their Gini. A HeldOut
        checks on these users instead, with nDCG. False takes the offsets as they are.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Offsets
        The model with offsets, and the exposure of its lists.

    Raises
    ------
    InvalidParameter
        If no lists can satisfy the bounds, a number is out of its range, or the offsets do not help held-out users.

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
    everyone = _Users.of(plain, cohort, level.fairness)
    others = _Users.of(plain, check, level.fairness) if isinstance(check, HeldOut) else None
    items, offset = fitted.dialled_items(level)
    base = np.zeros(len(items)) if offset is None else offset.astype(np.float64)
    backend = model._backend()
    V = backend.array(items)

    def ranked(users: _Users) -> Ranked:
        return Ranked(backend, backend.array(users.vectors), V, users.history.by_user, int(K), base)

    schedule = Schedule(int(iterations), int(users_at_once), random_state)
    steps = int(iterations) + repair_offsets.PASSES * (2 if check is True else 1)
    with backend.threads(model.num_threads), progress_bar("offsets", steps, progress) as advance:
        learners = everyone
        if check is True:
            rows, held = held_out_rows(len(everyone.vectors), random_state)
            learners, others = everyone.take(rows), everyone.take(held) if len(held) else None
        checked = None if others is None else Checked(ranked(others), others.targets)
        gains = schedule.gains if checked is None else checked.still_gain
        learned = _learn(ranked(learners), bounds, dataclasses.replace(schedule, gains=gains, advance=advance))
        if learners is not everyone and len(learners.vectors) <= users_at_once:
            # With few users the last moves matter for others too; with many they are small, and take long.
            learned = repair_offsets.repair(ranked(learners), learned, bounds, advance)
        found = None if checked is None else checked.measure(learned)
        if found is not None:
            found.refuse(int(K), "min_exposure" if min_exposure > 0 else "max_exposure")
        # Not the sample on which exposure is counted at the end.
        learned = repair_offsets.repair(_sample(ranked(everyone), random_state + 1), learned, bounds, advance)
        served = learned.astype(np.float32)
        share = _share(ranked(everyone), base + served, random_state)
    turned = copy.copy(model) if evenness is None else plain.with_evenness(level)
    turned._fitted = dataclasses.replace(turned.fitted, item_offsets=served)
    return Offsets(turned, share, bounds.violations(share), len(everyone.vectors), found)


@dataclass(frozen=True)
class _Users:
    """Users with a history: their vectors, and their held-out targets if there are any."""

    history: Interactions
    vectors: Array
    targets: Rows | None

    @classmethod
    def of(cls, model: FactorModel, cohort: Interactions | HeldOut | None, fairness: float | None) -> _Users:
        options = {} if fairness is None else {"fairness": fairness}
        targets = cohort.targets.by_user if isinstance(cohort, HeldOut) else None
        if cohort is None:
            history = model.fitted.histories("fit_offsets")
            vectors = model.fold_in(history, **options) if options else model.user_factors
        else:
            history = model._aligned(cohort.fold_in if isinstance(cohort, HeldOut) else cohort)
            vectors = model.fold_in(history, **options)
        some = np.flatnonzero(np.diff(history.by_user.indptr))
        if len(some) == 0:
            raise InvalidData("No user has a history: there is nobody to learn offsets on.")
        users = cls(history, vectors, targets)
        return users if len(some) == len(vectors) else users.take(some)

    def take(self, rows: NDArray[np.int64]) -> _Users:
        targets = None if self.targets is None else self.targets.take(rows)
        return _Users(self.history.take_users(rows), self.vectors[rows], targets)


def _learn(ranked: Ranked, bounds: Bounds, schedule: Schedule) -> Vector:
    learned = learn_offsets.learn(
        ranked.backend, ranked.users, ranked.items, ranked.exclude, ranked.K,
        bounds.tightened(learn_offsets.MARGIN), schedule, ranked.base,
    )  # fmt: skip
    return learned.astype(np.float64)


def _sample(ranked: Ranked, seed: int) -> Ranked:
    """Return at most COUNTED of the users."""
    n = len(ranked.users)
    if n <= COUNTED:
        return ranked
    chosen = np.sort(np.random.default_rng(seed).choice(n, COUNTED, replace=False))
    users = ranked.backend.array(ranked.backend.host(ranked.users)[chosen])
    return dataclasses.replace(ranked, users=users, exclude=ranked.exclude and ranked.exclude.take(chosen))


def _share(ranked: Ranked, added: Vector, seed: int) -> NDArray[np.float64]:
    """Measure the exposure of every item with the offsets; of very many users, on a sample."""
    part = _sample(ranked, seed)
    # In blocks, to bound the memory; shares are means over users, so blocks are weighted by their size.
    blocks = np.array_split(np.arange(len(part.users)), -(-len(part.users) // 8192))
    shares = [
        learn_offsets.exposure_share(part.backend, part.users, part.items, added, part.exclude, block, part.K)
        for block in blocks
    ]
    return np.average(shares, axis=0, weights=[len(block) for block in blocks]).astype(np.float64)
