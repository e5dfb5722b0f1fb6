"""What else would reach a goal that the dial does not: exposure offsets and FairRec, measured on the same users."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fairmf.control.curve import Curve, Row
from fairmf.control.exposure import fit_offsets
from fairmf.metrics import evaluate
from fairmf.models.iterative import IterativeModel
from fairmf.splitting import HeldOut

if TYPE_CHECKING:
    from fairmf.control.target import Goal

GRID = (0.25, 0.5, 1.0)  # of the exposure that all items would have if they were shown equally often
USERS_AT_ONCE = 4096  # a look ahead need not rank more in each iteration


def measure_alternatives(
    model: IterativeModel,
    held_out: HeldOut,
    metrics: Sequence[str],
    at: int,
    advance: Callable[[str], None] = lambda _: None,
) -> Curve:
    """Offsets and FairRec with lists of `at`, on top of the model as it serves, at every share of GRID.

    Offsets are learned on the training users, or on the held-out ones where the model has no histories. FairRec's lists
    end at `at`: metrics of longer ones are None there. Where lists of `at` hold the whole catalogue, exposure is equal
    anyway and there is nothing to learn.
    """
    rows: list[Row] = []
    cohort = held_out if model.fitted.interactions is None else None
    for floor in GRID if at < model.n_items else ():
        began = time.perf_counter()
        made = fit_offsets(
            model, K=at, min_exposure=floor, cohort=cohort, users_at_once=USERS_AT_ONCE, progress=False
        ).model  # fmt: skip
        row = {"way": "offsets", "fairness": model.fitted.fairness, "min_exposure": floor}
        rows.append({**row, **_measured(made, held_out, metrics, metrics), "seconds": time.perf_counter() - began})
        advance(f"offsets {floor:g}")
    short = [name for name in metrics if int(name.split("@")[1]) <= at]
    for share in GRID:
        began = time.perf_counter()
        row = {"way": "FairRec", "fairness": model.fitted.fairness, "share": share}
        found = _measured(model.with_fairrec(share, K=at), held_out, short, metrics)
        rows.append({**row, **found, "seconds": time.perf_counter() - began})
        advance(f"FairRec {share:g}")
    return Curve(tuple(rows), tuple(metrics))


def _measured(model: Any, held_out: HeldOut, asked: Sequence[str], metrics: Sequence[str]) -> Row:
    found = evaluate(model, held_out, metrics=asked, bootstrap=0)
    return {name: found[name] if name in asked else None for name in metrics}


def advice(alternatives: Curve, goal: Goal, quality: str) -> str:
    """The best of either way in one sentence: of those that meet the goal the one with the best quality, else the
    nearest to it. Empty where nothing was measured.
    """
    said = []
    for way, name in (("offsets", "min_exposure"), ("FairRec", "share")):
        rows = [row for row in alternatives if row["way"] == way]
        if not rows:
            continue
        best = best_of(rows, goal, quality)
        verb = "give" if way == "offsets" else "gives"
        found = f"{way} with {name} {best[name]:g} {verb} {goal.metric} {best[goal.metric]:.4f} at "
        known = [metric for metric in ("ndcg@100", quality) if best[metric] is not None]
        said.append(found + " and ".join(f"{metric} {best[metric]:.4f}" for metric in dict.fromkeys(known)))
    fairness = alternatives.rows[0]["fairness"] if said else 0.0
    return f"On top of the model at fairness {fairness:g}, {'; '.join(said)}." if said else ""


def best_of(rows: Sequence[Row], goal: Goal, quality: str) -> Row:
    """Of the rows that meet the goal the one with the best quality; where none does, the nearest to it."""
    met = [row for row in rows if goal.met_by(row)]
    if met:
        return max(met, key=lambda row: row[quality])
    return min(rows, key=lambda row: row[goal.metric] if goal.at_most else -row[goal.metric])
