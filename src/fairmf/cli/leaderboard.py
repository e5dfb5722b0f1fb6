"""`fairmf leaderboard DATA`: tune our models on public data, and show published results beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from fairmf.cli.errors import Problem
from fairmf.cli.options import Flags, comma_list, starting
from fairmf.cli.output import make_folder
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked
from fairmf.leaderboards.boards import BOARDS
from fairmf.leaderboards.run import EXPOSURE, Leaderboard
from fairmf.leaderboards.run import leaderboard as run_leaderboard
from fairmf.leaderboards.show import title
from fairmf.types import Record
from fairmf.version import install_command


@dataclass
class Tuned(Flags):
    """Which models to tune, and for how long."""

    models: Annotated[
        str, typer.Option(metavar="NAME,...", help="Models to tune: ials (plain) and fair-als (balanced weights).")
    ] = "ials,fair-als"
    factors: Annotated[
        str,
        typer.Option(
            metavar="N,...",
            help="Numbers of factors. Each model is tuned and tested with each number. Each search after the first "
            "starts from the best settings of the search before it.",
        ),
    ] = "128,512"
    budget: Annotated[
        str,
        typer.Option(
            metavar="N|SECONDS",
            help="Budget of each model: a number of trials, such as 24, or a time after which no trial starts, "
            "such as 600s.",
        ),
    ] = "24"
    evenness: Annotated[
        str,
        typer.Option(
            metavar="X,...|none",
            help="The model that is best on validation data is tested without evenness, and also at these values. "
            "none: only without evenness.",
        ),
    ] = "0.25,0.5,0.75"
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the search and of the models.")] = 0

    def arguments(self) -> Record:
        """Return the flags as the library's function takes them."""
        levels = [] if self.evenness == "none" else _numbers("--evenness", self.evenness, float)
        return {
            "models": comma_list(self.models) or [], "factors": _numbers("--factors", self.factors, int),
            "budget": self.budget, "evenness": levels, "random_state": self.seed,
        }  # fmt: skip


def leaderboard(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help=f"One of {', '.join(BOARDS)}. Or the name of a .npz file in the folder $FAIRMF_DATA. Or the path "
            "of a .npz file, of a folder or zip archive with train.txt and test.txt, or of a stored split.",
            autocompletion=starting(BOARDS),
        ),
    ],
    *,
    session: Session,
    from_path: Annotated[
        Path | None, typer.Option("--from", metavar="PATH", help="Path of your own copy of the data set.")
    ] = None,
    tuned: Tuned,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the trials, results.json, table.md and plots. To resume a run that was killed, run the "
            "same command with the same folder.",
        ),
    ] = None,
) -> None:
    """Tune our models on the data of a public leaderboard, test them once, and show published results beside them.

    Settings are chosen on validation data only. Tuning needs the extra \\[tune]. A row shows accuracy, Gini and
    coverage of the lists, the seconds of the fit and of tuning, and the peak memory. docs/leaderboard.md
    describes the protocols.

    [dim]Examples:[/dim]

      fairmf leaderboard gowalla -o gowalla

      fairmf leaderboard ml-1m --factors 64,128 --budget 40

      fairmf leaderboard yelp2018 --from ~/Downloads/yelp2018 --budget 1800s --evenness none
    """
    arguments = tuned.arguments()
    if output is not None:
        make_folder(output)
    with session.timed("leaderboard"):
        found = run_leaderboard(data, from_path=from_path, folder=output, progress=session.progress, **arguments)
    session.result |= {**found.to_dict(), "output": None if output is None else str(output)}
    session.show(_table(found))
    session.note(
        f"Recall is {marked(found.facts['recall'])}; settings by {title(found.facts['chosen_by'])} on validation data, "
        f"{found.facts['budget']} for each model; *: best on validation data"
        + ("; dim rows: as published, not measured here" if found.published else "")
    )
    if output is None:
        return
    session.record_beside(output)
    if not (output / "gini.svg").exists():
        session.warn(f"There are no plots: they need matplotlib ({install_command('report')}).")
    session.note(f"results {marked(output)}: {', '.join(sorted(path.name for path in output.glob('*.*')))}")


def _table(found: Leaderboard) -> Table:
    """Return measured and published rows, with as many columns as fit into 80 characters."""
    accuracy = [label for label in found.rows[0]["values"] if label not in EXPOSURE][:2]
    metrics = [*accuracy, *EXPOSURE]
    told = f"{found.facts['name']}: {found.facts['test_users']:,} users tested"
    table = Table(title=marked(told), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold")
    heads = {label: title(label).replace("coverage", "cover").replace("@", "\n@") for label in metrics}
    for head in ("fac-\ntors", "even-\nness", *heads.values(), "fit\ns", "tune\ns", "MB"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in found.rows:
        star = "*" if row["best"] and not row["evenness"] else ""
        cells = [marked(row["model"]) + star, "" if row["factors"] is None else str(row["factors"])]
        cells += [_short(row["evenness"] or None), *(_share(row["values"][label]) for label in metrics)]
        table.add_row(*cells, _short(row["fit_seconds"]), _short(row.get("tuning_seconds")), str(row["peak_mb"]))
    if found.published:
        table.add_section()
    for other in found.published:
        values = ["" if label not in other.values else _share(other.values[label]) for label in metrics]
        table.add_row(other.method, "", "", *values, "", "", "", style="dim")
    return table


def _share(value: float) -> str:
    """Write a number from 0 to 1 with four decimals and without the 0 in front."""
    return f"{value:.4f}".removeprefix("0")


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _numbers(flag: str, text: str, kind: type[int] | type[float]) -> list[int] | list[float]:
    try:
        return [kind(word) for word in comma_list(text) or []]
    except ValueError:
        raise Problem(f"{flag} takes numbers, separated by commas. Got {text!r}.") from None
