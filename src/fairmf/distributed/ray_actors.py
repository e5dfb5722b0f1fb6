"""Run a team of workers as Ray actors, each in a process of its own, on the nodes that have room."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fairmf.distributed import remote_arrays
from fairmf.distributed.shards import InMemoryShards, Shard, ShardLoader, ShardSource
from fairmf.distributed.team import Answers, Program, ShardLost, Team
from fairmf.distributed.worker import Answer, Missing, Step, Worker
from fairmf.errors import ClusterFailed
from fairmf.lazy import lazy_module
from fairmf.types import Array

if TYPE_CHECKING:
    import ray
    from ray.actor import ActorHandle
else:  # slow to import; fairmf.distributed.cluster imports it before a team is made
    ray = lazy_module("ray")


class StoredShards:
    """Load shards from the cluster's object store, where the process that fits keeps them."""

    def __init__(self, source: ShardSource, references: list[ray.ObjectRef]):
        self.n_users, self.n_items, self.nnz = source.n_users, source.n_items, source.nnz
        self.shards, self.is_binary = source.shards, source.is_binary
        self._references = references

    def load(self, number: int) -> Shard:
        """Return a shard; its arrays are views of the object store."""
        shard: Shard = ray.get(self._references[number])
        return shard


class ShardActor:
    """Run a worker as a Ray actor. It is created first, and loads its shard when it is known to run.

    Large arrays are arguments of their own, because Ray then copies them to each node only once.
    """

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def hello(self) -> tuple[str, bool]:
        """Return the node that this actor runs on, and whether it has a shard."""
        return ray.get_runtime_context().get_node_id(), self.worker is not None

    def load(self, source: ShardLoader, number: int, backend: str, factor_dtype: str, threads: int) -> None:
        """Become the worker of a shard."""
        self.worker = Worker(source, number, backend, factor_dtype, threads)

    def run(self, steps: list[Step], *arguments: object) -> tuple[Answer, float]:
        """See Worker.run."""
        if self.worker is None:
            raise RuntimeError("this actor has no shard yet")
        return self.worker.run(steps, arguments)

    def add_partial(self, key: str, other: Array) -> None:
        """See Worker."""
        assert self.worker is not None
        self.worker.add_partial(key, other)

    def take_partial(self, key: str) -> Array:
        """See Worker."""
        assert self.worker is not None
        return self.worker.take_partial(key)


log = logging.getLogger("fairmf")

SCHEDULING = 60.0  # seconds that a new actor may wait for free CPUs before it has to share those of others
DYING = 10.0  # seconds to wait for actors that were told to end


class Room(NamedTuple):
    """Give the CPUs and GPUs of one actor, and how many seconds it may take to answer."""

    cpus: int
    gpus: float
    patience: float


