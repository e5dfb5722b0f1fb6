"""The workers of a cluster in this process: what sharding changes, without Ray."""

import contextlib

from fairmf.engines import InMemoryShards, RayCluster
from fairmf.engines.local_team import LocalTeam
from fairmf.interactions import Interactions


class InProcess(RayCluster):
    """A cluster whose workers are objects here. `last` is the team of the last fit."""

    last = None

    @contextlib.contextmanager
    def team(self, data, backend="cpu", factor_dtype="float32"):
        source = InMemoryShards(data, self.shards) if isinstance(data, Interactions) else data
        team = LocalTeam(source, backend, factor_dtype, 1)
        type(self).last = team
        yield team
        team.close()
