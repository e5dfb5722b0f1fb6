"""How the cost of FairALS grows with interactions, factors and threads, and how much memory a fit takes.

Each fit runs in a process of its own, so that its peak of memory is its own: the peak during `fit` above the size of
the process before it, against both orientations of R plus twice the factors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.result import Result

ITEMS = 20_108
USERS_PER_MILLION = 13_668  # 136,677 users at 10 million, as in MovieLens-20M

ONE_FIT = """
import json, sys, time
from pathlib import Path
from fairmf.data.synthetic import synthetic
from fairmf.models.als import FairALS

def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

users, items, interactions, factors, threads, epochs = map(int, sys.argv[1:])
FairALS(factors=factors, epochs=1, num_threads=threads).fit(synthetic(300, 200, 6000))  # compile first
data = synthetic(users, items, interactions, popularity_gini=0.9 if users > 10_000 else None)
model = FairALS(factors=factors, epochs=epochs, num_threads=threads)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the set-up
before = memory("VmRSS")
model.fit(data, objective_every=0)
peak = memory("VmHWM") - before
orientations = 2 * 4 * data.nnz + 8 * (data.n_users + data.n_items + 2)
allowance = orientations + 2 * 4 * factors * (data.n_users + data.n_items)
seconds = sorted(model.history.column("seconds"))
print(json.dumps({"epoch": seconds[len(seconds) // 2], "final": model.history.final["seconds"],
                  "peak": peak, "share": peak / allowance}))
"""


def fit(interactions: int, factors: int, threads: int, epochs: int = 5) -> dict[str, float]:
    """One fit in a process of its own."""
    users = max(1000, int(USERS_PER_MILLION * interactions / 1e6))
    items = min(ITEMS, max(500, interactions // 60))
    arguments = [str(x) for x in (users, items, interactions, factors, threads, epochs)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", ONE_FIT, *arguments], cwd=root, capture_output=True, text=True, check=True
    )
    return {"users": users, "items": items, **json.loads(done.stdout.splitlines()[-1])}


def run(short: bool) -> Result:
    result = Result(
        "Scaling of FairALS (fairness 1)",
        "Synthetic data with popularity Gini .9, users in proportion to interactions (136,680 at 10 million), "
        f"{ITEMS:,} items; median epoch. Memory: peak during `fit` above the process's size before it, and as a "
        "share of (both orientations of R + twice the factors). `python -m benchmarks scaling`",
        ("interactions", "users", "factors", "threads", "epoch, s", "peak, MB", "share"),
    )
    sizes = (1_000_000, 3_000_000) if short else (1_000_000, 3_000_000, 10_000_000, 100_000_000)
    by_size = [add(result, nnz, 32 if nnz == 100_000_000 else 128, 2) for nnz in sizes]
    small = sizes[0] if short else 3_000_000
    widths = (32, 64, 128) if short else (32, 64, 128, 256, 512)
    by_width = [add(result, small, d, 2)["epoch"] for d in widths]
    one = add(result, small, 128, 1)["epoch"]
    if not short:
        by_size.append(add(result, 10_000_000, 32, 2))
    same = [(n, r["epoch"]) for n, r in zip(sizes, by_size, strict=False) if n < 100_000_000]
    exponent = slope([n for n, _ in same], [t for _, t in same])
    result.findings.append(f"Time grows like nnz^{exponent:.2f} at 128 factors (users in proportion).")
    if not short:
        step = slope([1e7, 1e8], [by_size[-1]["epoch"], by_size[3]["epoch"]])
        result.findings.append(f"From 10 to 100 million interactions at 32 factors: nnz^{step:.2f}.")
    result.findings += [
        f"Time grows like d^{slope(widths, by_width):.2f} from {widths[0]} to {widths[-1]} factors.",
        f"Two threads are {one / by_width[widths.index(128)]:.2f}x as fast as one.",
        f"Largest share of the memory allowance: {max(row[-1] for row in result.rows)} (1.5 was the goal).",
    ]
    return result


def add(result: Result, interactions: int, factors: int, threads: int) -> dict[str, float]:
    found = fit(interactions, factors, threads)
    cells = f"{found['epoch']:.3f}", f"{found['peak'] / 1e6:.0f}", f"{found['share']:.2f}"
    result.rows.append((f"{interactions:,}", f"{found['users']:,}", factors, threads, *cells))
    return found


def slope(x, y) -> float:
    """Exponent of the power law through the points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