class RayTeam(Team):
    """Run the workers of a team as Ray actors.

    Ray itself never restarts an actor: the team replaces it, because the new one needs the factors of the lost one.
    """

    def __init__(self, source: ShardSource, backend: str, factor_dtype: str, room: Room):
        super().__init__(source)
        self._room = room
        self._settings = (backend, factor_dtype, room.cpus)
        self._actors: dict[int, ActorHandle] = {}
        self._sent_source: ShardLoader = source
        self._lost = _signs_of_loss()

    def start(self) -> None:
        """Create all actors, and let them load their shards."""
        if isinstance(self.source, InMemoryShards):
            # Each worker fetches its own shard: the source itself would bring all data to everyone.
            references = [ray.put(self.source.load(shard)) for shard in range(self.shards)]
            self._sent_source = StoredShards(self.source, references)
        self.again(self._replace_lost)

    def pids(self) -> dict[int, int]:
        """Return the process id of every shard's actor."""
        return dict(enumerate(self.call(_process_number)))

    # -- Team ---------------------------------------------------------------------------------------------------------

    def _put(self, array: Array) -> object:
        return ray.put(array)

    def _exchange(self, programs: Mapping[int, Program], partial: str | None) -> tuple[Answers, Array | None]:
        calls = {s: self._actor(s).run.remote(p.steps, *p.arguments) for s, p in programs.items()}
        waited_for = list(calls.values())
        if partial is not None:
            # Submit all calls at once. An actor runs its calls in this order, and waits for the sum that it is sent:
            # so partial sums are added in the order of the tree.
            for level in remote_arrays.levels(self.shards):
                for into, other in level:
                    sent = self._actor(other).take_partial.remote(partial)
                    waited_for.append(self._actor(into).add_partial.remote(partial, sent))
            waited_for.append(self._actor(0).take_partial.remote(partial))
        answers = self._get(waited_for)
        total = None if partial is None else answers[-1].copy()  # arrays in the object store are read-only
        return dict(zip(calls, answers, strict=False)), total

    def _replace_lost(self) -> list[int]:
        # 1. Which actors answer and have their shard?
        greetings = {shard: actor.hello.remote() for shard, actor in self._actors.items()}
        deadline = time.monotonic() + self._room.patience
        ready = {shard for shard, greeting in greetings.items() if self._is_ready(shard, greeting, deadline)}
        lost = [shard for shard in range(self.shards) if shard not in ready]
        # 2. Create the missing actors, and wait until they run: only then is it known on which node.
        for shard in lost:
            if shard not in self._actors:
                self._actors[shard] = self._new_actor(self._room.cpus)
        nodes = {shard: self._settle_in(shard) for shard in lost}
        if len(lost) == self.shards:
            # Number the actors by node, so that neighbours in the tree share a node and add without the network.
            by_node = sorted(lost, key=lambda shard: (nodes[shard], shard))
            self._actors = dict(zip(lost, [self._actors[shard] for shard in by_node], strict=True))
        # 3. Load the shards, all at the same time.
        loading = {s: self._actors[s].load.remote(self._sent_source, s, *self._settings) for s in lost}
        self._get(list(loading.values()))
        return lost

    def close(self) -> None:
        """End all actors, and return when they are gone."""
        ends = []
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                # First ask, so that calls in progress can end; then kill what is still there.
                ends.append(actor.__ray_terminate__.remote())
        if ends:
            with contextlib.suppress(Exception):
                ray.wait(ends, num_returns=len(ends), timeout=DYING)
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                ray.kill(actor)
        self._actors.clear()

    # -- actors -------------------------------------------------------------------------------------------------------

    def _actor(self, shard: int) -> ActorHandle:
        if shard not in self._actors:
            raise ShardLost(f"shard {shard} has no worker")
        return self._actors[shard]

    def _new_actor(self, cpus: int) -> ActorHandle:
        options = {"num_cpus": cpus, "num_gpus": self._room.gpus, "max_restarts": 0, "max_task_retries": 0}
        kind = ray.remote(ShardActor).options(**options, scheduling_strategy="SPREAD")
        return kind.remote()

    def _settle_in(self, shard: int) -> str:
        """Wait until a new actor runs, and return its node. If no CPUs are free, it shares those of other actors."""
        for cpus in (self._room.cpus, 0):
            try:
                node: str = ray.get(self._actors[shard].hello.remote(), timeout=SCHEDULING)[0]
                return node
            except ray.exceptions.GetTimeoutError:
                ray.kill(self._actors[shard])
                if cpus and not self._room.gpus:
                    log.warning("no node has free CPUs for shard %d: it shares those of others", shard)
                    self._actors[shard] = self._new_actor(0)
            except self._lost as error:
                raise ShardLost(f"shard {shard}: {_short(error)}") from error
        raise ClusterFailed(f"No node of the cluster has room for shard {shard} ({self._room.cpus} CPUs).")

    def _is_ready(self, shard: int, greeting: ray.ObjectRef, deadline: float) -> bool:
        """Return whether the actor has its shard; kill an actor that does not answer."""
        try:
            ready: bool = ray.get(greeting, timeout=max(1.0, deadline - time.monotonic()))[1]
        except self._lost:
            with contextlib.suppress(Exception):
                ray.kill(self._actors.pop(shard))
            return False
        return ready

    def _get(self, references: Sequence[ray.ObjectRef]) -> list[Answer]:
        """Return the answers; raise ShardLost if one cannot come any more."""
        exceptions = ray.exceptions
        try:
            found: list[Answer] = ray.get(list(references), timeout=self._room.patience)
        except exceptions.GetTimeoutError as error:
            raise ShardLost(f"no answer within {self._room.patience:g} seconds") from error
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, (Missing, exceptions.RayActorError, exceptions.ObjectLostError)):
                raise ShardLost(_short(error)) from error
            raise error.cause from None
        except self._lost as error:
            raise ShardLost(_short(error)) from error
        return found


def _signs_of_loss() -> tuple[type[Exception], ...]:
    """Return the exceptions by which this version of Ray reports that an actor, a node or an object is lost."""
    names = (
        "RayActorError", "ObjectLostError", "OwnerDiedError", "WorkerCrashedError", "NodeDiedError",
        "LocalRayletDiedError", "GetTimeoutError", "RaySystemError", "OutOfMemoryError", "TaskCancelledError",
        "ObjectFetchTimedOutError", "ReferenceCountingAssertionError",
    )  # fmt: skip
    found = (getattr(ray.exceptions, name, None) for name in names)
    return tuple(kind for kind in found if kind is not None)


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def _process_number(worker: Worker) -> int:  # noqa: ARG001 - the worker whose process this is
    return os.getpid()
