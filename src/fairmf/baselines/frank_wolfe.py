"""Maximise a generalised Gini welfare of items and users by Frank-Wolfe steps.

    F(P) = (1 - lambda) g_w(u(P)) + lambda g_w'(v(P)),        g_w(x) = sum_r w_r x_(r),  x_(1) <= x_(2) <= ...

u_i is the sum of the scores in user i's list and v_j the exposure of item j, both weighted by slot; w falls, so that
the worse-off count more. With the Gini weights w_r = (m - r + 1) / m of items, g_w' is (up to constants) 1 - Gini.

g is concave but not smooth. Its Moreau envelope with parameter beta has the gradient y = projection of -x / beta onto
the permutahedron of w, which is one sort and one isotonic regression. A Frank-Wolfe step ranks every user's items by
(1 - lambda) y_i s_ij + lambda y_j, moves the averages towards these lists, and shrinks beta.

1. Batch (Do and Usunier, SIGIR 2022, algorithm 2): every step ranks all users, P += 2 / (t + 2) (Q - P) and
   beta = beta_0 / sqrt(t). P is a mixture of lists; what is returned is drawn from it: in every step a user's list is
   replaced with probability 2 / (t + 2), which needs the memory of one list per user.
2. Online (Usunier, Do and Dohmatob, FAccT 2022): users arrive in a random order and are given the list of the current
   gradient; averages run over arrivals with step 1 / t. What is returned is the last list that a user was given.

Equals plain lists when lambda = 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from fairmf.backends.contract import Vector
from fairmf.baselines.cohort import USERS_AT_ONCE, Blocks, Cohort, CohortRanker, Slots
from fairmf.baselines.score_model import ScoreModel
from fairmf.metrics.exposure import WEIGHTINGS, slot_weights
from fairmf.models.factor_model import FactorModel
from fairmf.models.progress import progress_bar
from fairmf.params import setting
from fairmf.ranking.top_n import empty_lists, list_length


@dataclass(eq=False)
class FrankWolfe(CohortRanker):
    """Trade users' utility for the Gini welfare of items, by Frank-Wolfe (docs/rivals.md).

    Parameters
    ----------
    model
        A fitted model.
    strength
        lambda, from 0 (plain lists) to 1 (exposure alone).
    users
        Welfare of users: "equal" adds up their utilities, "gini" gives more weight to users with less of it.
    online
        True: users arrive one batch after the other. False: all lists are made again in every step.
    passes
        How often every user is ranked.
    batch_size
        Users per step, where online.
    smoothing
        beta_0, in multiples of the mean exposure of items (and of the mean utility of users).
    weighting
        Exposure of a slot: "count" (all 1), "dcg" or "rbp", as in the metrics.
    K
        Slots that count; None: all of a list.
    random_state
        Seed of the order of users, or of the draw from the mixture.
    progress
        Show a progress bar; None shows it on a terminal.

    Examples
    --------
    >>> from fairmf import FrankWolfe, IALS, evaluate, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> model = IALS(factors=8, epochs=2).fit(split.train, progress=False)
    >>> plain, even = (evaluate(FrankWolfe(model, x), split.test, at=10)["gini@10"] for x in (0, 0.5))
    >>> even < plain
    True
    """

    model: FactorModel | ScoreModel
    strength: float = setting(0.5, "Weight of the items' welfare.", symbol="lambda", low=0, high=1)
    users: str = setting("equal", "Welfare of users.", choices=("equal", "gini"))
    online: bool = setting(True, "Users arrive in batches.", choices=(True, False))
    passes: int = setting(5, "How often every user is ranked.", low=1, integer=True)
    batch_size: int = setting(64, "Users per step, where online.", low=1, integer=True)
    smoothing: float = setting(10.0, "First smoothing, in mean exposures.", symbol="beta_0", above=0)
    weighting: str = setting("count", "Exposure of a slot.", choices=WEIGHTINGS)
    K: int | None = setting(None, "Slots that count; None: all.", low=1, integer=True, choices=(None,))
    random_state: int | None = setting(0, "Seed.", low=0, integer=True, choices=(None,))
    progress: bool | None = setting(None, "Show a progress bar.", choices=(True, False, None))

    def _blocks(self, cohort: Cohort, N: int) -> Blocks:
        K = N if self.K is None else list_length(self.K, cohort.n_items, "K")
        if self.strength == 0:
            for users in cohort.blocks():
                yield int(users[0]), cohort.best(users, N)[0]
            return
        slots = Slots(slot_weights(K, self.weighting))
        lists = self._online(cohort, max(K, N), slots) if self.online else self._batch(cohort, max(K, N), slots)
        for start in range(0, len(lists), USERS_AT_ONCE):
            yield start, lists[start : start + USERS_AT_ONCE, :N]

    def _batch(self, cohort: Cohort, length: int, slots: Slots) -> NDArray[np.int32]:
        """Return lists drawn from the mixture that `passes` Frank-Wolfe steps give."""
        m, known = cohort.n_items, np.flatnonzero(~cohort.is_new)
        random, welfare = np.random.default_rng(self.random_state), Welfare(self, len(known), m)
        lists, _ = empty_lists(cohort.n_users, length)
        u, v = np.zeros(len(known)), np.zeros(m)  # of users by their place in `known`
        with progress_bar("Frank-Wolfe", self.passes + 1, self.progress) as advance:
            for t in range(self.passes + 1):
                step = 2 / (t + 2)  # 1 at first: the start are plain lists
                item_weights, user_weights = welfare.gradient(u, v, t) if t else (None, None)
                to_u, to_v = np.zeros(len(known)), np.zeros(m)
                for places in _parts(np.arange(len(known)), USERS_AT_ONCE):
                    own = None if user_weights is None else user_weights[places]
                    made, scores = cohort.best(known[places], length, item_weights, own)
                    to_u[places] = slots.of_users(scores)
                    to_v += slots.of_items(made, m)
                    taken = random.random(len(places)) < step
                    lists[known[places[taken]]] = made[taken]
                u, v = u + step * (to_u - u), v + step * (to_v - v)
                welfare.measure(u, v)
                advance(f"step {t}")
        return lists

    def _online(self, cohort: Cohort, length: int, slots: Slots) -> NDArray[np.int32]:
        """Return the last list that each user was given."""
        m, known = cohort.n_items, np.flatnonzero(~cohort.is_new)
        random, welfare = np.random.default_rng(self.random_state), Welfare(self, len(known), m)
        lists, _ = empty_lists(cohort.n_users, length)
        u, v, arrived = np.zeros(len(known)), np.zeros(m), 0
        with progress_bar("Frank-Wolfe", self.passes, self.progress) as advance:
            for done in range(self.passes):
                for places in _parts(random.permutation(len(known)), self.batch_size):
                    time = 1 + arrived / len(known)
                    item_weights, user_weights = welfare.gradient(u, v, time) if arrived else (None, None)
                    own = None if user_weights is None else user_weights[places]
                    made, scores = cohort.best(known[places], length, item_weights, own)
                    lists[known[places]] = made
                    arrived += len(places)
                    # Running means: of a user over the passes, of items over arrivals, as if all users had come.
                    u[places] += (slots.of_users(scores) - u[places]) / (done + 1)
                    v += (slots.of_items(made, m) * (len(known) / len(places)) - v) * (len(places) / arrived)
                    welfare.measure(u[places], v)
                advance(f"pass {done + 1}")
        return lists


class Welfare:
    """The two welfare functions, and what their gradients add to the scores."""

    def __init__(self, settings: FrankWolfe, n_users: int, n_items: int):
        self.settings = settings
        self.of_items = gini_weights(n_items)
        self.of_users = gini_weights(n_users) if settings.users == "gini" else None
        self.scales: tuple[float, float] | None = None

    def measure(self, u: Vector, v: Vector) -> None:
        """Take the units of smoothing from the first lists: the mean utility of users, the mean exposure of items."""
        if self.scales is None:
            mean = float(np.abs(u).mean()) if len(u) else 0.0
            self.scales = mean or 1.0, float(v.mean()) or 1.0

    def gradient(self, u: Vector, v: Vector, t: float) -> tuple[Vector, Vector | None]:
        """Return lambda y_j and (1 - lambda) y_i at these averages, in step t; None where all y_i are 1.

        Both are divided by 1 - lambda where y_i is 1, so that scores stay as they are.
        """
        scale_u, scale_v = self.scales or (1.0, 1.0)
        part, beta = self.settings.strength, self.settings.smoothing / np.sqrt(t)
        items = part * project(-v / (beta * scale_v), self.of_items)
        if self.of_users is not None:
            return items, (1 - part) * project(-u / (beta * scale_u), self.of_users)
        if part == 1:
            return items, np.zeros(len(u))
        return items / (1 - part), None


def gini_weights(count: int) -> Vector:
    """Return the weights of the Gini index as a welfare, for values in ascending order: 1, (n - 1) / n, .., 1 / n."""
    weights: Vector = np.arange(count, 0, -1) / count
    return weights


def project(z: Vector, weights: Vector) -> Vector:
    """Return the point next to z in the permutahedron of `weights` (falling): the hull of their permutations."""
    order = np.argsort(-z, kind="stable")
    falling = z[order]
    y = np.empty_like(z)
    y[order] = falling - isotonic_regression(falling - weights, increasing=False).x
    return y


def _parts(users: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(users), size):
        yield users[start : start + size]
