"""A comparison of models on the same held-out users: what every table and report shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairmf.files.atomic import replacing
from fairmf.metrics import Evaluation
from fairmf.metrics.exposure import bottom_share
from fairmf.reporting.metric_words import arrow as arrow
from fairmf.reporting.metric_words import title as title

COLUMNS = ("recall@20", "recall@50", "ndcg@100", "gini@20", "coverage@20")


@dataclass(frozen=True)
class Contender:
    """One model's result."""

    name: str
    evaluation: Evaluation
    seconds: float


def write_json(contenders: Sequence[Contender], facts: dict[str, Any], path: Path) -> None:
    """All values and intervals, for machines."""
    rows = [{"name": c.name, "seconds": c.seconds, **c.evaluation.to_dict()} for c in contenders]
    text = json.dumps({"facts": facts, "models": rows}, indent=1) + "\n"
    with replacing(path) as file:
        file.write(text.encode())


def summary(before: Contender, after: Contender, at: int = 20, quality: str = "ndcg@100") -> str:
    """In plain words: what the less exposed part of the catalogue gains, and what it costs."""
    shares = [float(bottom_share(c.evaluation.exposure[at], 80)) for c in (before, after)]
    was, now = before.evaluation[quality], after.evaluation[quality]
    change = f"changes by {now / was - 1:+.1%}" if was > 0 else f"goes from {was:.3f} to {now:.3f}"
    cover = [c.evaluation[f"coverage@{at}"] for c in (before, after)]
    return (
        f"From {before.name} to {after.name}: the 80% of items shown least go from {shares[0]:.1%} to {shares[1]:.1%} "
        f"of the top-{at} exposure, the part of the catalogue shown at all from {cover[0]:.0%} to {cover[1]:.0%}, "
        f"and {title(quality)} {change}."
    )
