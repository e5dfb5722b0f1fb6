"""The parts of a FairALS epoch by themselves: flops per second of the row kernel, the rotation and the Gramian."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.datasets import speed_sets
from benchmarks.result import Result
from fairmf.backends.contract import Effort, HalfStep
from fairmf.backends.registry import get_backend

CALLS = 10


def run(short: bool) -> Result:
    result = Result(
        "Kernels of an epoch",
        f"GFlop/s on all threads, the best of {CALLS} calls: one conjugate gradient step for all users and all items "
        "(6 nnz d flops), a rotation (2 n d^2) and a Gramian (n d^2) of the users. `python -m benchmarks kernels`",
        ("data", "factors", "users", "items", "rotation", "Gramian"),
    )
    for name, data in speed_sets().items():
        for d in (64,) if short else (64, 128, 256):
            result.rows.append((name, d, *(f"{x:.0f}" for x in rates(data, d))))
    return result


def rates(data, d: int) -> tuple[float, float, float, float]:
    """GFlop/s of users' rows, items' rows, rotation, Gramian."""
    backend, generator = get_backend("cpu"), np.random.default_rng(0)
    U, V, start, out = (backend.empty(n, d) for n in (*data.shape, max(data.shape), data.n_users))
    for this in (U, V):  # at the border of a cache line, as in fits
        this[:] = generator.normal(size=this.shape) / np.sqrt(d)
    ones, zero = np.ones(d), np.zeros(d)

    def rows(entries, other, this):
        step = HalfStep(backend, entries, other, ones, np.ones(len(this)), zero)
        start[: len(this)] = this
        backend.improve(step, start[: len(this)], Effort(1))

    with backend.threads(0):
        users = best(lambda: rows(data.by_user, V, U))
        items = best(lambda: rows(data.by_item, U, V))
        rotation = best(lambda: backend.multiply(U, np.eye(d), out))
        gramian = best(lambda: backend.gramian(U))
    flops = 6 * data.nnz * d, 6 * data.nnz * d, 2 * len(U) * d**2, len(U) * d**2
    seconds = users, items, rotation, gramian
    return tuple(f / s / 1e9 for f, s in zip(flops, seconds, strict=True))


def best(call) -> float:
    """Seconds of the fastest call, after one that compiles."""
    call()
    found = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)
