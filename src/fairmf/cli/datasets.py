"""`fairmf datasets`: list, show and download benchmark data sets, or make synthetic events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fairmf.cli.app import add_verb
from fairmf.cli.errors import Problem
from fairmf.cli.help import VerbGroup
from fairmf.cli.options import starting
from fairmf.cli.output import check_output
from fairmf.cli.progress import byte_bar
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked
from fairmf.data import dataset_load
from fairmf.data.datasets import DataSet, dataset, datasets
from fairmf.data.download import cache_folder, licence_accepted, registered_copy, use_copy
from fairmf.data.events import Events
from fairmf.errors import LicenceNotAccepted
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    from fairmf.data import synthetic
    from fairmf.types import Record
else:
    pa = lazy_module("pyarrow")
    arrow_csv = lazy_module("pyarrow.csv")
    parquet = lazy_module("pyarrow.parquet")
    synthetic = lazy_module("fairmf.data.synthetic")

verbs = typer.Typer(
    cls=VerbGroup,
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="List, show and download benchmark data sets, or make synthetic events.",
)


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of a data set; see fairmf datasets list.", autocompletion=starting(datasets)
    ),
]


def list_all(session: Session) -> None:
    """List the data sets, their sizes, and which of them are on this machine.

    [dim]Examples:[/dim]

      fairmf datasets list

      fairmf datasets list --json
    """
    table = Table(
        caption="rows: before filtering; here: downloaded, or read from your own copy", caption_justify="left"
    )
    for column in ("name", "what", "users", "items", "rows", "here"):
        table.add_column(column, justify="right" if column in ("users", "items", "rows") else "left")
    entries = list(datasets().values())
    for e in entries:
        sizes = (f"{size:,}" for size in (e.users, e.items, e.interactions))
        table.add_row(e.name, e.title, *sizes, "yes" if _is_here(e) else "")
    session.result["datasets"] = [_facts(entry) for entry in entries]
    session.show(table)


def info(name: Name, session: Session) -> None:
    """Show one data set: its source, terms of use, filters and files.

    [dim]Examples:[/dim]

      fairmf datasets info ml-20m
    """
    entry = dataset(name)
    facts = _facts(entry)
    session.result |= facts
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for label, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        shown = ", ".join(shown) if isinstance(shown, list) else shown
        table.add_row(label.replace("_", " "), "" if shown is None else str(shown))
    session.show(table)


def fetch(
    name: Name,
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept the terms of use of the data set.")] = False,
    from_path: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Do not download: read your own copy at this path (the archive, its folder or the ratings file).",
        ),
    ] = None,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Allow files that are served over plain http and have no checksum.")
    ] = False,
) -> None:
    """Download a data set and verify it. Its terms of use are shown first.

    An interrupted download is resumed. Afterwards, other commands accept the name of the data set in place of a file.

    [dim]Examples:[/dim]

      fairmf datasets fetch ml-1m

      fairmf datasets fetch ml-20m --yes

      fairmf datasets fetch ml-1m --from ~/Downloads/ml-1m.zip
    """  # fmt: skip
    entry = dataset(name)
    if from_path is not None:
        _register(entry, from_path, session)
        return
    accepted = yes or _accepted(entry, session)
    with session.timed("fetch"), byte_bar(session, name) as progress:
        records = dataset_load.fetch_dataset(name, accept_licence=accepted, progress=progress, unprotected=unprotected)
    session.result |= {"name": name, "files": records, "folder": str(cache_folder() / name)}
    for record in records:
        session.note(
            f"fetched {marked(record['address'])}: {record['bytes']:,} bytes, SHA-256 {record['sha256'][:16]}..."
        )
    session.note(f"folder  {marked(cache_folder() / name)}")


def make(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .csv or .parquet.")],
    session: Session,
    users: Annotated[int, typer.Option(min=2, help="Number of users.")] = 2000,
    items: Annotated[int, typer.Option(min=2, help="Number of items.")] = 1000,
    interactions: Annotated[
        int, typer.Option(min=10, help="Number of events; every pair of user and item occurs at most once.")
    ] = 100_000,
    popularity_gini: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Gini index of the popularity of items. [dim]\\[default: 0.75, or the nearest possible][/dim]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
) -> None:
    """Make synthetic events, to try the other commands on.

    The users prefer different kinds of items, and a few items are popular with most users. Items have titles.

    [dim]Examples:[/dim]

      fairmf datasets make -o events.csv

      fairmf datasets make -o events.parquet --users 100000 --items 20000 --interactions 5000000
    """
    if output.suffix.lower() not in (".csv", ".parquet"):
        raise Problem(f"{output} should end in .csv or .parquet.")
    check_output(output)
    options: Record = {} if popularity_gini is None else {"popularity_gini": popularity_gini}
    with session.busy("make"):
        events = synthetic.synthetic_events(users, items, interactions, random_state=seed, **options)
        _write(events, output)
    session.result |= {"output": str(output), "rows": len(events)}
    session.record_beside(output)
    session.note(f"events  {marked(output)}: {len(events):,} rows with user, item and time")


def _register(entry: DataSet, path: Path, session: Session) -> None:
    with session.busy("read"):
        events = dataset_load.load_dataset(entry.name, from_path=path)
    use_copy(entry, path)
    sizes = {"rows": len(events), "users": len(events.user_ids), "items": len(events.item_ids)}
    session.result |= {"name": entry.name, "from": str(path), **sizes}
    session.note(f"{entry.name} is read from {marked(path)}: {', '.join(f'{n:,} {what}' for what, n in sizes.items())}")


def _accepted(entry: DataSet, session: Session) -> bool:
    """Return whether the terms of use are accepted: earlier, or now if there is a terminal to ask at."""
    if licence_accepted(entry):
        return True
    if sys.stdin.isatty() and sys.stderr.isatty():
        session.note(f"[bold]{entry.title}[/bold] comes under these terms:\n  {entry.licence}\n  {entry.home}")
        if typer.confirm("Do you accept them?", err=True):
            return True
    raise LicenceNotAccepted(
        f"The terms of {entry.name} have to be accepted once. {entry.licence} See {entry.home}.", dataset=entry.name
    )


def _write(events: Events, output: Path) -> None:
    columns = {
        "user": events.user_ids.values[events.users],
        "item": pa.array(events.item_ids.values).take(pa.array(events.items)),
        "time": events.times,
    }
    table = pa.table(columns)
    with replacing(output) as file:
        if output.suffix.lower() == ".csv":
            arrow_csv.write_csv(table, file, arrow_csv.WriteOptions(quoting_style="needed"))
        else:
            parquet.write_table(table, file)


def _is_here(entry: DataSet) -> bool:
    folder = cache_folder() / entry.name
    fetched = all((folder / dataset_load.file_name(address)).exists() for address in entry.addresses)
    return fetched or registered_copy(entry) is not None


def _facts(entry: DataSet) -> Record:
    return {
        "name": entry.name,
        "title": entry.title,
        "users": entry.users,
        "items": entry.items,
        "rows": entry.interactions,
        "megabytes": entry.megabytes,
        "rating_above": entry.rating_above,
        "min_user": entry.min_user,
        "min_item": entry.min_item,
        "terms": entry.licence,
        "home": entry.home,
        "addresses": list(entry.addresses),
        "checksum": entry.checksum,
        "here": _is_here(entry),
    }


add_verb(verbs, list_all, "list")
add_verb(verbs, info, "info")
add_verb(verbs, fetch, "fetch")
add_verb(verbs, make, "make")
