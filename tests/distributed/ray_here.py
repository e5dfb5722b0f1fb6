"""Start and stop a small, silent Ray cluster on this machine for tests, and check that nothing is left behind."""

import contextlib
import logging
import os
import signal
import threading
import time
from pathlib import Path

import pytest

STORE = 200 << 20  # bytes of each node's object store
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_AUTH_MODE": "disabled",
}


def ray_or_skip():
    """The package, quiet, or a skip that says what is missing."""
    os.environ.update(QUIET)
    return pytest.importorskip("ray", reason="needs Ray: pip install 'fairmf[ray]'")


def start(ray, cpus):
    """A cluster of one node, and this process connected to it."""
    options = {"num_cpus": cpus, "num_gpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    patiently(lambda: ray.init(address="local", log_to_driver=False, logging_level=logging.ERROR, **options))


def patiently(call):
    """Call; call again where Ray did not start in the 30 seconds that it allows for, as on a busy machine."""
    for last in (False, False, True):
        before = ray_processes()
        try:
            return call()
        except Exception as error:
            if last or "timed out during startup" not in str(error):
                raise
            for pid in ray_processes().keys() - before.keys():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    return None


@contextlib.contextmanager
def nodes(count, cpus=1):
    """This process connected to a cluster of several nodes; the head has CPUs of its own and cannot be lost."""
    ray = ray_or_skip()
    from ray.cluster_utils import Cluster

    ray.shutdown()  # what other tests have left: they start theirs again
    options = {"num_cpus": cpus, "object_store_memory": STORE, "include_dashboard": False}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=options))
    try:
        for _ in range(count - 1):
            add_node(cluster, cpus)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        started = ray_processes()
        ray.shutdown()
        cluster.shutdown()
        assert_gone(started)


def add_node(cluster, cpus=1):
    """One more node; a busy machine may take longer to start one than Ray allows for."""
    for attempt in range(3):
        try:
            return cluster.add_node(num_cpus=cpus, object_store_memory=STORE)
        except Exception:
            if attempt == 2:
                raise
    return None


class KillWorker:
    """Kills the process of a shard's worker some time after an epoch."""

    def __init__(self, shard, epoch, delay):
        self.shard, self.epoch, self.delay = shard, epoch, delay
        self.done = threading.Event()

    def on_epoch(self, progress):
        if progress.epoch == self.epoch:
            pid = progress.state.user_factors.team.pids()[self.shard]
            threading.Timer(self.delay, self._kill, (pid,)).start()

    def _kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        self.done.set()


def ray_processes():
    """The names of all processes that this one has started, or that those have, by number."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                if stat[0] != "Z":
                    parents[int(folder.name)] = int(stat[1])
                    names[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    ours, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours, grown = ours | more, bool(more)
    return {pid: names[pid] for pid in ours - {os.getpid()} if "ray" in names.get(pid, "")}


def assert_gone(processes, patience=30.0):
    """None of these is left."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        left = {pid: name for pid, name in processes.items() if _alive(pid)}
        if not left:
            return
        time.sleep(0.2)
    raise AssertionError(f"processes of Ray are left: {left}")


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
