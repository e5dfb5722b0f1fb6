"""Ray, where it is installed: connected to, or started on this machine and stopped again."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from fairmf.errors import ClusterFailed, MissingDependency

log = logging.getLogger("fairmf")

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would otherwise hide devices from what has asked for none, and warn that it will not do so for ever.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Of several answers that fail with a lost worker one is reported, by us.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}
"""What Ray is told where the user has said nothing else."""


def ray_or_error(who: str = "engine='ray'") -> Any:
    """The package; MissingDependency where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(f'{who} needs Ray: pip install "fairmf[ray]"') from error
    return ray


def ensure_ray(address: str | None = None, who: str = "engine='ray'") -> bool:
    """Connect to a cluster, or start one on this machine; True where it was not there before and is ours to stop.

    A connection that this process already has is used as it is. `address="auto"` is a cluster that `ray start` has
    started on this machine.
    """
    ray = ray_or_error(who)
    if ray.is_initialized():
        return False
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    started = address == "local"
    options = {"include_dashboard": False} if started else {}
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterFailed(f"There is no Ray cluster at {address!r}: {error}") from error
    if started:
        log.info("started Ray on this machine: %d CPUs", int(ray.cluster_resources().get("CPU", 0)))
    return True


@contextlib.contextmanager
def session(address: str | None) -> Iterator[Any]:
    """Ray for a while."""
    ray = ray_or_error()
    ours = ensure_ray(address)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()
