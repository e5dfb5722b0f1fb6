"""`fairmf report MODEL SPLIT`: write an HTML page that shows who gains from evenness, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fairmf.cli.catalogue import Catalogue
from fairmf.cli.evaluate import Part
from fairmf.cli.options import Flags, Intervals, numbers
from fairmf.cli.output import check_output
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, load_fitted, read_split
from fairmf.reports.page import report as write_page


@dataclass
class Measured(Flags):
    """Choose the levels and the metrics that the page shows."""

    evenness: Annotated[
        str | None,
        typer.Option(
            metavar="X,X,...",
            help="Values of evenness to show. [dim]\\[default: 0, 0.1, ..., 1][/dim]",
        ),
    ] = None
    fairness: Annotated[
        str | None,
        typer.Option(
            metavar="X,X,...",
            help="For experts: instead of evenness, show these values of the --fairness of fairmf evaluate.",
        ),
    ] = None
    chosen: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Evenness that the summary describes. With --fairness: the value of fairness that it describes. "
            "[dim]\\[default: the one that fairmf target stored in the model, or 0.3][/dim]",
        ),
    ] = None
    part: Annotated[Part, typer.Option(help="Held-out users to measure on.")] = Part.test
    at: Annotated[int, typer.Option(min=1, help="Length of the lists in which exposure is counted.")] = 20
    quality: Annotated[str, typer.Option(metavar="NAME", help="Accuracy metric to show.")] = "ndcg@100"


@dataclass
class Page(Flags):
    """Set the title of the page and how many example users it shows."""

    examples: Annotated[
        int, typer.Option(min=0, help="Number of example users, with their history and lists; 0 for none.")
    ] = 6
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Fair recommendations"


def report(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    *,
    session: Session,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write the page to.")] = Path("report.html"),
    measured: Measured,
    catalogue: Catalogue,
    page: Page,
    intervals: Intervals,
) -> None:
    """Write an HTML page that shows who gains from evenness, and what it costs.

    Evenness is a number from 0 (most accurate lists) to 1 (most even lists). The page is one file with a slider for
    evenness. It loads nothing from the network. If the model is not calibrated, report calibrates it on the validation
    users and leaves its file as it is.

    [dim]Examples:[/dim]

      fairmf report model.fairmf split -o report.html

      fairmf report model.fairmf split --catalogue movies.csv --evenness 0,0.2,0.4,0.6

      fairmf report model.fairmf split --catalogue items.parquet --group-column seller --examples 0
    """
    values = None if measured.fairness is None else numbers("--fairness", measured.fairness)
    levels = None if measured.evenness is None else numbers("--evenness", measured.evenness)
    check_output(output)
    loaded = check_dial(load_fitted(model, session), model, "a report")
    split = read_split(data, None, session)
    part = measured.part.value
    held_out = getattr(split, part)
    session.uses(part, held_out.fold_in)
    names, groups = catalogue.read(held_out.fold_in)
    with session.timed("report"):
        write_page(
            loaded, split, output, evenness=levels, fairness=values, chosen=measured.chosen, at=measured.at,
            quality=measured.quality, names=names, groups=groups, part=part, examples=page.examples, title=page.title,
            **intervals.arguments(), record=session.run.to_dict(), progress=session.progress,
        )  # fmt: skip
    session.result |= {"model": str(model), "part": part, "report": str(output.resolve())}
    session.record_beside(output)
    session.show(Text(f"Report  {output.resolve()}", no_wrap=True, overflow="ignore"))
