"""From a CSV file to `Interactions`, against the pandas way: `read_csv`, `factorize`, `coo_matrix`, `tocsr`.

Each reading runs in a process of its own, the two ways in turn, so that its peak of memory is its own. Both libraries
are imported, and Numba started, before the clock; the loading of compiled kernels counts.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.result import Result

USERS, ITEMS = 140_000, 27_000

PEAK = """
import json, sys, time
from pathlib import Path

def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024
"""

OURS = (
    PEAK
    + """
from fairmf.interactions import Interactions, counting_sort, cutting, numbering, synthetic
import pyarrow.csv
synthetic(50, 40, 400)  # starts Numba
before, start, work = memory("VmHWM"), time.perf_counter(), time.process_time()
data = Interactions.from_csv(sys.argv[1])
seconds = time.perf_counter() - start
work = time.process_time() - work
print(json.dumps({"seconds": seconds, "work": work, "peak": memory("VmHWM") - before, "nnz": data.nnz, "shape": data.shape,
                  "first": [str(data.user_ids.values[0]), str(data.item_ids.values[0])]}))
"""
)

PANDAS = (
    PEAK
    + """
import numpy as np, pandas as pd, scipy.sparse as sp
before, start, work = memory("VmHWM"), time.perf_counter(), time.process_time()
frame = pd.read_csv(sys.argv[1])
users, user_ids = pd.factorize(frame["user"])
items, item_ids = pd.factorize(frame["item"])
ones = np.ones(len(frame), dtype=np.float32)
matrix = sp.coo_matrix((ones, (users, items)), shape=(len(user_ids), len(item_ids)))
coo = time.perf_counter() - start
matrix = matrix.tocsr()  # merges the repeated pairs, as Interactions does
seconds = time.perf_counter() - start
work = time.process_time() - work
print(json.dumps({"seconds": seconds, "work": work, "coo": coo, "peak": memory("VmHWM") - before, "nnz": matrix.nnz,
                  "shape": matrix.shape, "first": [str(user_ids[0]), str(item_ids[0])]}))
"""
)


def run(short: bool) -> Result:
    rows, rounds = (2_000_000, 3) if short else (20_000_000, 5)
    result = Result(
        f"From CSV to Interactions, {rows / 1e6:.0f} million rows",
        f"{USERS:,} users, {ITEMS:,} items, a long tail; text ids such as user-0023257, or integers; median of "
        f"{rounds} processes of each way, in turn. The pandas way: `read_csv`, `factorize`, `coo_matrix`, and `tocsr`, "
        "which merges repeated pairs. Memory: peak above the process's size before. `python -m benchmarks ingest`",
        (
            "user ids",
            "file, MB",
            "fairmf, s",
            "pandas, s",
            "of it to coo, s",
            "ratio",
            "to coo",
            "fairmf, CPU s",
            "pandas, CPU s",
            "fairmf, MB",
            "pandas, MB",
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        ratios = [compare(result, kind, write(Path(folder), kind, rows), rounds) for kind in ("text", "integers")]
    least, memory = min(ratio for ratio, _ in ratios), max(share for _, share in ratios)
    result.findings += [
        f"At least 3x as fast as the pandas way: {'yes' if least >= 3 else 'missed'} (least ratio {least:.2f}).",
        f"Less peak memory: {'yes' if memory < 1 else 'missed'} (at most {100 * memory:.0f} % of it).",
    ]
    return result


def compare(result: Result, kind: str, path: Path, rounds: int) -> tuple[float, float]:
    """Adds a row. Returns how many times as fast we are, and our share of the peak memory."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(one(OURS, path))
        theirs.append(one(PANDAS, path))
        if any(ours[-1][name] != theirs[-1][name] for name in ("nnz", "shape", "first")):
            raise RuntimeError(f"the two ways disagree: {ours[-1]}, {theirs[-1]}")

    def middle(found: list[dict], name: str) -> float:
        return statistics.median(x[name] for x in found)

    ratio = middle(theirs, "seconds") / middle(ours, "seconds")
    to_coo = middle(theirs, "coo") / middle(ours, "seconds")
    seconds = [f"{x:.2f}" for x in (middle(ours, "seconds"), middle(theirs, "seconds"), middle(theirs, "coo"))]
    peaks = [middle(found, "peak") for found in (ours, theirs)]
    work = [f"{middle(found, 'work'):.2f}" for found in (ours, theirs)]
    cells = [f"{ratio:.2f}", f"{to_coo:.2f}", *work, *(f"{peak / 1e6:.0f}" for peak in peaks)]
    result.rows.append((kind, f"{path.stat().st_size / 1e6:.0f}", *seconds, *cells))
    return ratio, peaks[0] / peaks[1]


def one(code: str, path: Path) -> dict:
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def write(folder: Path, kind: str, rows: int) -> Path:
    """A file of random events, written in parts."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    path, rng, part = folder / f"{kind}.csv", np.random.default_rng(0), 1 << 20
    with path.open("wb") as file:
        file.write(b"user,item\n")
        for start in range(0, rows, part):
            size = min(part, rows - start)
            users = (rng.lognormal(0, 1.2, size) * USERS / 7).astype(np.int64) % USERS
            items = (rng.pareto(0.7, size).clip(max=1e9) * 200).astype(np.int64) % ITEMS
            names = pa.array(users)
            if kind == "text":
                digits = pc.utf8_lpad(names.cast("string"), 7, "0")
                names = pc.binary_join_element_wise("user-", digits, "")
            table = pa.table({"user": names, "item": items})
            options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
            pyarrow.csv.write_csv(table, file, options)
    return path
