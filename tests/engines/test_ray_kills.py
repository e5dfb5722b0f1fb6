"""Workers, nodes and drivers killed at random moments: every fit ends, and at the same objective."""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from in_process import InProcess, objective_of
from ray_here import nodes, ray_or_skip, ray_processes

from fairmf import FairALS, load_model, synthetic
from fairmf.engines import RayCluster

log = logging.getLogger(__name__)
pytestmark = pytest.mark.slow
RUNS = 30
LONGEST = 240.0  # seconds, until a fit counts as hanging
SIZE = {"n_users": 6000, "n_items": 1000, "n_interactions": 60_000, "random_state": 1}
SETTINGS = {"factors": 16, "epochs": 200, "engine": "ray"}


def shard_actors():
    return sorted(pid for pid, name in ray_processes().items() if "ShardActor" in name)


class Killer(threading.Thread):
    """Kills a worker's process, or a node with everything on it, some time after the first worker is there."""

    def __init__(self, cluster, kind, delay, choose):
        super().__init__(daemon=True)
        self.cluster, self.kind, self.delay, self.choose = cluster, kind, delay, choose
        self.killed = None
        self.workers = 0

    def run(self):
        while len(shard_actors()) < 2:
            time.sleep(0.02)
        time.sleep(self.delay)
        if self.kind == "node":
            self.killed = self.choose.choice(self.cluster.list_all_nodes()[1:])  # the first is this process's own
            before = len(shard_actors())
            self.cluster.remove_node(self.killed, allow_graceful=False)
            time.sleep(0.5)
            self.workers = before - len(shard_actors())
        elif workers := shard_actors():
            self.killed = self.choose.choice(workers)
            os.kill(self.killed, signal.SIGKILL)
            self.workers = 1


def fit_within(limit, data):
    """The fitted model, or a failure that says so if it is not there in time."""
    found = {}

    def work():
        try:
            found["model"] = FairALS(**SETTINGS).fit(data, cluster=RayCluster(shards=2))
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit)
    assert not thread.is_alive(), f"the fit has not ended within {limit:g} seconds"
    if "error" in found:
        raise found["error"]
    return found["model"]


def test_whatever_is_killed_a_fit_ends_at_the_same_objective():
    ray_or_skip()
    data = synthetic(**SIZE)
    expected = objective_of(FairALS(**SETTINGS).fit(data, cluster=InProcess(shards=2)))
    choose = random.Random(20)
    outcomes = []
    # Three nodes of one CPU besides the driver's, for two workers: a lost node leaves room for its worker elsewhere.
    with nodes(1, cpus=0) as cluster:
        for _ in range(3):
            cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        for run in range(RUNS):
            kind = "node" if run % 2 else "worker"
            killer = Killer(cluster, kind, choose.uniform(0.0, 14.0), choose)
            killer.start()
            began = time.monotonic()
            model = fit_within(LONGEST, data)
            took = time.monotonic() - began
            killer.join(30)
            log.info("%s", (kind, killer.workers, killer.delay, took, objective_of(model) / expected - 1))
            outcomes.append((kind, killer.workers, round(took, 1), objective_of(model) / expected - 1))
            if kind == "node":
                cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
                cluster.wait_for_nodes()
    assert all(abs(difference) < 1e-4 for *_, difference in outcomes), outcomes
    # Those that were killed in the midst of an epoch end with other bits; those lost before the first draw the same.
    assert sum(workers > 0 for _, workers, *_ in outcomes) >= 20, outcomes
    assert sum(difference != 0 for *_, difference in outcomes) >= 5, outcomes


ONE_FIT = """
import sys
from fairmf import FairALS, synthetic
from fairmf.engines import RayCluster
data = synthetic(n_users=6000, n_items=1000, n_interactions=60_000, random_state=1)
model = FairALS(factors=16, epochs=40, engine="ray")
model.fit(data, cluster=RayCluster(shards=2, address=sys.argv[1]), checkpoint=sys.argv[2])
model.save(sys.argv[3])
"""


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(tmp_path):
    ray_or_skip()
    data = synthetic(**SIZE)
    whole = FairALS(**{**SETTINGS, "epochs": 40}).fit(data, cluster=InProcess(shards=2))
    with nodes(1, cpus=2) as cluster:
        command = [sys.executable, "-c", ONE_FIT, cluster.address, str(tmp_path / "c"), str(tmp_path / "m")]
        for epoch in (3, 17):
            driver = subprocess.Popen(command)
            newest = tmp_path / "c" / f"epoch-{epoch:06d}.checkpoint"
            deadline = time.monotonic() + LONGEST
            while not newest.exists() and driver.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            driver.kill()
            driver.wait()
            while shard_actors() and time.monotonic() < deadline:  # they go with their driver
                time.sleep(0.1)
            assert not shard_actors()
            assert not (tmp_path / "m").exists(), "it was not killed in time"
        subprocess.run(command, check=True, timeout=LONGEST)
    model = load_model(tmp_path / "m")
    np.testing.assert_array_equal(model.item_factors, whole.item_factors)
    np.testing.assert_array_equal(model.user_factors, whole.user_factors)
    assert [record["epoch"] for record in model.history.records] == list(range(1, 41))
