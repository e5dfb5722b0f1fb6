"""Exposure offsets at catalogue size: minutes, memory, and what the bounds came to."""

from __future__ import annotations

from benchmarks.alone import run_alone
from benchmarks.result import Result

ONE_RUN = """
import json, sys, time
from pathlib import Path
import numpy as np
from fairmf import FairALS, fit_offsets, synthetic

def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

n, m, interactions, iterations = map(int, sys.argv[1:5])
floor = float(sys.argv[5])
model = FairALS(factors=64, epochs=6).fit(
    synthetic(n, m, interactions, popularity_gini=0.8), progress=False, objective_every=0
)
small = FairALS(factors=8, epochs=1).fit(synthetic(300, 100, 3000), progress=False)
fit_offsets(small, min_exposure=0.5, iterations=2, progress=False, check=False)  # compile first
plain = fit_offsets(model, min_exposure=floor, iterations=1, progress=False, check=False)  # one step
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
began = time.perf_counter()
made = fit_offsets(model, min_exposure=floor, iterations=iterations, progress=False, check=False)
seconds = time.perf_counter() - began
far = [int((x.share < 0.9 * floor).sum()) for x in (plain, made)]
print(json.dumps({"seconds": seconds, "peak": memory("VmHWM"), "before": before, "plain": plain.violations,
                  "after": made.violations, "far": far}))
"""


def run(short: bool) -> Result:
    result = Result(
        "Exposure offsets at catalogue size: K = 20, 64 factors",
        "`fit_offsets` on FairALS, synthetic data (popularity Gini .8), the users' own items excluded, 8,192 users at "
        "once; each run in a process of its own. Memory: peak of the whole process, data and model included. Exposure "
        "is counted over all users. "
        f"`python -m benchmarks {'' if short else '--full '}exposure_scale`",
        (
            "users",
            "items",
            "floor",
            "iterations",
            "minutes",
            "peak, MB",
            "of that data and model, MB",
            "items below: after one step",
            "with offsets",
            "below .9 of the floor: after one step",
            "with offsets",
            "missing: after one step",
            "with offsets",
        ),
    )
    sizes = [(4000, 1500, 120_000, 300, 0.5)]
    if not short:
        sizes += [(100_000, 20_000, 3_000_000, 300, 0.5)]
    left = []
    for n, m, interactions, iterations, floor in sizes:
        found = run_alone(ONE_RUN, n, m, interactions, iterations, floor)
        plain, after = found["plain"], found["after"]
        result.rows.append((
            f"{n:,}", f"{m:,}", floor, iterations, f"{found['seconds'] / 60:.2f}", f"{found['peak'] / 1e6:.0f}",
            f"{found['before'] / 1e6:.0f}", f"{plain['items_below_floor']:,}", f"{after['items_below_floor']:,}",
            *(f"{count:,}" for count in found["far"]), f"{plain['missing_exposure']:.4f}",
            f"{after['missing_exposure']:.4f}",
        ))  # fmt: skip
        there, there_before = (100 * (1 - x["missing_exposure"] / floor) for x in (after, plain))
        left.append(
            f"{n:,} x {m:,}: {there:.1f} % of what the floor asks for is there (after one step {there_before:.1f} %); "
            f"the item with the least has {after['least_share'] / floor:.2f} of it."
        )
    result.findings += left
    result.findings.append("Missing: exposure below the floor, mean over items, as a share of uniform exposure.")
    return result
