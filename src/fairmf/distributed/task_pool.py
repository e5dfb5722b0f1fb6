"""Work handed out: to the processes of a Ray cluster, or (for tests, and for data that fit) done here, one by one.

Functions are plain module functions. What they return stays where it was made until it is asked for by `get`; a task
takes the results of others by handing on what stands for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fairmf.distributed.cluster import ensure_ray, ray_or_error
from fairmf.errors import ClusterFailed, FairmfError

log = logging.getLogger("fairmf")
Ref = Any
"""Something that stands for a value that is elsewhere, or not there yet."""
_FETCH_SECONDS = 300  # for some GB from another node; what takes longer is taken for lost


_TASKS_PER_WORKER = 8


_ATTEMPTS = 4


class Tasks(Protocol):
    """Who does the work."""

    @property
    def workers(self) -> int:
        """How many tasks can run at a time."""

    def submit(self, function: Callable[..., Any], *arguments: Any, parts: int = 1) -> list[Ref]:
        """Begin a task. One of several `parts` returns that many values; each can be handed on by itself."""

    def get(self, ref: Ref) -> Any:
        """Wait for a value. An error of fairmf's is raised as it was raised there."""

    def keep(self, value: Any) -> Ref:
        """A value of this process, kept where every task can have it."""

    def settle(self) -> None:
        """Wait until nothing is under way any more."""

    def each(
        self, function: Callable[..., Any], cases: Iterable[tuple[Any, ...]], shared: Sequence[Any]
    ) -> Iterator[Any]:
        """function(*shared, *case) for every case: the results, one by one. What is lost on the way is done again.

        `shared` is put where every task can have it, once.
        """


@dataclass(frozen=True)
class Done:
    """A value that is here."""

    value: Any


class InProcess:
    """One task after the other, in this process."""

    workers = 1

    def submit(self, function: Callable[..., Any], *arguments: Any, parts: int = 1) -> list[Ref]:
        """Do it now."""
        given = [argument.value if isinstance(argument, Done) else argument for argument in arguments]
        result = function(*given)
        return [Done(value) for value in (result if parts > 1 else [result])]

    def get(self, ref: Ref) -> Any:
        """The value."""
        return ref.value

    def keep(self, value: Any) -> Ref:
        """The value itself."""
        return Done(value)

    def settle(self) -> None:
        """Nothing ever is."""

    def each(
        self, function: Callable[..., Any], cases: Iterable[tuple[Any, ...]], shared: Sequence[Any]
    ) -> Iterator[Any]:
        """One after the other."""
        return (function(*shared, *case) for case in cases)


@dataclass(frozen=True)
class Failed:
    """An error of fairmf's in place of a value: a raised one Ray prints again for every value nobody asks for."""

    error: FairmfError


def _guarded(function: Callable[..., Any], parts: int, *arguments: Any) -> Any:
    """The function, unless what it needs has failed already; its error in place of each of its values."""
    failed = next((argument for argument in arguments if isinstance(argument, Failed)), None)
    if failed is None:
        try:
            return function(*arguments)
        except FairmfError as error:
            failed = Failed(error)
    return failed if parts == 1 else [failed] * parts


class RayTasks:
    """On the Ray cluster this process is connected to; a local one is started where there is none.

    What is started stays: shards lie in its object store. It ends with this process, or by ray.shutdown(). Every task
    has one CPU, and `gpus` devices; where workers of a fit hold all CPUs, tasks share them rather than wait for ever.
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
        """The CPUs of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[..., Any], *arguments: Any, parts: int = 1) -> list[Ref]:
        """Hand the task to Ray, which starts it where a CPU is free. Waits while many are under way.

        Ray could call tasks off, but a call that meets a task just done ends the process (2.60): so few are begun.
        """
        self._wait_for(_TASKS_PER_WORKER * self.workers if self._cpus else self.workers - 1)
        # Without retries: what a dead node took along is made anew as a whole, by who asked for it.
        remote = self._ray.remote(num_returns=parts, max_retries=0, num_cpus=self._cpus, num_gpus=self._gpus)
        refs = remote(_guarded).remote(function, parts, *arguments)
        refs = refs if parts > 1 else [refs]
        self._begun.append(refs[0])
        return list(refs)

    def get(self, ref: Ref) -> Any:
        """Wait for a value, as long as the task that makes it is alive."""
        value = self._ray.get(ref)
        if isinstance(value, Failed):
            raise value.error
        return value

    def keep(self, value: Any) -> Ref:
        """In the object store of this process's node, which lives as long as this process."""
        return self._ray.put(value)

    def settle(self) -> None:
        """Wait for what is under way, which is no more than a few tasks per CPU."""
        self._wait_for(0)

    def each(
        self, function: Callable[..., Any], cases: Iterable[tuple[Any, ...]], shared: Sequence[Any]
    ) -> Iterator[Any]:
        """As many at a time as there are CPUs; a case whose node dies is done again on another."""
        common = [self.keep(value) for value in shared]
        listed = list(cases)
        try:
            refs = [self.submit(function, *common, *case)[0] for case in listed]
            refs.reverse()
            for case in listed:
                yield self._result(refs.pop(), function, common, case)  # what has been asked for may leave the store
        finally:
            self.settle()

    def _result(self, ref: Ref, function: Callable[..., Any], common: list[Ref], case: tuple[Any, ...]) -> Any:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self.get(ref)
            except lost_errors() as error:
                if attempt == _ATTEMPTS:
                    raise
                log.warning("a task was lost (%s): it is done again", type(error).__name__)
                ref = self.submit(function, *common, *case)[0]
        raise AssertionError("unreachable")

    def _wait_for(self, most: int) -> None:
        """Go on when at most so many tasks are under way."""
        while len(self._begun) > most:
            _, self._begun = self._ray.wait(self._begun, num_returns=len(self._begun) - most, fetch_local=False)


def kept_value(ref: Ref) -> Any:
    """What was kept or made by either kind of Tasks, in whichever process; one of `lost_errors` where it is lost."""
    if isinstance(ref, Done):
        return ref.value
    return ray_or_error().get(ref, timeout=_FETCH_SECONDS)


def lost_errors() -> tuple[type[Exception], ...]:
    """What Ray raises where a process or a node was lost, with what it held."""
    try:
        from ray import exceptions
    except ImportError:
        return ()
    return (
        exceptions.ObjectLostError, exceptions.GetTimeoutError, exceptions.WorkerCrashedError,
        exceptions.NodeDiedError, exceptions.OutOfMemoryError, exceptions.LocalRayletDiedError,
    )  # fmt: skip
