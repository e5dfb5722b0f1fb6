"""`fairmf calibrate MODEL SPLIT`: prepare a model for --evenness, and show what each evenness costs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.errors import Problem
from fairmf.cli.evaluate import value_cell
from fairmf.cli.options import Flags
from fairmf.cli.output import ENDINGS_HELP, check_output, check_table_output, write_table
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted, read_split
from fairmf.cli.terminal import marked
from fairmf.control.calibrate import Calibration
from fairmf.control.calibrate import calibrate as find_path
from fairmf.types import Record


@dataclass
class Measured(Flags):
    """Flags that say what to measure, and on how many users."""

    at: Annotated[int, typer.Option(min=1, help="Length of the lists on which Gini is measured.")] = 20
    quality: Annotated[str, typer.Option(metavar="NAME", help="Accuracy metric that is kept as high as possible.")] = (
        "ndcg@100"
    )
    min_quality: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="Evenness 1 keeps at least this fraction of the accuracy of evenness 0."),
    ] = 0.5
    users: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of validation users to calibrate on. Default: all, or a sample if there are many.",
        ),
    ] = None
    bootstrap: Annotated[
        int,
        typer.Option(min=0, help="Number of resamples of the users for 95% confidence intervals; 0 for no intervals."),
    ] = 200


@dataclass
class Written(Flags):
    """Files to write."""

    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the calibrated model. Default: MODEL itself is replaced."),
    ] = None
    table: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"File for the table: {ENDINGS_HELP}."),
    ] = None


def calibrate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    *,
    session: Session,
    measured: Measured,
    written: Written,
) -> None:
    """Prepare a model for --evenness, and show what each evenness costs.

    Evenness is a setting from 0 to 1. It says how evenly the recommendation lists of all users show the items. 0 gives
    the most accurate lists. 1 gives the most even lists that keep at least half of the accuracy (--min-quality).

    The model is not trained again. calibrate tries many ways to adjust the scores. For each, it measures the accuracy
    and the Gini of the validation users' lists. Many ways make the lists about
    equally even. For each evenness, it stores the one with the most accurate lists.

    The table shows accuracy, Gini and coverage at each evenness, for the test users. If the split has no test users,
    the table is for the validation users. Gini and coverage depend on the number of users: compare them only for the
    same users.

    [dim]Examples:[/dim]

      fairmf calibrate model.fairmf split

      fairmf calibrate model.fairmf split -o even.fairmf --at 10 --quality ndcg@10

      fairmf calibrate model.fairmf split --users 2000 --table costs.csv --json
    """
    output = written.output or model
    check_output(output)
    if written.table is not None:
        check_table_output(written.table)
    loaded = load_fitted(model, session)
    if loaded.fitted.item_offsets is not None:
        raise Problem(
            f"{model} has exposure offsets, which hold for one evenness alone.",
            "calibrate the model without offsets, then: fairmf rerank MODEL --method offsets --evenness 0.3",
        )
    split = read_split(data, None, session)
    for part in ("validation", "test"):
        held_out = getattr(split, part)
        if held_out.n_users:
            session.uses(part, held_out.fold_in)
    with session.timed("calibrate"):
        found = find_path(
            loaded, split, at=measured.at, quality=measured.quality, min_quality=measured.min_quality,
            users=measured.users, bootstrap=measured.bootstrap, progress=session.progress,
        )  # fmt: skip
    with session.busy("write"):
        loaded.save(output, interactions=loaded.fitted.interactions is not None)
    if written.table is not None:
        write_table(found.table(), written.table)
    _report(found, model, output, written.table, session)


def _report(found: Calibration, model: Path, output: Path, table: Path | None, session: Session) -> None:
    path, shown = found.path, found.rows[0].found
    session.run.metrics = {f"evenness {row.evenness:g}": dict(row.found.values) for row in found.rows}
    session.result |= {
        "model": str(model),
        "output": str(output),
        "table": None if table is None else str(table),
        "at": path.at,
        "quality": path.quality,
        "levels_measured": found.points,
        "validation_users": path.n_users,
        "shown_on": found.shown_on,
        "users": shown.n_users,
        "path": path.to_dict(),
        "rows": [_row(found, index) for index in range(len(found.rows))],
    }
    session.record_beside(output)
    session.show(cost_table(found), _measured_on(found))
    if len(path.knots) == 1:
        session.warn("no lists were more even than the most accurate ones: every evenness gives the same lists.")
    session.note(f"model   {marked(output)}")
    if table is not None:
        session.note(f"table   {marked(table)}")
    if len(path.knots) > 1:
        session.note(f"next    fairmf recommend {marked(output)} --evenness 0.3")


def _row(found: Calibration, index: int) -> Record:
    row = found.rows[index]
    return {"evenness": row.evenness, **dataclasses.asdict(row.level), **row.found.to_dict()}


def _measured_on(found: Calibration) -> str:
    shown = found.rows[0].found
    ends = "; ± half the 95% interval" if shown.intervals else ""
    return (
        f"Measured on {shown.n_users:,} {found.shown_on} users, calibrated on {found.path.n_users:,} validation users"
        f"{ends}."
    )


def cost_table(found: Calibration) -> Table:
    """Show what each evenness costs: quality and Gini with intervals, and coverage."""
    at, table = found.path.at, Table()
    table.add_column("evenness", justify="right", no_wrap=True)
    labels = list(dict.fromkeys((found.path.quality, f"ndcg@{at}", f"gini@{at}")))
    for label in labels:
        table.add_column(f"{label} {'↓' if label.startswith('gini') else '↑'}", justify="right", no_wrap=True)
    table.add_column(f"coverage@{at} ↑", justify="right")
    for row in found.rows:
        cells = [value_cell(row.found, label) for label in labels]
        table.add_row(f"{row.evenness:g}", *cells, f"{row.found[f'coverage@{at}']:.4f}")
    return table
