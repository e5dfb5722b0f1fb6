"""Fit with features and with dislikes over the workers of a cluster.

The workers have the rows of their users, this process has the map M. `ShardedFeatures` and `ShardedDislikes` take the
steps of `SideFeatures` and `Dislikes` that touch users' rows in the workers. What is added to the users' right-hand
sides is never sent: a `UserTerms` says how workers compute it. `ShardedFeatureFit` leaves users and items without
interactions out of data in shards, as `FeatureFit` does with data in this process.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.weighting import Weighting
from fairmf.distributed import remote_arrays
from fairmf.distributed.backend import ShardedBackend
from fairmf.distributed.remote_arrays import ITEMS, USERS, ShardedFactors, ShardedRows, UserTerms, key_of
from fairmf.distributed.worker import Worker
from fairmf.lazy import cached_property
from fairmf.models.feature_fit import FeatureFit, read_sides
from fairmf.models.feature_maps import SideFeatures
from fairmf.models.fit_loop import State
from fairmf.models.fitted import Fitted
from fairmf.models.problem import Dislikes, Problem
from fairmf.types import Array, Record

if TYPE_CHECKING:
    from fairmf.distributed.team import Team
    from fairmf.models.base import IterativeModel


@dataclass(frozen=True, eq=False)
class ShardedFeatures(SideFeatures):
    """The features of users in the workers; see SideFeatures."""

    team: Team
    ridge_key: str
    """The name of the users' L2 weights in the workers."""

    @classmethod
    def sent(cls, team: Team, ridge_key: str, rows: Rows, n_features: int, strength: float) -> ShardedFeatures:
        """Send the features of all users (`rows`) to the workers, which keep those of their own."""
        ridge = np.empty(team.n_users)
        for users, values in team.call(_vector_of, ridge_key):
            ridge[users] = values
        team.establish("take_rows", "features", *rows)
        team.establish("transpose_rows", "features", n_features, "users_of_features")
        whole = SideFeatures.of(rows, n_features, ridge, strength)
        fields = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
        return cls(**fields, team=team, ridge_key=ridge_key)

    def predicted(self, backend: Backend, M: Factors) -> Factors:  # noqa: ARG002
        """See SideFeatures: the workers compute it from M."""
        return cast(Factors, UserTerms(M))

    def own(self, backend: Backend, predicted: Factors) -> Factors:  # noqa: ARG002
        """See SideFeatures."""
        return predicted

    def _kept(self, backend: Backend, M: Factors, predicted: Factors) -> Factors:  # noqa: ARG002
        return self.predicted(backend, M)

    def _residual(
        self,
        backend: Backend,
        M: Factors,
        this: Factors,
        predicted: Factors | None,  # noqa: ARG002
    ) -> tuple[Factors, Factors]:
        residual, _ = self.team.reduce("feature_residual", key_of(this), M, self.ridge_key)
        return self.predicted(backend, M), np.array(residual)

    def _along(self, backend: Backend, p: Factors) -> tuple[Factors, Vector]:  # noqa: ARG002
        squares: Vector = remote_arrays.total(self.team.ask("feature_along", p, self.ridge_key))
        return p, squares  # the workers keep X p

    def _gathered(self, backend: Backend, along: Factors) -> Factors:  # noqa: ARG002
        return np.array(self.team.reduce("feature_gathered", self.ridge_key)[0])

    def _moved(self, predicted: Factors, lengths: Vector, along: Factors, last: bool) -> Factors:  # noqa: ARG002
        return predicted

    def penalty(self, backend: Backend, M: Factors, this: Factors, predicted: Factors | None = None) -> float:  # noqa: ARG002
        """See SideFeatures."""
        missing: float = remote_arrays.total(self.team.ask("feature_missing", key_of(this), M, self.ridge_key))
        return missing + self.kappa * float(backend.column_products(M, M).sum())


@dataclass(frozen=True, eq=False)
class ShardedDislikes(Dislikes):
    """The dislikes of users in the workers; see Dislikes."""

    team: Team

    @property
    def by_user(self) -> Rows:
        """Stand in for the rows: the workers have them."""
        return cast(Rows, ShardedRows(self.team, USERS))

    @property
    def by_item(self) -> Rows:
        """Stand in for the rows."""
        return cast(Rows, ShardedRows(self.team, ITEMS))

    @cached_property
    def _confidence(self) -> float:
        """The sum of the confidences of all dislikes."""
        return float(remote_arrays.total(self.team.ask("dislike_confidence")))

    def right(self, backend: Backend, rows: Rows, other: Factors, own: Factors | None) -> Factors:  # noqa: ARG002
        """See Dislikes."""
        if not isinstance(other, ShardedFactors):  # the users' rows
            return cast(Factors, (UserTerms() if own is None else cast(UserTerms, own))._replace(dislikes=True))
        surplus = cast(ShardedBackend, backend).disliked_users(other)
        return -surplus if own is None else own - surplus

    def change(self, backend: Backend, U: Factors, V: Factors) -> float:
        """See Dislikes."""
        return 2.0 * cast(ShardedBackend, backend).dislike_scores(U, V) - self._confidence


