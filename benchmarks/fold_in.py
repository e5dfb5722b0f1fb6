"""Fold-in: one user at a time against implicit's `recalculate_user`, and all users at once against Cholesky."""

from __future__ import annotations

import time

import numpy as np
import threadpoolctl

from benchmarks import datasets
from benchmarks.peers import plain_csr
from benchmarks.result import Result
from fairmf.backends.registry import get_backend
from fairmf.backends.solve import solve_to_convergence
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.models.als import FairALS
from fairmf.models.problem import problem_for

IN_TURN = 10  # calls of one form before the next takes its turn
FACTORS = (64, 128, 256)
FORMS = ("Interactions", "CSR row", "list of ids", "implicit")


def run(short: bool) -> Result:
    data = synthetic(3_000, 20_000, 150_000)
    rounds = 200 if short else 1000
    result = Result(
        "Fold-in: one user",
        f"Microseconds per user, warm: median of {rounds} calls, {IN_TURN} of each in turn, every call another user, "
        f"{data.n_items:,} items, 50 interactions per user on average, one thread; the user given as Interactions, as "
        "a SciPy matrix with one row, or by item ids; implicit's `recalculate_user` takes a SciPy row. "
        "`python -m benchmarks fold_in`",
        ("factors", *FORMS, "CSR row / implicit"),
    )  # fmt: skip
    slowest = {}
    for d in FACTORS:
        times = single(data, d, rounds)
        medians = {form: float(np.median(times[form])) for form in times}
        slowest[d] = medians["CSR row"]
        ratio = f"{medians['CSR row'] / medians['implicit']:.2f}" if "implicit" in medians else "-"
        shown = [f"{medians[form]:.0f}" if form in medians else "-" for form in FORMS]
        result.rows.append((d, *shown, ratio))
    under = "yes" if slowest[128] < 1000 else "no"
    result.findings.append(f"Under a millisecond at d = 128: {under} ({slowest[128]:.0f} microseconds).")
    result.findings += [
        batch(name, each, d) for name, each in batches(data).items() for d in (FACTORS[:2] if short else FACTORS)
    ]
    return result


def batches(small: Interactions) -> dict[str, Interactions]:
    ratings = datasets.movielens()
    return {"synthetic": small} if ratings is None else {"synthetic": small, "ml-1m": ratings}


def single(data: Interactions, d: int, rounds: int) -> dict[str, np.ndarray]:
    """Microseconds of every call, by the form in which the user is given."""
    model = FairALS(factors=d, epochs=1, num_threads=1).fit(data)
    csr, names = plain_csr(data), data.item_ids.values
    users = [i for i in range(data.n_users) if csr.indptr[i] < csr.indptr[i + 1]]
    users = [users[k % len(users)] for k in range(rounds)]
    rows = {i: csr[i] for i in set(users)}
    alone = {i: data.take_users(np.array([i])) for i in rows}
    calls = {
        "Interactions": lambda i: model.fold_in(alone[i]),
        "CSR row": lambda i: model.fold_in(rows[i]),
        "list of ids": lambda i, ids={i: names[rows[i].indices] for i in rows}: model.fold_in_user(ids[i]),
    }
    peer = implicits(csr, d)
    if peer is not None:
        calls["implicit"] = lambda i: peer.recalculate_user(0, rows[i])
    times: dict[str, list[float]] = {form: [] for form in calls}
    with threadpoolctl.threadpool_limits(1, "blas"):
        for form in calls:
            calls[form](users[0])  # compiles, and makes what is kept
        for first in range(0, len(users), IN_TURN):
            for form, call in calls.items():
                for i in users[first : first + IN_TURN]:
                    began = time.perf_counter()
                    call(i)
                    times[form].append(1e6 * (time.perf_counter() - began))
    return {form: np.array(spent) for form, spent in times.items()}


def implicits(csr, d: int):
    """implicit's model after one epoch, or None where it is not installed."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError:
        return None
    with threadpoolctl.threadpool_limits(1, "blas"):
        peer = AlternatingLeastSquares(factors=d, iterations=1, num_threads=1, random_state=0)
        peer.fit(csr, show_progress=False)
    return peer


def batch(name: str, data: Interactions, d: int) -> str:
    """All users at once: as `fold_in` and `with_fairness` do it, and by Cholesky."""
    model = FairALS(factors=d, epochs=3).fit(data)
    fitted, backend = model.fitted, get_backend("cpu")
    problem = problem_for(data, 0.0, fitted.settings)
    with backend.threads(0):
        step = problem.user_half_step(backend.array(fitted.item_factors), shift=2.0 * fitted.merit)
        fast, exact = solve_to_convergence(step), step.backend.solve(step)
        seconds = [min(clock(solve, step) for _ in range(3)) for solve in (solve_to_convergence, step.backend.solve)]
    norms = np.linalg.norm(exact, axis=1)
    error = float((np.linalg.norm(fast - exact, axis=1)[norms > 0] / norms[norms > 0]).max())
    return (
        f"All {data.n_users:,} users of {name} at once, d = {d}, all threads: {1e3 * seconds[0]:.0f} ms, by Cholesky "
        f"{1e3 * seconds[1]:.0f} ms ({seconds[1] / seconds[0]:.1f}x); largest relative difference {error:.0e}."
    )


def clock(call, argument) -> float:
    began = time.perf_counter()
    call(argument)
    return time.perf_counter() - began
