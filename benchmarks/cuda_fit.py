"""The whole call on a device: a fit from a SciPy matrix part by part, and the lists of all users; then a billion rows.

The parts are timed with a wait for the device before and after each, so that they add up to a little more than the
whole fit, which is timed without. The billion interactions are drawn on the device, because a generator on the host
would take longer than all else.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

from benchmarks.cuda import ML20M, SMALL, WEIGHTS, device, free
from benchmarks.result import Result
from fairmf.backends.registry import get_backend
from fairmf.data import interactions
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.data.weighting import Balance
from fairmf.models import als_cg, fit_loop, problem
from fairmf.models.als import FairALS
from fairmf.models.base import IterativeModel

EPOCHS, ROUNDS, N = 16, 5, 100
GOALS = {64: 0.25, 128: 0.30, 256: 0.45}
LISTS_GOAL = 0.25
BILLION = (10_000_000, 1_000_000, 100)  # users, items, draws for a user on average; about 0.9 billion differ
GROUPS, OWN = 500, 0.6  # groups of users with the same taste, and the share of items they draw from their own group's
FEW = (20_000, 5_000, 40)
BILLION_L2 = 3e-5  # the default, .003, makes all scores 0 at this size: it grows with the number of users and items
LISTED = 20
BILLION_GOALS = {64: 15.0, 128: 25.0}
PARTS = (
    "checks", "transpose", "sums", "balances", "upload", "start", "epochs", "last half-step", "finite", "results"
)  # fmt: skip


def run(short: bool) -> Result:
    get_backend("cuda")  # a clear line where there is no device
    data = synthetic(*(SMALL if short else ML20M))
    matrix = as_matrix(data)
    result = Result(
        "Whole fits on a device",
        f"FairALS from a SciPy CSR matrix in memory to a fitted model, {EPOCHS} epochs, fairness 1, on synthetic data "
        f"of ML-20M's shape ({data.n_users:,} x {data.n_items:,}, {data.nnz:,} interactions); {device()}. Seconds are "
        f"medians of {ROUNDS} warm fits; parts, in milliseconds, are those of the median fit of as many others. "
        "`python -m benchmarks --full cuda_fit`",
        ("factors", "balances", "fit, s", "goal", *(f"{part}, ms" for part in PARTS), "other, ms"),
    )
    found = []
    for d, goal in GOALS.items():
        for balances, settings in ((0.0, WEIGHTS), (0.25, {"fairness": 1.0})):
            model = FairALS(factors=d, epochs=EPOCHS, backend="cuda", **settings)
            seconds = median_of(lambda m=model: m.fit(matrix, progress=False))
            spent = parts_of(model, matrix)
            cells = [f"{1e3 * spent[part]:.1f}" for part in (*PARTS, "other")]
            wanted = verdict(seconds, goal) if balances == 0 and not short else ""
            result.rows.append((d, balances, f"{seconds:.3f}", wanted, *cells))
            if balances == 0:
                found.append(lists(model, matrix, d))
    result.findings += found
    result.findings += billion(*(FEW if short else BILLION), goals=not short)
    return result


def as_matrix(data: Interactions) -> sp.csr_array:
    """Return interactions as the SciPy matrix that a user would have."""
    rows = data.by_user
    return sp.csr_array((np.ones(rows.nnz, np.float32), rows.indices, rows.indptr), shape=data.shape)


def median_of(work: Callable[[], object]) -> float:
    """Run once to compile, then a few times; return the median seconds."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def verdict(seconds: float, goal: float) -> str:
    """Say whether a goal is met."""
    return f"{goal} met" if seconds <= goal else f"{goal} MISSED"


