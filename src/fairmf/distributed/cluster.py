"""Connect to a Ray cluster, or start one on this machine, and open a team of workers on it."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from fairmf.data.interactions import Interactions
from fairmf.distributed.ray_actors import RayTeam, Room
from fairmf.distributed.shards import InMemoryShards, ShardSource
from fairmf.distributed.team import Team
from fairmf.errors import ClusterFailed, InvalidParameter, MissingDependency
from fairmf.params import check_settings, setting
from fairmf.version import install_command

log = logging.getLogger("fairmf")

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise Ray hides GPUs from tasks that asked for none, and warns that this will change.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # When a lost worker makes several requests fail, we report one of them.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}
"""Environment variables that we set for Ray, unless the user has set them."""


def ray_or_error(who: str = "engine='ray'") -> ModuleType:
    """Import and return Ray; raise MissingDependency where it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingDependency(f"{who} needs Ray: {install_command('ray')}") from error


def ensure_ray(address: str | None = None, who: str = "engine='ray'") -> bool:
    """Connect to a cluster, or start one on this machine; return whether the caller has to stop it afterwards.

    A connection that this process already has is reused. `address="auto"` is the cluster that `ray start` started on
    this machine.
    """
    ray = ray_or_error(who)
    if ray.is_initialized():
        return False
    for name, value in QUIET.items():
        # Ray reads these when it starts.
        os.environ.setdefault(name, value)
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    started = address == "local"
    options = {"include_dashboard": False} if started else {}
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except Exception as error:  # Ray raises a plain Exception where it does not start within 30 seconds
        what = "start Ray on this machine" if started else f"connect to a Ray cluster at {address!r}"
        raise ClusterFailed(f"Cannot {what}: {error}") from error
    if started:
        log.info("started Ray on this machine: %d CPUs", int(ray.cluster_resources().get("CPU", 0)))
    return True


@contextlib.contextmanager
def session(address: str | None) -> Iterator[ModuleType]:
    """Connect to Ray for the block; stop it afterwards if it was started here."""
    ray = ray_or_error()
    ours = ensure_ray(address)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


@dataclass(frozen=True)
class RayCluster:
    """Say where `engine="ray"` computes, and on how many workers.

    Without settings: one shard for every CPU of the cluster that this process is connected to, or of this machine.

    Examples
    --------
    Fit on eight workers: ``FairALS(engine="ray").fit(data, cluster=RayCluster(shards=8))``.

    >>> RayCluster(shards=8, cpus_per_shard=4).shards
    8
    """

    shards: int | None = setting(
        None, "Workers, each with its share of the users; None takes all CPUs.", low=1, integer=True, choices=(None,)
    )
    cpus_per_shard: int = setting(1, "CPUs of one worker, and its threads.", low=1, integer=True)
    gpus_per_shard: float | None = setting(
        None, "GPUs of one worker; None is one with backend='cuda' and else none.", low=0, choices=(None,)
    )
    address: str | None = setting(None, "Of a running cluster; None takes RAY_ADDRESS, or starts one here.")
    patience: float = setting(1800.0, "Seconds after which a worker that does not answer counts as lost.", above=0)
    gather_users: bool | None = setting(
        None, "Whether the model holds its users; None: where the data were in memory.", choices=(None, True, False)
    )

    def check(self) -> None:
        """Raise InvalidParameter for the first setting that is out of range."""
        check_settings(self)

    @contextlib.contextmanager
    def team(
        self, data: Interactions | ShardSource, backend: str = "cpu", factor_dtype: str = "float32"
    ) -> Iterator[Team]:
        """Start workers over this data for the block, and stop them afterwards."""
        self.check()
        with session(self.address) as ray:
            gpus = float(backend == "cuda") if self.gpus_per_shard is None else float(self.gpus_per_shard)
            if backend == "auto":
                backend = "cuda" if gpus > 0 else "cpu"
            source = self._source(data, int(ray.cluster_resources().get("CPU", 0)))
            room = Room(self.cpus_per_shard, gpus, self.patience)
            _check_room(ray.cluster_resources(), source.shards, room.cpus, room.gpus)
            team = RayTeam(source, backend, factor_dtype, room)
            try:
                team.start()
                yield team
            finally:
                team.close()

    def _source(self, data: Interactions | ShardSource, cpus: int) -> ShardSource:
        if not isinstance(data, Interactions):
            if self.shards is not None and self.shards != data.shards:
                raise InvalidParameter(f"The data have {data.shards} shards, but the cluster has shards={self.shards}.")
            return data
        shards = max(1, cpus // self.cpus_per_shard) if self.shards is None else self.shards
        # A worker without users would only cost messages.
        return InMemoryShards(data, min(shards, data.n_users))


def _check_room(resources: Mapping[str, float], shards: int, cpus: int, gpus: float) -> None:
    for kind, each in (("CPU", cpus), ("GPU", gpus)):
        there = resources.get(kind, 0)
        if shards * each > there:
            raise ClusterFailed(
                f"{shards} shards of {each:g} {kind}s each need {shards * each:g}, but the cluster has {there:g}: "
                f"ask for fewer shards, or add nodes."
            )
