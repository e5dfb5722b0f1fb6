"""Test that a fit on Parquet shards equals the fit on the same data in memory, with workers in this process."""

import numpy as np
import pytest
from conftest import slow_values
from in_process import InProcess, item_products, objective_of
from test_parquet_shards import events, in_process, sliced, write

from fairmf import FairALS, recommend_shards
from fairmf.data.interactions import Interactions
from fairmf.distributed.task_pool import InProcess as Here


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("fits") / "data", sliced(events(2000), 3))


@pytest.mark.parametrize("shards", [3, *slow_values(1, 90)])  # of 60 users: most of 90 shards have nobody
@pytest.mark.parametrize(("weights", "fairness"), [(None, 0.0), (None, 1.0), ("plays", 1.0)])
def test_the_fit_is_that_of_the_data_in_memory(folder, shards, weights, fairness):
    settings = {"factors": 6, "epochs": 6, "fairness": fairness}
    local = FairALS(**settings).fit(Interactions.from_parquet(folder, weights=weights))
    source = in_process(folder, shards=shards, weights=weights)
    model = FairALS(**settings, engine="ray").fit(source, cluster=InProcess(shards=shards))
    assert objective_of(model) == pytest.approx(objective_of(local), rel=1e-4)
    np.testing.assert_allclose(item_products(model), item_products(local), atol=1e-3)
    np.testing.assert_allclose(model.fitted.popularity, local.fitted.popularity)
    assert model.fitted.item_ids == local.fitted.item_ids
    assert model.n_users == 0


def test_a_worker_that_is_lost_loads_its_shard_again(folder):
    source = in_process(folder, shards=3)
    settings = {"factors": 6, "epochs": 4, "engine": "ray"}
    whole = FairALS(**settings).fit(source, cluster=InProcess(shards=3))
    cluster = InProcess(shards=3, loses={20: 1, 45: 0})
    broken = FairALS(**settings).fit(source, cluster=cluster)
    assert cluster.teams[0].replaced == 2
    assert objective_of(broken) == pytest.approx(objective_of(whole), rel=1e-4)


def test_a_model_without_users_serves_all_of_them(folder, tmp_path):
    source = in_process(folder, shards=2)
    model = FairALS(factors=6, epochs=6, engine="ray").fit(source, cluster=InProcess(shards=2))
    done = recommend_shards(model, source, tmp_path, N=5, tasks=Here())
    local = FairALS(factors=6, epochs=6).fit(Interactions.from_parquet(folder))
    shown = np.zeros(local.n_items, dtype=int)
    for item in local.recommend_table(None, 5)["item"].to_pylist():
        shown[local.fitted.item_ids.position(item)] += 1
    assert np.abs(done.exposure - shown).sum() <= 0.02 * shown.sum()  # near ties may fall either way
