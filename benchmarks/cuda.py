"""FairALS on a device: an epoch and its phases, against the CPU, and against CuPy and PyTorch without own kernels.

Data are synthetic at the shapes of ML-20M's and MSD's training sets. Times are of epochs alone, data on the device; an
epoch in which eigenvectors are computed anew and one in which the last basis is kept are told apart.
"""

from __future__ import annotations

import os
import time

import numpy as np

from benchmarks.cuda_peers import CupyPeer, TorchPeer, epoch
from benchmarks.result import Result
from fairmf.backends.registry import get_backend
from fairmf.data.synthetic import synthetic
from fairmf.models.als import FairALS
from fairmf.models.problem import problem_for

ML20M, MSD = (116_677, 20_108, 8_500_000), (471_355, 41_140, 27_000_000)
SMALL = (8_000, 3_000, 500_000)
VARIABLE = "FAIRMF_CUDA_MEMORY_GB"
WEIGHTS = {"fairness": 1.0, "item_balance": 0.0, "user_balance": 0.0}  # the paper's, as the peers have them


def run(short: bool) -> Result:
    backend = get_backend("cuda")  # a clear line where there is no device
    data = synthetic(*(SMALL if short else ML20M))
    copy = copy_bandwidth()
    result = Result(
        "FairALS on a device",
        f"Synthetic data of ML-20M's shape, {data.n_users:,} x {data.n_items:,}, {data.nnz:,} interactions, "
        f"fairness 1; {device()}, on which a copy moves {copy / 1e12:.1f} TB/s. Epochs of one fit of 16, data "
        "on the device. 'gathered' is what the rows read of the other side's vectors, in all passes, over the time "
        "they take.",
        (
            "factors", "stored as", "epoch, ms", "with eigenvectors, ms", "16 epochs, s", "of it rows, ms",
            "gathered, TB/s", "F against float32",
        ),
    )  # fmt: skip
    objective = {}
    for d in (64, 128, 256) if short else (64, 128, 256, 512, 1024):
        for storage in ("float32", "float16"):
            row, total = measure(data, d, storage)
            objective[d, storage] = total
            change = total / objective[d, "float32"] - 1
            result.rows.append((d, storage, *row, f"{100 * change:+.4f} %"))
    result.findings += phases(data, 256)
    result.findings += against_others(data, 128)
    result.findings += lists(data, 256, backend)
    if not short:
        result.findings += streamed(data, 256) + at_msd() + wide(data)
    return result


def fit(data, d, storage="float32", epochs=16, **settings):
    model = FairALS(factors=d, epochs=epochs, backend="cuda", factor_dtype=storage, **WEIGHTS, **settings)
    return model.fit(data, progress=False, settle=False)


def measure(data, d, storage):
    fit(data, d, storage, epochs=2)  # compiles
    spent = watched("improve", storage)
    model = fit(data, d, storage)
    rows_ms = spent()
    milliseconds = np.array([1e3 * record["seconds"] for record in model.history.records])
    slow = milliseconds > 1.15 * np.median(milliseconds[8:])
    quick, anew = np.median(milliseconds[~slow]), np.median(milliseconds[slow][1:]) if slow.sum() > 1 else np.nan
    total = total_of(model)
    bytes_read = 4 * data.nnz * d * (2 if storage == "float16" else 4)
    return (quick, anew, milliseconds.sum() / 1e3, rows_ms, bytes_read / rows_ms / 1e9), total


def watched(name, storage="float32"):
    """Time spent in one of the backend's methods from now on, per epoch of 16, when asked; waits after each call."""
    import cupy as cp

    backend = get_backend("cuda", storage)
    times: list[float] = []
    original = getattr(type(backend), name)

    def timed(*arguments, **options):
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        out = original(backend, *arguments, **options)
        end.record()
        times.append((start, end))
        return out

    setattr(backend, name, timed)

    def total():
        delattr(backend, name)
        cp.cuda.Device().synchronize()
        return sum(cp.cuda.get_elapsed_time(*pair) for pair in times) / 16

    return total


def phases(data, d):
    names = ("improve", "gramian", "multiply", "diagonalise", "mean", "weighted_squares", "add_vector")
    shares = {}
    for name in names:
        spent = watched(name)
        fit(data, d)
        shares[name] = spent()
    text = ", ".join(f"{name} {ms:.2f}" for name, ms in shares.items())
    n, m, nnz = data.n_users, data.n_items, data.nnz
    flops = 12 * nnz * d + 2 * (5 * n + 5 * m) * d**2
    moved = 4 * d * (n + m) * 14
    return [
        f"{d} factors, milliseconds of an epoch (mean of 16, by the device's clock): {text}.",
        f"Floor of an epoch at {d} factors: {flops / 1e9:.0f} GFlop ({1e3 * flops / 60e12:.1f} ms at 60 TFlop/s of "
        f"float32) and {moved / 1e9:.1f} GB through the device's memory even if all gathering came from its cache; the "
        f"gathered vectors are {16 * nnz * d / 1e9:.0f} GB more, from the second-level cache where they fit.",
    ]  # fmt: skip


