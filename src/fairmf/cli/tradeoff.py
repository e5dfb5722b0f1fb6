"""`fairmf tradeoff MODEL SPLIT`: measure what fairness costs, at many values for one trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.evaluate import Part
from fairmf.cli.options import comma_list, numbers
from fairmf.cli.output import ENDINGS_HELP, check_table_output, write_table
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, load_fitted, read_split
from fairmf.control.trade_off import Curve, trade_off


def tradeoff(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    session: Session,
    fairness: Annotated[
        str | None,
        typer.Option(
            metavar="X,X,...", help="Values of fairness to measure. [dim]\\[default: chosen automatically][/dim]"
        ),
    ] = None,
    points: Annotated[int, typer.Option(min=2, help="How many values to choose if --fairness is not given.")] = 12,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Metrics to measure. If fairmf chooses the values of fairness, it avoids large gaps in one curve: "
            "the first accuracy metric of this list against the first Gini metric.",
        ),
    ] = "ndcg@100,recall@20,gini@20,coverage@20",
    part: Annotated[Part, typer.Option(help="Held-out users to measure on.")] = Part.validation,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"File to write the curve to: {ENDINGS_HELP}.")
    ] = None,
) -> None:
    """Measure quality and exposure of one trained model at many values of fairness. It is not trained again.

    Unless you give --fairness, values run from 0 to just past the lowest Gini. Rows past the lowest Gini are marked:
    there, quality is lower and exposure is less even. Choose a value on the validation users (the default), then
    measure your choice on the test users.

    [dim]Examples:[/dim]

      fairmf tradeoff model.fairmf split

      fairmf tradeoff model.fairmf split --fairness 0,0.5,1,2,4 -o curve.csv
    """
    wanted = comma_list(metrics) or []
    values = None if fairness is None else numbers("--fairness", fairness)
    if output is not None:
        check_table_output(output)
    loaded = check_dial(load_fitted(model, session), model, "a trade-off")
    held_out = getattr(read_split(data, None, session), part.value)
    session.uses(part.value, held_out.fold_in)
    with session.timed("tradeoff"):
        curve = trade_off(loaded, held_out, fairness=values, points=points, metrics=wanted, progress=session.progress)
    if output is not None:
        write_table(curve.table(), output)
        session.result["output"] = str(output)
    session.result |= {"model": str(model), "part": part.value, "rows": list(curve.rows)}
    session.record_beside(model if output is None else output)
    session.show(curve_table(curve, loaded.fitted.fairness, "the fairness that the model uses by default"))


def curve_table(curve: Curve, marked: float, meaning: str) -> Table:
    """Show a curve as a table with a row per value of fairness; one value is marked with a star."""
    table = Table(caption=f"* {meaning}" if marked in curve.column("fairness") else None, caption_justify="left")
    table.add_column("fairness", justify="right", no_wrap=True)
    for name in curve.metrics:
        table.add_column(name, justify="right")
    noted = any(row.get("past_minimum") for row in curve)
    if noted:
        table.add_column("", no_wrap=True)
    for row in curve:
        mark = " *" if row["fairness"] == marked else ""
        cells = ["" if row[name] is None else f"{row[name]:.4f}" for name in curve.metrics]
        notes = ["past lowest Gini" if row.get("past_minimum") else ""] if noted else []
        table.add_row(f"{row['fairness']:g}{mark}", *cells, *notes)
    return table
