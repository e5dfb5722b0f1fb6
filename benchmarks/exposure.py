"""Exposure offsets against FairRec: Recall@20 over Gini@20 as the floor rises.

Offsets are learned on the training users (and then serve users who were never seen) or on the cohort they serve, as
FairRec is, which cannot serve anybody alone.
"""

from __future__ import annotations

from benchmarks import pareto_plot
from benchmarks.exposure_points import Point, distinct_shares, measured, recall_at, trained
from benchmarks.pareto_data import TASKS, Task
from benchmarks.result import Result
from fairmf.control.fit_offsets import fit_offsets

ON_TRAINING, ON_COHORT = "FairALS, offsets learned on training users", "FairALS, offsets learned on the cohort"
DIALLED, FAIRREC, PLAIN_FAIRREC = "FairALS, dialled", "FairRec on FairALS", "FairRec on IALS"
TRAINING_FLOORS = (0.05, 0.1, 0.165, 0.2, 0.33, 0.36, 0.5)
COHORT_FLOORS = (0.05, 0.1, 0.17, 0.25, 0.35, 0.5, 0.75)
DIAL = (0, 0.5, 1, 2, 3, 4)
# (series, Recall@20 at least, Gini@20 at most)
GOALS = ((ON_TRAINING, 0.315, 0.79), (ON_TRAINING, 0.285, 0.70), (ON_COHORT, 0.32, 0.75))


def run(short: bool) -> Result:
    result = Result(
        "Exposure offsets and FairRec on ml-1m: K = 20",
        "64 factors, regularization .01, unobserved_weight .1; FairALS at fairness 1; 1,000 validation users, who are "
        "folded in; lists in order of score. The setting is the floor (offsets), the share (FairRec) or the fairness "
        "(dial). Short of it: items below the floor among the users that the offsets were learned on; for FairRec "
        f"among the users served. `python -m benchmarks {'' if short else '--full '}exposure`",
        ("series", "setting", "Recall@20", "Gini@20", "coverage@20", "short of it"),
    )
    task = TASKS[0]
    if not task.path.exists():
        result.findings.append(f"Not run: {task.file} is absent (FAIRMF_DATA names the folder).")
        return result
    points = measure(task, short)
    result.rows += [
        (p.series, f"{p.setting:g}", f"{p.recall:.4f}", f"{p.gini:.4f}", f"{p.coverage:.3f}", p.note) for p in points
    ]
    result.findings += [held(points, *goal) for goal in GOALS]
    result.findings += comparisons(points)
    if not short:
        order = (ON_TRAINING, ON_COHORT, DIALLED, FAIRREC, PLAIN_FAIRREC)
        series = {name: [(p.gini, p.recall, p.setting) for p in points if p.series == name] for name in order}
        result.findings.append(
            pareto_plot.draw(
                task.name, series, ON_TRAINING, file="exposure", quality="Recall@20", note=" (figures: the floor)",
                whole=False,
            )
        )  # fmt: skip
    return result


def measure(task: Task, short: bool) -> list[Point]:
    train, held_out = task.load(task.path)
    model, plain = trained("FairALS", task, train, 1.0), trained("IALS", task, train)
    dial = (0, 1) if short else DIAL
    points = [measured(DIALLED, psi, psi, model, held_out, fairness=psi) for psi in dial]
    sources = (
        (ON_TRAINING, None, (0.165, 0.33) if short else TRAINING_FLOORS),
        (ON_COHORT, held_out, (0.17,) if short else COHORT_FLOORS),
    )
    for series, cohort, floors in sources:
        for floor in floors:
            made = fit_offsets(model, K=20, min_exposure=floor, cohort=cohort, progress=False)
            below = f"{made.violations['items_below_floor']:,} of {train.n_items:,}"
            points.append(measured(series, 1.0, floor, made.model, held_out, below))
    shares = distinct_shares(20, held_out.fold_in.n_users, train.n_items, 2 if short else 6, 20)
    for series, base in ((FAIRREC, model), (PLAIN_FAIRREC, plain)):
        users = base.fold_in(held_out.fold_in)
        for share in shares:
            ranker = base.with_fairrec(share, K=20)
            certificate = ranker.lists(users, held_out.fold_in, 20).certificate
            note = f"{len(certificate.short):,} of {train.n_items:,}"
            points.append(measured(series, base.fitted.fairness, share, ranker, held_out, note))
    return points


def held(points: list[Point], series: str, recall: float, gini: float) -> str:
    """Whether some floor of the grid keeps both bounds, and which."""
    goal = f"{series}: Recall@20 >= {recall:g} at Gini@20 <= {gini:g}"
    keep = [p for p in points if p.series == series and p.recall >= recall and p.gini <= gini]
    if keep:
        return (
            goal + ": holds at " + "; ".join(f"floor {p.setting:g} ({p.recall:.4f}/{p.gini:.4f})" for p in keep) + "."
        )
    return goal + ": MISSED at every floor of the grid."


def comparisons(points: list[Point]) -> list[str]:
    """Recall of every series at the same Gini."""
    names = (DIALLED, ON_TRAINING, ON_COHORT, FAIRREC, PLAIN_FAIRREC)
    own = {name: [p for p in points if p.series == name] for name in names}
    lines = []
    for gini in (0.8, 0.75, 0.7, 0.6, 0.5):
        values = ((name, recall_at(own[name], gini)) for name in names)
        said = "; ".join(f"{name} {value:.4f}" if value == value else f"{name}: not reached" for name, value in values)
        lines.append(f"Recall@20 at Gini@20 {gini:g} (between points linear): {said}.")
    return lines
