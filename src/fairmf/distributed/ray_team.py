"""A team of Ray actors, each in a process of its own, on whichever nodes have room."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairmf.distributed import remote_arrays
from fairmf.distributed.shards import InMemoryShards, Shard, ShardSource
from fairmf.distributed.team import Program, ShardLost, Team
from fairmf.distributed.worker import Missing, Step, Worker
from fairmf.errors import ClusterFailed
from fairmf.types import Array

# A worker as Ray's actor: made first, and told to load when it is known to run.


class StoredShards:
    """A source whose shards lie in the cluster's object store, held there by the process that fits."""

    def __init__(self, source: Any, references: list[Any]):
        for name in ("n_users", "n_items", "nnz", "shards", "is_binary"):
            setattr(self, name, getattr(source, name))
        self._references = references

    def load(self, number: int) -> Shard:
        """One shard; its arrays are read where they lie."""
        import ray

        shard: Shard = ray.get(self._references[number])
        return shard


class ShardActor:
    """Runs programs. Arrays that programs need come as arguments of their own: Ray brings them to the node, once."""

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def hello(self) -> tuple[str, bool]:
        """The node this runs on, and whether it has a shard."""
        import ray

        return ray.get_runtime_context().get_node_id(), self.worker is not None

    def load(self, source: Any, *settings: Any) -> None:
        """Become the worker of a shard."""
        self.worker = Worker(source, *settings)

    def run(self, steps: list[Step], *arguments: Any) -> Any:
        """See Worker.run."""
        if self.worker is None:
            raise RuntimeError("this actor has no shard yet")
        return self.worker.run(steps, arguments)

    def add_partial(self, key: str, other: Any) -> None:
        """See Worker."""
        assert self.worker is not None
        self.worker.add_partial(key, other)

    def take_partial(self, key: str) -> Any:
        """See Worker."""
        assert self.worker is not None
        return self.worker.take_partial(key)


log = logging.getLogger("fairmf")

SCHEDULING = 60.0  # seconds a new actor may wait for room before it is put where there is none to spare
DYING = 10.0  # seconds to wait for actors that were told to end


class Room(NamedTuple):
    """What one actor is given, and how long it may be silent."""

    cpus: int
    gpus: float
    patience: float


