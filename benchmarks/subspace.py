"""Cost of an epoch at large d: iALS++ in blocks of several sizes, and eigenbasis_cg, against Cholesky rows.

All in one process, in turns, in CPU seconds of all threads, which another program on the machine does not lengthen as
it does the clock. Cholesky costs minutes per epoch at these sizes and a row's cost does not depend on the
others, so it is timed on every k-th row of both sides and multiplied by k; the table says which k.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks import datasets
from benchmarks.result import Result
from fairmf.data.synthetic import synthetic
from fairmf.models.als import FairALS
from fairmf.models.problem import problem_for

BLOCKS = (16, 32, 64)
SETTINGS = {"unobserved_weight": 0.01, "regularization": 0.003}
CHOLESKY_ROWS = 256  # of each side


def run(short: bool) -> Result:
    rounds = 1 if short else 3
    measure(synthetic(300, 200, 3_000), 64, 1, BLOCKS)  # compiles
    result = Result(
        "Large d: iALS++ and eigenbasis_cg against Cholesky",
        "CPU seconds of all threads per epoch, without fairness but for 'fair', which has fairness 1 and blocks of 32; "
        f"the best of {rounds}. Cholesky timed on every k-th row, at most {CHOLESKY_ROWS} rows "
        "of each side, times k. F: that of blocks of 32 over eigenbasis_cg's after these epochs. GFlop: those of blocks"
        " of 32, and how many a CPU second does. `python -m benchmarks subspace`",
        (
            "data", "factors", "k", "Cholesky", "eigenbasis_cg", *(f"blocks of {b}" for b in BLOCKS), "fair",
            "Cholesky / eigenbasis_cg", "Cholesky / blocks of 32", "F", "GFlop", "GFlop per CPU second",
        ),
    )  # fmt: skip
    for name, data in sets().items():
        for d in (512, 1024, 2048):
            if short and d > 512 and name != "gowalla":
                continue
            row = measure(data, d, rounds, BLOCKS if d == 512 or not short else (32,))
            result.rows.append((name, d, *row))
            print(result.rows[-1], flush=True)
    fast = {(r[0], r[1]): float(r[-5]) for r in result.rows}
    for factors, goal in ((1024, " (goal: 5x on Gowalla)"), (2048, "")):
        told = ", ".join(f"{ratio:.0f}x on {name}" for (name, d), ratio in fast.items() if d == factors)
        result.findings.append(f"At d = {factors} eigenbasis_cg's epoch is cheaper than Cholesky's by {told}{goal}.")
    return result


def sets():
    found = {"synthetic 0.6M": synthetic(12_000, 6_000, 600_000)}
    real = datasets.gowalla()
    return found if real is None else {"gowalla": real} | found


def measure(data, d: int, rounds: int, sizes: tuple[int, ...]):
    models = {"cg": FairALS(factors=d, fairness=0.0, **SETTINGS)}
    for b in sizes:
        models[b] = FairALS(factors=d, fairness=0.0, solver="subspace", block_size=b, **SETTINGS)
    models["fair"] = FairALS(factors=d, fairness=1.0, solver="subspace", block_size=32, **SETTINGS)
    problem = {key: problem_for(data, m.lambda_f_for(data.n_users), m.get_params()) for key, m in models.items()}
    seconds, states = dict.fromkeys(models, np.inf), {}
    with problem["cg"].backend.threads(0):
        for turn in range(rounds):
            for key, model in models.items():
                if turn == 0:
                    states[key] = model.start(problem[key], *model._initial_factors(problem[key], None))
                began = time.process_time()
                states[key] = model.epoch(problem[key], states[key])
                seconds[key] = min(seconds[key], time.process_time() - began)
        exact, k = by_cholesky(problem["cg"], states[32], rounds)
    relative = states[32].objective.total / states["cg"].objective.total
    gflop = flops(data, d, 32) / 1e9
    times = [f"{seconds[key]:.2f}" if key in models else "not run" for key in ("cg", *BLOCKS, "fair")]
    return (
        k, f"{exact:.1f}", *times, f"{exact / seconds['cg']:.1f}", f"{exact / seconds[32]:.1f}",
        f"{relative:.4f}", f"{gflop:.0f}", f"{gflop / seconds[32]:.0f}",
    )  # fmt: skip


def by_cholesky(problem, state, rounds: int) -> tuple[float, int]:
    """Seconds of an epoch's rows by Cholesky (without its Gramians), from one row in every k, and k."""
    k = max(1, -(-max(problem.interactions.shape) // CHOLESKY_ROWS))
    sides = problem.user_half_step(state.item_factors), problem.item_half_step(state.user_factors)
    total = 0.0
    for step in sides:
        chosen = np.arange(0, step.rows.count, k)
        part = replace(step, rows=step.rows.take(chosen), ridge=step.ridge[chosen])
        best = np.inf
        for _ in range(rounds):
            began = time.process_time()
            step.backend.solve(part)
            best = min(best, time.process_time() - began)
        total += best * step.rows.count / len(chosen)
    return total, k


def flops(data, d: int, b: int) -> float:
    """A sweep over both sides: entries (matrix, gradient, scores), rows (factor, solve, shared), Gramians."""
    rows = sum(data.shape)
    return 2 * data.nnz * d * (b + 6) + rows * (d * b**2 / 3 + 2 * d * b + 2 * d**2) + rows * d**2
