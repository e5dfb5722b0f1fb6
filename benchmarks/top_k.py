"""The 100 best items of every user against implicit's recommend: same factors, exclusions, threads and process, warm.

Both are asked through their public calls, a batch of users at a time. Beside them the floor of any method that computes
every score: the bare matrix product of the same size, in blocks, on the same threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import threadpoolctl
from numba import njit, prange

from benchmarks.datasets import gowalla
from benchmarks.peers import plain_csr
from benchmarks.result import Result
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.models.als import IALS, FairALS
from fairmf.models.fitted import Fitted, History

N = 100
BATCH = 4096

ONE_EXPORT = """
import sys, tempfile
from pathlib import Path
import numpy as np
from benchmarks.top_k import with_factors
from fairmf.data.synthetic import synthetic

def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

users = int(sys.argv[1])
model = with_factors(synthetic(users, 20_108, 50 * users, popularity_gini=0.9), 64)
with tempfile.TemporaryDirectory() as folder:
    export = lambda some: model.recommend_to_parquet(Path(folder) / "lists.parquet", some, N=100, by="row")
    export(np.arange(5000))  # compile, and let every buffer reach its size
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the set-up
    before = memory("VmRSS")
    export(np.arange(users))
    print(memory("VmHWM") - before)
"""


@njit(parallel=True)
def bare_product(U, V, parts, users_at_once):
    """Every score, in one buffer per part that is used again: fresh memory would cost as much as the arithmetic."""
    for p in prange(parts):
        scores = np.empty((users_at_once, len(V)), dtype=np.float32)
        stop = len(U) * (p + 1) // parts
        for start in range(len(U) * p // parts, stop, users_at_once):
            block = U[start : min(start + users_at_once, stop)]
            np.dot(block, V.T, scores[: len(block)])


def run(short: bool) -> Result:
    threads = numba.config.NUMBA_NUM_THREADS
    result = Result(
        f"Top-{N} of all users",
        f"Seconds for all users, liked items left out, {threads} threads, one process, warm; the faster of two rounds "
        "in which all take turns. 'Product' is the bare matrix product of all users and items in blocks of 256 users. "
        "'Same' is the share of slots with implicit's item; 'score gap' the largest difference of a slot's score from "
        "implicit's, relative to the largest score. `python -m benchmarks top_k`",
        ("factors of", "users x items", "d", "fairmf", "implicit", "product", "implicit / fairmf", "fairmf / product",
         "same", "score gap"),
    )  # fmt: skip
    ratios = {}
    for name, data, d, make in cases(short):
        ours, theirs, floor, same, gap = measure(make(data, d), data, threads)
        ratios[f"{name} at {d}"] = theirs / ours
        result.rows.append(
            (name, f"{data.n_users:,} x {data.n_items:,}", d, f"{ours:.2f}", f"{theirs:.2f}", f"{floor:.2f}",
             f"{theirs / ours:.2f}", f"{ours / floor:.2f}", f"{same:.4%}", f"{gap:.0e}")
        )  # fmt: skip
    missed = [f"{name} ({ratio:.2f})" for name, ratio in ratios.items() if ratio < 1.5]
    result.findings.append(
        "At least 1.5x faster than implicit: " + (f"missed on {', '.join(missed)}" if missed else "yes, everywhere")
    )
    sizes = (10_000, 40_000) if short else (20_000, 136_677)
    peaks = [export_peak(n) / 1e6 for n in sizes]
    result.findings.append(
        f"Memory of `recommend_to_parquet` above the model and its data (20,108 items, 64 factors): {peaks[0]:.0f} MB "
        f"for {sizes[0]:,} users, {peaks[1]:.0f} MB for {sizes[1]:,}."
    )
    return result


def cases(short: bool):
    """(whose factors, data, d, how to get a model)."""
    checkins = gowalla()
    if checkins is not None:
        yield from (("gowalla, FairALS", checkins, d, fit) for d in ((128,) if short else (64, 128, 256)))
    # MovieLens-20M's size at 128 factors; time per user does not depend on their number, so fewer do for the others.
    for d, users in ((128, 20_000),) if short else ((64, 20_000), (128, 136_677), (256, 20_000)):
        data = synthetic(users, 20_108, 73 * users, popularity_gini=0.9)
        yield "synthetic data, FairALS", data, d, fit
        yield "random normal numbers", data, d, with_factors


def fit(data: Interactions, d: int):
    return FairALS(factors=d, epochs=5).fit(data, objective_every=0, progress=False)


def with_factors(data: Interactions, d: int):
    """A model whose factors are random normal numbers: all vectors about equally long, so nothing can be left out."""
    generator, model = np.random.default_rng(0), IALS(factors=d)
    U, V = (generator.standard_normal((n, d), dtype=np.float32) for n in data.shape)
    model._fitted = Fitted(
        user_factors=U, item_factors=V, user_ids=data.user_ids, item_ids=data.item_ids, popularity=data.by_item.sums(),
        mean_user=np.zeros(d), merit=np.zeros(d), trained_fairness=0.0, fairness=0.0, history=History(), settings={},
        interactions=data,
    )  # fmt: skip
    return model


def measure(model, data: Interactions, threads: int) -> tuple[float, float, float, float, float]:
    """Seconds of fairmf, implicit and the bare product; how far the two answers agree."""
    from implicit.cpu.als import AlternatingLeastSquares

    with threadpoolctl.threadpool_limits(1, "blas"):  # as implicit's documentation asks; fairmf pins it by itself
        peer = AlternatingLeastSquares(factors=model.item_factors.shape[1], num_threads=threads)
        peer.user_factors, peer.item_factors = model.user_factors, model.item_factors
        liked = plain_csr(data)
        model.num_threads = threads
        calls = {
            "ours": lambda users: [(b.ids, b.scores) for b in ours(model, users)],
            "theirs": lambda users: [peer.recommend(u, liked[u], N=N) for u in batches(users)],
            "product": lambda users: bare_product(model.user_factors[users], model.item_factors, threads, 256),
        }
        everyone, seconds, answers = np.arange(data.n_users), {}, {}
        for name, call in calls.items():
            answers[name] = call(everyone[:BATCH])  # warm, and enough to compare
        for _ in range(2):
            for name, call in calls.items():
                began = time.perf_counter()
                call(everyone)
                seconds[name] = min(seconds.get(name, np.inf), time.perf_counter() - began)
    (ids, scores), (peer_ids, peer_scores) = (answers[name][0] for name in ("ours", "theirs"))
    some = np.isfinite(scores)  # fairmf gives users without history popular items instead, with score NaN
    gap = np.abs(scores - peer_scores)[some].max() / np.abs(scores[some]).max()
    return seconds["ours"], seconds["theirs"], seconds["product"], float((ids == peer_ids)[some].mean()), float(gap)


def ours(model, users):
    return model.recommend_batches(users, N=N, batch_size=BATCH, by="row", progress=False)


def batches(users):
    return (users[start : start + BATCH] for start in range(0, len(users), BATCH))


def export_peak(users: int) -> int:
    """Bytes at the peak of an export in a process of its own."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", ONE_EXPORT, str(users)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1]))
