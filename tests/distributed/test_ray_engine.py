"""Fits on a real Ray cluster of one small node, which these tests start and stop themselves.

Workers take seconds to start, so few are: most is shown of workers in one process (test_sharded_fits.py), and here that
those of a cluster have the same bits.
"""

import logging
import os
import re
import signal
import sys
import time

import numpy as np
import pytest
from in_process import InProcess, objective_of
from ray_here import KillWorker, ray_processes

from fairmf import FairALS, synthetic
from fairmf.distributed import cluster as clusters
from fairmf.distributed.cluster import RayCluster
from fairmf.distributed.ray_actors import RayTeam
from fairmf.distributed.worker import Turned, Worker
from fairmf.errors import ClusterFailed, MissingDependency

DATA = synthetic(n_users=600, n_items=2000, n_interactions=6000, random_state=1)
SETTINGS = {"factors": 8, "engine": "ray"}


def actors():
    return {pid for pid, name in ray_processes().items() if "ShardActor" in name}


def assert_no_actors_but(before):
    deadline = time.monotonic() + 20
    while actors() - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert actors() <= before


class Sizes:
    """What is published and what the root of the tree returns, as Ray itself sees their sizes."""

    def __init__(self, monkeypatch):
        import ray
        from ray.experimental import get_object_locations

        self.broadcast = self.reduced = 0
        put, exchange = RayTeam._put, RayTeam._exchange

        def seen_put(team, array):
            reference = put(team, array)
            self.broadcast += get_object_locations([reference])[reference]["object_size"]
            return reference

        def seen_exchange(team, programs, partial):
            answers, total = exchange(team, programs, partial)
            if partial is not None:
                reference = ray.put(total)
                self.reduced += get_object_locations([reference])[reference]["object_size"]
            return answers, total

        monkeypatch.setattr(RayTeam, "_put", seen_put)
        monkeypatch.setattr(RayTeam, "_exchange", seen_exchange)


def test_a_fit_has_the_bits_of_the_same_shards_in_one_process_and_counts_what_ray_carries(ray_cluster, monkeypatch):
    before, sizes = actors(), Sizes(monkeypatch)
    model = FairALS(epochs=4, **SETTINGS).fit(DATA, cluster=RayCluster(shards=2))
    assert_no_actors_but(before)
    expected = FairALS(epochs=4, **SETTINGS).fit(DATA, cluster=InProcess(shards=2))
    np.testing.assert_array_equal(model.item_factors, expected.item_factors)
    np.testing.assert_array_equal(model.user_factors, expected.user_factors)
    records = model.history.records
    for own, other in zip(records, expected.history.records, strict=True):
        assert own["objective"] == other["objective"]
        assert own["engine"]["bytes"] == other["engine"]["bytes"]
    counted = {name: sum(r["engine"]["bytes"][name] for r in records) for name in ("broadcast", "reduced")}
    # Each of two shards reads what is published once; V goes out once more for the last half-step, after all records.
    assert sizes.broadcast == pytest.approx(counted["broadcast"] / 2 + 2000 * 8 * 4, rel=0.2)
    assert sizes.reduced == pytest.approx(counted["reduced"] / 2, rel=0.2)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(ray_cluster, caplog):
    settings = {**SETTINGS, "epochs": 80}
    expected = objective_of(FairALS(**settings).fit(DATA, cluster=InProcess(shards=2)))
    killing, before = KillWorker(1, epoch=5, delay=0.05), actors()
    with caplog.at_level(logging.WARNING, "fairmf"):
        model = FairALS(**settings).fit(DATA, cluster=RayCluster(shards=2), callbacks=[killing])
    assert killing.done.is_set()
    assert "a shard was lost and is made again" in caplog.text
    assert objective_of(model) == pytest.approx(expected, rel=1e-4)
    assert_no_actors_but(before)


def test_a_team_and_what_can_go_wrong_in_it(ray_cluster, caplog):
    with RayCluster(patience=8.0).team(DATA) as team:
        pids = team.pids()
        assert team.shards == 2, "there is a shard for every CPU"
        assert len({*pids.values(), os.getpid()}) == 3
        V = np.arange(24, dtype=np.float32).reshape(8, 3)
        turned = Turned(team.publish(V), 2 * np.eye(3))
        # The worker is the first argument, so this is `worker.set("V", ...)`: anything importable can be called there.
        team.call(Worker.set, "V", turned)
        for _, values in team.ask("get", "V"):
            np.testing.assert_array_equal(values, 2 * V)
        with pytest.raises(AttributeError, match="nothing_like_that"):  # errors come out as they are
            team.ask("nothing_like_that")
        # A worker that is silent for too long is replaced.
        os.kill(pids[1], signal.SIGSTOP)
        with caplog.at_level(logging.WARNING, "fairmf"):
            sums = team.again(lambda: team.ask("vector_sum", "sums"))
        assert "no answer within 8 seconds" in caplog.text
        assert sum(sums) == DATA.nnz
        assert team.pids()[1] != pids[1]


@pytest.mark.parametrize(
    ("address", "what"), [(None, "start Ray on this machine"), ("a:1", "connect to a Ray cluster at 'a:1'")]
)
def test_where_ray_does_not_start_the_error_says_so(address, what, monkeypatch):
    """Ray raises a plain Exception where a node does not start in time."""

    class Slow:
        is_initialized = staticmethod(lambda: False)

        @staticmethod
        def init(**_):
            raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(clusters, "ray_or_error", lambda *_: Slow)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ClusterFailed, match=f"^Cannot {what}: The current node timed out during startup.$"):
        clusters.ensure_ray(address)


def test_more_than_the_cluster_has_is_refused(ray_cluster):
    with pytest.raises(ClusterFailed, match="3 shards of 1 CPUs each need 3, but the cluster has 2"):
        FairALS(**SETTINGS).fit(DATA, cluster=RayCluster(shards=3))
    with pytest.raises(ClusterFailed, match="1 GPUs each need 1, but the cluster has 0"):
        FairALS(**SETTINGS).fit(DATA, cluster=RayCluster(shards=1, gpus_per_shard=1))


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency) as caught:
        FairALS(engine="ray").fit(DATA)
    assert re.match(r"engine='ray' needs Ray: pip install .*\bray", str(caught.value))
