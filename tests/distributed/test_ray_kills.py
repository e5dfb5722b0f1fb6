"""Test that fits end at the same objective when workers, nodes and drivers are killed at random moments."""

import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from in_process import InProcess, objective_of
from ray_here import add_node, nodes, ray_or_skip, ray_processes

from fairmf import FairALS, load_model, synthetic
from fairmf.distributed.cluster import RayCluster

log = logging.getLogger(__name__)
pytestmark = pytest.mark.slow
RUNS = int(os.environ.get("FAIRMF_KILLS", "3"))  # more find rarer faults
LONGEST = 240.0  # seconds, until a fit counts as hanging
SIZE = {"n_users": 6000, "n_items": 1000, "n_interactions": 60_000, "random_state": 1}
SETTINGS = {"factors": 16, "epochs": 120, "engine": "ray"}


def shard_actors():
    return sorted(pid for pid, name in ray_processes().items() if "ShardActor" in name)


class Killer:
    """Kills a worker's process, or its node with everything on it: after an epoch, or (0) after the workers' start."""

    def __init__(self, cluster, kind, epoch, delay, choose):
        self.cluster, self.kind, self.epoch, self.delay, self.choose = cluster, kind, epoch, delay, choose
        self.thread = threading.Thread(target=self._kill, daemon=True)
        self.hit = False
        self.over = threading.Event()
        if epoch == 0:
            self.thread.start()

    def on_epoch(self, progress):
        if progress.epoch == self.epoch:
            self.thread.start()

    def _kill(self):
        while len(shard_actors()) < 2 and not self.over.is_set():
            time.sleep(0.02)
        time.sleep(self.delay)
        while not self.over.is_set() and not self.hit:
            # A process may be gone between being seen and being killed: the fit is over, or just begins.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, StopIteration, IndexError):
                self._kill_one(self.choose.choice(shard_actors()))
                self.hit = True

    def _kill_one(self, victim):
        if self.kind == "worker":
            os.kill(victim, signal.SIGKILL)
            return
        raylet = int(Path(f"/proc/{victim}/stat").read_text().rsplit(")", 1)[1].split()[1])
        node = next(n for n in self.cluster.list_all_nodes() if n.all_processes["raylet"][0].process.pid == raylet)
        self.cluster.remove_node(node, allow_graceful=False)


def fit_within(limit, data, killer):
    """The fitted model, or a failure that says so if it is not there in time."""
    found = {}

    def work():
        try:
            found["model"] = FairALS(**SETTINGS).fit(data, cluster=RayCluster(shards=2), callbacks=[killer])
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit)
    killer.over.set()
    assert not thread.is_alive(), f"the fit has not ended within {limit:g} seconds"
    if killer.thread.is_alive():
        killer.thread.join(60)
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
            add_node(cluster)
        for run in range(RUNS):
            kind, hit = "node" if run % 2 else "worker", False
            for _ in range(10):  # a fit may be over before it is hit; that counts for nothing
                epoch = choose.randrange(1, 100) if run % 3 else 0
                killer = Killer(cluster, kind, epoch, choose.uniform(0.0, 0.1 if run % 3 else 2.0), choose)
                began = time.monotonic()
                model = fit_within(LONGEST, data, killer)
                took = time.monotonic() - began
                if hit := killer.hit:
                    break
            assert hit
            outcomes.append((kind, killer.epoch, round(took, 1), objective_of(model) / expected - 1))
            log.info("%s", outcomes[-1])
            if kind == "node":
                add_node(cluster)
    assert all(abs(difference) < 1e-4 for *_, difference in outcomes), outcomes
    # Users who were made again are further than an epoch would have brought them: other bits, the same objective.
    assert sum(difference != 0 for *_, difference in outcomes) >= RUNS // 2, outcomes


ONE_FIT = """
import sys
from fairmf import FairALS, synthetic
from fairmf.distributed.cluster import RayCluster
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
