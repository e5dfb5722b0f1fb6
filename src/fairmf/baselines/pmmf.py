"""Raise the exposure of the worst-off provider while users arrive: P-MMF (Xu et al., WWW 2023).

    maximise  1/n sum_i s(list of i) + lambda min_p e_p / gamma_p        with  e_p <= gamma_p

e_p is the exposure of provider p (an item, or a group of items) in K slots per user, and gamma_p its capacity: in
shares of all slots, rho_p = (1 + 1/P) |p| / sum |p| times `capacity`. In the dual, every provider has a price mu_p.
With z_p = rho_p mu_p, prices are feasible where the negative z add up to at least -lambda. Users arrive in a random
order:

1. User t gets the K best items by s_ij - mu_p(j) among providers with capacity left, sorted by score.
2. The gradient is the share of all slots that each provider has left, less its share of this list; a moving average
   with weight alpha smooths it.
3. mu moves by -eta / sqrt(n) times the gradient / rho^2, and z is projected onto the feasible prices: positive ones
   stay, negative ones are projected onto a simplex. That is the exact solution of what the authors solve by cvxpy.

Without capacities (`capacity=None`) no price is positive, and the gradient compares with rho instead of what is left;
then it equals plain lists when lambda = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Vector
from fairmf.baselines.cohort import USERS_AT_ONCE, Blocks, Cohort, CohortRanker, Slots
from fairmf.baselines.score_model import ScoreModel
from fairmf.data.groups import GroupLabels, read_groups
from fairmf.errors import InvalidData
from fairmf.metrics.exposure import add_up
from fairmf.models.factor_model import FactorModel
from fairmf.models.progress import progress_bar
from fairmf.params import setting
from fairmf.ranking.top_n import empty_lists, list_length

NONE_LEFT = 1e4  # what an item loses whose provider has no capacity left


@dataclass(eq=False)
class PMMF(CohortRanker):
    """Provider max-min fairness re-ranking, online (docs/rivals.md).

    Parameters
    ----------
    model
        A fitted model.
    strength
        lambda, the weight of the worst-off provider.
    groups
        The provider of each item (one label per item, or a mapping from item id to label); None: every item is one.
    sizes
        A provider's capacity is proportional to its number of "items" or of training "interactions".
    capacity
        gamma, in multiples of (1 + 1/P) times an equal share of the slots, of which no provider gets more; 1 as
        published. None: no limit.
    learning_rate
        eta; None chooses it by `showing`.
    showing
        Where eta is not given: what it costs an item to be shown once, in mean scores of plain lists.
    momentum
        alpha, the weight of the newest gradient.
    batch_size
        Users who get lists before prices change, by as much as for each alone; 1 as published.
    K
        Slots that count; None: all of a list.
    random_state
        Seed of the order of users.
    progress
        Show a progress bar; None shows it on a terminal.

    Examples
    --------
    >>> from fairmf import PMMF, IALS, evaluate, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> model = IALS(factors=8, epochs=2).fit(split.train, progress=False)
    >>> plain, even = (evaluate(x, split.test, at=10)["gini@10"] for x in (model, PMMF(model, 0.1)))
    >>> even < plain
    True
    """

    model: FactorModel | ScoreModel
    strength: float = setting(0.1, "Weight of the worst-off provider.", symbol="lambda", low=0)
    groups: GroupLabels | None = None
    sizes: str = setting("items", "What capacities are proportional to.", choices=("items", "interactions"))
    capacity: float | None = setting(1.0, "Most exposure, in equal shares; None: no limit.", above=0, choices=(None,))
    learning_rate: float | None = setting(
        None, "Step of prices; None chooses it.", symbol="eta", above=0, choices=(None,)
    )
    showing: float = setting(0.02, "Cost of being shown once, in mean scores.", above=0)
    momentum: float = setting(0.1, "Weight of the newest gradient.", symbol="alpha", above=0, high=1)
    batch_size: int = setting(1, "Users between changes of prices.", low=1, integer=True)
    K: int | None = setting(None, "Slots that count; None: all.", low=1, integer=True, choices=(None,))
    random_state: int | None = setting(0, "Seed of the order of users.", low=0, integer=True, choices=(None,))
    progress: bool | None = setting(None, "Show a progress bar.", choices=(True, False, None))

    def _blocks(self, cohort: Cohort, N: int) -> Blocks:
        K = N if self.K is None else list_length(self.K, cohort.n_items, "K")
        lists = self._allocated(cohort, max(K, N), K)
        for start in range(0, len(lists), USERS_AT_ONCE):
            yield start, lists[start : start + USERS_AT_ONCE, :N]

    def _allocated(self, cohort: Cohort, length: int, K: int) -> NDArray[np.int32]:
        """Give every user a list, in a random order."""
        known = np.flatnonzero(~cohort.is_new)
        order = np.random.default_rng(self.random_state).permutation(known)
        lists, _ = empty_lists(cohort.n_users, length)
        if len(order) == 0:
            return lists
        codes, rho = self._providers(cohort)
        slots = Slots(np.ones(K))
        prices = Prices(rho, len(order) * K, self, self._step(cohort, order, K, rho))
        with progress_bar("P-MMF", len(order), self.progress) as advance:
            for start in range(0, len(order), self.batch_size):
                users = order[start : start + self.batch_size]
                made, scores = cohort.best(users, length, prices.offset(codes))
                lists[users] = sorted_by_score(made, scores, K)
                shown = add_up(slots.of_items(made, cohort.n_items), codes, len(rho))
                prices.update(shown, len(users), K)
                advance("", len(users))
        return lists

    def _providers(self, cohort: Cohort) -> tuple[NDArray[np.int64], Vector]:
        """Return the provider of each item, and each provider's capacity as a share of all slots."""
        m = cohort.n_items
        codes = np.arange(m) if self.groups is None else read_groups(self.groups, m, _ids(self.model)).codes
        sizes = np.ones(m) if self.sizes == "items" else cohort.item_counts
        size = np.bincount(codes, weights=sizes)
        if (size == 0).any():
            raise InvalidData(
                f"{int((size == 0).sum()):,} providers have no training interactions, and so no capacity.",
                hint="sizes='items' counts their items instead",
            )
        most = 1.0 if self.capacity is None else self.capacity
        return codes, most * (1 + 1 / len(size)) * size / size.sum()

    def _step(self, cohort: Cohort, order: NDArray[np.int64], K: int, rho: Vector) -> float:
        """Return eta / sqrt(n)."""
        if self.learning_rate is not None:
            return self.learning_rate / float(np.sqrt(len(order)))
        # One showing is 1 / K of the gradient: mu rises by step / (K rho^2).
        _, scores = cohort.best(np.sort(order[:256]), K)
        found = np.abs(scores[np.isfinite(scores)])
        mean = float(found.mean()) if len(found) else 0.0  # none: these users have had all items
        return self.showing * (mean or 1.0) * K * float(np.mean(rho)) ** 2


