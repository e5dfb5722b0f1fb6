"""Fit over the workers of a cluster: build the problem, repeat epochs that lost a worker, adapt checkpoints."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, cast

import numpy as np

from fairmf.backends.contract import Backend, Vector
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.distributed.backend import ShardedBackend
from fairmf.distributed.cluster import RayCluster
from fairmf.distributed.remote_arrays import (
    ITEMS,
    LIKES,
    USERS,
    ShardedFactors,
    ShardedRows,
    ShardedVector,
    Solved,
    UserCount,
    UserTerms,
)  # fmt: skip
from fairmf.distributed.shards import ShardSource
from fairmf.distributed.team import Team
from fairmf.distributed.worker import Worker
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import cached_property
from fairmf.models import feature_fit
from fairmf.models.als_cg import AlternatingState
from fairmf.models.base import IterativeModel
from fairmf.models.fairness_weights import FairnessWeights, read_fairness_weights
from fairmf.models.feature_maps import SideFeatures
from fairmf.models.fit_loop import (
    Checkpoints,
    Reached,
    Setup,
    State,
    StateT,
    Trainable,
    balanced_like,
)
from fairmf.models.objective import Objective
from fairmf.models.problem import (
    Groups,
    Problem,
    frequency_scaled,
    grouped,
    spread_evenly,
    together,
)  # fmt: skip
from fairmf.models.shard_terms import ShardedDislikes, ShardedFeatureFit, ShardedFeatures, ids_of_users
from fairmf.types import Array, Record, Settings, SparseMatrix

RIDGE, SAMPLE = "user_ridge", "sample"
HALF_ROUNDING = 1e-4  # rounding error of F where workers store factors in float16: as the cuda backend has it


class ShardedInteractions:
    """Stand in for Interactions in a fit: ask a team of workers for what the fit needs of them."""

    def __init__(self, team: Team, own: Interactions | None):
        self.n_users, self.n_items, self.nnz = team.n_users, team.n_items, team.nnz
        self.shape = UserCount(team.n_users), team.n_items
        self.by_user, self.by_item = ShardedRows(team, USERS), ShardedRows(team, ITEMS)
        self.item_ids = team.item_ids
        self.fingerprint, self.weighting = team.source.fingerprint, team.weighting
        self._team, self._own = team, own

    @cached_property
    def user_ids(self) -> Ids | None:
        """The ids of the users; None where they have none or stay in the workers."""
        if self._own is not None or not self._team.gather_users:
            return None if self._own is None else self._own.user_ids
        return ids_of_users(self._team)

    def liked(self) -> ShardedInteractions:
        """Return a view in which dislikes do not count in the items' sums."""
        likes = copy.copy(self)
        likes.by_item = ShardedRows(self._team, ITEMS, LIKES)
        return likes


@dataclass(frozen=True)
class ShardedProblem(Problem):
    """A problem whose users are in the workers of a team."""

    team: Team = field(kw_only=True)
    holds_users = False

    @cached_property
    def user_ridge(self) -> Vector:
        """The L2 weight of every user (lambda_U(i)), in the workers."""
        sums = cast(ShardedVector, cast(ShardedRows, self.interactions.by_user).sums())
        return cast(Vector, sums.mapped(RIDGE, frequency_scaled, self.interactions.n_items, *self._l2))

    def side_features(self, name: str, rows: Rows, n_features: int, strength: float) -> SideFeatures:
        """See Problem; the features of users go to the workers."""
        if name == "item":
            return super().side_features(name, rows, n_features, strength)
        _ = self.user_ridge
        return ShardedFeatures.sent(self.team, RIDGE, rows, n_features, strength)

    def user_groups(self, most: int) -> Groups:
        """See Problem."""
        numbers = self.interactions.n_items, *self._l2
        return together([Groups(*part) for part in self.team.call(_groups_of, most, numbers)], most)

    def sampled_users(self, count: int) -> tuple[Rows, Vector]:
        """See Problem; each shard samples its own users, in proportion to their number."""

        def sample() -> tuple[Rows, Vector]:
            _ = self.user_ridge
            self.team.establish("sample", SAMPLE, RIDGE, spread_evenly, count)
            return cast(Rows, ShardedRows(self.team, USERS, SAMPLE)), cast(Vector, ShardedVector(self.team, SAMPLE))

        return self.cached("sampled_users", sample)


class ShardedModel(Generic[StateT]):
    """Run a model's steps over a team, for the fit loop (fit_loop.Trainable).

    An epoch that loses a worker is repeated as a whole. After each epoch, a worker that replaces another can compute
    its users again from V and q. The record of an epoch gets the bytes sent, by purpose, and how evenly the shards
    worked.
    """

    def __init__(self, model: Trainable[StateT], team: Team):
        self.model, self.team = model, team
        self.epochs, self.tolerance = model.epochs, model.tolerance

    def epoch(self, problem: Problem, state: StateT) -> StateT:
        """See Trainable."""
        after = self.team.again(lambda: self.model.epoch(problem, state))
        anchor(problem, after)
        return after

    def finish(self, problem: Problem, state: StateT) -> StateT:
        """See Trainable."""
        finished = self.team.again(lambda: self.model.finish(problem, state))
        anchor(problem, finished)
        return finished

    def objective(self, problem: Problem, state: StateT) -> Objective:
        """See Trainable."""
        return self.model.objective(problem, state)

    def report(self, problem: Problem, before: StateT, after: StateT, value: Objective | None) -> Record:
        """See Trainable."""
        return {"engine": self.team.report(), **self.model.report(problem, before, after, value)}

    def remedy(self) -> str:
        """See Trainable."""
        return self.model.remedy()

    @staticmethod
    def note(record: Record) -> str:
        """Return how long the slowest shard took, for the progress line."""
        engine = record["engine"]
        return f", slowest shard {engine['slowest_shard']}: {engine['slowest_over_mean']:.2f} x mean"


