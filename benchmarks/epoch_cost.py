"""Cost of an epoch against the number of factors: FiADMM against IALS with Cholesky rows (the paper's figure 4a).

Both run on the same data with the same kernels and threads, interleaved, in one process. The U step is timed alone as
well: it must grow like nnz * d, where forming each user's matrix, as the paper does, would grow like nnz * d^2.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.result import Result
from fairmf.backends.random_start import ITEMS, USERS, Stream
from fairmf.data.synthetic import synthetic
from fairmf.models.als import IALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.fiadmm_steps import user_step
from fairmf.models.problem import problem_for

FACTORS = (64, 128, 256)


def run(short: bool) -> Result:
    size = (8_000, 3_000, 500_000) if short else (30_000, 8_000, 1_700_000)
    data = synthetic(*size)
    repeats = 5 if short else 7
    result = Result(
        "Epoch cost: FiADMM against IALS-Cholesky",
        f"Synthetic data, {data.n_users:,} x {data.n_items:,}, {data.nnz:,} interactions; median of {repeats} epochs "
        "of each, interleaved; all threads. `python -m benchmarks epoch_cost`",
        ("factors", "IALS epoch, ms", "FiADMM epoch, ms", "IALS / FiADMM", "U step, ms", "U step, GFlop/s"),
    )
    ratios, user_steps = [], []
    for d in FACTORS:
        ials, fiadmm, users = measure(data, d, repeats)
        # Per entry a dot product and an update (4 d flops), per user one row of a d x d product (2 d^2).
        flops = 4 * data.nnz * d + 2 * data.n_users * d**2
        result.rows.append((d, 1e3 * ials, 1e3 * fiadmm, ials / fiadmm, 1e3 * users, flops / users / 1e9))
        ratios.append(ials / fiadmm)
        user_steps.append(users)
    slope = float(np.polyfit(np.log(FACTORS), np.log(user_steps), 1)[0])
    widens = "yes" if ratios == sorted(ratios) else "no"
    cheaper = "yes" if min(ratios) > 1 else "no"
    result.findings += [
        f"FiADMM's epoch is cheaper at every d: {cheaper} (ratio {', '.join(f'{r:.2f}' for r in ratios)}); the ratio "
        f"grows with d: {widens}.",
        f"The U step's time grows like d^{slope:.2f} (nnz d would be 1, forming the users' matrices 2).",
    ]
    return result


def measure(data, d: int, repeats: int) -> tuple[float, float, float]:
    models = {"ials": IALS(factors=d, solver="cholesky"), "fiadmm": FiADMM(factors=d, gamma=0.003, rho=1e6)}
    times: dict[str, list[float]] = {"ials": [], "fiadmm": [], "users": []}
    settings = models["fiadmm"].get_params()
    problem = problem_for(data, models["fiadmm"].lambda_f_for(data.n_users), settings)
    plain = problem_for(data, 0.0, settings)
    backend = problem.backend
    with backend.threads(0):
        U, V = backend.empty(data.n_users, d), backend.empty(data.n_items, d)
        for side, out in ((USERS, U), (ITEMS, V)):
            backend.draw_normal(Stream((0, 0), side), None, 0.3 / np.sqrt(d), out)
        states = {"ials": models["ials"].start(plain, U, V), "fiadmm": models["fiadmm"].start(problem, U, V)}
        s = backend.mean(U)
        for _ in range(repeats + 1):  # the first round compiles and warms up
            for name, posed in (("ials", plain), ("fiadmm", problem)):
                began = time.perf_counter()
                states[name] = models[name].epoch(posed, states[name])
                times[name].append(time.perf_counter() - began)
            began = time.perf_counter()
            user_step(problem, U, V, s, 0 * s, 1e6, 0.003)
            times["users"].append(time.perf_counter() - began)
    ials, fiadmm, users = (float(np.median(times[name][1:])) for name in ("ials", "fiadmm", "users"))
    return ials, fiadmm, users
