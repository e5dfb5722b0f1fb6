"""Run the workers of a cluster in this process, without Ray, and let chosen workers die."""

import contextlib
from dataclasses import dataclass, field

from fairmf.data.interactions import Interactions
from fairmf.distributed.cluster import RayCluster
from fairmf.distributed.shards import InMemoryShards
from fairmf.distributed.team import LocalTeam


@dataclass(frozen=True)
class InProcess(RayCluster):
    """A cluster whose workers are objects here. Worker `loses[k]` dies before exchange k; `teams` lists all teams."""

    threads: int = 1
    loses: dict = field(default_factory=dict)
    teams: list = field(default_factory=list)

    @contextlib.contextmanager
    def team(self, data, backend="cpu", factor_dtype="float32"):
        source = InMemoryShards(data, self.shards) if isinstance(data, Interactions) else data
        team = Mortal(self.loses, source, backend, factor_dtype, self.threads)
        self.teams.append(team)
        yield team
        team.close()


class Mortal(LocalTeam):
    """A team that counts its exchanges and loses workers as told."""

    def __init__(self, loses, *args):
        super().__init__(*args)
        self.loses = loses
        self.exchanges = 0
        self.replaced = 0

    def _exchange(self, programs, partial):
        self.exchanges += 1
        if self.exchanges in self.loses:
            self.lose(self.loses[self.exchanges])
        return super()._exchange(programs, partial)

    def _replace_lost(self):
        new = super()._replace_lost()
        self.replaced += len(new)
        return new


def item_products(model):
    """V V', which no rotation of the factors changes."""
    return model.item_factors @ model.item_factors.T


def scores_of(model):
    """U V', which no rotation of the factors changes."""
    return model.user_factors @ model.item_factors.T


def objective_of(model):
    """F of the factors that a fitted model holds."""
    return model.history.final["objective"]["total"]
