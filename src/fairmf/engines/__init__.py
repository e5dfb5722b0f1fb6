"""Engines: who computes. Workers that own shards of users, as one backend, in this process or on a Ray cluster."""

from fairmf.engines.cluster import RayCluster
from fairmf.engines.shards import InMemoryShards, Shard, ShardSource

__all__ = ["InMemoryShards", "RayCluster", "Shard", "ShardSource"]
