"""Test that clusters of two and four nodes reach one machine's objective, on real and on large Parquet data."""

import functools
import logging
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import load_real_split, real_file
from in_process import objective_of
from ray_here import nodes, ray_or_skip

from fairmf import FairALS, Interactions, ParquetShards, synthetic_events
from fairmf.data.csr import Rows
from fairmf.distributed.cluster import RayCluster

log = logging.getLogger(__name__)
pytestmark = pytest.mark.slow
SETTINGS = {"factors": 32, "epochs": 4}


def movielens(_):
    return load_real_split("ml-1m-split.npz")[0]


def gowalla(_):
    arrays = np.load(real_file("gowalla.npz"))
    return Interactions(Rows(arrays["indptr"], arrays["indices"], None), int(arrays["shape"][1]))


@functools.cache
def _events():
    return synthetic_events(n_users=30_000, n_items=8_000, n_interactions=2_000_000)


def large(folder):
    """Two million rows in ten files."""
    if not folder.exists():
        folder.mkdir()
        events = _events()
        table = pa.table({"user": events.users, "item": events.items})
        for k in range(10):
            pq.write_table(table.slice(k * 200_000, 200_000), folder / f"{k}.parquet")
    return Interactions.from_parquet(folder)


DATA = {"ml-1m": movielens, "gowalla": gowalla, "Parquet": large}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The objective that one machine reaches, and the data, each made once."""
    folder = tmp_path_factory.mktemp("large") / "files"

    @functools.cache
    def data_of(name):
        return DATA[name](folder)

    @functools.cache
    def objective(name, fairness):
        return objective_of(FairALS(fairness=fairness, **SETTINGS).fit(data_of(name)))

    def of(name, fairness, shards):
        value = objective(name, fairness)
        return value, ParquetShards.read(folder, shards=shards) if DATA[name] is large else data_of(name)

    return of


@pytest.mark.parametrize(("count", "names"), [(2, ["Parquet"]), (4, list(DATA))])
def test_the_objective_is_that_of_one_machine(expected, count, names):
    ray_or_skip()
    differences = {}
    with nodes(count):
        for name in names:
            for fairness in (0.0, 1.0) if name == "ml-1m" else (1.0,):
                value, data = expected(name, fairness, count)
                model = FairALS(fairness=fairness, engine="ray", **SETTINGS)
                model.fit(data, cluster=RayCluster(shards=count))
                differences[name, fairness] = objective_of(model) / value - 1
                log.info("%d nodes, %s, fairness %g: %.2g", count, name, fairness, differences[name, fairness])
    assert all(abs(difference) < 1e-4 for difference in differences.values()), differences


DRIVER = """
import logging, sys
from pathlib import Path
import ray
from fairmf import FairALS, ParquetShards, RayCluster, synthetic
def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1])
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
         object_store_memory=600_000_000)
model = FairALS(factors=32, epochs=3, engine="ray")
model.fit(synthetic(300, 200, 6000), cluster=RayCluster(shards=2))  # everything is loaded that will be
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = memory("VmRSS")
model.fit(ParquetShards.read(sys.argv[1], shards=2), cluster=RayCluster(shards=2))
print(memory("VmHWM") - before)
"""


def test_the_process_that_fits_takes_no_memory_for_rows(tmp_path):
    """Reading and fitting 5 million rows of 100,000 users: their items alone would be 20 MB."""
    ray_or_skip()
    peaks = {}
    for rows in (500_000, 5_000_000):
        rng = np.random.default_rng(0)
        folder = tmp_path / str(rows)
        folder.mkdir()
        for k in range(10):
            users, items = rng.integers(0, 100_000, rows // 10), (20_000 * rng.random(rows // 10) ** 2).astype(np.int64)
            pq.write_table(pa.table({"user": users, "item": items}), folder / f"{k}.parquet")
        command = [sys.executable, "-c", DRIVER, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
        peaks[rows] = int(done.stdout.split()[-1])
    assert peaks[5_000_000] < peaks[500_000] + 12_000, peaks  # kB
