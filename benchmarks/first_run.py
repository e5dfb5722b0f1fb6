"""The first run after an installation: seconds of `fit` and `recommend` with an empty cache of kernels, by kernel."""

from __future__ import annotations

import os
import tempfile
from unittest import mock

from benchmarks.alone import run_alone
from benchmarks.result import Result

GOAL = 10.0
LISTED = 12  # kernels in the table

FIRST = """
import json, time
began = time.perf_counter()
import fairmf
imported = time.perf_counter() - began
import numpy as np
from numba.core import event
from fairmf import FairALS, Interactions
from fairmf.data.csr import rows_from_pairs

rng = np.random.default_rng(0)
users, items = (rng.integers(0, n, 40_000).astype(np.int32) for n in (2000, 1000))
data = Interactions(rows_from_pairs(users, items, (2000, 1000)), 1000)
heard = event.RecordingListener()
event.register("numba:compile", heard)
spent, model = {}, FairALS(epochs=2)
steps = {
    "fit": lambda: model.fit(data, progress=False),
    "recommend to many": lambda: model.recommend(np.arange(100)),
    "recommend to one": lambda: model.recommend(3),
    "recommend_for": lambda: model.recommend_for([1, 2, 3]),
}
for name, step in steps.items():
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    spent[name] = time.perf_counter() - wall, time.process_time() - cpu
kernels, open_ones = {}, []
for when, one in heard.buffer:
    if one.is_start:
        open_ones.append([when, 0.0])
        continue
    start, inside = open_ones.pop()
    function = one.data["dispatcher"].py_func
    name = function.__module__.removeprefix("fairmf.backends.cpu.") + "." + function.__name__
    name = name if function.__module__.startswith("fairmf") else "Numba's own functions"
    kernels[name] = kernels.get(name, 0.0) + when - start - inside
    if open_ones:
        open_ones[-1][1] += when - start
print(json.dumps({"imported": imported, "spent": spent, "kernels": kernels}))
"""


def run(short: bool) -> Result:  # noqa: ARG001 - one size
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, NUMBA_CACHE_DIR=folder):
        first, second = run_alone(FIRST), run_alone(FIRST)
    result = Result(
        "The first run",
        "Seconds in a new process with an empty cache of compiled kernels, and in the next process; 2,000 x 1,000, "
        "40,000 interactions, FairALS with its defaults. `python -m benchmarks first_run`",
        ("call", "first, wall", "first, CPU", "next, wall"),
    )
    for name, (wall, cpu) in first["spent"].items():
        result.rows.append((name, f"{wall:.2f}", f"{cpu:.2f}", f"{second['spent'][name][0]:.2f}"))
    total = sum(first["spent"][name][1] for name in ("fit", "recommend to many", "recommend to one"))
    verdict = "met" if total <= GOAL else "MISSED"
    result.findings.append(f"fit and recommend: {total:.1f} s of CPU (goal {GOAL:.0f}: {verdict}).")
    result.findings.append(f"`import fairmf`: {first['imported']:.3f} s (goal 0.1).")
    slowest = sorted(first["kernels"].items(), key=lambda x: -x[1])
    listed = "; ".join(f"{name} {seconds:.2f}" for name, seconds in slowest[:LISTED])
    rest = sum(seconds for _, seconds in slowest[LISTED:])
    result.findings.append(
        f"Compile seconds by kernel, without the kernels that it calls: {listed}; {len(slowest) - LISTED} others "
        f"{rest:.2f}."
    )
    return result
