"""Run functions as tasks on a Ray cluster, or one after the other in this process.

`RayTasks` is for data on many machines, `InProcess` for tests and for data that fit into memory. Functions are plain
module functions. A result stays in the process that made it until `get`; a task takes the results of others by
reference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from fairmf.distributed.cluster import ensure_ray, ray_or_error
from fairmf.errors import ClusterFailed, FairmfError

log = logging.getLogger("fairmf")
Ref: TypeAlias = object
"""A reference to the value of a task: Ray's, or a `Done`."""
Value: TypeAlias = Any
"""The value of a task. Its type depends on the task's function."""
Function: TypeAlias = Callable[..., Value]
Case: TypeAlias = tuple[object, ...]
"""The arguments of one call."""

_FETCH_SECONDS = 300  # enough for some GB from another node; a value that takes longer counts as lost
_TASKS_PER_WORKER = 8  # tasks in progress per CPU: enough to keep all CPUs busy
_ATTEMPTS = 4  # how often a task whose node dies is run


class Tasks(Protocol):
    """Run functions as tasks."""

    @property
    def workers(self) -> int:
        """Return how many tasks can run at a time."""

    def submit(self, function: Function, *arguments: object, parts: int = 1) -> list[Ref]:
        """Start a task. With `parts` above 1 it returns that many values, each with a reference of its own."""

    def get(self, ref: Ref) -> Value:
        """Wait for a value. A FairmfError of the task is raised here."""

    def keep(self, value: object) -> Ref:
        """Store a value of this process where every task can read it."""

    def settle(self) -> None:
        """Wait until no task is in progress."""

    def each(self, function: Function, cases: Iterable[Case], shared: Sequence[object]) -> Iterator[Value]:
        """Yield function(*shared, *case) for every case, in order. A task that is lost is run again.

        `shared` is stored once, where every task can read it.
        """


@dataclass(frozen=True)
class Done:
    """Refer to a value in this process."""

    value: Value


class InProcess:
    """Run one task after the other, in this process."""

    workers = 1

    def submit(self, function: Function, *arguments: object, parts: int = 1) -> list[Ref]:
        """Run the task now."""
        given = [argument.value if isinstance(argument, Done) else argument for argument in arguments]
        result = function(*given)
        return [Done(value) for value in (result if parts > 1 else [result])]

    def get(self, ref: Ref) -> Value:
        """Return the value."""
        assert isinstance(ref, Done)
        return ref.value

    def keep(self, value: object) -> Ref:
        """Return a reference to the value itself."""
        return Done(value)

    def settle(self) -> None:
        """Do nothing: no task is ever in progress."""

    def each(self, function: Function, cases: Iterable[Case], shared: Sequence[object]) -> Iterator[Value]:
        """Run one case after the other."""
        return (function(*shared, *case) for case in cases)


@dataclass(frozen=True)
class Failed:
    """Carry a FairmfError as a value: Ray prints a raised one again for every value that nobody reads."""

    error: FairmfError


def _guarded(function: Function, parts: int, *arguments: object) -> Value:
    """Run the function, unless an argument has failed already; return its error in place of each of its values."""
    failed = next((argument for argument in arguments if isinstance(argument, Failed)), None)
    if failed is None:
        try:
            return function(*arguments)
        except FairmfError as error:
            failed = Failed(error)
    return failed if parts == 1 else [failed] * parts


class RayTasks:
    """Run tasks on the Ray cluster that this process is connected to; start one on this machine if there is none.

    A cluster that is started here keeps running, because shards are in its object store, until this process ends or
    calls ray.shutdown(). Every task has one CPU, and `gpus` GPUs; if workers of a fit hold all CPUs, tasks share them,
    because they would wait forever otherwise.
    """

    def __init__(self, gpus: float = 0) -> None:
        self._ray = ray_or_error("Data in shards")
        self._gpus = gpus
        ensure_ray(who="Data in shards")
        there = self._ray.cluster_resources()
        if there.get("CPU", 0) < 1 or there.get("GPU", 0) < gpus:
            raise ClusterFailed(
                f"A task needs 1 CPU and {gpus:g} GPUs, but the cluster has {there.get('CPU', 0):g} and "
                f"{there.get('GPU', 0):g}: add nodes."
            )
        self._cpus = int(self._ray.available_resources().get("CPU", 0) >= 1)
        self._begun: list[Ref] = []

    @property
    def workers(self) -> int:
        """Return the number of CPUs of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Function, *arguments: object, parts: int = 1) -> list[Ref]:
        """Submit the task to Ray, which starts it where a CPU is free. Blocks while many tasks are in progress.

        Few are in progress because they cannot be cancelled: in Ray 2.60, cancelling a task that has just finished ends
        the process.
        """
        # Ray starts any number of tasks that ask for no CPU: then have one per CPU, this one included.
        self._wait_for(_TASKS_PER_WORKER * self.workers if self._cpus else self.workers - 1)
        # No retries by Ray: if a node dies, the caller repeats the whole action, as its inputs may be lost too.
        remote = self._ray.remote(num_returns=parts, max_retries=0, num_cpus=self._cpus, num_gpus=self._gpus)
        refs = remote(_guarded).remote(function, parts, *arguments)
        refs = refs if parts > 1 else [refs]
        self._begun.append(refs[0])
        return list(refs)

    def get(self, ref: Ref) -> Value:
        """Wait for a value, as long as the task that makes it is alive."""
        value = self._ray.get(ref)
        if isinstance(value, Failed):
            raise value.error
        return value

    def keep(self, value: object) -> Ref:
        """Store a value in the object store of this process's node, for as long as this process runs."""
        ref: Ref = self._ray.put(value)
        return ref

    def settle(self) -> None:
        """Wait for the tasks in progress, at most a few per CPU."""
        self._wait_for(0)

    def each(self, function: Function, cases: Iterable[Case], shared: Sequence[object]) -> Iterator[Value]:
        """Run as many cases at a time as there are CPUs; a case whose node dies is run again on another."""
        common = [self.keep(value) for value in shared]
        listed = list(cases)
        try:
            refs = [self.submit(function, *common, *case)[0] for case in listed]
            refs.reverse()
            for case in listed:
                # Popped: without a reference here, the object store may free the value.
                yield self._result(refs.pop(), function, common, case)
        finally:
            self.settle()

    def _result(self, ref: Ref, function: Function, common: list[Ref], case: Case) -> Value:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self.get(ref)
            except lost_errors() as error:
                if attempt == _ATTEMPTS:
                    raise
                log.warning("a task was lost (%s): running it again", type(error).__name__)
                ref = self.submit(function, *common, *case)[0]
        raise AssertionError("unreachable")

    def _wait_for(self, most: int) -> None:
        """Wait until at most this many tasks are in progress."""
        while len(self._begun) > most:
            _, self._begun = self._ray.wait(self._begun, num_returns=len(self._begun) - most, fetch_local=False)


def kept_value(ref: Ref) -> Value:
    """Return a value that either kind of Tasks kept or made, in any process; raise one of `lost_errors` if lost."""
    if isinstance(ref, Done):
        return ref.value
    return ray_or_error().get(ref, timeout=_FETCH_SECONDS)


def lost_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that Ray raises for values of a process or a node that was lost; none without Ray."""
    try:
        from ray import exceptions
    except ImportError:
        return ()
    return (
        exceptions.ObjectLostError, exceptions.GetTimeoutError, exceptions.WorkerCrashedError,
        exceptions.NodeDiedError, exceptions.OutOfMemoryError, exceptions.LocalRayletDiedError,
    )  # fmt: skip