class Prices:
    """The prices of providers, the capacity that is left, and the gradient's moving average."""

    def __init__(self, rho: Vector, slots: int, settings: PMMF, step: float):
        self.rho, self.slots, self.settings, self.step = rho, slots, settings, step
        self.left, self.capped = slots * rho, settings.capacity is not None
        self.mu, self.gradient = np.zeros(len(rho)), np.zeros(len(rho))

    def offset(self, codes: NDArray[np.int64]) -> Vector | None:
        """Return what is added to the scores of each item; None while nothing is."""
        loss = self.mu + NONE_LEFT * (self.left <= 0) if self.capped else self.mu
        return -loss[codes] if loss.any() else None

    def update(self, shown: Vector, users: int, K: int) -> None:
        """Change the prices after lists of `users`, in which providers got `shown`: one step for each user, at once."""
        self.left -= shown
        alpha = self.settings.momentum
        target = self.left / self.slots if self.capped else self.rho
        self.gradient = alpha * (target - shown / (users * K)) + (1 - alpha) * self.gradient
        z = self.rho * self.mu - users * self.step * self.gradient / self.rho
        self.mu = project(z, self.settings.strength, positive=self.capped) / self.rho


def project(z: Vector, budget: float, positive: bool) -> Vector:
    """Return the point next to z whose negative parts add up to at most `budget`.

    Positive entries stay (or become 0); the others move towards 0 by one amount, which keeps the largest ones only.
    """
    result: Vector = np.maximum(z, 0.0) if positive else np.zeros_like(z)
    debt = np.maximum(-z, 0.0)
    if budget <= 0:
        return result
    if debt.sum() > budget:
        falling = np.sort(debt)[::-1]
        excess = (np.cumsum(falling) - budget) / np.arange(1, len(falling) + 1)
        debt = np.maximum(debt - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    return result - debt


def sorted_by_score(lists: NDArray[np.int32], scores: NDArray[np.float32], K: int) -> NDArray[np.int32]:
    """Sort the first K items of every list by score, ties to the lower item; missing ones come last."""
    first, value = lists[:, :K], scores[:, :K]
    order = np.lexsort((first, np.where(first < 0, np.inf, -value)), axis=1)
    return np.column_stack((np.take_along_axis(first, order, axis=1), lists[:, K:]))


def _ids(model: FactorModel | ScoreModel) -> Any:
    return model.trained_on.item_ids if isinstance(model, ScoreModel) else model.fitted.item_ids
