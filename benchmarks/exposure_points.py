"""What the experiments on exposure share: models, points in the plane of Recall@20 and Gini@20, fronts of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.pareto_data import Task
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM

METRICS = ("recall@20", "gini@20", "coverage@20")


@dataclass(frozen=True)
class Point:
    """Where one way of serving stands at one setting."""

    series: str
    fairness: float
    setting: float
    recall: float
    gini: float
    coverage: float
    note: str = ""


def measured(
    series: str, at: float, setting: float, model: Any, held_out: HeldOut, note: str = "", **options: Any
) -> Point:
    """The point of a model (or of FairRec on one) on the held-out users."""
    found = evaluate(model, held_out, metrics=METRICS, bootstrap=0, **options)
    return Point(series, at, setting, *(found[name] for name in METRICS), note)


def trained(kind: str, task: Task, train: Interactions, fairness: float = 0.0) -> Any:
    """IALS, FairALS or FiADMM (100 epochs), 64 factors, with the task's weights."""
    settings = {"factors": 64, **task.weights}
    made = {
        "IALS": lambda: IALS(**settings),
        "FairALS": lambda: FairALS(fairness=fairness, **settings),
        "FiADMM": lambda: FiADMM(fairness=fairness, epochs=100, **settings),
    }[kind]()
    return made.fit(train, objective_every=0, progress=False)


def distinct_shares(K: int, n_users: int, n_items: int, most: int, slots: int) -> list[float]:
    """Shares that promise every item 1, 2, 3, ... users: at most `most` of them, as far as `slots` per user go.

    The promise is a whole number of users, so that shares in between give the same lists.
    """
    uniform = K * n_users / n_items
    last = int(min(uniform, slots * n_users / n_items))
    chosen = np.unique(np.linspace(1, last, min(most, last)).round().astype(int)) if last else []
    return [float(np.ceil(1000 * ell / uniform) / 1000) for ell in chosen]


def front_of(points: Iterable[Point]) -> list[Point]:
    """Those that no other beats, fairest first."""
    kept: list[Point] = []
    for p in sorted(points, key=lambda p: (p.gini, -p.recall)):
        if not kept or p.recall > kept[-1].recall:
            kept.append(p)
    return kept


def recall_at(points: Iterable[Point], gini: float) -> float:
    """Recall of the front at that Gini: linear in between, level right of it, NaN left of its fairest point."""
    front = front_of(points)
    if not front or gini < front[0].gini:
        return float("nan")
    return float(np.interp(gini, [p.gini for p in front], [p.recall for p in front]))
