"""The constants of the cost model (docs/scaling.md), measured on one core, and what it predicts with them.

Rates are the best of several runs: whatever else the machine does only makes them worse. The check at the end is an
epoch on a Ray cluster of this machine, predicted and measured in the same run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.result import Result
from fairmf import FairALS, Interactions, ParquetShards, synthetic
from fairmf.backends.random_start import USERS, Stream
from fairmf.distributed.cluster import RayCluster, session
from fairmf.distributed.costs import Rates, Sizes, memory, seconds, traffic
from fairmf.distributed.remote_arrays import Drawn
from fairmf.distributed.shards import InMemoryShards
from fairmf.distributed.task_pool import InProcess
from fairmf.distributed.worker import Worker

FACTORS = 128
# Interactions, users, items, nodes: what each prediction is for.
CASES = (
    (1e9, 10e6, 1e6, 1), (1e9, 10e6, 1e6, 4), (10e9, 50e6, 2e6, 4), (10e9, 50e6, 2e6, 16), (100e9, 200e6, 5e6, 16),
    (100e9, 200e6, 5e6, 64),
)  # fmt: skip
PER_NODE, CORES = 2, 8  # shards of one node and cores of each: the items' step uses no more than eight
EPOCHS = 16
LARGE_CATALOGUE = 100_000


def best(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the quickest run."""
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def kernel_rates(data: Interactions, repeats: int) -> dict[str, float]:
    """Rates of one worker with one thread."""
    n, m, d, nnz = data.n_users, data.n_items, FACTORS, data.nnz
    worker = Worker(InMemoryShards(data, 1), 0, "cpu", "float32", 1)
    worker.vectors["ridge"] = np.full(n, 5.0)
    V = worker.backend.array(np.random.default_rng(1).normal(0, 0.1, (m, d)))
    ones, zeros, square = np.ones(d), np.zeros(d), np.eye(d)
    drawn = best(lambda: worker.draw("U", d, Drawn(Stream((1, 2), USERS), 0.1)), repeats)
    worker.empty("out", d)
    rows = best(lambda: worker.improve_users("U", V, ones, "ridge", zeros, 1, 0.0, 1.3), repeats)
    residual = best(lambda: worker.item_residual("sum", "U", V), repeats)
    curvature = best(lambda: worker.item_curvature("bend", "U", V), repeats)
    turned = best(lambda: worker.multiply("U", square, "out"), repeats)
    other = np.ones((LARGE_CATALOGUE, d), dtype=np.float32)  # beyond any cache, as catalogues worth a cluster are
    worker.partials["sum"] = other.copy()
    added = best(lambda: worker.add_partial("sum", other), repeats)
    worker.close()
    return {
        "user_rows": 6 * nnz * d / rows,
        "item_rows": 6 * nnz * d / (residual + curvature),
        "products": 2 * n * d * d / turned,
        "normals": n * d / drawn,
        "additions": other.nbytes / added,
    }


def store_rates(ray, items: int, repeats: int) -> dict[str, float]:
    """An array of all items into the store and out of it again in another process, and a question to two actors."""
    array = np.ones((items, FACTORS), dtype=np.float32)
    other = ray.remote(num_cpus=0)(_Reader)
    actors = [other.remote() for _ in range(2)]
    ray.get([actor.small.remote() for actor in actors])
    there_and_back = best(lambda: ray.get(actors[0].copy.remote(ray.put(array))), repeats)
    asked = best(lambda: ray.get([actor.small.remote() for actor in actors]), 20 * repeats)
    for actor in actors:
        ray.kill(actor)
    return {"store": 2 * array.nbytes / there_and_back, "message": asked / len(actors)}


class _Reader:
    def small(self):
        return 1.0

    def copy(self, array):
        return len(array.copy())


def reading_rate(data: Interactions, folder: Path) -> float:
    """Rows a second of one core, from Parquet to shards."""
    write_parquet(data, folder, 4)
    return data.nnz / best(lambda: ParquetShards.read(folder, shards=4, tasks=InProcess()), 3)


