"""`fairmf reproduce NAME`: a table or figure of the paper, as one command that can be killed and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.options import comma_list, starting
from fairmf.cli.output import make_folder
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked

MOST_COLUMNS = 4
EXTRAS = {"vae": "torch"}


def _names() -> list[str]:
    from fairmf.reproduce.spec import experiments

    return list(experiments())


def _data_names() -> list[str]:
    from fairmf.reproduce.data import SOURCES

    return list(SOURCES)


def reproduce(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A table or figure; --list shows them.", autocompletion=starting(_names)),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the tables and figures, and end.")] = False,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER",
            autocompletion=starting(_data_names),
            help="Run it on other data than the paper's: ml-1m, epinions, gowalla, synthetic-ml20m, or a stored split.",
        ),
    ] = None,
    from_path: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="A copy of the data set that you have, or a split of it."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of every fit, each with a seed of its own.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of every fit, rather than the paper's.")] = None,
    without: Annotated[
        str | None, typer.Option(metavar="EXTRA", help="Leave out the models that need this extra: vae.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many fits, how long and how much memory, and end.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write to. Default: NAME, or NAME-DATA.")
    ] = None,
) -> None:
    """Reproduce a table or figure of the paper: fits, table, plot, and the paper's numbers beside the measured ones.

    Each fit is stored when it is done: a killed run goes on where it was, in the same folder with the same command.
    What is written there: results.json, table.md, table.csv and plots (SVG; extra \\[report]).

    [dim]Examples:[/dim]

      fairmf reproduce --list

      fairmf reproduce figure2-ml20m --data ml-1m --seeds 3

      fairmf reproduce table1-ml20m --from ~/Downloads/ml-20m.zip --without vae -o table1
    """
    from fairmf.reproduce.data import load_data
    from fairmf.reproduce.run import open_run
    from fairmf.reproduce.run import reproduce as run_experiment
    from fairmf.reproduce.spec import experiment

    if listing:
        if name is not None:
            raise Problem("--list shows all tables and figures; it takes no name.")
        _list(session)
        return
    if name is None:
        raise Problem("Which table or figure?", "fairmf reproduce --list shows them")
    wanted = experiment(name)
    left_out = _extras(without)
    on = wanted.data if data is None else data
    _check_installed(wanted, left_out)
    wanted.on(on).limited(seeds=seeds, epochs=epochs, without=left_out)  # said before data are read
    with session.busy("read"):
        found = load_data(on, from_path=from_path)
    session.uses("train", found.split.train)
    folder = output if output is not None else Path(name if found.name == wanted.data else f"{name}-{Path(on).name}")
    if not dry_run:
        make_folder(folder)
    run = open_run(wanted, found, folder, seeds=seeds, epochs=epochs, without=left_out)
    with session.busy("estimate"):
        told = run.estimate()
    session.note(f"{wanted.title}, on {marked(found.shown)}\n        {marked(told.words())}")
    session.result |= {
        "experiment": name, "data": found.shown, "output": str(folder), "pieces": told.pieces, "left": told.left,
        "estimated_seconds": float(f"{told.seconds:.3g}"), "estimated_bytes": told.bytes,
    }  # fmt: skip
    if dry_run:
        return
    with session.timed("reproduce"):
        done = run_experiment(
            wanted, found, folder, seeds=seeds, epochs=epochs, without=left_out, progress=session.progress
        )
    _tell(session, done, folder)


def _tell(session: Session, done: Any, folder: Path) -> None:
    files = [path.name for path in done.files]
    session.result |= {"computed": done.computed, "files": files, "rows": done.results["rows"]}
    session.record_beside(folder)
    session.show(_result_table(done))
    for line in done.results["diverged"]:
        session.warn(line)
    if not any(name.endswith(".svg") for name in files) and done.results["rows"]:
        session.warn('There are no plots: they need matplotlib (pip install "fairmf[report]").')
    session.note(f"results {marked(folder)}: {', '.join(files)}")


def _result_table(done: Any) -> Any:
    """The rows that table.md shows, their first quantities: what 80 columns hold."""
    from rich.table import Table

    from fairmf.reproduce.run import columns, measured_cell

    rows = [row for row in done.rows if row.shown]
    labels, metrics, quoted = columns(rows)
    note = "± over seeds; quoted: the paper's number" if quoted else "± over seeds"
    more = f"; more in {done.files[0].parent}/table.md" if len(metrics) > MOST_COLUMNS else ""
    table = Table(caption=note + more, caption_justify="left")
    for name in labels:
        table.add_column(name, overflow="fold")
    for name in metrics[:MOST_COLUMNS]:
        table.add_column(name.replace("@", "\n@").replace("_", "\n"), justify="right")
    for name in quoted:
        table.add_column("quoted\n" + name.replace("@", "\n@"), justify="right")
    for row in rows:
        cells = [str(row.label.get(name, "")) for name in labels]
        cells += [measured_cell(row, name) for name in metrics[:MOST_COLUMNS]]
        table.add_row(*cells, *(f"{row.quoted[name]:.3f}" if name in row.quoted else "" for name in quoted))
    return table


def _list(session: Session) -> None:
    from rich.table import Table

    from fairmf.reproduce.estimate import duration, estimate, measure_speed, shape_of
    from fairmf.reproduce.spec import experiments

    with session.busy("measure this machine"):
        speed = measure_speed()
    table = Table(
        caption="fits and hours are rough, for this machine: on the paper's data, and on ml-1m (--data ml-1m)",
        caption_justify="left",
    )
    for column in ("name", "data", "fits", "time", "on ml-1m"):  # what 80 columns hold
        table.add_column(column, no_wrap=True, justify="left" if column in ("name", "data") else "right")
    rows = []
    for name, one in experiments().items():
        there = estimate(one, shape_of(one.data), speed)
        here = estimate(one.on("ml-1m"), shape_of("ml-1m"), speed)
        times = duration(there.seconds), duration(here.seconds)
        table.add_row(name, one.data, str(there.pieces), *times)
        rows.append(
            {"name": name, "title": one.title, "kind": one.kind, "data": one.data, "pieces": there.pieces,
             "seconds": round(there.seconds), "bytes": there.bytes, "seconds_on_ml_1m": round(here.seconds)}
        )  # fmt: skip
    session.result["experiments"] = rows
    session.show(table)


def _extras(text: str | None) -> tuple[str, ...]:
    named = tuple(comma_list(text) or ())
    for extra in named:
        if extra not in EXTRAS:
            raise Problem(f"--without does not know {extra!r}.", f"it takes {', '.join(EXTRAS)}")
    return named


def _check_installed(experiment: Any, left_out: tuple[str, ...]) -> None:
    """Before an hour's work rather than in the middle of it."""
    import importlib.util

    from fairmf.errors import MissingDependency
    from fairmf.models.registry import MODELS

    for extra, package in EXTRAS.items():
        needing = [one.name for one in experiment.series if MODELS[one.model].extra == extra]
        if needing and extra not in left_out and importlib.util.find_spec(package) is None:
            raise MissingDependency(
                f'{", ".join(needing)} of {experiment.name} need PyTorch: pip install "fairmf[{extra}]", '
                f"or leave them out with --without {extra}."
            )
