"""From a Parquet file of events to a Parquet file of lists for all users: seconds and memory of each part.

The full version also reads a billion rows. Each size runs in a process of its own, so that its peaks are its own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.alone import run_alone
from benchmarks.result import Result

FACTORS, EPOCHS, N = 64, 16, 20
GOAL = 1.3

WALK = """
import json, sys, time
from pathlib import Path
from fairmf import FairALS, Interactions, synthetic

def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

source, lists, factors, epochs, n, read_only = sys.argv[1:]
factors, epochs, n = int(factors), int(epochs), int(n)
warm = synthetic(300, 200, 6000)
FairALS(factors=factors, epochs=1).fit(warm, progress=False).recommend_to_parquet(lists, N=n)
import pyarrow.parquet as pq
pq.read_table(lists)  # what Arrow loads at its first file belongs to no part
before, found, model = memory("VmRSS"), {}, FairALS(factors=factors, epochs=epochs)

def part(name, work):
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the part before
    began, cpu = time.perf_counter(), time.process_time()
    result = work()
    found[name] = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu,
                   "peak": memory("VmHWM") - before}
    return result

def read():
    data = Interactions.from_parquet(source, user="user_id", item="item_id")
    data.by_item  # the other orientation, which every fit needs
    return data

data = part("read", read)
arrays = [x for rows in (data.by_user, data.by_item) for x in rows if x is not None]
found["matrix"], found["shape"], found["nnz"] = sum(x.nbytes for x in arrays), data.shape, data.nnz
if read_only != "1":
    part("fit", lambda: model.fit(data, progress=False))
    part("lists", lambda: model.recommend_to_parquet(lists, N=n))
    found["file"] = Path(lists).stat().st_size
print(json.dumps(found))
"""


def run(short: bool) -> Result:
    result = Result(
        "From a Parquet file to lists for all users",
        f"Two columns of 8-byte ids, one user for 100 rows, one item for 1,000, popular ones more often. FairALS with "
        f"{FACTORS} factors and {EPOCHS} epochs; {N} items for every user, without those they have, written to "
        "Parquet. Memory: the peak of each part above the process before it; for reading, also as a multiple of the "
        "matrix in both orientations. `python -m benchmarks end_to_end`",
        ("rows", "users x items", "distinct pairs", "matrix, GB", "read, s", "CPU s", "peak, GB", "of the matrix",
         "fit, s", "peak, GB", "lists, s", "peak, GB", "in all, min"),
    )  # fmt: skip
    for rows, read_only in ((5_000_000, False),) if short else ((100_000_000, False), (1_000_000_000, True)):
        add(result, rows, read_only)
    return result


def add(result: Result, rows: int, read_only: bool) -> None:
    """Measure one size, and add it to the table."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "events.parquet"
        write_events(source, rows)
        found = run_alone(WALK, source, Path(folder) / "lists.parquet", FACTORS, EPOCHS, N, int(read_only))
    read, share = found["read"], found["read"]["peak"] / found["matrix"]
    cells = ["", "", "", "", ""]
    if not read_only:
        fit, lists = found["fit"], found["lists"]
        total = (read["seconds"] + fit["seconds"] + lists["seconds"]) / 60
        cells = [
            f"{fit['seconds']:.0f}",
            _gb(fit["peak"]),
            f"{lists['seconds']:.0f}",
            _gb(lists["peak"]),
            f"{total:.1f}",
        ]
    users, items = found["shape"]
    result.rows.append(
        (f"{rows:,}", f"{users:,} x {items:,}", f"{found['nnz']:,}", _gb(found["matrix"]), f"{read['seconds']:.0f}",
         f"{read['cpu']:.0f}", _gb(read["peak"]), f"{share:.2f}", *cells)
    )  # fmt: skip
    verdict = "met" if share <= GOAL else "MISSED"
    rate = rows / read["seconds"] / 1e6
    result.findings.append(
        f"{rows:,} rows: {rate:.1f} million rows a second; {share:.2f} times the matrix (goal {GOAL}: {verdict})."
    )


def write_events(path: Path, rows: int, at_once: int = 1 << 20) -> None:
    """Write events one block after the other: users alike, popular items more often."""
    generator = np.random.default_rng(0)
    schema = pa.schema({"user_id": pa.int64(), "item_id": pa.int64()})
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, at_once):
            size = min(at_once, rows - start)
            users = generator.integers(0, max(rows // 100, 10), size)
            items = (generator.random(size) ** 3 * max(rows // 1000, 10)).astype(np.int64)
            writer.write_table(pa.table({"user_id": users, "item_id": items}, schema=schema))


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f}"
