"""`fairmf tradeoff MODEL SPLIT`: what fairness costs, along the dial of one trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairmf.cli.evaluate import Part
from fairmf.cli.options import comma_list, numbers
from fairmf.cli.output import ENDINGS_HELP, check_table_output, write_table
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, load_fitted, read_split


def tradeoff(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that fit has stored.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    session: Session,
    fairness: Annotated[
        str | None,
        typer.Option(metavar="X,X,...", help="Measure at these values of fairness, rather than at chosen ones."),
    ] = None,
    points: Annotated[int, typer.Option(min=2, help="How many values to choose.")] = 12,
    metrics: Annotated[
        str, typer.Option(metavar="NAME,...", help="What to measure; the first accuracy and the first Gini steer.")
    ] = "ndcg@100,recall@20,gini@20,coverage@20",
    part: Annotated[Part, typer.Option(help="Which held-out users.")] = Part.validation,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"File to write the curve to: {ENDINGS_HELP}.")
    ] = None,
) -> None:
    """Measure quality and exposure along the dial: one trained model at many values of fairness. Nothing is trained.

    Values are chosen from 0 up to where Gini no longer falls; rows beyond that are marked, as nobody should go there.
    Choose with it on validation users (the default); the test users are for what was chosen.

    [dim]Examples:[/dim]

      fairmf tradeoff model.fairmf split

      fairmf tradeoff model.fairmf split --fairness 0,0.5,1,2,4 -o curve.csv
    """
    from fairmf.control.trade_off import trade_off

    wanted = comma_list(metrics) or []
    values = None if fairness is None else numbers("--fairness", fairness)
    if output is not None:
        check_table_output(output)
    loaded = load_fitted(model, session)
    check_dial(loaded, model, "a trade-off")
    held_out = getattr(read_split(data, None, session), part.value)
    session.uses(part.value, held_out.fold_in)
    with session.timed("tradeoff"):
        curve = trade_off(
            loaded, held_out, fairness=values, points=points, metrics=wanted, progress=session.progress
        )  # fmt: skip
    if output is not None:
        write_table(curve.table(), output)
        session.result["output"] = str(output)
    session.result |= {"model": str(model), "part": part.value, "rows": list(curve.rows)}
    session.record_beside(model if output is None else output)
    session.show(curve_table(curve, loaded.fitted.fairness, "what the model serves with now"))


def curve_table(curve: Any, marked: float, meaning: str) -> Any:
    """A curve as a table, a row per value of fairness; one of them is marked."""
    from rich.table import Table

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
        notes = ["past the minimum" if row.get("past_minimum") else ""] if noted else []
        table.add_row(f"{row['fairness']:g}{mark}", *cells, *notes)
    return table
