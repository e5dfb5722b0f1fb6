"""Clusters of one, two and four nodes: the objective of one machine, on real data and on a large Parquet data set."""

import functools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import load_real_split, real_file
from in_process import objective_of
from ray_here import nodes, ray_or_skip

from fairmf import FairALS, Interactions, ParquetShards, synthetic_events
from fairmf.engines import RayCluster
from fairmf.interactions import Rows

pytestmark = pytest.mark.slow
SETTINGS = {"factors": 32, "epochs": 8}


def movielens(_):
    return load_real_split("ml-1m-split.npz")[0]


def gowalla(_):
    arrays = np.load(real_file("gowalla.npz"))
    return Interactions(Rows(arrays["indptr"], arrays["indices"], None), int(arrays["shape"][1]))


@functools.cache
def _events():
    return synthetic_events(n_users=100_000, n_items=20_000, n_interactions=10_000_000)


def large(folder):
    """Ten million rows in ten files."""
    if not folder.exists():
        folder.mkdir()
        events = _events()
        table = pa.table({"user": events.users, "item": events.items})
        for k in range(10):
            pq.write_table(table.slice(k * 1_000_000, 1_000_000), folder / f"{k}.parquet")
    return Interactions.from_parquet(folder)


DATA = {"ml-1m": movielens, "gowalla": gowalla, "10M rows of Parquet": large}


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


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_objective_is_that_of_one_machine(expected, count):
    ray_or_skip()
    differences = {}
    with nodes(count):
        for name in DATA:
            for fairness in (0.0, 1.0):
                value, data = expected(name, fairness, count)
                model = FairALS(fairness=fairness, engine="ray", **SETTINGS)
                model.fit(data, cluster=RayCluster(shards=count))
                differences[name, fairness] = objective_of(model) / value - 1
    assert all(abs(difference) < 1e-4 for difference in differences.values()), differences
    assert max(map(abs, differences.values())) < 1e-6, f"far closer than needed until now: {differences}"
