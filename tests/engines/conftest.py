"""A Ray cluster of this machine for all tests that need one: started with the first of them, stopped after the last."""

import logging
import os
from pathlib import Path

import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def children():
    """The processes that this one, or one of its children, has started."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])
    found, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


@pytest.fixture(scope="session")
def ray_session():
    ray = pytest.importorskip("ray", reason='needs Ray: pip install "fairmf[ray]"')
    before = children()
    yield ray
    ray.shutdown()
    assert not children() - before, "the cluster has left processes behind"


@pytest.fixture
def ray_cluster(ray_session):
    """Ray with two CPUs. A test that stops it to start its own leaves the next test to start this one again."""
    ray = ray_session
    if not ray.is_initialized():
        ray.init(
            num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
            object_store_memory=200_000_000,
        )  # fmt: skip
    return ray
