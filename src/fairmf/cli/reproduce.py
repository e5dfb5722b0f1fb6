"""`fairmf reproduce NAME`: reproduce a table or figure of the paper; a run that was killed can be resumed."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.errors import Problem
from fairmf.cli.options import Flags, comma_list, starting
from fairmf.cli.output import make_folder
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked
from fairmf.errors import MissingDependency
from fairmf.models.registry import MODELS
from fairmf.reproduce.data import SOURCES, Data, load_data
from fairmf.reproduce.estimate import duration, estimate, measure_speed, shape_of
from fairmf.reproduce.run import Reproduction, columns, difference_cell, measured_cell, open_run, rebuild
from fairmf.reproduce.run import reproduce as run_experiment
from fairmf.reproduce.spec import Experiment, experiment, experiments
from fairmf.types import Record
from fairmf.version import install_command

MOST_COLUMNS = 4
EXTRAS = {"vae": "torch"}


@dataclass
class DataSource(Flags):
    """Choose the data of the experiment and say where they are; or name results that are there already."""

    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER|FILE",
            autocompletion=starting(SOURCES),
            help="Use other data than the paper's: ml-1m, epinions, gowalla, synthetic-ml20m, or a stored split. A "
            "name is also looked for in the folder $FAIRMF_DATA.",
        ),
    ] = None
    from_path: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Path of your own copy of the data: the original files, a .npz file, or a stored split.",
        ),
    ] = None
    rebuild: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Make table and plots anew from a results.json or its folder, without training."
        ),
    ] = None


@dataclass
class Scale(Flags):
    """Limit how much of the experiment is run."""

    seeds: Annotated[int | None, typer.Option(min=1, help="Repeat every fit with this many seeds.")] = None
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs of every fit, instead of the paper's.")
    ] = None
    without: Annotated[
        str | None,
        typer.Option(
            metavar="EXTRA",
            help="Leave out the models that need PyTorch. The only possible value is vae.",
        ),
    ] = None

    def arguments(self) -> Record:
        """Return the scale as the library's functions take it."""
        extras = tuple(comma_list(self.without) or ())
        for extra in extras:
            if extra not in EXTRAS:
                raise Problem(f"--without does not know {extra!r}.", f"it takes {', '.join(EXTRAS)}")
        return {**asdict(self), "without": extras}


def reproduce(
    *,
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A table or figure; --list shows them.", autocompletion=starting(experiments)
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the tables and figures, and exit.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Reproduce all tables and figures, each in a folder of its own.")
    ] = False,
    source: DataSource,
    scale: Scale,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate the number of fits, the time and the memory, and exit.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder to write to. Default: a folder named NAME (with --data: NAME-DATA). With --all, it is named "
            "all-ml-20m (with --data: all-DATA).",
        ),
    ] = None,
) -> None:
    """Reproduce a table or figure of the paper, and show the paper's numbers next to the measured ones.

    Each fit is stored as soon as it is done. To resume a run that was killed, run the same command with the same
    folder. The results are results.json, table.md, table.csv and plots (SVG, which need the extra \\[report]).

    [dim]Examples:[/dim]

      fairmf reproduce --list

      fairmf reproduce figure2-ml20m --data ml-1m --seeds 3

      fairmf reproduce table1-ml20m --from ~/Downloads/ml-20m.zip --without vae -o table1

      fairmf reproduce --all --data ml-1m --without vae

      fairmf reproduce --rebuild benchmarks/paper/table1-ml20m-ml-1m.json -o table1
    """
    if listing:
        if name is not None:
            raise Problem("--list shows all tables and figures; it takes no name.")
        _list(session)
        return
    stored = source.rebuild
    if stored is not None:
        if name is not None or every:
            raise Problem("--rebuild reads which table or figure it is from the file; it takes no name.")
        folder = output or (stored if stored.is_dir() else Path(stored.stem))
        make_folder(folder)
        done = rebuild(stored, folder)
        session.result |= {"experiment": done.results["experiment"], "output": str(folder)}
        session.result |= _tell(session, done, folder)
        return
    if every == (name is not None):
        raise Problem(
            "--all reproduces all tables and figures; it takes no name." if every else "Which table or figure?",
            "fairmf reproduce --list shows them",
        )
    limits = scale.arguments()
    wanted = _of_one_data_set(source.data) if name is None else [experiment(name)]
    on = wanted[0].data if source.data is None else source.data
    for one in wanted:
        if name is None:
            limits["without"] = _without_missing(session, one, limits["without"])
        _check_installed(one, limits["without"])
        one.on(on).limited(**limits)  # raises before data are read
    with session.busy("read"):
        found = load_data(on, from_path=source.from_path)
    session.uses("train", found.split.train)
    if name is not None:
        usual = Path(name if found.name == wanted[0].data else f"{name}-{Path(on).name}")
        session.result |= _run(session, wanted[0], found, output or usual, limits, dry_run)
        folder = output or usual
    else:
        folder = output or Path(f"all-{Path(on).name}")
        results = [_run(session, one, found, folder / one.name, limits, dry_run) for one in wanted]
        session.result |= {"data": found.shown, "output": str(folder), "experiments": results}
    if not dry_run:
        session.record_beside(folder)


