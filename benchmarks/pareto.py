"""Quality against inequality of exposure: one model and the dial, against re-training and against competitors.

nDCG@100 over Gini@20. FairALS is trained once at fairness 1 and dialled (the front); IALS is dialled too; FairALS and
FiADMM are re-trained at every fairness. Stored runs of the fiADMM authors' C++ are compared where they are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import pareto_plot
from benchmarks.pareto_data import COMPETITOR, TASKS, Task, competitor_rows
from benchmarks.result import Result
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM

METRICS = ("ndcg@100", "gini@20", "gini@100")
DIAL = (0, 0.25, 0.5, 1, 1.5, 2, 3, 4)
RETRAINED = (0.1, 0.4, 1, 4, 10, 40)
MARGIN = 0.001
FRONT, PLAIN, AGAIN = "FairALS trained at 1, dialled", "IALS, dialled", "FairALS re-trained"
FROZEN, COHORT, AUTHORS = "FiADMM re-trained", "FiADMM re-trained, cohort fold-in", "fiADMM authors' C++, stored runs"

# (dialled to, nDCG@100 at least, Gini@20 at most): ml-1m, one model trained at 1.
DIAL_GOALS = ((0, 0.422, 0.908), (0.5, 0.418, 0.891), (1, 0.408, 0.873), (2, 0.387, 0.836), (3, 0.361, 0.797))
# (trained at, {metric: bound}): ml-1m, regularization .003, re-trained.
TRAINED_GOALS = (
    (0.4, {"ndcg@100": 0.400, "gini@20": 0.877}),
    (4, {"ndcg@100": 0.367, "gini@20": 0.836}),
    (40, {"gini@100": 0.66}),
)


@dataclass(frozen=True)
class Point:
    """Where one series stands at one fairness (mean over seeds)."""

    series: str
    fairness: float
    ndcg: float
    gini: float
    gini100: float

    def __str__(self) -> str:
        return f"{self.fairness:g}: {self.ndcg:.4f}/{self.gini:.4f}"


def run(short: bool) -> Result:
    result = Result(
        "Trade-off: the dial against re-training and competitors",
        f"64 factors; FairALS and IALS 16 epochs, FiADMM 100 (rho and gamma automatic); frozen fold-in unless said "
        f"otherwise; mean over seeds. `python -m benchmarks pareto{'' if short else ' --full'}`",
        ("data", "series", "seeds", "fairness", "nDCG@100", "Gini@20", "Gini@100", "above the front by"),
    )
    for task in TASKS[:1] if short else TASKS:
        if not task.path.exists():
            result.findings.append(f"{task.name}: not run, {task.file} is absent (FAIRMF_DATA names the folder).")
            continue
        measure_task(task, short, result)
    return result


def measure_task(task: Task, short: bool, result: Result) -> None:
    train, held_out = task.load(task.path)
    seeds, admm_seeds = (1, 1) if short else (task.seeds, task.admm_seeds)
    dial = (0, 0.5, 1, 2, 3) if short else DIAL
    settings = {"factors": 64, **task.weights}
    points = [
        *dialled(FRONT, FairALS(fairness=1.0, **settings), dial, seeds, train, held_out),
        *dialled(PLAIN, IALS(**settings), dial, seeds, train, held_out),
    ]
    for phi in (1, 10) if short else RETRAINED:
        points += trained(AGAIN, FairALS(fairness=phi, **settings), seeds, train, held_out)
    for phi in (1,) if short else task.admm:
        model = FiADMM(fairness=phi, **settings)
        points += trained(FROZEN, model, admm_seeds, train, held_out, cohort=task.cohort)
    front = [p for p in points if p.series == FRONT]
    number = {FROZEN: admm_seeds, COHORT: admm_seeds}
    for p in points:
        above = "" if p.series == FRONT else said(height(p, front))
        cells = (number.get(p.series, seeds), p.fairness, *(f"{x:.4f}" for x in (p.ndcg, p.gini, p.gini100)))
        result.rows.append((task.name, p.series, *cells, above))
    rows = competitor_rows(task.name)
    points += [Point(AUTHORS, r["fairness"], r["ndcg100"], r["gini20"], r["gini100"]) for r in rows]
    result.findings.append(
        f"{task.name}: {task.what}; regularization {task.regularization:g}, "
        f"unobserved_weight {task.unobserved_weight:g}."
    )
    result.findings += comparisons(task.name, points, front)
    if task.name == "ml-1m":
        if not rows:
            result.findings.append(f"ml-1m: {COMPETITOR.name} is absent, so the authors' runs are not compared.")
        result.findings += dial_goals(front)
        if not short:
            result.findings += trained_goals(seeds, train, held_out)
    if not short:  # a short run has too few points for a picture, and leaves the stored ones alone
        order = (FRONT, PLAIN, AGAIN, FROZEN, COHORT, AUTHORS)
        series = {name: [(p.gini, p.ndcg, p.fairness) for p in points if p.series == name] for name in order}
        result.findings.append(pareto_plot.draw(task.name, series, labelled=FRONT, scattered=AUTHORS))


def dialled(name: str, model: Any, dial: Iterable[float], seeds: int, train: Interactions, held_out: HeldOut):
    """One fit per seed, asked at every psi."""
    found: dict[float, list[list[float]]] = {psi: [] for psi in dial}
    for seed in range(seeds):
        model.random_state = seed
        model.fit(train, objective_every=0, progress=False)
        for psi, values in found.items():
            values.append(measured(model, held_out, fairness=psi))
    return [Point(name, psi, *np.mean(values, axis=0)) for psi, values in found.items()]


def trained(name: str, model: Any, seeds: int, train: Interactions, held_out: HeldOut, cohort: bool = False):
    """One fit per seed, at the model's own fairness; for FiADMM also with the paper's fold-in."""
    ways: dict[str, dict[str, str]] = {name: {}} | ({COHORT: {"method": "cohort", "scale": "phi"}} if cohort else {})
    found: dict[str, list[list[float]]] = {way: [] for way in ways}
    for seed in range(seeds):
        model.random_state = seed
        model.fit(train, objective_every=0, progress=False)
        for way, options in ways.items():
            found[way].append(measured(model, held_out, **options))
    return [Point(way, model.fairness, *np.mean(values, axis=0)) for way, values in found.items()]


def measured(model: Any, held_out: HeldOut, **options: Any) -> list[float]:
    result = evaluate(model, held_out, metrics=METRICS, bootstrap=0, **options)
    return [result[name] for name in METRICS]


def height(point: Point, front: list[Point]) -> float:
    """nDCG above the front at the point's Gini: linear in between, level right of it, NaN left of its fairest point."""
    end = int(np.argmin([p.gini for p in front]))
    gini, ndcg = zip(*sorted((p.gini, p.ndcg) for p in front[: end + 1]), strict=True)
    return float("nan") if point.gini < gini[0] else point.ndcg - float(np.interp(point.gini, gini, ndcg))