class ShardedCheckpoints(Generic[StateT]):
    """Store and resume a fit over a team: the users of a resumed state are computed again in the workers."""

    def __init__(self, stored: Checkpoints[StateT], problem: Problem):
        self.stored, self.problem = stored, problem

    def resume(self, start: StateT) -> Reached[StateT] | None:
        """See fit_loop.Checkpoints."""
        reached = self.stored.resume(start)
        if reached is not None:
            anchor(self.problem, reached.state, reached.kept)
        return reached

    def after_epoch(self, reached: Reached[StateT], *, last: bool) -> None:
        """See fit_loop.Checkpoints."""
        self.stored.after_epoch(reached, last=last)


def anchor(problem: Problem, *states: State | None) -> None:
    """Note in these states how a worker that replaces another computes its users again: from V and q."""
    for state in states:
        if not isinstance(state, AlternatingState):
            continue
        users = cast(ShardedFactors, state.user_factors)
        if users.recipe is None:
            _ = problem.user_ridge
            terms = UserTerms(state.user_map, problem.dislikes is not None)
            users.recipe = Solved(state.item_factors, state.coupling, problem.unobserved_weight, RIDGE, terms)


def _groups_of(worker: Worker, most: int, numbers: tuple[Any, ...]) -> tuple[Array, ...]:
    return tuple(grouped(worker.vectors["sums"], lambda sums: frequency_scaled(sums, *numbers), most))


def sharded_problem(
    team: Team, local: Backend, lambda_f: float, settings: Settings, fairness_weights: Vector | None,
    own: Interactions | None,
) -> ShardedProblem:  # fmt: skip
    """Return the problem of these settings on a team's data."""
    names = ("regularization", "regularization_exponent", "unobserved_weight")
    data, dislikes = cast(Interactions, ShardedInteractions(team, own)), None
    if team.source.n_dislikes:
        dislikes = ShardedDislikes(data if own is None else own, team)
    rounding = HALF_ROUNDING if settings.get("factor_dtype") == "float16" else None
    backend = cast(Backend, ShardedBackend(team, local, rounding))
    return ShardedProblem(
        data, backend, **{name: settings[name] for name in names},
        lambda_f=lambda_f, fairness_weights=fairness_weights, dislikes=dislikes, team=team,
    )  # fmt: skip


@contextlib.contextmanager
def open_on_cluster(
    model: IterativeModel[StateT],
    settings: Record,
    data: Interactions | SparseMatrix | ShardSource,
    fairness_weights: FairnessWeights | None,
    cluster: RayCluster | None,
    item_features: Any = None,
    user_features: Any = None,
) -> Iterator[Setup[StateT]]:
    """Build the problem of a fit over the workers of a cluster, and hold the workers until the fit ends."""
    cluster = _checked(model, cluster)
    histories = own = popularity = features = None
    if not isinstance(data, ShardSource):
        histories, popularity = balanced_like(model, as_interactions(data))
        features, own = feature_fit.read(model, histories, item_features, user_features), histories
        if features is not None:
            own = features.reduced()
    source: ShardSource | Interactions = data if isinstance(data, ShardSource) else cast(Interactions, own)
    if source.nnz == 0:
        raise InvalidData("There are no interactions to learn from.")
    with cluster.team(source, model.backend, model.factor_dtype) as team:
        team.gather_users = own is not None if cluster.gather_users is None else cluster.gather_users
        weights = full_weights = None
        if fairness_weights is not None:
            whole = team if features is None else features.data
            weights = full_weights = read_fairness_weights(fairness_weights, whole.n_items, whole.item_ids)
        if own is None and (model.item_balance > 0 or model.user_balance > 0):
            popularity = np.array(team.liked_popularity)
            team.balance(model.item_balance, model.user_balance)
        if own is None:
            features = ShardedFeatureFit.read(model, team, item_features, user_features)
        if features is not None and weights is not None:
            weights = features.started(weights, "item")
        local = get_backend("reference" if model.backend == "reference" else "cpu")
        problem: Problem
        problem = sharded_problem(team, local, model.lambda_f_for(team.n_users), settings, weights, own)
        if features is not None:
            problem = features.with_features(problem)
        steps = ShardedModel(model, team)
        yield Setup(
            problem, steps, settings, histories, popularity, steps.note,
            lambda stored: ShardedCheckpoints(stored, problem), features, full_weights,
        )  # fmt: skip


def _checked(model: IterativeModel[StateT], cluster: RayCluster | None) -> RayCluster:
    """Return the cluster of a fit; raise InvalidParameter for settings that it does not support."""
    cluster = RayCluster() if cluster is None else cluster
    if not isinstance(cluster, RayCluster):
        raise InvalidParameter(f"cluster must be a RayCluster. Got {type(cluster).__name__} instead.")
    cluster.check()
    name, solver = type(model).__name__, getattr(model, "solver", None)
    if solver != "eigenbasis_cg":
        raise InvalidParameter(
            f"{name}: engine='ray' solves rows by solver='eigenbasis_cg' alone. Got solver={solver!r} instead."
        )
    if model.regularization <= 0:
        raise InvalidParameter(f"{name}: engine='ray' needs regularization > 0. Got {model.regularization!r} instead.")
    return cluster
