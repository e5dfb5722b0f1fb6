"""`fairmf card MODEL`: write a model card (README.md for the Hugging Face Hub) from a model and its run records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.output import check_output
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted
from fairmf.cli.terminal import echo, marked
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    from fairmf.reports import model_card
else:
    model_card = lazy_module("fairmf.reports.model_card")


def card(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    *,
    session: Session,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write the card to, such as README.md.")
    ] = None,
    from_: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="RECORD",
            help="A run record of fit or evaluate. You can give this flag several times. Default: the records beside "
            "the model.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model. Default: that of the file.")] = None,
    license_: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="Licence of the model, such as apache-2.0.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name of the data. Default: the source that fit was given.")
    ] = None,
) -> None:  # fmt: skip
    """Write a model card: what a model is, what it was trained on, what was measured, and its limits.

    The card is Markdown with the front matter that the Hugging Face Hub reads. Nothing is uploaded. Without --output it
    is printed. The card uses the run records of fit and evaluate that are beside the model, such as model.fit.toml
    and model.evaluate.toml for model.fairmf.

    [dim]Examples:[/dim]

      fairmf evaluate model.fairmf split --record model.evaluate.toml

      fairmf card model.fairmf -o README.md --license apache-2.0
    """
    if output is not None:
        if output.suffix.lower() != ".md":
            raise Problem(f"A card is a Markdown file, and {output} does not end in .md.", "-o README.md")
        check_output(output)
    loaded = load_fitted(model, session)
    beside = (model.with_suffix(f".{verb}.toml") for verb in ("fit", "evaluate"))
    records = from_ or [path for path in beside if path.is_file()]
    text = model_card.model_card(loaded, records, name=name or model.stem, license=license_, dataset=dataset)
    session.result |= {"model": str(model), "records": [str(path) for path in records], "card": text}
    if output is None:
        if not session.json:
            echo(text.rstrip("\n"))
        return
    with replacing(output) as file:
        file.write(text.encode())
    used = ", ".join(path.name for path in records) or "no records"
    session.note(f"card    {marked(output)}, from {marked(model)} and {marked(used)}")
