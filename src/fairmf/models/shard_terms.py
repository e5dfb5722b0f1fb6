"""Fit with features of users and with dislikes over the workers of a cluster.

The workers have the rows of their users, this process has the map M. `ShardedFeatures` and `ShardedDislikes` take the
steps of `SideFeatures` and `Dislikes` that touch users' rows in the workers. What is added to the users' right-hand
sides is never sent: a `UserTerms` says how workers compute it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.data.csr import Rows
from fairmf.distributed import remote_arrays
from fairmf.distributed.backend import ShardedBackend
from fairmf.distributed.remote_arrays import ShardedFactors, UserTerms, key_of
from fairmf.distributed.worker import Worker
from fairmf.models.feature_maps import SideFeatures
from fairmf.models.problem import Dislikes
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.distributed.team import Team


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
        _establish(team, "features", rows, n_features)
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


@dataclass(frozen=True)
class ShardedDislikes(Dislikes):
    """The dislikes of users in the workers; see Dislikes."""

    def send(self, team: Team) -> None:
        """Send the dislikes of all users to the workers, which keep those of their own."""
        _establish(team, "dislikes", self.by_user, self.given.n_items)

    def right(self, backend: Backend, rows: Rows, other: Factors, own: Factors | None) -> Factors:  # noqa: ARG002
        """See Dislikes."""
        if not isinstance(other, ShardedFactors):  # the users' rows
            return cast(Factors, (UserTerms() if own is None else cast(UserTerms, own))._replace(dislikes=True))
        surplus = cast(ShardedBackend, backend).disliked_users(other)
        return -surplus if own is None else own - surplus

    def change(self, backend: Backend, U: Factors, V: Factors) -> float:
        """See Dislikes."""
        return 2.0 * cast(ShardedBackend, backend).dislike_scores(U, V) - float(self.by_user.sums().sum())


def _establish(team: Team, name: str, rows: Rows, columns: int) -> None:
    """Give every worker the rows of its own users, and the same by column."""
    team.establish("take_rows", name, *rows)
    team.establish("transpose_rows", name, columns, f"users_of_{name}")


def _vector_of(worker: Worker, key: str) -> tuple[Array, Array]:
    return worker.shard.users, worker.vectors[key]
