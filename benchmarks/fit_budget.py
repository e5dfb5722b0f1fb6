"""Where the time of a whole fit goes: seconds of each part, and its floor by a count of flops.

Kernels and eigendecompositions are timed where they are called, on all threads. The floor of a part is its flops at the
rate of one large matrix product, ours or that of NumPy's BLAS, whichever is faster, on as many threads, measured in the
same run (eigenvectors: on one thread).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import numba
import numpy as np
import scipy.linalg
import threadpoolctl

from benchmarks.datasets import speed_sets
from benchmarks.result import Result
from fairmf.backends.cpu import backend as cpu
from fairmf.models import als_cg
from fairmf.models.als import FairALS

EPOCHS = 16
KINDS = {
    "improve_rows": "rows", "multiply": "rotations", "pack_columns": "rotations", "gramian_parts": "Gramians",
    "sum_triangles": "Gramians", "observed_loss_parts": "objective", "draw_rows": "random start",
}  # fmt: skip
PARTS = ("random start", "rows", "rotations", "Gramians", "eigenvectors", "last half-step", "objective", "other")


def run(short: bool) -> Result:
    threads = numba.config.NUMBA_NUM_THREADS
    result = Result(
        "The budget of a whole fit",
        f"Milliseconds of FairALS with fairness 1 and {EPOCHS} epochs, {threads} threads, the fastest of five "
        "warm fits; behind the slash the floor: flops at the rate of a large matrix product. Rows, rotations, Gramians "
        "and eigenvectors are those of the epochs; the last half-step has its own. `python -m benchmarks fit_budget`",
        ("data", "factors", "whole fit", *PARTS, "of the floor"),
    )
    for name, data in speed_sets().items():
        for d in (64,) if short else (64, 128, 256):
            model = FairALS(factors=d, fairness=1.0, epochs=EPOCHS, item_balance=0.0, user_balance=0.0)
            model.fit(data, progress=False)
            whole, spent = min((measure(model, data) for _ in range(5)), key=lambda found: found[0])
            floors = floor(data, d, threads)
            cells = [f"{1e3 * spent[p]:.0f}" + (f" / {1e3 * floors[p]:.0f}" if p in floors else "") for p in PARTS]
            share = whole / sum(floors.values())
            result.rows.append((name, d, f"{1e3 * whole:.0f}", *cells, f"{share:.1f} times"))
    return result


def measure(model: FairALS, data) -> tuple[float, dict[str, float]]:
    """Fit once; return the seconds of the whole fit and of its parts."""
    spent: dict[str, float] = defaultdict(float)
    inside = []  # the last half-step, while it runs

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        spent["last half-step" if inside else part] += time.perf_counter() - began

    run_kernel, finish = cpu.run, als_cg.finish

    def kernel(function, *arguments, **options):
        with timed(KINDS.get(function.py_func.__name__, "other kernels")):
            return run_kernel(function, *arguments, **options)

    def eigenvectors(eigh):
        def timed_eigh(matrix, **options):
            with timed("eigenvectors"):
                return eigh(matrix, **options)

        return timed_eigh

    def last(*arguments):
        inside.append(True)
        began = time.perf_counter()
        found = finish(*arguments)
        inside.clear()
        spent["last half-step"] = time.perf_counter() - began
        return found

    with ExitStack() as patches:
        double, single = (eigenvectors(module.eigh) for module in (np.linalg, scipy.linalg))
        for where, name, by in (
            (cpu, "run", kernel), (np.linalg, "eigh", double), (scipy.linalg, "eigh", single), (als_cg, "finish", last),
        ):  # fmt: skip
            patches.enter_context(mock.patch.object(where, name, by))
        began = time.perf_counter()
        model.fit(data, progress=False)
        whole = time.perf_counter() - began
    spent["other"] = whole - sum(spent[part] for part in PARTS if part != "other")
    return whole, spent


def floor(data, d: int, threads: int) -> dict[str, float]:
    """Seconds that the counted flops of the epochs take at the rate of the matrix product."""
    single = matrix_product_rate(1)
    every, (n, m) = matrix_product_rate(threads), data.shape
    return {
        "rows": EPOCHS * 12 * data.nnz * d / every,
        "rotations": EPOCHS * 4 * (n + m) * d**2 / every,
        "Gramians": EPOCHS * (n + m) * d**2 / every,
        "eigenvectors": EPOCHS * 18 * d**3 / single,
        "last half-step": (4 + 2) * data.nnz * d / every,  # one residual and one step at the least
    }


def matrix_product_rate(threads: int, rows: int = 8192, factors: int = 512) -> float:
    """Flops a second of a float32 matrix product."""
    x, square, out = (cpu.BACKEND.empty(n, factors) for n in (rows, factors, rows))
    x[:], square[:] = 1.0, 1.0
    seconds = []
    with threadpoolctl.threadpool_limits(threads, "blas"):
        for _ in range(6):
            began = time.perf_counter()
            np.dot(x, square, out=out)
            seconds.append(time.perf_counter() - began)
    with cpu.BACKEND.threads(threads):
        for _ in range(6):
            began = time.perf_counter()
            cpu.BACKEND.multiply(x, square, out)
            seconds.append(time.perf_counter() - began)
    return 2 * rows * factors**2 / min(seconds)
