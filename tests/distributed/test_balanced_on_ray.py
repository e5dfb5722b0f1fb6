"""Test a balanced fit on Parquet shards with workers of a real Ray cluster; test_balanced_shards.py has all cases."""

import logging

import numpy as np
import pytest
from in_process import InProcess, objective_of
from ray_here import KillWorker
from test_parquet_shards import events, in_process, sliced, write

from fairmf import FairALS, recommend_shards
from fairmf.data.interactions import Interactions
from fairmf.distributed.cluster import RayCluster
from fairmf.distributed.parquet_shards import ParquetShards
from fairmf.distributed.task_pool import InProcess as Here

SETTINGS = {"factors": 4, "fairness": 1.0, "item_balance": 0.4, "user_balance": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("balanced") / "data", sliced(events(2000), 3))


@pytest.mark.usefixtures("ray_cluster")
def test_a_balanced_fit_has_the_bits_of_the_same_shards_in_one_process(folder, tmp_path):
    source = ParquetShards.read(folder, shards=2, weights="plays")
    model = FairALS(**SETTINGS, epochs=4, engine="ray").fit(source, cluster=RayCluster(shards=2))
    here = in_process(folder, shards=2, weights="plays")
    expected = FairALS(**SETTINGS, epochs=4, engine="ray").fit(here, cluster=InProcess())
    np.testing.assert_array_equal(model.item_factors, expected.item_factors)
    np.testing.assert_array_equal(model.fitted.item_counts, expected.fitted.item_counts)
    assert model.fitted.weighting == expected.fitted.weighting
    for own, other in zip(model.history.records, expected.history.records, strict=True):
        assert own["engine"]["bytes"] == other["engine"]["bytes"]
    local = FairALS(**SETTINGS, epochs=4).fit(Interactions.from_parquet(folder, weights="plays"))
    assert objective_of(model) == pytest.approx(objective_of(local), rel=1e-6)
    assert model.fitted.weighting.norm == pytest.approx(local.fitted.weighting.norm, rel=1e-12)
    done = recommend_shards(model, source, tmp_path / "ray", N=4, evenness=0.5)
    same = recommend_shards(expected, here, tmp_path / "here", N=4, evenness=0.5, tasks=Here())
    np.testing.assert_array_equal(done.exposure, same.exposure)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.slow
def test_a_worker_that_replaces_another_balances_its_shard(folder, caplog):
    source = ParquetShards.read(folder, shards=2)
    settings = {**SETTINGS, "epochs": 80, "engine": "ray"}
    killing = KillWorker(1, epoch=5, delay=0.0)
    with caplog.at_level(logging.WARNING, "fairmf"):
        model = FairALS(**settings).fit(source, cluster=RayCluster(shards=2), callbacks=[killing])
    assert killing.done.is_set()
    assert "a shard was lost and is made again" in caplog.text
    expected = FairALS(**settings).fit(in_process(folder, shards=2), cluster=InProcess())
    assert objective_of(model) == pytest.approx(objective_of(expected), rel=1e-4)
