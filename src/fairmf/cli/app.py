"""The `fairmf` command: gathers the verbs, turns errors into one clear line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import fairmf
from fairmf.cli.demo import demo
from fairmf.errors import FairmfError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Matrix factorisation that is fair to items.",
)
app.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairmf {fairmf.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that stand before the verb."""


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 a problem with data or settings, 2 wrong usage, 130 interrupted."""
    try:
        app()
    except FairmfError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)
