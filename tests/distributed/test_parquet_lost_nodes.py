"""Test that the data are complete when a node dies with shards, or with tasks that read."""

import contextlib
import logging
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from ray_here import STORE, add_node
from test_parquet_shards import check_same, sliced, write

from fairmf.data.interactions import Interactions
from fairmf.distributed.parquet_shards import ParquetShards

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def nodes(ray, count):
    """A head without CPUs, on which this process is, and nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    ray.shutdown()
    options = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    try:
        added = [add_node(cluster) for _ in range(count)]
        ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
        yield cluster, added
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows enough that shards lie in the store of the node that made them, not in this process."""
    rng = np.random.default_rng(0)
    columns = {"user": rng.integers(0, 5000, 300_000), "item": rng.integers(0, 2000, 300_000)}
    table = pa.table(columns | {"plays": rng.integers(1, 4, 300_000) / 2})
    return write(tmp_path_factory.mktemp("nodes") / "data", sliced(table, 12))


def test_shards_that_are_lost_with_their_node_are_read_again(ray_session, folder, caplog):
    expected = Interactions.from_parquet(folder, weights="plays", min_item=150)
    with nodes(ray_session, 1) as (cluster, added):
        source = ParquetShards.read(folder, shards=2, weights="plays", min_item=150)
        cluster.remove_node(added[0], allow_graceful=False)
        with caplog.at_level(logging.WARNING, "fairmf"):
            check_same(source, expected)
    assert caplog.text.count("is lost") == 2


@pytest.mark.parametrize("wait", [0.5])
def test_a_node_that_dies_while_files_are_read(ray_session, folder, wait):
    expected = Interactions.from_parquet(folder, weights="plays")
    with nodes(ray_session, 2) as (cluster, added):

        def kill():
            time.sleep(wait)
            cluster.remove_node(added[0], allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        source = ParquetShards.read(folder, shards=3, weights="plays", rows_per_chunk=25_000)
        killer.join()
        check_same(source, expected)
