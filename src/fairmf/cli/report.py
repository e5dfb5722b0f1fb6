"""`fairmf report MODEL SPLIT`: one page that shows what fairness does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairmf.cli.catalogue import read_catalogue
from fairmf.cli.evaluate import Part
from fairmf.cli.options import numbers
from fairmf.cli.output import check_output
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted, read_split


def report(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that fit has stored.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    session: Session,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    fairness: Annotated[
        str | None,
        typer.Option(
            metavar="F,F,...", help="Stops of the dial. [dim]\\[default: until exposure gets no more even][/dim]"
        ),
    ] = None,
    chosen: Annotated[
        float | None,
        typer.Option(metavar="F", help="The stop that the summary speaks of. [dim]\\[default: the model's own][/dim]"),
    ] = None,
    part: Annotated[Part, typer.Option(help="Which held-out users.")] = Part.test,
    at: Annotated[int, typer.Option(min=1, help="Length of the lists whose exposure counts.")] = 20,
    quality: Annotated[str, typer.Option(metavar="NAME", help="What lists are worth to users.")] = "ndcg@100",
    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A table (CSV, Parquet) with a row per item: its id, its name, its group."),
    ] = None,
    name_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The catalogue's column of names; found if not given.")
    ] = None,
    group_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The catalogue's column of groups; found if not given.")
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, help="Users whose lists are shown, with what is known of them; 0 for none.")
    ] = 6,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Fair recommendations",
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the users for the intervals; 0 for none.")] = 200,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
) -> None:
    """Write a page that shows what fairness does: one HTML file with a dial, for people, without any network.

    [dim]Examples:[/dim]

      fairmf report model.fairmf split -o report.html

      fairmf report model.fairmf split --catalogue movies.csv --fairness 0,0.5,1,2,4

      fairmf report model.fairmf split --catalogue items.parquet --group-column seller --examples 0
    """
    from rich.text import Text

    from fairmf.reports.page import report as write

    stops = None if fairness is None else numbers("--fairness", fairness)
    check_output(output)
    loaded = load_fitted(model, session)
    split = read_split(data, None, session)
    held_out = getattr(split, part.value)
    session.uses(part.value, held_out.fold_in)
    ids = held_out.fold_in.item_ids
    names = groups = None
    if catalogue is not None:
        names, groups = read_catalogue(catalogue, ids, held_out.fold_in.n_items, name_column, group_column)
    with session.timed("report"):
        write(
            loaded, split, output, fairness=stops, chosen=chosen, at=at, quality=quality, names=names, groups=groups,
            part=part.value, examples=examples, title=title, bootstrap=bootstrap, confidence=confidence,
            random_state=seed, record=session.run.to_dict(), progress=session.progress,
        )  # fmt: skip
    session.result |= {"model": str(model), "part": part.value, "report": str(output.resolve())}
    session.record_beside(output)
    session.show(Text(f"Report  {output.resolve()}", no_wrap=True, overflow="ignore"))
