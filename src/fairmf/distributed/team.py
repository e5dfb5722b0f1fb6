"""Send requests to all workers, gather their answers, and replace workers that died.

`Team` is what both kinds share; `RayTeam` (ray_team.py) runs workers on a cluster, `LocalTeam` in this process.
"""

from __future__ import annotations

import abc
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fairmf.backends.contract import frozen
from fairmf.distributed import remote_arrays
from fairmf.distributed.remote_arrays import Drawn, Given, ShardedFactors, Solved
from fairmf.distributed.shards import ShardSource
from fairmf.distributed.worker import Argument, Missing, Step, Turned, Worker
from fairmf.errors import ClusterFailed
from fairmf.types import Array


class Traffic:
    """Count the bytes sent, by purpose. A broadcast counts once for every shard that reads it.

    `broadcast`: arrays of all items, driver to workers. `reduced`: partial sums over all items, along the tree and from
    its root to the driver. `small`: everything of the size of factors x factors and below, both ways.
    `users`: user factors that are gathered or given.
    """

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()

    def add(self, purpose: str, size: int) -> None:
        """Count these bytes."""
        self.bytes[purpose] += size

    def since_last(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        new = self.bytes - self._seen
        self._seen = self.bytes.copy()
        return dict(new)


def size_of(value: Any) -> int:
    """Return the bytes of the numbers in an answer or in arguments; containers and pickling are not counted."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (tuple, list)):
        return sum(size_of(part) for part in value)
    return 8 if isinstance(value, (int, float, np.generic)) else 0


T = TypeVar("T")
LARGE = 1 << 15  # bytes from which an argument is sent once for all workers of a node
MOST_FAULTS = 10  # in a row, without anything getting done between

log = logging.getLogger("fairmf")


class ShardLost(Exception):
    """A worker died, or no longer has what it is asked for."""


class Published(NamedTuple):
    """An array that all workers can read."""

    reference: Any
    size: int


class Program(NamedTuple):
    """Steps for a worker, and what stands for their `Argument`s."""

    steps: list[Step]
    arguments: list[Any]


class Team(abc.ABC):
    """Workers over the shards of a source.

    Requests without a result are batched with the next one that has a result, to save round trips: a message carries a
    program. A lost worker is noticed at the next result, as `ShardLost`; `again` then repairs the team and repeats the
    action. Each exchange retries in this way by itself, unless it is part of a larger action, such as an epoch, which
    is repeated as a whole.
    """

    def __init__(self, source: ShardSource):
        self.source = source
        self.shards = source.shards
        self.n_users, self.n_items, self.nnz = source.n_users, source.n_items, source.nnz
        self.popularity = source.popularity
        self.traffic = Traffic()
        self.busy = np.zeros(source.shards)
        """Seconds that each worker has worked."""
        self.living: weakref.WeakValueDictionary[str, ShardedFactors] = weakref.WeakValueDictionary()
        self.gather_users = True
        """Whether user factors are stored and kept outside the workers."""
        self._keys = 0
        self._within = False  # an action that `again` repeats
        self._busy_before = self.busy.copy()
        self._waiting: list[Step] = []
        self._gone: list[str] = []
        self._established: list[Step] = []
        self._fresh: set[int] = set()  # workers that have not heard yet what is established

    # -- what a kind of team supplies ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def _put(self, array: Array) -> Any:
        """Return a reference by which every worker can read this array as it is now."""

    @abc.abstractmethod
    def _exchange(self, programs: Mapping[int, Program], partial: str | None) -> tuple[dict[int, Any], Any]:
        """Run these; return (answer, seconds) by shard, and the sum of the partial sums under `partial`, if given."""

    @abc.abstractmethod
    def _replace_lost(self) -> list[int]:
        """Replace workers that are gone, and return their shards."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop all workers."""

    # -- requests -----------------------------------------------------------------------------------------------------

    def new_key(self) -> str:
        """Return a new name for something in the workers."""
        self._keys += 1
        return f"{self._keys}"

    def forget(self, key: str) -> None:
        """Let workers free these factors: nobody here refers to them any more."""
        self._gone.append(key)

    def publish(self, array: Array) -> Published:
        """Make an array of all items readable for every worker."""
        self.traffic.add("broadcast", array.nbytes * self.shards)
        return Published(self._put(array), array.nbytes)

    def send(self, operation: str, *args: Any) -> None:
        """Queue a request without a result; workers run it before any later one."""
        self._waiting.append((operation, args))

    def establish(self, operation: str, *args: Any) -> None:
        """Have all workers do this, and every worker that replaces one later."""
        self.ask(operation, *args)
        self._established.append((operation, args))

    def ask(self, operation: str, *args: Any) -> list[Any]:
        """Return the answers of all workers, by shard."""
        return self._all([(operation, args)], None)[0]

    def call(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Return function(worker, *args) of every worker, by shard. Workers must be able to import the function."""
        return self.ask("call", function, *args)

    def reduce(self, operation: str, *args: Any) -> tuple[Array, list[Any]]:
        """Have every worker make a partial sum; return their total, added along the tree, and the answers."""
        key = self.new_key()
        answers, total = self._all([(operation, (key, *args))], key)
        self.traffic.add("reduced", total.nbytes * self.shards)
        return total, answers

    def _all(self, steps: list[Step], partial: str | None) -> tuple[list[Any], Any]:
        def exchange() -> tuple[list[Any], Any]:
            # What waits is in the first attempt alone: a worker that survived the attempt has done it.
            program = self._program([*self._drained(), *steps])
            answers, total = self._run(dict.fromkeys(range(self.shards), program), partial)
            return [answers[shard] for shard in range(self.shards)], total

        return self.again(exchange)

    def _drained(self) -> list[Step]:
        waiting, self._waiting, gone, self._gone = self._waiting, [], self._gone, []
        return [*waiting, ("free", (gone,))] if gone else waiting

    def _program(self, steps: Sequence[Step]) -> Program:
        """Build a program; take large arrays out and send them once rather than once per worker."""
        arguments: list[Any] = []

        def placed(value: Any) -> Any:
            if isinstance(value, Turned):
                return Turned(placed(value.array), placed(value.matrix))
            if isinstance(value, np.ndarray) and value.nbytes >= LARGE:
                self.traffic.add("small", value.nbytes * self.shards)
                value = Published(self._put(value), value.nbytes)
            elif not isinstance(value, Published):
                self.traffic.add("small", size_of(value) * self.shards)
            if isinstance(value, Published):
                arguments.append(value.reference)
                return Argument(len(arguments) - 1)
            return value

        return Program([(name, tuple(placed(value) for value in args)) for name, args in steps], arguments)

    def _run(self, programs: Mapping[int, Program], partial: str | None = None) -> tuple[dict[int, Any], Any]:
        answers, total = self._exchange(programs, partial)
        for shard, (answer, seconds) in answers.items():
            self.busy[shard] += seconds
            self.traffic.add("small", size_of(answer))
        return {shard: answer for shard, (answer, _) in answers.items()}, total

    # -- factors ------------------------------------------------------------------------------------------------------

    def make(self, factors: ShardedFactors) -> None:
        """Make factors by their recipe, in all shards."""
        self.again(lambda: self._make(factors, None))

    def _make(self, factors: ShardedFactors, shards: Sequence[int] | None) -> None:
        where = range(self.shards) if shards is None else shards
        recipe, key, d = factors.recipe, factors.key, factors.shape[1]
        if isinstance(recipe, Drawn):
            steps: dict[int, list[Step]] = {s: [("draw", (key, d, recipe))] for s in where}
        elif isinstance(recipe, Solved):
            V = Turned(self.publish(recipe.item_factors), None)
            small = recipe._replace(item_factors=np.empty(0))
            steps = {s: [("solve", (key, small, V))] for s in where}
        elif isinstance(recipe, Given):
            numbers, _ = self._run({s: self._program([("user_numbers", ())]) for s in where})
            steps = {s: [("set", (key, recipe.values[numbers[s]]))] for s in where}
        else:
            return
        # What waits is for all shards; where only some are made anew nothing is waiting.
        before = self._drained() if shards is None else []
        self._run({s: self._program([*before, *own]) for s, own in steps.items()})

    def gathered(self, factors: ShardedFactors) -> Array:
        """Return all rows of user factors, in the order of users."""
        whole = np.empty(factors.shape, dtype=factors.dtype)
        for users, values in self.ask("get", factors.key):
            whole[users] = values
        return whole

    def report(self) -> dict[str, Any]:
        """Return the bytes sent since the last report, by purpose, and how long the slowest shard worked."""
        worked = self.busy - self._busy_before
        self._busy_before = self.busy.copy()
        mean = float(worked.mean())
        return {
            "bytes": self.traffic.since_last(),
            "seconds": mean,
            "slowest_shard": int(worked.argmax()),
            "slowest_over_mean": float(worked.max()) / mean if mean > 0 else 1.0,
        }

    # -- faults -------------------------------------------------------------------------------------------------------

    def again(self, action: Callable[[], T]) -> T:
        """Return the action's result; where workers are lost on the way, repair the team and repeat the action.

        An action inside another is not repeated by itself: what it needs may be lost, and the outer one makes it anew.
        """
        if self._within:
            return action()
        self._within = True
        try:
            return self._until_done(action)
        finally:
            self._within = False

    def _until_done(self, action: Callable[[], T]) -> T:
        lost, reason = False, ""
        for _ in range(MOST_FAULTS):
            try:
                if lost:
                    self._repair()
                return action()
            except ShardLost as error:
                # Repaired in the next round: until then the error's traceback holds factors that are not needed.
                lost, reason = True, str(error)
                log.warning("a shard was lost and is made again: %s", reason)
        raise ClusterFailed(f"Shards were lost {MOST_FAULTS} times in a row, the last time because {reason}")

    def _repair(self) -> None:
        """Replace lost workers, and make what they held again."""
        self._waiting, self._gone = [], []
        self._fresh |= set(self._replace_lost())
        if self._fresh and self._established:
            self._run({shard: self._program(self._established) for shard in sorted(self._fresh)})
        self._fresh.clear()
        living = dict(self.living)
        for shard, missing in enumerate(self.ask("retain", list(living))):
            for key in missing:
                self._make(living[key], [shard])


class LocalTeam(Team):
    """Workers in this process, one after the other: for tests, and to see what sharding alone changes."""

    def __init__(self, source: ShardSource, backend: str = "cpu", factor_dtype: str = "float32", threads: int = 0):
        super().__init__(source)
        self._settings = (backend, factor_dtype, threads)
        self.workers = {s: Worker(source, s, *self._settings) for s in range(source.shards)}

    def lose(self, shard: int) -> None:
        """Drop a worker, as if it had died."""
        del self.workers[shard]

    def _put(self, array: Array) -> Any:
        return frozen(array.copy())  # as a cluster does: workers must not see what changes here later

    def _exchange(self, programs: Mapping[int, Program], partial: str | None) -> tuple[dict[int, Any], Any]:
        lost = [shard for shard in programs if shard not in self.workers]
        if lost:
            raise ShardLost(f"shard {lost[0]} is gone")
        try:
            answers = {s: self.workers[s].run(p.steps, p.arguments) for s, p in programs.items()}
        except Missing as error:
            raise ShardLost(f"factors {error} are missing") from error
        if partial is None:
            return answers, None
        for level in remote_arrays.levels(self.shards):
            for into, other in level:
                self.workers[into].add_partial(partial, self.workers[other].take_partial(partial))
        return answers, self.workers[0].take_partial(partial)

    def _replace_lost(self) -> list[int]:
        new = [shard for shard in range(self.shards) if shard not in self.workers]
        self.workers |= {shard: Worker(self.source, shard, *self._settings) for shard in new}
        return new

    def close(self) -> None:
        """Stop all workers."""
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
