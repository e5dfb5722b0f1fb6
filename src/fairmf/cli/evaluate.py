"""`fairmf evaluate MODEL SPLIT`: measure accuracy for users and exposure of items."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.level_flags import Served, level_facts, level_name
from fairmf.cli.options import Intervals, comma_list, integers
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted, read_split
from fairmf.metrics.evaluate import Evaluation
from fairmf.metrics.evaluate import evaluate as measure
from fairmf.metrics.registry import parse_metric


class Part(str, Enum):
    """The held-out users of a split that can be measured on."""

    test = "test"
    validation = "validation"


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    *,
    session: Session,
    part: Annotated[Part, typer.Option(help="Held-out users to measure on.")] = Part.test,
    at: Annotated[str, typer.Option(metavar="K,K,...", help="Lengths K of the lists to measure.")] = "20,50,100",
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Measure only these, such as ndcg@100,gini@20. [dim]\\[default: all][/dim]"
        ),
    ] = None,
    served: Served,
    intervals: Intervals,
) -> None:
    """Measure a model on held-out users: accuracy (recall, nDCG and others) and how evenly items are exposed.

    With --evenness, the lists are made at that evenness. The model is not trained again. Gini and coverage depend on
    the number of users: compare them only for the same users.

    [dim]Examples:[/dim]

      fairmf evaluate model.fairmf split

      fairmf evaluate model.fairmf split --evenness 0.3 --metrics ndcg@100,gini@20

      fairmf evaluate model.fairmf split --part validation --json
    """
    lengths = integers("--at", at)
    loaded = load_fitted(model, session)
    asked = served.read(loaded, model, session)
    split = read_split(data, None, session)
    held_out = getattr(split, part.value)
    session.uses(part.value, held_out.fold_in)
    with session.timed("evaluate"), watched(loaded, held_out.n_users, session) as ranker:
        found = measure(
            ranker, held_out, at=lengths, metrics=comma_list(metrics), train=split.train, **intervals.arguments(),
            evenness=asked,
        )  # fmt: skip
    session.run.metrics = found.values
    session.result |= {"model": str(model), "part": part.value, **level_facts(loaded, asked), **found.to_dict()}
    session.record_beside(model)
    users = f"{found.n_users:,} {part.value} users, {found.n_scored:,} of them with held-out items"
    ends = "; ± half the interval" if found.intervals else ""
    how = level_name(loaded, asked)
    session.show(metric_table(found), f"{how.capitalize()}, for {users}{ends}; ↑ higher is better")


def metric_table(found: Evaluation) -> Table:
    """Show an Evaluation as a table: a row per metric, a column per K, intervals beside the values."""
    cutoffs = sorted({int(label.partition("@")[2]) for label in found.values})
    names = list(dict.fromkeys(label.partition("@")[0] for label in found.values))
    table = Table()
    table.add_column("metric", no_wrap=True)
    for K in cutoffs:
        table.add_column(f"@{K}", justify="right", no_wrap=True)
    for name in names:
        arrow = "↓" if parse_metric(f"{name}@{cutoffs[0]}").lower_is_better else "↑"
        table.add_row(f"{name} {arrow}", *(value_cell(found, f"{name}@{K}") for K in cutoffs))
    return table


def value_cell(found: Evaluation, label: str) -> str:
    """Return a metric and half its interval, if it has one."""
    if label not in found.values:
        return ""
    # Popularity is a count and may be large; all other metrics are at most 1.
    value = f"{found.values[label]:,.4g}" if abs(found.values[label]) >= 10 else f"{found.values[label]:.4f}"
    if label not in found.intervals:
        return value
    low, high = found.intervals[label]
    half = (high - low) / 2
    return f"{value} ± {half:,.2g}" if abs(found.values[label]) >= 10 else f"{value} ± {half:.4f}"
