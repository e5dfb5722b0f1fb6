"""Control: what a curve of evenness and a re-trained path cost, and whether targets are reached.

The curve trains nothing: it costs a search for a path and as many evaluations. A path of ten re-trained models must
cost at most four cold fits, with F no more than 0.1 % above theirs. A target out of reach on 5,000 x 12,000 must be
answered within three seconds.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.pareto_data import TASKS, Task
from benchmarks.result import Result
from fairmf.control.quick_path import on_path
from fairmf.control.target import fit_to_target
from fairmf.control.trade_off import LEVEL, METRICS, fit_path, trade_off
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import FairALS
from fairmf.models.evenness import Level

PATH = (0, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4)
FAR_PATH = (0, 0.1, 0.2, 0.4, 0.7, 1, 2, 4, 10, 20)
GOALS = ({"max_gini": 0.85}, {"max_gini": 0.95}, {"max_ndcg_loss": 0.02}, {"min_coverage": 0.3})


def run(short: bool) -> Result:
    result = Result(
        "Control: curves of evenness, re-trained paths and targets",
        "FairALS, 64 factors, validation users. `python -m benchmarks control`",
        (
            "data",
            "users",
            "goal",
            "reached",
            "evenness",
            "level",
            "nDCG@100",
            "Gini@20",
            "coverage@20",
            "evaluations",
            "seconds",
        ),
    )
    names = ("ml-1m",) if short else ("ml-1m", "gowalla", "lastfm-hetrec")
    for task in TASKS:
        if task.name not in names:
            continue
        if not task.path.exists():
            result.findings.append(f"{task.name}: not run, {task.file} is absent (FAIRMF_DATA names the folder).")
            continue
        train, held_out = task.load(task.path)
        settings = {"factors": 64, **task.weights}
        model = FairALS(**settings).fit(train, progress=False)
        for goal in GOALS:
            began = time.perf_counter()
            found = fit_to_target(model, held_out, **goal, progress=False)
            seconds = time.perf_counter() - began
            row = next(r for r in found.curve if r["evenness"] == found.evenness)
            level = "/".join(f"{strength:.2g}" for strength in found.level.strengths)
            asked = ", ".join(f"{k} {v:g}" for k, v in goal.items())
            values = [f"{row[name]:.4f}" for name in ("ndcg@100", "gini@20", "coverage@20")]
            reached = "yes" if found.reached else "no, nearest:"
            place = (task.name, held_out.n_users, asked, reached, found.evenness, level)
            result.rows.append((*place, *values, len(found.curve), seconds))
        if task.name == "ml-1m":
            result.findings += [curve_cost(settings, train, held_out), *path_costs(task, settings, train, held_out)]
    result.findings.append(out_of_reach())
    return result


def out_of_reach() -> str:
    """Time the answer to a target that no evenness meets, without the fit."""
    split = split_by_user(synthetic(5_000, 12_000, 300_000), heldout=1_000, protocol="seeded")
    model = FairALS(factors=64).fit(split.train, progress=False)
    fit_to_target(model, split, max_gini=0.5, progress=False)  # compiles
    found, seconds = timed(lambda: fit_to_target(model, split, max_gini=0.5, progress=False))
    return (
        f"5,000 x 12,000 (synthetic), Gini@20 <= .5 for 1,000 users: reached {found.reached}, said after "
        f"{seconds:.2f} s. Within 3 s: {'yes' if not found.reached and seconds <= 3 else 'NO'}."
    )


def timed(work: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def curve_cost(settings: dict[str, Any], train: Interactions, held_out: HeldOut) -> str:
    """Both sides twice, in turns; the faster of each."""
    curves, fits, evaluations = [], [], []
    for _ in range(2):
        model, seconds = timed(lambda: FairALS(**settings).fit(train, progress=False))
        fits.append(seconds)
        curve, seconds = timed(lambda model=model: trade_off(model, held_out, points=20, progress=False))
        curves.append(seconds)
        levels = [Level(*(row[name] for name in LEVEL[1:])) for row in curve]
        asked = [{"metrics": METRICS, "bootstrap": 0, "evenness": level} for level in levels]
        turned = on_path(model, held_out, 20, "ndcg@100")  # the prices of items that lift needs
        evaluations.append(timed(lambda turned=turned: [evaluate(turned, held_out, **how) for how in asked])[1])  # noqa: B023
    allowed = min(fits) + min(evaluations)
    return (
        f"ml-1m: {len(curve)} points along the path take {min(curves):.2f} s, with the search for it; one fit "
        f"{min(fits):.2f} s, as many "
        f"evaluations {min(evaluations):.2f} s: less than both together: {'yes' if min(curves) < allowed else 'NO'}."
    )


def path_costs(task: Task, settings: dict[str, Any], train: Interactions, held_out: HeldOut) -> list[str]:
    split = Split(train, held_out, held_out)
    lines = []
    for values in (PATH, FAR_PATH):
        seconds, objective = [], {}
        for phi in values:
            model, spent = timed(lambda phi=phi: FairALS(**settings, fairness=phi).fit(train, progress=False))
            seconds.append(spent)
            objective[phi] = model.history.column("objective.total")[-1]
        path = fit_path(FairALS(**settings), split, fairness=values, progress=False)
        cost = sum(path.column("seconds")) / float(np.mean(seconds))
        excess = [row["objective"] / objective[row["trained_fairness"]] - 1 for row in path]
        holds = cost <= 4 and max(excess) <= 1e-3
        lines.append(
            f"{task.name}: a re-trained path over {', '.join(f'{v:g}' for v in values)} costs {cost:.2f} cold fits "
            f"(epochs {', '.join(map(str, path.column('epochs')))}); F against the cold fits from "
            f"{100 * min(excess):+.3f} % to {100 * max(excess):+.3f} %. "
            f"At most 4 and 0.1 %: {'yes' if holds else 'NO'}."
        )
    return lines
