"""A comparison of models on the same held-out users: what every table and report shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairmf.metrics import Evaluation
from fairmf.metrics.registry import parse_metric

COLUMNS = ("recall@20", "recall@50", "ndcg@100", "gini@20", "coverage@20")
TITLES = {
    "recall@20": "Recall@20",
    "recall@50": "Recall@50",
    "ndcg@100": "nDCG@100",
    "gini@20": "Gini@20",
    "coverage@20": "Coverage@20",
}


@dataclass(frozen=True)
class Contender:
    """One model's result."""

    name: str
    evaluation: Evaluation
    seconds: float


def title(metric: str) -> str:
    """A metric's name as people write it."""
    return TITLES.get(metric, metric)


def arrow(metric: str) -> str:
    """Which way is better (or fairer)."""
    return "↓" if parse_metric(metric).lower_is_better else "↑"


def write_json(contenders: Sequence[Contender], facts: dict[str, Any], path: Path) -> None:
    """All values and intervals, for machines."""
    rows = [{"name": c.name, "seconds": c.seconds, **c.evaluation.to_dict()} for c in contenders]
    path.write_text(json.dumps({"facts": facts, "models": rows}, indent=1) + "\n", encoding="utf-8")