class RayTeam(Team):
    """See Team. Actors are never restarted by Ray itself: a new one has to be told what its predecessor had."""

    def __init__(self, ray: Any, source: ShardSource, backend: str, factor_dtype: str, room: Room):
        super().__init__(source)
        self._ray = ray
        self._room = room
        self._settings = (backend, factor_dtype, room.cpus)
        self._actors: dict[int, Any] = {}
        self._sent_source: Any = source
        self._lost: tuple[type[Exception], ...] = _signs_of_loss(ray)

    def start(self) -> None:
        """Make all actors and have them load their shards."""
        if isinstance(self.source, InMemoryShards):
            references = [self._ray.put(self.source.load(shard)) for shard in range(self.shards)]
            self._sent_source = StoredShards(self.source, references)
        self.again(self._complete)

    def _complete(self) -> None:
        self._replace_lost()

    def pids(self) -> dict[int, int]:
        """The process of every shard's actor."""
        return dict(enumerate(self.call(_process_number)))

    # -- Team ---------------------------------------------------------------------------------------------------------

    def _put(self, array: Array) -> Any:
        return self._ray.put(array)

    def _exchange(self, programs: Mapping[int, Program], partial: str | None) -> tuple[dict[int, Any], Any]:
        calls = {s: self._actor(s).run.remote(p.steps, *p.arguments) for s, p in programs.items()}
        waited_for = list(calls.values())
        if partial is not None:
            # All is said at once: an actor adds what another has sent when it gets there, in the order of the tree.
            for level in remote_arrays.levels(self.shards):
                for into, other in level:
                    sent = self._actor(other).take_partial.remote(partial)
                    waited_for.append(self._actor(into).add_partial.remote(partial, sent))
            waited_for.append(self._actor(0).take_partial.remote(partial))
        answers = self._get(waited_for)
        total = None if partial is None else answers[-1].copy()  # what the store holds cannot be written to
        return dict(zip(calls, answers, strict=False)), total

    def _replace_lost(self) -> list[int]:
        greetings = {shard: actor.hello.remote() for shard, actor in self._actors.items()}
        deadline = time.monotonic() + self._room.patience
        ready = {shard for shard, greeting in greetings.items() if self._is_ready(shard, greeting, deadline)}
        lost = [shard for shard in range(self.shards) if shard not in ready]
        for shard in lost:
            if shard not in self._actors:
                self._actors[shard] = self._new_actor(self._room.cpus)
        nodes = {shard: self._settle_in(shard) for shard in lost}
        if len(lost) == self.shards:
            # Neighbours in the tree on the same node: what they add to each other then never leaves it.
            by_node = sorted(lost, key=lambda shard: (nodes[shard], shard))
            self._actors = dict(zip(lost, [self._actors[shard] for shard in by_node], strict=True))
        loading = {s: self._actors[s].load.remote(self._sent_source, s, *self._settings) for s in lost}
        self._get(list(loading.values()))
        return lost

    def close(self) -> None:
        """End all actors; returns when they are gone, so that none is left behind."""
        ends = []
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                ends.append(actor.__ray_terminate__.remote())
        if ends:
            with contextlib.suppress(Exception):
                self._ray.wait(ends, num_returns=len(ends), timeout=DYING)
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        self._actors.clear()

    # -- actors -------------------------------------------------------------------------------------------------------

    def _actor(self, shard: int) -> Any:
        if shard not in self._actors:
            raise ShardLost(f"shard {shard} has no worker")
        return self._actors[shard]

    def _new_actor(self, cpus: int) -> Any:
        options = {"num_cpus": cpus, "num_gpus": self._room.gpus, "max_restarts": 0, "max_task_retries": 0}
        kind = self._ray.remote(ShardActor).options(**options, scheduling_strategy="SPREAD")
        return kind.remote()

    def _settle_in(self, shard: int) -> str:
        """Wait until a new actor runs; its node. Where a lost node has left too little room it shares another's."""
        for cpus in (self._room.cpus, 0):
            try:
                node: str = self._ray.get(self._actors[shard].hello.remote(), timeout=SCHEDULING)[0]
                return node
            except self._ray.exceptions.GetTimeoutError:
                self._ray.kill(self._actors[shard])
                if cpus and not self._room.gpus:
                    log.warning("no node has room for shard %d: it shares the CPUs of others", shard)
                    self._actors[shard] = self._new_actor(0)
            except self._lost as error:
                raise ShardLost(f"shard {shard}: {_short(error)}") from error
        raise ClusterFailed(f"No node of the cluster has room for shard {shard} ({self._room.cpus} CPUs).")

    def _is_ready(self, shard: int, greeting: Any, deadline: float) -> bool:
        """Whether there is a worker with its shard; an actor that does not answer is let go."""
        try:
            ready: bool = self._ray.get(greeting, timeout=max(1.0, deadline - time.monotonic()))[1]
        except self._lost:
            with contextlib.suppress(Exception):
                self._ray.kill(self._actors.pop(shard))
            return False
        return ready

    def _get(self, references: Sequence[Any]) -> list[Any]:
        """The answers; ShardLost where one will not come."""
        exceptions = self._ray.exceptions
        try:
            found: list[Any] = self._ray.get(list(references), timeout=self._room.patience)
        except exceptions.GetTimeoutError as error:
            raise ShardLost(f"no answer within {self._room.patience:g} seconds") from error
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, (Missing, exceptions.RayActorError, exceptions.ObjectLostError)):
                raise ShardLost(_short(error)) from error
            raise error.cause from None
        except self._lost as error:
            raise ShardLost(_short(error)) from error
        return found


def _signs_of_loss(ray: Any) -> tuple[type[Exception], ...]:
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


def _process_number(worker: Any) -> int:  # noqa: ARG001 - the worker whose process this is
    return os.getpid()