def _vector_of(worker: Worker, key: str) -> tuple[Array, Array]:
    return worker.shard.users, worker.vectors[key]


@dataclass(frozen=True)
class WholeShards:
    """Hold what a fit with features needs to know of all users and items of a team, before some are left out."""

    team: Team
    n_users: int
    n_items: int
    item_ids: Ids | None
    item_counts: Vector
    """Number of users of every item; dislikes do not count."""
    has_entries: NDArray[np.bool_]
    """Whether an item has interactions, or dislikes."""
    weighting: Weighting | None

    @classmethod
    def of(cls, team: Team) -> WholeShards:
        """Ask a team whose confidences are those of the fit."""
        return cls(
            team, team.n_users, team.n_items, team.item_ids, team.item_counts, team.popularity > 0, team.weighting
        )

    @cached_property
    def user_ids(self) -> Ids | None:
        """The ids of all users, by which a table of features is aligned. Ask for them before users are left out."""
        return ids_of_users(self.team)


@dataclass(frozen=True)
class ShardedFeatureFit(FeatureFit):
    """The features of a fit on data in shards; see FeatureFit. Only features and ids of users are in this process."""

    data: WholeShards  # type: ignore[assignment]

    @classmethod
    def read(
        cls, model: IterativeModel[Any], team: Team, item_features: Any, user_features: Any
    ) -> ShardedFeatureFit | None:
        """Read the features that a fit was given, and let the team leave out what has no interactions; None without."""
        if item_features is None and user_features is None:
            return None
        data = WholeShards.of(team)
        found = cls(data, *read_sides(model, data, item_features, user_features), model.feature_regularization)
        users = np.zeros(0, dtype=np.int64) if found.users is None else found.empty_users
        if found.warm_items is not None or len(users):
            team.leave_out(found.warm_items, users)
        return found

    @cached_property
    def empty_users(self) -> NDArray[np.int64]:
        """Numbers of the users without interactions: their likes and dislikes cancel."""
        return np.sort(np.concatenate(self.data.team.ask("empty_users")))

    @cached_property
    def warm_items(self) -> NDArray[np.int64] | None:
        """See FeatureFit."""
        entries = self.data.has_entries
        return None if self.items is None or entries.all() else np.flatnonzero(entries)

    @cached_property
    def warm_users(self) -> NDArray[np.int64] | None:
        """See FeatureFit."""
        if self.users is None or not len(self.empty_users):
            return None
        return np.delete(np.arange(self.data.n_users), self.empty_users)

    def reduced(self) -> Interactions:
        """Raise NotImplementedError: `read` has told the workers."""
        raise NotImplementedError

    def completed(self, fitted: Fitted, state: State, problem: Problem, fairness_weights: Vector | None) -> Fitted:
        """See FeatureFit. A model that holds no users holds no features of users, but what predicts them."""
        found = super().completed(fitted, state, problem, fairness_weights)
        if found.user_features is None or self.data.team.gather_users:
            return found
        return dataclasses.replace(found, user_features=found.user_features.without_rows())

    def _item_counts(self) -> Vector:
        return self.data.item_counts

    def _users_of(self, fitted: Fitted) -> Record:
        whole = self.users is not None and self.data.team.gather_users
        return {"user_ids": self.data.user_ids if whole else fitted.user_ids, "interactions": None}


def ids_of_users(team: Team) -> Ids | None:
    """Return the ids of a team's users, by their numbers; None where they have none."""
    parts = team.call(_ids_of)
    if any(ids is None for _, ids in parts):
        return None
    names = np.concatenate([ids for _, ids in parts])
    return Ids(names[np.argsort(np.concatenate([users for users, _ in parts]))])


def _ids_of(worker: Worker) -> tuple[NDArray[np.int64], Array | None]:
    ids = worker.shard.user_ids
    return worker.shard.users, None if ids is None else ids.values