def write_parquet(data: Interactions, folder: Path, files: int) -> None:
    """The interactions in random order, integer users and text items, in row groups of 200,000."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = data.by_user
    users, items = np.repeat(np.arange(rows.count), np.diff(rows.indptr)), rows.indices
    order = np.random.default_rng(0).permutation(len(users))
    names = np.array([f"item{j}" for j in range(data.n_items)])
    for k, part in enumerate(np.array_split(order, files)):
        table = pa.table({"user": users[part] * 7 + 1000, "item": pa.array(names[items[part]])})
        pq.write_table(table, folder / f"part-{k:03}.parquet", row_group_size=200_000)


def run(short: bool) -> Result:
    """Rates, predictions, and one epoch predicted and measured."""
    data = synthetic(30_000, 8_000, 1_700_000, popularity_gini=0.9)
    repeats = 5 if short else 15
    rates = kernel_rates(data, repeats)
    with tempfile.TemporaryDirectory() as folder:
        read = reading_rate(data, Path(folder) / "data")
    result = Result(
        f"Cost model of engine='ray': one core's rates, and predictions at {FACTORS} factors",
        "Rates of one thread (best of several runs) on synthetic 30,000 x 8,000, 1.7M. Predictions by "
        f"`fairmf.distributed.costs`: nodes of {PER_NODE * CORES} cores with {PER_NODE} shards, cores in proportion, "
        "network 2.5 GB/s; "
        f"{EPOCHS} epochs of one step, starting and reading included, the last half-step as a third of the epochs.",
        ("interactions", "users", "items", "nodes", "GB per node", "GB sent per epoch", "epoch, s", "of it network, s",
         "reading, min", "fit, hours"),
    )  # fmt: skip
    with session(None) as ray:
        rates |= store_rates(ray, LARGE_CATALOGUE, repeats)
        known = Rates(**rates)
        result.findings.append(check(known, data))
    for case in CASES:
        result.rows.append(prediction(known, read, *case))
    shown = ", ".join(f"{name} {value:.3g}" for name, value in rates.items())
    result.findings.insert(0, f"Rates: {shown}; reading {read:.3g} rows/s.")
    return result


def prediction(rates: Rates, read: float, nnz: float, users: float, items: float, nodes: int) -> tuple:
    sizes = Sizes(int(users), int(items), int(nnz), FACTORS, PER_NODE * nodes, nodes)
    took, held, sent = seconds(sizes, rates, CORES), memory(sizes), traffic(sizes)
    reading = nnz / (read * nodes * PER_NODE * CORES)
    start = users * FACTORS / (rates.normals * nodes * PER_NODE * CORES)
    whole = reading + start + EPOCHS * took.total * 4 / 3
    peak = PER_NODE * held.worker + held.store + held.driver
    amounts = (f"{nnz / 1e9:.0f} billion", f"{users / 1e6:.0f} million", f"{items / 1e6:.0f} million")
    return (
        *amounts, nodes, f"{peak / 1e9:.0f}", f"{sum(sent) / 1e9:.1f}", f"{took.total:.1f}",
        f"{took.broadcast + took.reduce:.1f}", f"{reading / 60:.1f}", f"{whole / 3600:.2f}",
    )  # fmt: skip


def check(rates: Rates, data: Interactions) -> str:
    """The quickest epoch on two shards of this machine, against the model's."""
    sizes = Sizes(data.n_users, data.n_items, data.nnz, FACTORS, 2, 1)
    model = FairALS(factors=FACTORS, epochs=10, engine="ray")
    model.fit(data, cluster=RayCluster(shards=2), objective_every=0)
    records = model.history.records[1:]
    measured = min(record["seconds"] for record in records)
    counted = records[0]["engine"]["bytes"]
    expected = traffic(sizes)
    sent = sum(counted[name] for name in ("broadcast", "reduced", "small"))
    return (
        f"One epoch on two shards of this machine: predicted {seconds(sizes, rates).total:.2f} s, measured "
        f"{measured:.2f} s; bytes predicted {sum(expected) / 1e6:.1f} MB, counted {sent / 1e6:.1f} MB."
    )