def against_others(data, d):
    """One epoch by each, from the same start; ratios to fairmf on the device."""
    seconds = {"fairmf, cuda": np.median([r["seconds"] for r in fit(data, d).history.records][4:])}
    cpu = FairALS(factors=d, epochs=3, **WEIGHTS).fit(data, progress=False, settle=False)
    seconds["fairmf, cpu"] = np.median([r["seconds"] for r in cpu.history.records][1:])
    problem = problem_for(data, 0.0, cpu.get_params())
    generator = np.random.default_rng(0)
    start = [generator.normal(0, 0.1 / np.sqrt(d), size=(k, d)).astype(np.float32) for k in data.shape]
    for make in (CupyPeer, TorchPeer):
        peer = make(data)
        U, V = map(peer.array, start)
        ridges = [peer.array(x.astype(np.float32)) for x in (problem.user_ridge, problem.item_ridge)]
        times = []
        for _ in range(4):
            peer.wait()
            began = time.perf_counter()
            U, V = epoch(peer, U, V, ridges, 0.1, 1.0)
            peer.wait()
            times.append(time.perf_counter() - began)
        seconds[peer.name] = float(np.median(times[1:]))
        del peer, U, V, ridges
        free()
    own = seconds["fairmf, cuda"]
    return [
        f"An epoch at {d} factors: "
        + ", ".join(f"{name} {1e3 * s:.1f} ms ({s / own:.1f}x)" for name, s in seconds.items())
        + f"; the CPU is this machine's, {cores()} cores."
    ]


def lists(data, d, backend):
    model = fit(data, d, epochs=2)
    times = []
    for _ in range(3):
        found = np.empty((data.n_users, 100), np.int32), np.empty((data.n_users, 100), np.float32)
        with backend.threads(0):
            U, V = backend.array(model.user_factors), backend.array(model.item_factors)
            began = time.perf_counter()
            backend.top_k(U, V, 100, data.by_user, *found)
            times.append(time.perf_counter() - began)
    chosen = np.random.default_rng(0).choice(data.n_users, 500, replace=False)
    expected = np.empty((500, 100), np.int32), np.empty((500, 100), np.float32)
    get_backend("cpu").top_k(model.user_factors[chosen], model.item_factors, 100, data.by_user.take(chosen), *expected)
    differing = int((found[0][chosen] != expected[0]).sum())
    return [
        f"The 100 best items of all {data.n_users:,} users, seen ones left out, {d} factors: {min(times[1:]):.3f} s; "
        f"of 500 users' lists {differing} of 50,000 places differ from the CPU's."
    ]


def streamed(data, d):
    """The same fit where the users' factors are too large to stay on the device."""
    whole = fit(data, d)
    os.environ[VARIABLE] = "0.25"
    try:
        streamed = fit(data, d)
    finally:
        del os.environ[VARIABLE]
    milliseconds = np.median([1e3 * r["seconds"] for r in streamed.history.records][8:])
    change = total_of(streamed) / total_of(whole) - 1
    return [
        f"{d} factors with 0.25 GiB of the device allowed ({VARIABLE}), so that the users' factors stream: "
        f"{milliseconds:.0f} ms an epoch, F after 16 differs by {100 * change:+.6f} %."
    ]


def total_of(model):
    return model.history.records[-1]["objective"]["total"]


def at_msd():
    data = synthetic(*MSD)
    fit(data, 512, epochs=2)
    milliseconds = [1e3 * r["seconds"] for r in fit(data, 512).history.records]
    return [
        f"MSD's shape ({data.n_users:,} x {data.n_items:,}, {data.nnz:,}), 512 factors: "
        f"{np.median(milliseconds[8:]):.1f} ms an epoch, 16 in {sum(milliseconds) / 1e3:.2f} s."
    ]


def wide(data):
    found = []
    for d in (2048, 8192):
        seconds = [r["seconds"] for r in fit(data, d, epochs=3).history.records]
        found.append(f"{d} factors: {', '.join(f'{s:.2f}' for s in seconds)} s")
    blocks = [r["seconds"] for r in fit(data, 2048, epochs=2, solver="subspace", block_size=128).history.records]
    return [
        "Wide models, the first three epochs, which compute eigenvectors: " + "; ".join(found) + ".",
        f"iALS++ (solver='subspace') at 2048 factors in blocks of 128: {blocks[-1]:.2f} s an epoch.",
    ]


def copy_bandwidth():
    import cupy as cp

    a = cp.ones(1 << 28, dtype=cp.float32)
    b = cp.empty_like(a)
    start, end = cp.cuda.Event(), cp.cuda.Event()
    cp.copyto(b, a)
    start.record()
    for _ in range(10):
        cp.copyto(b, a)
    end.record()
    end.synchronize()
    rate = 10 * 2 * a.nbytes / (1e-3 * cp.cuda.get_elapsed_time(start, end))
    del a, b
    free()
    return rate


def free():
    import cupy as cp

    cp.get_default_memory_pool().free_all_blocks()


def device():
    import cupy as cp

    return cp.cuda.runtime.getDeviceProperties(0)["name"].decode()


def cores():
    return os.cpu_count()
