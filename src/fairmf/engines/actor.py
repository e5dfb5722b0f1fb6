"""A worker as Ray's actor: made first, and told to load when it is known to run."""

from __future__ import annotations

from typing import Any

from fairmf.engines.shards import Shard
from fairmf.engines.worker import Step, Worker


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
