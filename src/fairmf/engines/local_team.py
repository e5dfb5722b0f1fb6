"""A team in this very process: the same programs and the same tree without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from fairmf.engines import tree
from fairmf.engines.shards import ShardSource
from fairmf.engines.team import Program, ShardLost, Team
from fairmf.engines.worker import Missing, Worker


class LocalTeam(Team):
    """Workers one after the other: for tests, and to see what sharding alone changes."""

    def __init__(self, source: ShardSource, backend: str = "cpu", factor_dtype: str = "float32", threads: int = 0):
        super().__init__(source)
        self._settings = (backend, factor_dtype, threads)
        self.workers = {s: Worker(source, s, *self._settings) for s in range(source.shards)}

    def lose(self, shard: int) -> None:
        """Let a worker die."""
        del self.workers[shard]

    def _put(self, array: NDArray[Any]) -> Any:
        copy = array.copy()  # as a cluster does: what is changed here later must not be seen there
        copy.flags.writeable = False
        return copy

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
        for level in tree.levels(self.shards):
            for into, other in level:
                self.workers[into].add_partial(partial, self.workers[other].take_partial(partial))
        return answers, self.workers[0].take_partial(partial)

    def _replace_lost(self) -> list[int]:
        new = [shard for shard in range(self.shards) if shard not in self.workers]
        self.workers |= {shard: Worker(self.source, shard, *self._settings) for shard in new}
        return new

    def close(self) -> None:
        """Let all workers go."""
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
