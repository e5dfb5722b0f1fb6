"""One run of one verb: where it speaks, what it measures, and what it leaves behind."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairmf.cli.config import NOT_SETTINGS, load_config
from fairmf.cli.options import Flags
from fairmf.cli.output import check_output
from fairmf.cli.terminal import json_text, marked, terminal
from fairmf.errors import CannotWrite
from fairmf.reports.run_record import RunRecord

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fairmf.data.interactions import Interactions


PANEL = "Every verb"


@dataclass
class Session(Flags):
    """The flags that every verb has, and what they steer.

    Results go to stdout: a table for people (`show`), or with --json one object (`result`). Everything else goes to
    stderr: notes, warnings, progress.
    """

    config: Annotated[
        Path | None,
        typer.Option(
            "--config", callback=load_config, is_eager=True, rich_help_panel=PANEL,
            help="Settings from a TOML or JSON file, or a run record to repeat. Flags win over the file.",
        ),
    ] = None  # fmt: skip
    record: Annotated[
        Path | None,
        typer.Option(rich_help_panel=PANEL, help="Where the run record goes. Default: beside what the run makes."),
    ] = None
    no_record: Annotated[bool, typer.Option("--no-record", rich_help_panel=PANEL, help="Write no run record.")] = False
    json: Annotated[
        bool, typer.Option("--json", rich_help_panel=PANEL, help="One JSON object on stdout, for machines.")
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=PANEL, help="No notes and no progress, only the result.")
    ] = False
    debug: Annotated[bool, typer.Option("--debug", rich_help_panel=PANEL, help="Show the trace of an error.")] = False

    def __post_init__(self) -> None:
        self.run = RunRecord("", datetime.now(timezone.utc).isoformat(timespec="seconds"))
        self.result: dict[str, Any] = {}
        """What --json prints."""
        self._began = time.perf_counter()
        self._place: Path | None = None

    def start(self, verb: str, values: Mapping[str, Any]) -> None:
        """Remember what was asked for: the values of all flags, by their names."""
        self.run.verb = verb
        self.run.settings = {name: value for name, value in values.items() if name not in NOT_SETTINGS}
        if self.record is not None:
            check_output(self.record)

    # -- speaking ---------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> bool | None:
        """For the library's `progress=`: a bar on a terminal, unless --quiet."""
        return False if self.quiet else None

    def note(self, text: str) -> None:
        """One line for people, on stderr. May hold rich's markup; escape what comes from outside."""
        if not self.quiet:
            self._stderr().print(text, soft_wrap=True)

    def warn(self, text: str) -> None:
        """One line that nobody should miss."""
        if not self.quiet:
            self._stderr().print(f"[yellow]warning:[/yellow] {marked(text)}", soft_wrap=True)

    def show(self, *what: RenderableType) -> None:
        """The result for people, on stdout; nothing with --json."""
        if not self.json:
            console = terminal()
            for part in what:
                console.print(part)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Say what is being done and for how long, on a terminal; and remember the time as `timings[what]`."""
        began = time.perf_counter()
        with self._spinner(what):
            yield
        self.run.timings[what] = round(time.perf_counter() - began, 3)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """As `busy`, for what shows its own progress."""
        began = time.perf_counter()
        yield
        self.run.timings[what] = round(time.perf_counter() - began, 3)

    def _spinner(self, what: str) -> Any:
        if self.quiet or not sys.stderr.isatty():
            return contextlib.nullcontext()
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._stderr(),
            transient=True,
        )
        bar.add_task(what, total=None)
        return bar

    def _stderr(self) -> Console:
        return terminal(stderr=True)

    # -- remembering ------------------------------------------------------------------------------------------------

    def uses(self, name: str, data: Interactions) -> None:
        """Remember what data went in."""
        users, items = data.shape
        self.run.data[name] = {
            "users": users, "items": items, "interactions": data.nnz, "fingerprint": data.fingerprint()
        }  # fmt: skip

    def record_beside(self, made: Path) -> None:
        """The run record goes beside this file as NAME.VERB.toml, or into this folder as VERB.toml."""
        name = f"{self.run.verb.replace(' ', '-')}.toml"
        self._place = made / name if made.is_dir() else made.with_name(f"{made.stem}.{name}")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Around the verb: afterwards its record is written and its JSON printed."""
        yield
        self.run.timings["total"] = round(time.perf_counter() - self._began, 3)
        place = self._write_record()
        if self.json:
            extra = {"record": None if place is None else str(place), "seconds": self.run.timings["total"]}
            typer.echo(json_text({"verb": self.run.verb, **self.result, **extra}))
        sys.stdout.flush()

    def _write_record(self) -> Path | None:
        place = None if self.no_record else self.record or self._place
        if place is None:
            return None
        plain = (str, bool, int, float)
        self.run.result = {name: value for name, value in self.result.items() if isinstance(value, plain)}
        try:
            self.run.write(place)
        except CannotWrite as error:
            if self.record is not None:
                raise
            self.warn(f"there is no run record: {error.strerror}")  # nobody asked for it at this place
            return None
        self.note(f"record  {marked(place)}")
        return place