def said(above: float) -> str:
    return "fairer than any point of the front" if np.isnan(above) else f"{above:+.4f}"


def comparisons(name: str, points: list[Point], front: list[Point]) -> list[str]:
    """For every series: how many of its points lie above the front, and which."""
    lines = []
    for series in (PLAIN, AGAIN, FROZEN, COHORT, AUTHORS):
        own = [p for p in points if p.series == series]
        heights = [height(p, front) for p in own]
        above = [f"{p} ({h:+.4f})" for p, h in zip(own, heights, strict=True) if h > MARGIN]
        beyond = [str(p) for p, h in zip(own, heights, strict=True) if np.isnan(h)]
        if own:
            lines.append(
                f"{name}, {series}: {len(above)} of {len(own)} points above the front by more than {MARGIN:g}"
                + (f", as fairness: nDCG@100/Gini@20 (above by): {'; '.join(above)}" if above else "")
                + (f"; fairer than any point of the front: {'; '.join(beyond)}" if beyond else "")
                + "."
            )
    return lines


def dial_goals(front: list[Point]) -> list[str]:
    found = {p.fairness: p for p in front}
    return [
        f"ml-1m, dialled to {psi:g}: {found[psi].ndcg:.4f}/{found[psi].gini:.4f}, goal {ndcg:.3f}/{gini:.3f}: "
        f"{'holds' if found[psi].ndcg >= ndcg and found[psi].gini <= gini else 'MISSED'}."
        for psi, ndcg, gini in DIAL_GOALS
    ]


def trained_goals(seeds: int, train: Interactions, held_out: HeldOut) -> list[str]:
    lines = []
    for phi, bounds in TRAINED_GOALS:
        model = FairALS(factors=64, regularization=0.003, unobserved_weight=0.1, fairness=phi)
        (point,) = trained(AGAIN, model, seeds, train, held_out)
        values = {"ndcg@100": point.ndcg, "gini@20": point.gini, "gini@100": point.gini100}
        holds = all(values[k] >= v if k == "ndcg@100" else values[k] <= v for k, v in bounds.items())
        wanted = ", ".join(f"{k} {'>=' if k == 'ndcg@100' else '<='} {v:g}" for k, v in bounds.items())
        found = ", ".join(f"{k} {v:.4f}" for k, v in values.items())
        lines.append(f"ml-1m, re-trained at {phi:g}, regularization .003: {found}; goal {wanted}: "
                     f"{'holds' if holds else 'MISSED'}.")  # fmt: skip
    return lines
