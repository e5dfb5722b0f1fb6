"""What tuning is worth on MovieLens-1M: IALS tuned for quality, FairALS for quality and Gini, against the defaults.

Settings are searched on the validation users only; every front is measured again on the test users. The untuned front
is the default model along its calibrated path.

`python -m benchmarks.tuning` makes the example of docs/tuning.md and stores it in benchmarks/tuning.json.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.pareto_data import TASKS, whole_split
from benchmarks.result import Result
from fairmf.control.calibrate import calibrate
from fairmf.control.quick_path import on_path
from fairmf.control.search_space import Doubling, default_space
from fairmf.control.trade_off import front_positions, hypervolume, level_of
from fairmf.control.tuning import tune
from fairmf.data.split import Split
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import IALS, FairALS

OBJECTIVES = ("ndcg@100", "gini@20")
LOWER = (False, True)
WORST = (0.2, 0.95)  # corner of the hypervolume: nDCG@100 and Gini@20
EVENNESS = tuple(k / 10 for k in range(11))
GOAL = 0.421
TRIALS, BEST = "FairALS tuned: the trials on the front", "FairALS tuned: the best trial's model, along its path"
EVERY = "FairALS tuned: the front's models, along quick paths"
EXAMPLE = Path(__file__).with_suffix(".json")
FACTORS = {"factors": Doubling(16, 128)}  # the default goes on to 256; left out to keep the run short

Points = list[tuple[float, float]]
Served = list[tuple[Any, dict[str, Any]]]


def run(short: bool) -> Result:
    result = Result(
        "Tuning on MovieLens-1M",
        "Settings searched on 1,000 validation users, default space but for factors, 16 to 128; measured again on the "
        f"1,000 test users. Hypervolume: the area of nDCG@100 above {WORST[0]} and Gini@20 below {WORST[1]} that a "
        "front dominates. Untuned: FairALS() along its calibrated path, at evenness 0 to 1 in tenths.",
        ("what", "users", "points", "highest nDCG@100", "lowest Gini@20", "hypervolume", "untuned points beaten"),
    )
    task = TASKS[0]
    if not task.path.exists():
        result.findings.append(f"not run, {task.file} is absent (FAIRMF_DATA names the folder).")
        return result
    split = whole_split(task.path)
    for_quality(split, 12 if short else 40, result)
    for_both(split, 20 if short else 60, result)
    return result


def for_quality(split: Split, trials: int, result: Result) -> None:
    began = time.perf_counter()
    found = tune(IALS(), split, trials=trials, space=default_space(IALS(), several=False) | FACTORS)
    best, own = found.best(), found.trials[0]
    states = [trial.state for trial in found.trials]
    tested = evaluate(found.best_model(), split.test, metrics=OBJECTIVES, bootstrap=0)
    before = evaluate(IALS().fit(split.train), split.test, metrics=OBJECTIVES, bootstrap=0)
    result.findings += [
        f"IALS for nDCG@100, {trials} trials ({states.count('pruned')} pruned) in {time.perf_counter() - began:.0f} s: "
        f"{best.metrics['ndcg@100']:.4f} (goal {GOAL}: {'yes' if best.metrics['ndcg@100'] >= GOAL else 'NO'}), "
        f"from {own.metrics['ndcg@100']:.4f} with the default settings; on test users {tested['ndcg@100']:.4f} from "
        f"{before['ndcg@100']:.4f}.",
        f"Its settings: {words(best.settings)}.",
    ]


def for_both(split: Split, trials: int, result: Result) -> None:
    began = time.perf_counter()
    space = default_space(FairALS(), several=True) | FACTORS
    found = tune(FairALS(), split, objectives=OBJECTIVES, trials=trials, space=space)
    seconds = time.perf_counter() - began
    front = found.pareto_front()
    fitted = [trial.build(found.model).fit(split.train, progress=False) for trial in front]
    untuned = FairALS().fit(split.train, progress=False)
    calibrate(untuned, split.validation, bootstrap=0, progress=False)
    alone = [(model, {"evenness": trial.evenness}) for model, trial in zip(fitted, front, strict=True)]
    every = found.dialled_front(split.validation, points=16, progress=False)
    paths = {
        trial.number: on_path(model, split.validation, 20, "ndcg@100")
        for trial, model in zip(front, fitted, strict=True)
        if trial.number in every.column("trial")
    }
    turned = [(paths[row["trial"]], {"evenness": level_of(row)}) for row in every]
    one = found.best_model()
    for users, held_out in (("validation", split.validation), ("test", split.test)):
        plain = measure([(untuned, {"evenness": e}) for e in EVENNESS], held_out)
        result.rows.append(("FairALS untuned", users, len(plain), *summary(plain), ""))
        compare(TRIALS, measure(alone, held_out), plain, users, result)
        compare(EVERY, measure(turned, held_out), plain, users, result)
        compare(BEST, measure([(one, {"evenness": e}) for e in EVENNESS], held_out), plain, users, result)
    result.findings.append(f"FairALS for both, {trials} trials in {seconds:.0f} s, {len(front)} on the front.")
    for bound in (0.9, 0.85, 0.8):
        trial = found.best(max_gini=bound)
        ndcg, gini = (trial.metrics[label] for label in OBJECTIVES)
        result.findings.append(
            f"best with Gini@20 at most {bound}: nDCG@100 {ndcg:.4f} at {gini:.4f} "
            f"({words(trial.settings)}, evenness={trial.evenness:.3g})."
        )
    best = found.best()
    result.findings.append(f"the best trial: {words(best.settings)}, evenness={best.evenness:.3g}.")


def compare(name: str, tuned: Points, plain: Points, users: str, result: Result) -> None:
    """A row, and which points of either side the other does not beat (at least as good in both)."""
    missed = [p for p in plain if not any(t[0] >= p[0] and t[1] <= p[1] for t in tuned)]
    beaten = [t for t in tuned if any(p[0] >= t[0] and p[1] <= t[1] for p in plain)]
    row = (name, users, len(tuned), *summary(tuned), f"{len(plain) - len(missed)} of {len(plain)}")
    result.rows.append(row)
    result.findings.append(
        f"{name}, {users}: {len(beaten)} of {len(tuned)} points are beaten by an untuned one; untuned and not beaten: "
        + (", ".join(f"{n:.4f}/{g:.4f}" for n, g in missed) or "none")
        + "."
    )


def measure(models: Served, held_out: Any) -> Points:
    found = [evaluate(model, held_out, metrics=OBJECTIVES, bootstrap=0, **options) for model, options in models]
    return [(one["ndcg@100"], one["gini@20"]) for one in found]


def summary(points: Points) -> tuple[float, float, float]:
    kept = [points[i] for i in front_positions(points, LOWER)]
    return max(p[0] for p in points), min(p[1] for p in points), hypervolume(kept, WORST, LOWER)


def words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value:.3g}" for name, value in settings.items())


def example() -> None:
    """A search for quality alone, and what its best model gains over the default along their paths."""
    model, split, began = FairALS(factors=64), whole_split(TASKS[0].path), time.perf_counter()
    space = default_space(model, several=False) | {"factors": Doubling(16, 64)}
    found = tune(model, split, trials=24, space=space, progress=False)
    searched, summary = time.perf_counter() - began, found.summary()
    states = [trial.state for trial in found.trials]
    made = {
        "seconds": [round(searched), round(time.perf_counter() - began - searched)],
        "trials": len(states), "pruned": states.count("pruned"), "settings": found.best().settings,
        "ndcg@100": [found.best().metrics["ndcg@100"], found.trials[0].metrics["ndcg@100"]],
        "summary": summary.splitlines(),
    }  # fmt: skip
    EXAMPLE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(summary, file=sys.stderr)


if __name__ == "__main__":
    example()