def _of_one_data_set(data: str | None) -> list[Experiment]:
    """Return the experiments of ML-20M, or those of MSD for its data: on other data, the two are the same."""
    home = "msd" if data == "msd" else "ml-20m"
    return [one for one in experiments().values() if one.data == home]


def _run(session: Session, wanted: Experiment, found: Data, folder: Path, limits: Record, dry_run: bool) -> Record:
    """Run one experiment, show its table, and return what --json prints of it."""
    if not dry_run:
        make_folder(folder)
    run = open_run(wanted, found, folder, **limits)
    with session.busy("estimate"):
        told = run.estimate()
    session.note(f"{wanted.title}, on {marked(found.shown)}\n        {marked(told.words())}")
    result: Record = {
        "experiment": wanted.name, "data": found.shown, "output": str(folder), "pieces": told.pieces,
        "left": told.left, "estimated_seconds": float(f"{told.seconds:.3g}"), "estimated_bytes": told.bytes,
    }  # fmt: skip
    if dry_run:
        return result
    with session.timed("reproduce"):
        done = run_experiment(wanted, found, folder, **limits, progress=session.progress)
    return result | _tell(session, done, folder)


def _tell(session: Session, done: Reproduction, folder: Path) -> Record:
    files = [path.name for path in done.files]
    session.show(_result_table(done))
    for line in done.results["diverged"]:
        session.warn(line)
    if not any(name.endswith(".svg") for name in files) and done.results["rows"]:
        session.warn(f"There are no plots: they need matplotlib ({install_command('report')}).")
    session.note(f"results {marked(folder)}: {', '.join(files)}")
    return {"computed": done.computed, "files": files, "rows": done.results["rows"]}


def _result_table(done: Reproduction) -> Table:
    """Show the rows of table.md, with as many columns as fit into 80 characters."""
    rows = [row for row in done.rows if row.shown]
    labels, metrics, quoted = columns(rows)
    note = "± over seeds; quoted: the paper's number" if quoted else "± over seeds"
    more = f"; more in {done.files[0].parent}/table.md" if len(metrics) > MOST_COLUMNS else ""
    table = Table(caption=note + more, caption_justify="left")
    for name in labels:
        table.add_column(name, overflow="fold")
    for name in metrics[:MOST_COLUMNS]:
        table.add_column(name.replace("@", "\n@").replace("_", "\n"), justify="right")
    tests = [row.test for row in rows if row.test]
    if tests:
        table.add_column(f"{tests[0]['metric']}\n- {tests[0]['baseline']} (p)", justify="right")
    for name in quoted:
        table.add_column("quoted\n" + name.replace("@", "\n@"), justify="right")
    for row in rows:
        cells = [str(row.label.get(name, "")) for name in labels]
        cells += [measured_cell(row, name) for name in metrics[:MOST_COLUMNS]]
        cells += [difference_cell(row)] if tests else []
        table.add_row(*cells, *(f"{row.quoted[name]:.3f}" if name in row.quoted else "" for name in quoted))
    return table


def _list(session: Session) -> None:
    with session.busy("measure this machine"):
        speed = measure_speed()
    table = Table(
        caption="fits and hours are rough, for this machine: on the paper's data, and on ml-1m (--data ml-1m)",
        caption_justify="left",
    )
    for column in ("name", "data", "fits", "time", "on ml-1m"):  # what 80 characters hold
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


def _without_missing(session: Session, experiment: Experiment, left_out: tuple[str, ...]) -> tuple[str, ...]:
    """Return the extras to leave out, with those that are not installed: --all runs what can be run, and says so."""
    for extra, package in EXTRAS.items():
        needing = [one.name for one in experiment.series if MODELS[one.model].extra == extra]
        if needing and extra not in left_out and importlib.util.find_spec(package) is None:
            session.warn(f"PyTorch is not installed: {', '.join(needing)} are left out ({install_command(extra)}).")
            left_out = (*left_out, extra)
    return left_out


def _check_installed(experiment: Experiment, left_out: tuple[str, ...]) -> None:
    """Raise MissingDependency before the first fit, not in the middle of the run."""
    for extra, package in EXTRAS.items():
        needing = [one.name for one in experiment.series if MODELS[one.model].extra == extra]
        if needing and extra not in left_out and importlib.util.find_spec(package) is None:
            raise MissingDependency(
                f"{', '.join(needing)} of {experiment.name} need PyTorch: {install_command(extra)}, "
                f"or leave them out with --without {extra}."
            )
