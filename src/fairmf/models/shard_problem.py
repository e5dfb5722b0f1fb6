"""A fit's problem over the workers of a cluster: the same terms, users' numbers where the users are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.backends.random_start import Stream
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.distributed.backend import ShardedBackend
from fairmf.distributed.remote_arrays import ITEMS, USERS, Drawn, Given, ShardedFactors, ShardedRows, Solved
from fairmf.distributed.team import Team
from fairmf.distributed.worker import Worker
from fairmf.lazy import cached_property
from fairmf.models.problem import Groups, Problem, frequency_scaled, grouped, spread_evenly, together

T = TypeVar("T")
RIDGE, SAMPLE = "user_ridge", "sample"
HALF_ROUNDING = 1e-4  # of F, where workers store factors in float16: as that backend has it


class ShardedInteractions:
    """What a fit asks of Interactions, answered by a team."""

    def __init__(self, team: Team, own: Interactions | None):
        self.n_users, self.n_items, self.nnz = team.n_users, team.n_items, team.nnz
        self.shape = team.n_users, team.n_items
        self.by_user, self.by_item = ShardedRows(team, USERS), ShardedRows(team, ITEMS)
        self.item_ids = team.source.item_ids
        self.fingerprint = team.source.fingerprint
        self._team, self._own = team, own

    @cached_property
    def user_ids(self) -> Ids | None:
        """What the users are called, where the model is to hold them."""
        if self._own is not None or not self._team.gather_users:
            return None if self._own is None else self._own.user_ids
        parts = self._team.call(_ids_of)
        if any(ids is None for _, ids in parts):
            return None
        names = np.concatenate([ids for _, ids in parts])
        return Ids(names[np.argsort(np.concatenate([users for users, _ in parts]))])


@dataclass(frozen=True)
class ShardedProblem(Problem):
    """See Problem. `own` are the interactions where they are in this process; else users stay in the workers."""

    team: Team = field(kw_only=True)
    own: Interactions | None = field(kw_only=True)

    @cached_property
    def user_ridge(self) -> Vector:
        """lambda_U(i), in the workers."""
        others, exponent = self.interactions.n_items, self.regularization_exponent
        numbers = (others, self.regularization, exponent, self.unobserved_weight)
        sums: Any = self.interactions.by_user.sums()
        return cast(Vector, sums.mapped(RIDGE, frequency_scaled, *numbers))

    @property
    def histories(self) -> Interactions | None:
        """See Problem."""
        return self.own

    def drawn_users(self, stream: Stream, factors: int, scale: float) -> Factors:
        """See Problem. Each worker draws its own."""
        return self._made(factors, Drawn(stream, scale))

    def given_users(self, values: NDArray[Any]) -> Factors:
        """See Problem."""
        return self._made(values.shape[1], Given(values))

    def _made(self, factors: int, recipe: Drawn | Given) -> Factors:
        made = ShardedFactors(self.team, factors, self.backend.dtype, recipe)
        self.team.make(made)
        return cast(Factors, made)

    def kept_users(self, user_factors: Factors) -> NDArray[Any]:
        """See Problem; none where the users stay in the workers."""
        return cast(ShardedFactors, user_factors).stored()

    def user_groups(self, most: int) -> Groups:
        """See Problem."""
        _ = self.user_ridge
        return together([Groups(*part) for part in self.team.call(_groups_of, most)], most)

    def sampled_users(self, count: int) -> tuple[Rows, Vector]:
        """See Problem; every shard's own, in proportion to its users."""

        def sample() -> tuple[Any, Any]:
            _ = self.user_ridge
            self.team.establish("sample", SAMPLE, RIDGE, spread_evenly, count)
            return ShardedRows(self.team, USERS, SAMPLE), _Named(SAMPLE)

        return self.cached("sampled_users", sample)

    def attempt(self, action: Callable[[], T]) -> T:
        """See Problem."""
        return self.team.again(action)

    def anchor(self, *states: Any) -> None:
        """See Problem: users that are lost can be made again from V and q."""
        for state in states:
            if state is not None and state.user_factors.recipe is None:
                _ = self.user_ridge
                recipe = Solved(state.item_factors, state.coupling, self.unobserved_weight, RIDGE)
                state.user_factors.recipe = recipe

    def report(self) -> dict[str, Any]:
        """Bytes sent, by purpose, and how evenly the shards worked."""
        return {"engine": self.team.report()}

    def note(self, record: dict[str, Any]) -> str:
        """The slowest shard's time over the mean: stragglers are seen while they are."""
        engine = record["engine"]
        return f", slowest shard {engine['slowest_shard']}: {engine['slowest_over_mean']:.2f} x mean"


class _Named:
    """Numbers in the workers, by name."""

    def __init__(self, key: str):
        self.key = key


def _ids_of(worker: Worker) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    ids = worker.shard.user_ids
    return worker.shard.users, None if ids is None else ids.values


def _groups_of(worker: Worker, most: int) -> tuple[Any, ...]:
    return tuple(grouped(worker.vectors["sums"], worker.vectors[RIDGE], most))


def sharded_problem(
    team: Team, local: Backend, lambda_f: float, settings: dict[str, Any], fairness_weights: Vector | None,
    own: Interactions | None,
) -> ShardedProblem:  # fmt: skip
    """The problem that these settings pose on a team's data."""
    names = ("regularization", "regularization_exponent", "unobserved_weight")
    data = ShardedInteractions(team, own)
    rounding = HALF_ROUNDING if settings.get("factor_dtype") == "float16" else None
    backend = cast(Backend, ShardedBackend(team, local, rounding))
    return ShardedProblem(
        cast(Interactions, data), backend, **{name: settings[name] for name in names},
        lambda_f=lambda_f, fairness_weights=fairness_weights, team=team, own=own,
    )  # fmt: skip
