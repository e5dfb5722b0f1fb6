"""What balances, the item dial and calibration cost: ratios inside one run, alternating rounds.

`python -m benchmarks.evenness` measures instead what evenness costs on MovieLens-1M in accuracy, which is the table of
the README, and stores it in benchmarks/evenness.json.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.datasets import medium
from benchmarks.pareto_data import TASKS, whole_split
from benchmarks.result import Result
from fairmf import IALS, FairALS, Level, calibrate, evaluate
from fairmf.control.calibrate import Calibration
from fairmf.control.level_grid import Grid, measure_grid
from fairmf.data.interactions import Interactions

ROUNDS = 7
LEVEL = Level(None, 0.4, 0.2)
FINE = Grid(
    fairness=(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0),
    discount=(0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.45, 0.65, 1.0, 1.5, 2.2),
)
"""About 320 points on MovieLens-1M; the default grid has about 110 there."""
SHOWN = Path(__file__).with_suffix(".json")
METRICS = ("ndcg@20", "ndcg@100", "gini@20", "coverage@20")


def run(short: bool) -> Result:
    result = Result(
        "Evenness: what it costs",
        f"Medians of {ROUNDS} alternating rounds; ratios. `python -m benchmarks {'' if short else '--full '}evenness`",
        ("what", "data", "without", "with", "ratio", "goal"),
    )
    data = medium()
    add(result, "epoch with balances, ms", "30,000 x 8,000, 1.7 million", *epochs(data), 1.05)
    model = FairALS(factors=128, epochs=2).fit(data, objective_every=0, progress=False)
    batch, one, unbounded = answers(model)
    add(result, "lists of 4,096 users at a level, ms", "as above, N = 20", *batch, 1.05)
    add(result, "the same, against items of equal length", "as above", *unbounded, 1.05)
    add(result, "list of one user at a level, ms", "as above, N = 20", *one, None)
    for name, level in (("plain", Level(None, 0.0, 0.0)), ("at the level", LEVEL)):
        by_length, by_leading = within_reach(model, data, level)
        result.findings.append(
            f"Lists {name}: {100 * by_length:.0f} % of the pairs of users and items may enter a list by the lengths of "
            f"their vectors, {100 * by_leading:.0f} % when half of the factors are multiplied out."
        )
    if TASKS[0].path.exists():
        calibration(result)
    return result


def add(result: Result, what: str, data: str, without: float, with_it: float, goal: float | None) -> None:
    """One row; a goal that is missed is named."""
    ratio = with_it / without
    result.rows.append((what, data, without, with_it, ratio, "" if goal is None else goal))
    if goal is not None and ratio > goal:
        result.findings.append(f"{what}: {ratio:.3f}, MISSED (goal {goal:g}).")


def alternating(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Median milliseconds of both, in alternating rounds after a warm-up."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for kept, call in zip(times, (first, second), strict=True):
            began = time.perf_counter()
            call()
            if number:
                kept.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[0]), statistics.median(times[1])


def epochs(data: Interactions) -> tuple[float, float]:
    """A fit of one epoch more, with and without balances: the difference is an epoch."""

    def seconds(balance: float) -> float:
        model = FairALS(factors=128, epochs=9, item_balance=balance, user_balance=balance)
        model.fit(data, objective_every=0, progress=False, settle=False)
        return 1e3 * statistics.median(record["seconds"] for record in model.history.records[1:])

    rounds = [(seconds(0.0), seconds(0.25)) for _ in range(ROUNDS)]
    return statistics.median(r[0] for r in rounds), statistics.median(r[1] for r in rounds)


def answers(model: FairALS) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    """`recommend` for a batch and for one user, plain and at a level; and the batch against items of equal length.

    Plain lists are final before all items are scored where the vectors of the items differ in length (`top_k.py`). A
    level makes them alike. With equal lengths plain lists need every score too: what is left is the dial itself.
    """
    users = np.arange(4096)
    ask = {"N": 20, "by": "row"}
    batch = alternating(lambda: model.recommend(users, **ask), lambda: model.recommend(users, evenness=LEVEL, **ask))
    alike, vectors = copy.copy(model), model.item_factors
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    alike._fitted = dataclasses.replace(model.fitted, item_factors=unit.astype(np.float32))
    unbounded = alternating(
        lambda: alike.recommend(users, **ask), lambda: model.recommend(users, evenness=LEVEL, **ask)
    )
    single = np.arange(300)
    one = alternating(
        lambda: [model.recommend(int(u), **ask) for u in single],
        lambda: [model.recommend(int(u), evenness=LEVEL, **ask) for u in single],
    )
    return batch, (one[0] / len(single), one[1] / len(single)), unbounded


def within_reach(model: FairALS, data: Interactions, level: Level) -> tuple[float, float]:
    """The share of pairs that a bound on the score does not rule out, with every user's 20th best score known.

    The first bound is |u||v|, plus the offset. The second one has the exact product of the first half of the factors
    (in the eigenbasis of the items' Gramian), and lengths for the others.
    """
    users = model.user_factors[:1024].astype(np.float64)
    items, offset = model.item_factors.astype(np.float64), np.zeros(data.n_items)
    scale = model.fitted.item_dial.level(level.flatten, level.discount)
    if scale is not None:
        items = items if scale.scale is None else items * scale.scale[:, None]
        offset = offset if scale.offset is None else scale.offset
    basis = np.linalg.eigh(items.T @ items)[1][:, ::-1]  # largest first
    users, items = users @ basis, items @ basis
    scores = users @ items.T + offset
    for i in range(len(users)):
        scores[i, data.by_user.row(i)[0]] = -np.inf
    floor = np.partition(scores, -20, axis=1)[:, -20, None]
    half = items.shape[1] // 2
    shares = []
    for done in (0, half):
        rest = np.outer(*(np.linalg.norm(x[:, done:], axis=1) for x in (users, items)))
        shares.append(float((users[:, :done] @ items[:, :done].T + rest + offset >= floor).mean()))
    return shares[0], shares[1]


def calibration(result: Result) -> None:
    """`calibrate` on MovieLens-1M: on the validation users alone, as users call it, and with about 300 points."""
    split = whole_split(TASKS[0].path)
    model = FairALS(regularization=0.0063, unobserved_weight=0.22).fit(split.train, objective_every=0, progress=False)
    fine = functools.partial(measure_grid, grid=FINE)
    add_seconds(result, "without a table", lambda: calibrate(model, split.validation, bootstrap=0, progress=False))
    add_seconds(
        result, "with its table on 1,000 test users (defaults)", lambda: calibrate(model, split, progress=False)
    )
    with mock.patch("fairmf.control.calibrate.measure_grid", fine):
        what = "with a finer grid, without a table"
        add_seconds(result, what, lambda: calibrate(model, split.validation, bootstrap=0, progress=False))
        what = "with a finer grid and its table"
        add_seconds(result, what, lambda: calibrate(model, split, progress=False))


def add_seconds(result: Result, what: str, call: Callable[[], Calibration]) -> None:
    """Say how long a calibration takes: the median of three, after one that compiles."""
    times = []
    for _ in range(4):
        began = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times[1:])
    verdict = "met" if seconds <= 5 else "MISSED"
    result.findings.append(
        f"calibrate on ml-1m, 1,000 users, {what}: {found.points} points, {len(found.path.knots)} knots, "
        f"{seconds:.1f} s (goal 5 s: {verdict})."
    )


def shown() -> dict[str, dict[str, float]]:
    """Means of three seeds on the test users of MovieLens-1M, with settings that the models choose from the data."""
    split = whole_split(TASKS[0].path)
    found: dict[str, list[list[float]]] = {}

    def measure(name: str, model: IALS | FairALS, **options: float) -> None:
        values = evaluate(model, split.test, metrics=METRICS, bootstrap=0, **options)
        found.setdefault(name, []).append([float(values[metric]) for metric in METRICS])

    for seed in range(3):
        plain = IALS(factors=64, settings="auto", random_state=seed).fit(split.train, progress=False)
        measure("iALS", plain)
        model = FairALS(factors=64, settings="auto", random_state=seed).fit(split.train, progress=False)
        measure("FairALS, no evenness", model)
        calibrate(model, split.validation, bootstrap=0, progress=False)
        for evenness in (0, 0.1, 0.2, 0.3, 0.5):
            measure(f"FairALS, evenness {evenness:g}", model, evenness=evenness)
    return {
        name: dict(zip(METRICS, np.mean(seeds, axis=0).round(5).tolist(), strict=True)) for name, seeds in found.items()
    }


if __name__ == "__main__":
    SHOWN.write_text(json.dumps(shown(), indent=1) + "\n", encoding="utf-8")
