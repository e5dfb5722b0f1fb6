"""The Ray engine against the local one: time at equal cores on ten million interactions, and the driver's memory.

Epochs of both engines alternate in one process, so that whatever else the machine does slows both.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.result import Result

ITEMS = 20_000

# Local and Ray fits in turns. Workers and kernels are warm: the first round is not counted.
ROUNDS = """
import json, os, sys, time
import ray
from fairmf import FairALS, ParquetShards, Interactions
from fairmf.distributed.cluster import RayCluster
folder, factors, fairness, cores, epochs, rounds = sys.argv[1], *map(float, sys.argv[2:])
cores, epochs, factors = int(cores), int(epochs), int(factors)
from fairmf.distributed.cluster import QUIET
os.environ.update(QUIET)
ray.init(address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False, object_store_memory=10**9)
data = Interactions.from_parquet(folder)
settings = dict(factors=factors, fairness=fairness, epochs=epochs, num_threads=cores)
took = {"local": [], "ray": []}
whole = {"local": [], "ray": []}
F = {}
for number in range(int(rounds) + 1):
    for engine in took:
        began = time.perf_counter()
        arguments = {"cluster": RayCluster(shards=cores)} if engine == "ray" else {}
        model = FairALS(engine=engine, **settings).fit(data, **arguments)
        if number:
            whole[engine].append(time.perf_counter() - began)
            took[engine] += model.history.column("seconds")[1:]
        F[engine] = model.history.final["objective"]["total"]
print(json.dumps({"epochs": took, "fits": whole, "difference": F["ray"] / F["local"] - 1}))
"""

# The peak of the process that fits, above what it was before.
MEMORY = """
import json, os, sys
from pathlib import Path
import ray
from fairmf import FairALS, ParquetShards, synthetic
from fairmf.distributed.cluster import RayCluster
from fairmf.distributed.cluster import QUIET
os.environ.update(QUIET)
def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**9)
FairALS(factors=32, epochs=1, engine="ray").fit(synthetic(300, 200, 6000), cluster=RayCluster(shards=2))  # all loaded
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
source = ParquetShards.read(sys.argv[1], shards=2)
model = FairALS(factors=32, epochs=3, engine="ray").fit(source, cluster=RayCluster(shards=2))
print(json.dumps({"peak": memory("VmHWM") - before, "nnz": source.nnz, "users": source.n_users}))
"""


def write(folder: Path, interactions: int, users: int) -> Path:
    """A Parquet data set in ten files, with popular and less popular items."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for k in range(10):
        rows = interactions // 10
        columns = {
            "user": rng.integers(0, users, rows),
            "item": (ITEMS * rng.random(rows) ** 2).astype(np.int64),
        }
        pq.write_table(pa.table(columns), folder / f"{k}.parquet")
    return folder


def alone(code: str, *arguments: object) -> dict[str, Any]:
    """The answer of a process of its own."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(short: bool) -> Result:
    result = Result(
        "The Ray engine against the local one",
        "Ten million interactions of 100,000 users with 20,000 items, two cores for each engine (two shards), fits in "
        "turns in one process, the first of each not counted. `python -m benchmarks --full ray_engine`",
        (
            "factors",
            "fairness",
            "local epoch, s",
            "Ray epoch, s",
            "ratio of epochs",
            "ratio of whole fits",
            "difference of F",
        ),
    )
    cases = [(64, 1.0)] if short else [(64, 0.0), (64, 1.0), (128, 1.0)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = write(Path(temporary) / "large", 2_000_000 if short else 10_000_000, 100_000)
        for factors, fairness in cases:
            found = alone(ROUNDS, folder, factors, fairness, 2, 6 if short else 16, 1 if short else 2)
            epochs, fits = ({k: statistics.median(v) for k, v in found[name].items()} for name in ("epochs", "fits"))
            row = factors, fairness, epochs["local"], epochs["ray"], epochs["ray"] / epochs["local"]
            result.rows.append((*row, fits["ray"] / fits["local"], found["difference"]))
        peaks = []
        for rows in (1_000_000, 2_000_000 if short else 10_000_000):
            began = time.perf_counter()
            found = alone(MEMORY, write(Path(temporary) / f"rows-{rows}", rows, 100_000))
            peaks.append((rows, found["peak"], time.perf_counter() - began))
    told = " and ".join(f"{peak / 1e6:.0f} MB for {rows / 1e6:.0f} million rows" for rows, peak, _ in peaks)
    result.findings.append(
        f"The process that fits takes, reading and 3 epochs at 32 factors from Parquet, {told} at its peak."
    )
    return result
