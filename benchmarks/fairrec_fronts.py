"""FairRec on top of fair models: does it help Recall@20 over Gini@20 where much fairness is wanted?

The paper on fiADMM says so (figure 3 there). Here every model alone, at several fairness values, is compared with the
same models under FairRec at several shares, at equal Gini; lists of 100 in order of allocation, of which the first 20
are measured, as in the paper, and lists of 20 in order of score.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.exposure_points import Point, distinct_shares, front_of, measured, recall_at, trained
from benchmarks.pareto_data import TASKS, Task
from benchmarks.result import Result
from fairmf.data.split import HeldOut

LEVELS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4)  # of Gini@20
WAYS = ((", K = 100 in allocation order", 100, "allocation"), (", K = 20 in score order", 20, "score"))
DIALLED, AGAIN, ADMM, IALS = "FairALS dialled", "FairALS re-trained", "FiADMM", "IALS"
FAMILIES = (ADMM, DIALLED, AGAIN, IALS)
DIAL, RETRAINED, ADMM_FAIRNESS = (0, 1, 2, 4), (1, 10, 40), (1, 10, 40)


def run(short: bool) -> Result:
    result = Result(
        "FairRec on top: Recall@20 at equal Gini@20",
        "64 factors, regularization .01, unobserved_weight .1, one seed; FiADMM 100 epochs; validation users, "
        f"folded in (frozen). FairALS dialled: trained at 1, dialled to {', '.join(map(str, DIAL))}; re-trained at "
        f"{', '.join(map(str, RETRAINED))}; FiADMM at {', '.join(map(str, ADMM_FAIRNESS))}. Every cell is the "
        "Recall@20 at that Gini@20, linear between the points of one model, and of the best of its models; level right "
        "of a model's least fair point; a dash: not reached. "
        f"`python -m benchmarks {'' if short else '--full '}fairrec_fronts`",
        ("data", "series", "points", "fairest: Recall@20/Gini@20", *(f"at {gini:g}" for gini in LEVELS)),
    )
    for task in TASKS[:1] if short else TASKS[:2]:
        if not task.path.exists():
            result.findings.append(f"{task.name}: not run, {task.file} is absent (FAIRMF_DATA names the folder).")
            continue
        points = measure(task, short)
        for series in dict.fromkeys(p.series for p in points):
            own = [p for p in points if p.series == series]
            best = front_of(own)[0]
            cells = (shown(best_at(own, gini)) for gini in LEVELS)
            result.rows.append((task.name, series, len(own), f"{best.recall:.4f}/{best.gini:.4f}", *cells))
        result.findings += [f"{task.name}, {line}" for line in verdicts(points)]
    return result


def measure(task: Task, short: bool) -> list[Point]:
    train, held_out = task.load(task.path)
    n, m = held_out.fold_in.n_users, train.n_items
    shares = {K: distinct_shares(K, n, m, 2 if short else 7, 24) for _, K, _ in WAYS}
    points: list[Point] = []
    fair = trained("FairALS", task, train, 1.0)
    for psi in (0, 1) if short else DIAL:
        points += family(DIALLED, fair, psi, held_out, shares)
    for phi in (1,) if short else RETRAINED:
        points += family(AGAIN, fair if phi == 1 else trained("FairALS", task, train, phi), phi, held_out, shares)
    points += family(IALS, trained("IALS", task, train), 0.0, held_out, shares)
    for phi in (1,) if short else ADMM_FAIRNESS:
        points += family(ADMM, trained("FiADMM", task, train, phi), phi, held_out, shares)
    return sorted(points, key=lambda p: FAMILIES.index(p.series.split(" +")[0]))


def family(name: str, model: Any, fairness: float, held_out: HeldOut, shares: dict[int, list[float]]) -> list[Point]:
    """A model at one fairness: alone, and under FairRec in both ways."""
    options = {"fairness": fairness} if name == DIALLED else {}
    points = [measured(name, fairness, 0.0, model, held_out, **options)]
    for way, K, order in WAYS:
        for share in shares[K]:
            ranker = model.with_fairrec(share, K=K, order=order)
            points.append(measured(f"{name} + FairRec{way}", fairness, share, ranker, held_out, **options))
    return points


def shown(recall: float) -> str:
    return f"{recall:.4f}" if recall == recall else "-"


def best_at(points: list[Point], gini: float) -> float:
    """Recall at that Gini: of a model alone, along its fairness; under FairRec, along the shares at its best fairness.

    Fronts of several fairness values are not joined: between them lies nothing that anybody was served.
    """
    if all(p.setting == 0 for p in points):
        return recall_at(points, gini)
    curves = ([p for p in points if p.fairness == fairness] for fairness in {p.fairness for p in points})
    return max((found for found in (recall_at(curve, gini) for curve in curves) if found == found), default=np.nan)


def verdicts(points: list[Point]) -> list[str]:
    """With FairRec against without, level by level; then all models under FairRec against each other."""
    own: dict[str, list[Point]] = {}
    for p in points:
        own.setdefault(p.series, []).append(p)
    lines = []
    for name in FAMILIES:
        for way, _, _ in WAYS:
            topped = own.get(f"{name} + FairRec{way}", [])
            alone, both = ({g: best_at(some, g) for g in LEVELS} for some in (own[name], topped))
            gains = [
                f"{both[g] - alone[g]:+.4f} at {g:g}" for g in LEVELS if alone[g] == alone[g] and both[g] == both[g]
            ]
            only = [f"{g:g}" for g in LEVELS if alone[g] != alone[g] and both[g] == both[g]]
            lines.append(f"{name}{way}: with FairRec less without, {', '.join(gains)}"
                         f"{'; only with FairRec: ' + ', '.join(only) if only else ''}.")  # fmt: skip
    way = WAYS[-1][0]
    for gini in LEVELS:
        found = {name: best_at(own.get(f"{name} + FairRec{way}", []), gini) for name in FAMILIES}
        ranked = sorted((name for name in FAMILIES if found[name] == found[name]), key=lambda name: -found[name])
        if ranked:
            best = ", ".join(f"{name} {found[name]:.4f}" for name in ranked)
            lines.append(f"with FairRec{way}, Recall@20 at Gini@20 {gini:g}: {best}.")
    return lines
