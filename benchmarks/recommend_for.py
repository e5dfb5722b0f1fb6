"""`recommend_for`: a history in, a list out, against implicit's `recalculate_user` and ranking; and in batches."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp
import threadpoolctl

from benchmarks.fold_in import implicits
from benchmarks.peers import plain_csr
from benchmarks.result import Result
from fairmf.data.synthetic import synthetic
from fairmf.models.als import FairALS
from fairmf.models.history_request import HistoryRequest

IN_TURN = 10  # calls of one library before the next takes its turn
N_ITEMS, HISTORY, FACTORS, BATCHES = 20_108, 20, (64, 128, 256), (1, 4, 16, 32)


def run(short: bool) -> Result:
    rounds = 150 if short else 600
    data = synthetic(3_000, N_ITEMS, 150_000)
    result = Result(
        "One history in, one list out",
        f"Microseconds, medians of {rounds} calls, {IN_TURN} of each in turn, each of another history of {HISTORY} "
        f"items; {N_ITEMS:,} items, lists of 20, one thread. implicit: `recommend(..., recalculate_user=True)` and "
        "`recalculate_user` alone, of a SciPy row. Every request has an evenness of its own. "
        "`python -m benchmarks recommend_for`",
        ("factors", "fold_in_user", "implicit's", "ratio", "recommend_for", "at an evenness", "implicit's", "ratio"),
    )  # fmt: skip
    for d in FACTORS:
        times = {name: float(np.median(spent)) for name, spent in single(data, d, rounds).items()}
        fold, peer_fold = times["fold"], times.get("implicit fold", np.nan)
        plain, even, peer = times["plain"], times["even"], times.get("implicit", np.nan)
        shown = [f"{x:.0f}" for x in (plain, even, peer)]
        result.rows.append(
            (d, f"{fold:.0f}", f"{peer_fold:.0f}", f"{fold / peer_fold:.2f}", *shown, f"{even / peer:.2f}")
        )
    each = ", ".join(f"{b}: {micro:.0f}" for b, micro in batched(data, rounds // 5).items())
    result.findings.append(
        "CPU microseconds per request of `recommend_histories`, 128 factors, random evenness, "
        f"by requests in one call: {each}."
    )
    return result


def histories(data, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.sort(rng.choice(data.n_items, HISTORY, replace=False)) for _ in range(count)]


def single(data, d: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds of every call, by what is called."""
    model = FairALS(factors=d, epochs=1, num_threads=1).fit(data, progress=False)
    columns = histories(data, rounds)
    ids = [data.item_ids.values[own].tolist() for own in columns]
    ones, ends = np.ones(HISTORY, dtype=np.float32), [0, HISTORY]
    rows = [sp.csr_matrix((ones, own, ends), shape=(1, data.n_items)) for own in columns]
    levels = np.random.default_rng(1).random(rounds).tolist()
    calls = {
        "fold": lambda k: model.fold_in_user(ids[k]),
        "plain": lambda k: model.recommend_for(ids[k], N=20),
        "even": lambda k: model.recommend_for(ids[k], N=20, evenness=levels[k]),
    }
    peer = implicits(plain_csr(data), d)
    if peer is not None:
        calls["implicit fold"] = lambda k: peer.recalculate_user(0, rows[k])
        calls["implicit"] = lambda k: peer.recommend(0, rows[k], N=20, recalculate_user=True)
    times: dict[str, list[float]] = {name: [] for name in calls}
    with threadpoolctl.threadpool_limits(1, "blas"):
        for call in calls.values():
            call(0)
        for first in range(0, rounds, IN_TURN):
            for name, call in calls.items():
                for k in range(first, first + IN_TURN):
                    began = time.perf_counter()
                    call(k)
                    times[name].append(1e6 * (time.perf_counter() - began))
    return times


def batched(data, rounds: int) -> dict[int, float]:
    """CPU microseconds per request, by the number of requests in a call."""
    model = FairALS(factors=128, epochs=1, num_threads=1).fit(data, progress=False)
    ids = [data.item_ids.values[own].tolist() for own in histories(data, max(BATCHES))]
    rng, found = np.random.default_rng(2), {}
    for size in BATCHES:
        spent = []
        for _ in range(rounds):
            requests = [
                HistoryRequest(own, evenness=float(e)) for own, e in zip(ids[:size], rng.random(size), strict=True)
            ]
            began = time.process_time()
            model.recommend_histories(requests)
            spent.append((time.process_time() - began) / size)
        found[size] = 1e6 * float(np.median(spent))
    return found
