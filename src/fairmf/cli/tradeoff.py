"""`fairmf tradeoff MODEL SPLIT`: measure what evenness costs, at many values for one trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.evaluate import Part
from fairmf.cli.options import Flags, comma_list, numbers
from fairmf.cli.output import ENDINGS_HELP, check_table_output, write_table
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, load_fitted, read_split
from fairmf.control.trade_off import Curve, trade_off
from fairmf.types import Record


@dataclass
class Values(Flags):
    """The values to measure."""

    evenness: Annotated[
        str | None,
        typer.Option(metavar="X,X,...", help="Values of evenness to measure, instead of --points."),
    ] = None
    fairness: Annotated[
        str | None,
        typer.Option(
            metavar="X,X,...",
            help="For experts: instead of evenness, measure at these values of the --fairness of fairmf evaluate.",
        ),
    ] = None
    points: Annotated[int, typer.Option(min=2, help="How many values of evenness to measure, from 0 to 1.")] = 12

    def read(self) -> Record:
        """Return the values as arguments of `trade_off`."""
        return {
            "evenness": None if self.evenness is None else numbers("--evenness", self.evenness),
            "fairness": None if self.fairness is None else numbers("--fairness", self.fairness),
            "points": self.points,
        }


def tradeoff(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    *,
    session: Session,
    values: Values,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Metrics to measure. If the model is not calibrated yet, tradeoff calibrates it for the first "
            "accuracy metric and the first Gini metric that you name here.",
        ),
    ] = "ndcg@100,recall@20,gini@20,coverage@20",
    part: Annotated[Part, typer.Option(help="Held-out users to measure on.")] = Part.validation,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"File to write the curve to: {ENDINGS_HELP}.")
    ] = None,
) -> None:
    """Measure accuracy and exposure of one trained model at many values of evenness. The model is not trained again.

    Evenness is a number from 0 (most accurate lists) to 1 (most even lists). If the model is not calibrated, tradeoff
    calibrates it first and leaves its file as it is. Choose an evenness on the validation users (the default). Then
    measure your choice on the test users.

    [dim]Examples:[/dim]

      fairmf tradeoff model.fairmf split

      fairmf tradeoff model.fairmf split --evenness 0,0.2,0.5,1 -o curve.csv
    """
    wanted = comma_list(metrics) or []
    asked = values.read()
    if output is not None:
        check_table_output(output)
    loaded = check_dial(load_fitted(model, session), model, "a trade-off")
    held_out = getattr(read_split(data, None, session), part.value)
    session.uses(part.value, held_out.fold_in)
    with session.timed("tradeoff"):
        curve = trade_off(loaded, held_out, **asked, metrics=wanted, progress=session.progress)
    if output is not None:
        write_table(curve.table(), output)
        session.result["output"] = str(output)
    session.result |= {"model": str(model), "part": part.value, "users": held_out.n_users, "rows": list(curve.rows)}
    session.record_beside(model if output is None else output)
    mark = loaded.fitted.fairness if values.fairness is not None else None
    shown = curve_table(curve, mark, "the fairness that the model uses by default")
    session.show(shown, f"Measured on {held_out.n_users:,} {part.value} users; Gini depends on their number.")


def curve_table(curve: Curve, marked: float | None, meaning: str) -> Table:
    """Show a curve as a table with a row per evenness (or fairness); one value is marked with a star."""
    name = "evenness" if any("evenness" in row for row in curve) else "fairness"
    table = Table(caption=f"* {meaning}" if marked in curve.column(name) else None, caption_justify="left")
    for column in (name, *curve.metrics):
        table.add_column(column, justify="right", no_wrap=True)
    for row in curve:
        mark = " *" if row[name] == marked else ""
        cells = ["" if row[metric] is None else f"{row[metric]:.4f}" for metric in curve.metrics]
        table.add_row(f"{row[name]:g}{mark}", *cells)
    return table
