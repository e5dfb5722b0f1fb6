"""Send requests to all workers, gather their answers, and replace workers that died.

`RayTeam` (ray_actors.py) runs workers on a cluster, `LocalTeam` in this process; `Team` is what both have in common.
"""

from __future__ import annotations

import abc
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import frozen
from fairmf.data.weighting import Balance, Weighting
from fairmf.distributed import remote_arrays
from fairmf.distributed.remote_arrays import Drawn, Given, ShardedFactors, Solved, UserTerms
from fairmf.distributed.shards import ShardSource
from fairmf.distributed.worker import Answer, Argument, Missing, Step, Turned, Worker
from fairmf.errors import ClusterFailed
from fairmf.lazy import cached_property
from fairmf.types import Array, Record


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
        """Return the bytes counted since the last call, by purpose."""
        new = self.bytes - self._seen
        self._seen = self.bytes.copy()
        return dict(new)


def size_of(value: object) -> int:
    """Return the bytes of the numbers in an answer or in arguments; the overhead of pickling is not counted."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (tuple, list)):
        return sum(size_of(part) for part in value)
    return 8 if isinstance(value, (int, float, np.generic)) else 0


T = TypeVar("T")
LARGE = 1 << 15  # larger arguments (bytes) are sent once for all workers of a node, through the object store
MOST_FAULTS = 10  # give up after this many faults in a row, without progress in between

log = logging.getLogger("fairmf")


class ShardLost(Exception):
    """Raised when a worker died, or no longer has what it is asked for."""


class Published(NamedTuple):
    """Refer to an array that all workers can read."""

    reference: object
    size: int


class Program(NamedTuple):
    """Hold steps for a worker, and the references of their `Argument`s, in order."""

    steps: list[Step]
    arguments: list[object]


Answers: TypeAlias = dict[int, tuple[Answer, float]]
"""The answer of each shard, and the seconds that it took."""


class Team(abc.ABC):
    """Run requests on the workers of a source's shards.

    Requests without a result are batched with the next one that has a result, to save round trips: a message carries a
    program. A lost worker is noticed at the next result, as `ShardLost`; `again` then repairs the team and repeats the
    action. Each exchange is retried like this on its own, unless it is part of a larger action, such as an epoch, which
    is repeated as a whole.
    """

    def __init__(self, source: ShardSource):
        self.source = source
        self.shards = source.shards
        self.n_users, self.n_items, self.nnz = source.n_users, source.n_items, source.nnz
        self.item_ids = source.item_ids
        self.popularity = source.popularity
        """The sum of every item's confidences, as the workers have them."""
        self.weighting: Weighting | None = source.weighting
        """The weighting by which these confidences were computed from raw ones."""
        self.traffic = Traffic()
        self.busy = np.zeros(source.shards)
        """The seconds that each worker has worked."""
        self.living: weakref.WeakValueDictionary[str, ShardedFactors] = weakref.WeakValueDictionary()
        self.gather_users = True
        """Whether user factors are collected from the workers, to be stored in files and models."""
        self._keys = 0
        self._within = False  # whether an action that `again` repeats is running
        self._busy_before = self.busy.copy()
        self._waiting: list[Step] = []  # requests without a result that are not sent yet
        self._gone: list[str] = []  # factors that workers may free
        self._established: list[Step] = []  # requests that every replacement worker has to run first
        self._fresh: set[int] = set()  # replacements that have not run them yet

    # -- what subclasses implement ------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _put(self, array: Array) -> object:
        """Return a reference by which every worker can read a snapshot of this array."""

    @abc.abstractmethod
    def _exchange(self, programs: Mapping[int, Program], partial: str | None) -> tuple[Answers, Array | None]:
        """Run these programs by shard; return their answers, and the total of the partial sums `partial`, if given."""

    @abc.abstractmethod
    def _replace_lost(self) -> list[int]:
        """Replace workers that are gone, and return their shards."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop all workers."""

    # -- requests -----------------------------------------------------------------------------------------------------

    def new_key(self) -> str:
        """Return a new name for an array in the workers."""
        self._keys += 1
        return f"{self._keys}"

    def forget(self, key: str) -> None:
        """Let workers free these factors with the next request. Called when the last reference here is gone."""
        self._gone.append(key)

    def publish(self, array: Array) -> Published:
        """Make an array of all items readable for every worker."""
        self.traffic.add("broadcast", array.nbytes * self.shards)
        return Published(self._put(array), array.nbytes)

    def send(self, operation: str, *args: object) -> None:
        """Queue a request without a result; workers run it before any later one."""
        self._waiting.append((operation, args))

    def establish(self, operation: str, *args: object) -> None:
        """Run a request in all workers, and later in every worker that replaces one."""
        self.ask(operation, *args)
        self._established.append((operation, args))

    def ask(self, operation: str, *args: object) -> list[Answer]:
        """Run a request in all workers; return their answers, by shard."""
        return self._all([(operation, args)], None)[0]

    def call(self, function: Callable[..., T], *args: object) -> list[T]:
        """Return function(worker, *args) of every worker, by shard. Workers must be able to import the function."""
        return self.ask("call", function, *args)

    def reduce(self, operation: str, *args: object) -> tuple[Array, list[Answer]]:
        """Run a request that makes a partial sum in every worker; return their total, added by a tree, and answers."""
        key = self.new_key()
        answers, total = self._all([(operation, (key, *args))], key)
        assert total is not None  # a key was given
        self.traffic.add("reduced", total.nbytes * self.shards)
        return total, answers

    def _all(self, steps: list[Step], partial: str | None) -> tuple[list[Answer], Array | None]:
        def exchange() -> tuple[list[Answer], Array | None]:
            # Queued requests go with the first attempt only: workers that survived the attempt have run them.
            program = self._program([*self._drained(), *steps])
            answers, total = self._run(dict.fromkeys(range(self.shards), program), partial)
            return [answers[shard] for shard in range(self.shards)], total

        return self.again(exchange)

    def _drained(self) -> list[Step]:
        """Empty the queue, and return its requests."""
        waiting, self._waiting, gone, self._gone = self._waiting, [], self._gone, []
        # Freed last: a queued request may still read them.
        return [*waiting, ("free", (gone,))] if gone else waiting

    def _program(self, steps: Sequence[Step]) -> Program:
        """Build a program; publish large arrays once instead of sending them to each worker."""
        arguments: list[object] = []

        def placed(value: object) -> object:
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

    def _run(
        self, programs: Mapping[int, Program], partial: str | None = None
    ) -> tuple[dict[int, Answer], Array | None]:
        """Run programs, count their traffic and seconds, and return the answers by shard."""
        answers, total = self._exchange(programs, partial)
        for shard, (answer, seconds) in answers.items():
            self.busy[shard] += seconds
            self.traffic.add("small", size_of(answer))
        return {shard: answer for shard, (answer, _) in answers.items()}, total

    # -- items --------------------------------------------------------------------------------------------------------

    @cached_property
    def item_counts(self) -> NDArray[np.float64]:
        """The number of users of every item (f_j); dislikes do not count."""
        # Confidences that are all 1 add up to the number of users.
        return np.array(self.source.popularity) if self.source.is_binary else self.reduce("item_counts")[0]

    @cached_property
    def liked_popularity(self) -> NDArray[np.float64]:
        """The sum of the confidences of every item's likes."""
        return self.reduce("item_likes")[0] if self.source.n_dislikes else self.popularity

    def balance(self, item_balance: float, user_balance: float) -> None:
        """Let every worker balance the confidences of its shard, and every worker that replaces one later.

        f_j and z are sums over all shards, a user's number of items is that of its own row. Call it once, before rows
        are used.
        """
        strengths, counts = (item_balance, user_balance), self.item_counts
        shared = self.publish(counts)
        learned = Balance(*strengths, counts, 1.0, self.weighting)
        learned = learned.normalised(self.ask("balance_totals", strengths, shared))
        self.establish("balance", strengths, shared, learned.norm)
        vars(self).pop("liked_popularity", None)
        self.popularity, self.weighting = self.reduce("item_confidences")[0], learned

    def leave_out(self, items: NDArray[np.int64] | None, users: NDArray[np.int64]) -> None:
        """Let every worker hold these items alone (None: all), without these users; those left get new numbers.

        What is left out has no interactions. Call it once, after `balance`.
        """
        kept = np.arange(self.n_items) if items is None else items
        place = np.full(self.n_items, -1, dtype=np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        counts = self.item_counts
        self.establish("leave_out", place, len(kept), np.sort(users))
        vars(self)["item_counts"] = counts[kept]
        vars(self).pop("liked_popularity", None)
        self.n_users, self.n_items = self.n_users - len(users), len(kept)
        self.popularity = self.popularity[kept]
        self.item_ids = None if self.item_ids is None else self.item_ids.take(kept)

    # -- factors ------------------------------------------------------------------------------------------------------

    def make(self, factors: ShardedFactors) -> None:
        """Make factors in all shards, by their recipe."""
        self.again(lambda: self._make(factors, None))

    def _make(self, factors: ShardedFactors, shards: Sequence[int] | None) -> None:
        where = range(self.shards) if shards is None else shards
        recipe, key, d = factors.recipe, factors.key, factors.shape[1]
        if isinstance(recipe, Drawn):
            steps: dict[int, list[Step]] = {s: [("draw", (key, d, recipe))] for s in where}
        elif isinstance(recipe, Solved):
            V = Turned(self.publish(recipe.item_factors), None)
            small = recipe._replace(item_factors=np.empty(0), terms=UserTerms())
            steps = {s: [("solve", (key, small, V, *recipe.terms))] for s in where}
        elif isinstance(recipe, Given):
            numbers, _ = self._run({s: self._program([("user_numbers", ())]) for s in where})
            steps = {s: [("set", (key, recipe.values[numbers[s]]))] for s in where}
        else:
            return
        # Queued requests are for all shards. When only some shards are remade, after a repair, the queue is empty.
        before = self._drained() if shards is None else []
        self._run({s: self._program([*before, *own]) for s, own in steps.items()})

    def gathered(self, factors: ShardedFactors) -> Array:
        """Collect the rows of user factors from all workers, in the order of users."""
        whole = np.empty(factors.shape, dtype=factors.dtype)
        for users, values in self.ask("get", factors.key):
            whole[users] = values
        return whole

    def report(self) -> Record:
        """Return the bytes sent since the last report, by purpose, and how long the mean and slowest shard worked."""
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
        """Run an action and return its result; if workers are lost on the way, repair the team and repeat the action.

        An action inside another is not repeated on its own: its inputs may be lost, and the outer one makes them again.
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
                # Repair in the next round: until this block ends, the error's traceback keeps unneeded factors alive.
                lost, reason = True, str(error)
                log.warning("a shard was lost and is made again: %s", reason)
        raise ClusterFailed(f"Shards were lost {MOST_FAULTS} times in a row, the last time because {reason}")

    def _repair(self) -> None:
        """Replace lost workers, and remake the factors that they held."""
        self._waiting, self._gone = [], []
        # A set that outlives this call: a worker lost during the repair must not hide that others are still fresh.
        self._fresh |= set(self._replace_lost())
        if self._fresh and self._established:
            self._run({shard: self._program(self._established) for shard in sorted(self._fresh)})
        self._fresh.clear()
        # Survivors free what the interrupted action left behind, and every worker says what it lacks.
        living = dict(self.living)
        for shard, missing in enumerate(self.ask("retain", list(living))):
            for key in missing:
                self._make(living[key], [shard])


class LocalTeam(Team):
    """Run workers in this process, one after the other: for tests, and to measure the effect of sharding alone."""

    def __init__(self, source: ShardSource, backend: str = "cpu", factor_dtype: str = "float32", threads: int = 0):
        super().__init__(source)
        self._settings = (backend, factor_dtype, threads)
        self.workers = {s: Worker(source, s, *self._settings) for s in range(source.shards)}

    def lose(self, shard: int) -> None:
        """Drop a worker, as if it had died."""
        del self.workers[shard]

    def _put(self, array: Array) -> object:
        return frozen(array.copy())  # a snapshot, as on a cluster: workers must not see later changes

    def _exchange(self, programs: Mapping[int, Program], partial: str | None) -> tuple[Answers, Array | None]:
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
