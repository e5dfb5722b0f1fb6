"""`fairmf evaluate MODEL SPLIT`: measure accuracy for users and exposure of items."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.options import Intervals, comma_list, integers
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, load_fitted, read_split
from fairmf.metrics.evaluate import Evaluation
from fairmf.metrics.evaluate import evaluate as measure
from fairmf.metrics.registry import parse_metric
from fairmf.types import Record


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
    fairness: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Measure the model at this fairness; it is not trained again."),
    ] = None,
    intervals: Intervals,
) -> None:
    """Measure a model on held-out users: accuracy (recall, nDCG and others) and how evenly items are exposed.

    [dim]Examples:[/dim]

      fairmf evaluate model.fairmf split

      fairmf evaluate model.fairmf split --fairness 3 --metrics ndcg@100,gini@20

      fairmf evaluate model.fairmf split --part validation --json
    """
    lengths = integers("--at", at)
    loaded = load_fitted(model, session)
    if fairness is not None:
        check_dial(loaded, model)
    split = read_split(data, None, session)
    held_out = getattr(split, part.value)
    session.uses(part.value, held_out.fold_in)
    options: Record = {} if fairness is None else {"fairness": fairness}
    with session.timed("evaluate"), watched(loaded, held_out.n_users, session) as ranker:
        found = measure(
            ranker, held_out, at=lengths, metrics=comma_list(metrics), train=split.train, **intervals.arguments(),
            **options,
        )  # fmt: skip
    session.run.metrics = found.values
    session.result |= {"model": str(model), "part": part.value, **found.to_dict()}
    session.record_beside(model)
    session.show(metric_table(found))


def metric_table(found: Evaluation) -> Table:
    """Show an Evaluation as a table: a row per metric, a column per K, intervals beside the values."""
    cutoffs = sorted({int(label.partition("@")[2]) for label in found.values})
    names = list(dict.fromkeys(label.partition("@")[0] for label in found.values))
    caption = (
        f"{found.n_users:,} users, {found.n_scored:,} with held-out items; ± half the interval; ↑ higher is better"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("metric", no_wrap=True)
    for K in cutoffs:
        table.add_column(f"@{K}", justify="right", no_wrap=True)
    for name in names:
        arrow = "↓" if parse_metric(f"{name}@{cutoffs[0]}").lower_is_better else "↑"
        table.add_row(f"{name} {arrow}", *(_cell(found, f"{name}@{K}") for K in cutoffs))
    return table


def _cell(found: Evaluation, label: str) -> str:
    if label not in found.values:
        return ""
    # Popularity is a count and may be large; all other metrics are at most 1.
    value = f"{found.values[label]:,.4g}" if abs(found.values[label]) >= 10 else f"{found.values[label]:.4f}"
    if label not in found.intervals:
        return value
    low, high = found.intervals[label]
    half = (high - low) / 2
    return f"{value} ± {half:,.2g}" if abs(found.values[label]) >= 10 else f"{value} ± {half:.4f}"
