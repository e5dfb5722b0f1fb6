"""An epoch of FairALS, fairness on, against implicit and every solver of irspack: same data, threads and process, warm.

Epoch against epoch, set-up left out on both sides; beside it our whole fit (random start, the converged half-step at
the end, the objective, checks) divided by its epochs.
"""

from __future__ import annotations

import time

import numba
import numpy as np

from benchmarks import peers
from benchmarks.datasets import speed_sets
from benchmarks.result import Result
from fairmf.models.als import FairALS

EPOCHS = 16


def run(short: bool) -> Result:
    threads = numba.config.NUMBA_NUM_THREADS
    rivals = peers.available()
    result = Result(
        "Fit speed: FairALS with fairness 1 against the peers",
        f"Milliseconds per epoch, {threads} threads, one process, warm; medians, the faster of two rounds in which all "
        f"libraries take turns. 'Whole fit' is the time of {EPOCHS} epochs from random start to converged users, "
        f"divided by {EPOCHS}. `python -m benchmarks fit_speed`",
        ("data", "factors", "FairALS", "whole fit", *rivals, "least ratio", "of whole fit"),
    )
    least = {}
    for name, data in speed_sets().items():
        for d in (64, 128) if short else (64, 128, 256):
            ours, whole, theirs = measure(data, d, threads, rivals, short)
            best = min(value for value in theirs.values() if value)
            ratio = best / ours
            least["an epoch", name, d], least["a whole fit", name, d] = ratio, best / whole
            cells = [f"{1e3 * theirs[r]:.1f}" if theirs[r] else "not run" for r in rivals]
            result.rows.append(
                (name, d, f"{1e3 * ours:.1f}", f"{1e3 * whole:.1f}", *cells, f"{ratio:.2f}", f"{best / whole:.2f}")
            )
    for part in ("an epoch", "a whole fit"):
        missed = [
            f"{name} at d = {d}: {ratio:.2f}" for (of, name, d), ratio in least.items() if of == part and ratio < 3
        ]
        result.findings.append(
            f"At least 3x faster than every peer, {part}: "
            + (f"missed on {'; '.join(missed)}" if missed else "yes, everywhere")
        )
    return result


def measure(data, d: int, threads: int, rivals, short: bool):
    """Seconds per epoch of ours, of our whole fit, and of each rival (0 where it would take too long)."""
    model = FairALS(factors=d, fairness=1.0, epochs=EPOCHS, num_threads=threads, item_balance=0.0, user_balance=0.0)
    model.fit(data)
    ours, whole, theirs = [], [], dict.fromkeys(rivals, 0.0)
    for _ in range(2):
        for name, train in rivals.items():
            # The slow solvers get fewer epochs; an epoch costs the same every time.
            slow = "CHOLESKY" in name or "IALSPP" in name
            if slow and short and d > 64:
                continue
            seconds = float(np.median(train(data, d, 2 if slow else 5, threads)))
            theirs[name] = min(theirs[name] or seconds, seconds)
        for _ in range(3):
            began = time.perf_counter()
            model.fit(data)
            whole.append((time.perf_counter() - began) / EPOCHS)
            ours.append(float(np.median(model.history.column("seconds"))))
    return min(ours), min(whole), theirs
