"""Test reading Parquet files on a Ray cluster; test_parquet_shards.py has all cases, in one process."""

import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray_here import ray_or_skip
from test_parquet_shards import check_same, events, sliced, write

from fairmf.data.interactions import Interactions
from fairmf.distributed.parquet_shards import ParquetShards
from fairmf.distributed.task_pool import RayTasks
from fairmf.errors import ClusterFailed, InvalidData
from fairmf.metrics.shard_evaluate import evaluate_shards
from fairmf.models.als import FairALS
from fairmf.models.shard_lists import recommend_shards


def wait_for(condition):
    """The cluster's own account lags behind."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


OPTIONS = {"weights": "plays", "min_user": 2, "min_item": 2}


def test_read_by_the_cluster(ray_cluster, tmp_path):
    folder = write(tmp_path / "data", sliced(events(), 3), 40)
    source = ParquetShards.read(folder, shards=3, rows_per_chunk=80, **OPTIONS)
    check_same(source, Interactions.from_parquet(folder, **OPTIONS))

    def again_there(source, number):
        one, two = source.load(number), source.read_again(number)
        same = all(np.array_equal(a, b) for a, b in zip(one.rows, two.rows, strict=True))
        return same and np.array_equal(one.users, two.users) and one.user_ids == two.user_ids, one.rows.nnz

    answers = list(RayTasks().each(again_there, [(number,) for number in range(3)], (source,)))
    assert all(same for same, _ in answers)
    assert sum(nnz for _, nnz in answers) == source.nnz
    assert ParquetShards.read(folder).shards == 2  # the CPUs of the cluster


def test_a_bad_file_is_named_and_nothing_goes_on(ray_cluster, tmp_path, capfd):
    bad = events(5).set_column(0, "user", pa.array(["a", None, "b", None, "c"]))
    folder = write(tmp_path / "data", [events(5), bad, events(5), bad])
    with pytest.raises(InvalidData, match=r"'user' of .*part-001.parquet .*holds 2 null or NaN, the first in row 1 "):
        ParquetShards.read(folder, shards=2)
    wait_for(lambda: ray_cluster.available_resources().get("CPU", 0) == 2)
    assert "Traceback" not in capfd.readouterr().err


def test_a_task_whose_process_dies_is_done_again(ray_cluster, tmp_path, caplog):
    def work(folder, number):
        mark = folder / f"tried-{number}"
        if number == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * 10

    with caplog.at_level(logging.WARNING, "fairmf"):
        assert list(RayTasks().each(work, [(k,) for k in range(4)], (tmp_path,))) == [0, 10, 20, 30]
    assert "a task was lost (WorkerCrashedError)" in caplog.text


def test_recommend_and_evaluate_on_the_cluster(ray_cluster, tmp_path):
    folder = write(tmp_path / "data", sliced(events(), 2))
    whole = Interactions.from_parquet(folder)
    model = FairALS(factors=4, epochs=2).fit(whole)
    source = ParquetShards.read(folder, shards=2)
    done = recommend_shards(model, source, tmp_path / "lists", N=4)
    written = pa.concat_tables([pq.read_table(tmp_path / "lists" / name) for name in done.files])
    expected = model.recommend_table(None, 4, recalculate_user=True)
    order = [("user", "ascending"), ("rank", "ascending")]
    assert written.sort_by(order).equals(expected.sort_by(order))
    held = write(tmp_path / "held", [events(200, seed=5)])
    targets = ParquetShards.read(held, shards=2, items=source.item_ids)
    found = evaluate_shards(model, source, targets, at=4, train=source)
    np.testing.assert_array_equal(found.exposure[4], done.exposure)
    assert found["gini@4"] == pytest.approx(done.gini)
    assert found.n_scored > 0


def test_where_actors_hold_all_cpus_tasks_share_them(ray_cluster, tmp_path):
    """As in a callback of a fit, which would otherwise wait for itself."""
    folder = write(tmp_path / "data", [events(50)])

    class Idle:
        def hello(self):
            return True

    held = [ray_cluster.remote(num_cpus=1)(Idle).remote() for _ in range(2)]
    assert all(ray_cluster.get([actor.hello.remote() for actor in held], timeout=60))
    try:
        wait_for(lambda: ray_cluster.available_resources().get("CPU", 0) == 0)
        check_same(ParquetShards.read(folder, shards=2), Interactions.from_parquet(folder))
    finally:
        for actor in held:
            ray_cluster.kill(actor)
        wait_for(lambda: ray_cluster.available_resources().get("CPU", 0) == 2)


@pytest.mark.usefixtures("ray_cluster")
def test_without_a_device_one_line_says_so():
    with pytest.raises(ClusterFailed, match="A task needs 1 CPU and 1 GPUs, but the cluster has 2 and 0"):
        RayTasks(gpus=1)


ONE_READING = """
import sys
from fairmf import ParquetShards
import pyarrow.parquet, pyarrow.fs, ray, logging
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
         object_store_memory=600_000_000)
def memory(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
ParquetShards.read(sys.argv[1] + "/small", shards=2)
before = memory("VmHWM")
source = ParquetShards.read(sys.argv[1] + "/large", shards=4, rows_per_chunk=500_000)
print(source.nnz, memory("VmHWM") - before)
"""


@pytest.mark.slow
def test_this_process_takes_no_memory_for_rows(tmp_path):
    """Less than 24 MB more for ten million rows of 100,000 users: their codes alone take 80 MB."""
    rows = 10_000_000
    ray_or_skip()
    rng = np.random.default_rng(0)
    write(tmp_path / "small", [events()])
    for k in range(10):
        n = rows // 10
        users, items = rng.integers(0, 100_000, n), (20_000 * rng.random(n) ** 3).astype(np.int64)
        (tmp_path / "large").mkdir(exist_ok=True)
        pq.write_table(pa.table({"user": users, "item": items}), tmp_path / "large" / f"{k}.parquet")
    command = [sys.executable, "-c", ONE_READING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    nnz, grown = map(int, done.stdout.split())
    assert nnz > rows * 0.8
    assert grown < 24_000
