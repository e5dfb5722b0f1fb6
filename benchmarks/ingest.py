"""From a CSV file to `Interactions`, against the pandas way: `read_csv`, `factorize`, `coo_matrix`, `tocsr`.

Each reading runs in a process of its own, the two ways in turn, so that its peak of memory is its own. Both have read a
smaller file before the clock starts: libraries are imported then and kernels compiled or loaded.
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

def begin():
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the first file
    return memory("VmRSS"), time.perf_counter(), time.process_time()
"""

OURS = (
    PEAK
    + """
from fairmf.data.interactions import Interactions
Interactions.from_csv(sys.argv[2])
before, start, work = begin()
data = Interactions.from_csv(sys.argv[1])
seconds, work, peak = time.perf_counter() - start, time.process_time() - work, memory("VmHWM") - before
first = [str(data.user_ids.values[0]), str(data.item_ids.values[0])]
print(json.dumps({"seconds": seconds, "work": work, "peak": peak, "nnz": data.nnz,
                  "shape": data.shape, "first": first}))
"""
)

PANDAS = (
    PEAK
    + """
import numpy as np, pandas as pd, scipy.sparse as sp

def read(path):
    frame = pd.read_csv(path)
    users, user_ids = pd.factorize(frame["user"])
    items, item_ids = pd.factorize(frame["item"])
    ones = np.ones(len(frame), dtype=np.float32)
    matrix = sp.coo_matrix((ones, (users, items)), shape=(len(user_ids), len(item_ids)))
    coo = time.perf_counter()
    return matrix.tocsr(), coo, [str(user_ids[0]), str(item_ids[0])]  # merges repeated pairs, as Interactions does

read(sys.argv[2])
before, start, work = begin()
matrix, coo, first = read(sys.argv[1])
seconds, work, peak = time.perf_counter() - start, time.process_time() - work, memory("VmHWM") - before
print(json.dumps({"seconds": seconds, "coo": coo - start, "work": work, "peak": peak, "nnz": matrix.nnz,
                  "shape": matrix.shape, "first": first}))
"""
)


def run(short: bool) -> Result:
    rows, rounds = (2_000_000, 3) if short else (20_000_000, 5)
    result = Result(
        f"From CSV to Interactions, {rows / 1e6:.0f} million rows",
        f"{USERS:,} users, {ITEMS:,} items, a long tail; text ids such as user-0023257, or integers; median of "
        f"{rounds} processes of each way, in turn, each warm. The pandas way: `read_csv`, `factorize`, `coo_matrix`, "
        "and `tocsr`, which merges repeated pairs. Memory: peak above the process's size before. CPU: of all threads "
        "together. `python -m benchmarks ingest`",
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
        ratios = [compare(result, kind, *files(Path(folder), kind, rows), rounds) for kind in ("text", "integers")]
    least, memory = min(ratio for ratio, _ in ratios), max(share for _, share in ratios)
    if short:  # the goals are for the full size: what every reading costs weighs more here
        result.findings.append(f"Least ratio {least:.2f}; {100 * memory:.0f} % of the memory.")
        return result
    result.findings += [
        f"At least 3x as fast as the pandas way: {'yes' if least >= 3 else 'missed'} (least ratio {least:.2f}).",
        f"Less peak memory: {'yes' if memory < 1 else 'missed'} (at most {100 * memory:.0f} % of it).",
    ]
    return result


def files(folder: Path, kind: str, rows: int) -> tuple[Path, Path]:
    """The file to read, and a smaller one to warm up with."""
    return write(folder / f"{kind}.csv", kind, rows), write(folder / f"{kind}-first.csv", kind, 1_000_000)


def compare(result: Result, kind: str, path: Path, first: Path, rounds: int) -> tuple[float, float]:
    """Adds a row. Returns how many times as fast we are, and our share of the peak memory."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(one(OURS, path, first))
        theirs.append(one(PANDAS, path, first))
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


def one(code: str, path: Path, first: Path) -> dict:
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", code, str(path), str(first)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def write(path: Path, kind: str, rows: int) -> Path:
    """A file of random events, written in parts."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    rng, part = np.random.default_rng(0), 1 << 20
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