def places() -> dict[str, tuple[tuple[Any, str], ...]]:
    """Return the functions that each part consists of. What is inside another part counts once, as the inner one."""
    from fairmf.backends.cuda import memory
    from fairmf.backends.cuda.backend import CudaBackend

    return {
        "checks": ((fit_loop, "as_interactions"),),
        "transpose": ((interactions, "transpose"),),
        "sums": ((Rows, "sums"), (Rows, "column_counts"), (problem, "frequency_scaled"), (problem, "grouped")),
        "balances": ((Balance, "totals"), (Balance, "balanced")),
        "upload": ((memory, "device_rows"),),
        "start": ((CudaBackend, "draw_normal"),),
        "epochs": ((als_cg, "epoch"),),
        "last half-step": ((als_cg, "finish"),),
        "finite": ((CudaBackend, "all_finite"),),
        "results": ((IterativeModel, "_results"),),
    }


def parts_of(model: FairALS, matrix: sp.csr_array) -> dict[str, float]:
    """Return the seconds of each part of the fit whose time is the median."""
    fits = sorted((watched(model, matrix) for _ in range(ROUNDS)), key=lambda spent: sum(spent.values()))
    return fits[ROUNDS // 2]


def watched(model: FairALS, matrix: sp.csr_array) -> dict[str, float]:
    """Fit once; return the seconds of each part, waiting for the device before and after it."""
    import cupy as cp

    spent: dict[str, float] = defaultdict(float)
    open_parts = ["other"]
    last = time.perf_counter()

    def add_to(part: str) -> None:
        nonlocal last
        cp.cuda.Device().synchronize()
        now = time.perf_counter()
        spent[part] += now - last
        last = now

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        add_to(open_parts[-1])
        open_parts.append(part)
        try:
            yield
        finally:
            add_to(open_parts.pop())

    def wrapped(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with timed(part):
                return function(*arguments, **options)

        return call

    with ExitStack() as patches:
        for part, functions in places().items():
            for owner, name in functions:
                by = wrapped(part, getattr(owner, name))
                patches.enter_context(mock.patch.object(owner, name, by))
        last = time.perf_counter()
        model.fit(matrix, progress=False)
        add_to("other")
    return spent


def lists(model: FairALS, matrix: sp.csr_array, d: int) -> str:
    """Time the lists of all users, and the first read of the factors before them."""
    model.fit(matrix, progress=False)
    began = time.perf_counter()
    _ = model.user_factors, model.item_factors
    read = time.perf_counter() - began
    users = np.arange(matrix.shape[0])
    seconds = median_of(lambda: model.recommend(users, N=N))
    return (
        f"The {N} best items for each of {len(users):,} users, liked ones left out, {d} factors: {seconds:.3f} s "
        f"(goal {verdict(seconds, LISTS_GOAL)}). The first read of the factors copies them from the device: "
        f"{1e3 * read:.0f} ms."
    )


def billion(n_users: int, n_items: int, mean: int, goals: bool) -> list[str]:
    """Fit what `drawn` draws; return what it took, and how much memory."""
    import cupy as cp

    began = time.perf_counter()
    rows = drawn(n_users, n_items, mean)
    drawn_in = time.perf_counter() - began
    free()
    data = Interactions(rows, n_items)
    arrays = 2 * (rows.indices.nbytes + rows.indptr.nbytes)
    total = cp.cuda.runtime.memGetInfo()[1]
    found = [
        f"{n_users:,} x {n_items:,}, {data.nnz:,} distinct interactions, drawn on the device in {drawn_in:.0f} s "
        f"(benchmarks/cuda_fit.py: drawn); about {arrays / 2**30:.1f} GiB in both orientations."
    ]
    for d, goal in BILLION_GOALS.items():
        fresh = Interactions(rows, n_items)  # without the other orientation, which each fit then builds
        lowest = [total]
        model = FairALS(factors=d, epochs=EPOCHS, backend="cuda", regularization=BILLION_L2, **WEIGHTS)

        def look(*_: object, lowest: list[int] = lowest) -> None:
            lowest.append(cp.cuda.runtime.memGetInfo()[0])

        began = time.perf_counter()
        model.fit(fresh, progress=False, callbacks=[look])
        whole = time.perf_counter() - began
        records = model.history.records
        epoch = statistics.median(float(record["seconds"]) for record in records[4:])
        first = float(records[0]["seconds"])
        began = time.perf_counter()
        _ = model.user_factors, model.item_factors
        read = time.perf_counter() - began
        wanted = f" (goal {verdict(whole, goal)})" if goals else ""
        found.append(
            f"The same at {d} factors, {EPOCHS} epochs: the fit {whole:.1f} s{wanted}, an epoch {epoch:.3f} s, "
            f"the first, which also transposes and uploads, {first:.1f} s, the last half-step "
            f"{model.history.final['seconds']:.2f} s; to read the factors then {read:.1f} s. Memory: "
            f"{(total - min(lowest)) / 2**30:.0f} GiB of the device, {peak_of_host() / 2**30:.0f} GiB of the host "
            f"at its peak. F {model.history.final['objective']['total']:.6g}, {0.5 * data.nnz:.6g} at scores of 0."
        )
        if d == min(BILLION_GOALS):
            found.append(all_lists(model))
            spent = watched(model, Interactions(rows, n_items))
            parts = ", ".join(f"{part} {spent[part]:.2f}" for part in (*PARTS, "other") if spent[part] >= 0.005)
            found.append(f"Its parts at {d} factors, in seconds: {parts}.")
        del model, fresh
        free()
    return found


def all_lists(model: FairALS) -> str:
    """Write the lists of all users to a Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "lists.parquet"
        began = time.perf_counter()
        written = model.recommend_to_parquet(target, N=LISTED, progress=False)
        seconds, size = time.perf_counter() - began, target.stat().st_size
    pairs = model.n_users * model.n_items / seconds
    return (
        f"Lists of {LISTED} for all its {model.n_users:,} users, liked items left out, streamed to Parquet: "
        f"{seconds:.0f} s, {written:,} rows, {size / 1e9:.1f} GB; {pairs:.2g} scores a second. Peak of the host's "
        f"memory: {peak_of_host() / 2**30:.0f} GiB."
    )


def drawn(n_users: int, n_items: int, mean: int) -> Rows:
    """Draw users' items on the device: log-normal activity, popularity falling as a power, groups of one taste.

    A block of users at a time: each draws some items from its group's and the others from all, duplicates are removed
    by a sort, and what is left goes to the host. The same sizes give the same rows on the same version of CuPy.
    """
    import cupy as cp

    random = cp.random.default_rng(0)
    lengths = cp.exp(random.standard_normal(n_users))
    draws = cp.clip((lengths * (mean / lengths.mean())).astype(cp.int64), 1, n_items // 4)
    per_group = n_items // GROUPS
    reach, own_reach = powers(n_items), powers(per_group)
    indptr, parts, block = np.zeros(n_users + 1, np.int64), [], max(1, 50_000_000 // mean)
    for first in range(0, n_users, block):
        counts = draws[first : first + block]
        users = expanded(counts)
        chance = random.random(len(users))
        own = per_group * ((users + first) % GROUPS) + cp.searchsorted(own_reach, chance, side="right")
        items = cp.where(random.random(len(users)) < OWN, own, cp.searchsorted(reach, chance, side="right"))
        keys = cp.unique(users * n_items + cp.minimum(items, n_items - 1))
        indptr[first + 1 : first + 1 + len(counts)] = cp.asnumpy(cp.bincount(keys // n_items, minlength=len(counts)))
        parts.append(cp.asnumpy((keys % n_items).astype(cp.int32)))
    return Rows(np.cumsum(indptr), np.concatenate(parts), None).read_only()


def powers(count: int) -> Any:
    """Return the distribution function of ranks whose chance falls as a power."""
    import cupy as cp

    reach = cp.cumsum((cp.arange(count, dtype=cp.float64) + 30.0) ** -0.8)
    return reach / reach[-1]


def expanded(counts: Any) -> Any:
    """Return each position as many times as `counts` says."""
    import cupy as cp

    ends = cp.cumsum(counts)
    return cp.searchsorted(ends, cp.arange(int(ends[-1])), side="right")


def peak_of_host() -> int:
    """Return the most memory that this process has had so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
