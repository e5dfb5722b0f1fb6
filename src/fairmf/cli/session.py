"""Run one verb: print notes, results and the library's log, measure times, and write the run record."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairmf.cli.config import NOT_SETTINGS, load_config
from fairmf.cli.options import Flags
from fairmf.cli.output import check_output
from fairmf.cli.terminal import json_text, marked, terminal
from fairmf.errors import CannotWrite
from fairmf.lazy import lazy_module
from fairmf.reports.run_record import RunRecord

if TYPE_CHECKING:
    from rich import progress as rich_progress
    from rich.console import Console, RenderableType

    from fairmf.data.interactions import Interactions
    from fairmf.types import Record, Settings
else:
    rich_progress = lazy_module("rich.progress")


PANEL = "Every command"


class YesNo(str, Enum):
    """A choice that can also be made in the environment."""

    yes = "yes"
    no = "no"


@dataclass
class Session(Flags):
    """Hold the flags of every verb, print its output, and write its run record.

    Results go to stdout: a table for people (`show`), or with --json one object (`result`). Everything else goes to
    stderr: notes, warnings, progress.
    """

    place = 3

    config: Annotated[
        Path | None,
        typer.Option(
            "--config", callback=load_config, is_eager=True, rich_help_panel=PANEL,
            help="Read settings from a TOML or JSON file. Give the record of an earlier run to repeat that run. Flags "
            "override the file.",
        ),
    ] = None  # fmt: skip
    record: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="File to write the run record (settings, versions, results) to. Default: next to the output.",
        ),
    ] = None
    records: Annotated[
        YesNo,
        typer.Option(
            rich_help_panel=PANEL, envvar="FAIRMF_RECORDS", show_envvar=False,
            help="Whether to write run records. To write none from now on, set the environment variable "
            "FAIRMF_RECORDS=no.",
        ),
    ] = YesNo.yes  # fmt: skip
    no_record: Annotated[bool, typer.Option("--no-record", rich_help_panel=PANEL, help="Same as --records no.")] = False
    json: Annotated[
        bool, typer.Option("--json", rich_help_panel=PANEL, help="Print the result as one JSON object on stdout.")
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=PANEL, help="Print only the result: no notes, no progress.")
    ] = False
    debug: Annotated[bool, typer.Option("--debug", rich_help_panel=PANEL, help="Show the traceback of an error.")] = (
        False
    )

    def __post_init__(self) -> None:
        self.run = RunRecord("", datetime.now(timezone.utc).isoformat(timespec="seconds"))
        self.result: Record = {}
        """The object that --json prints."""
        self.interrupted = False
        """Whether Ctrl-C ended the verb early, but it kept a result: the exit code says so."""
        self._began = time.perf_counter()
        self._place: Path | None = None

    def start(self, verb: str, values: Settings) -> None:
        """Remember the values of all flags, by name, for the run record."""
        self.run.verb = verb
        self.run.settings = {name: value for name, value in values.items() if name not in NOT_SETTINGS}
        if self.record is not None:
            check_output(self.record)

    # -- output -----------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> bool | None:
        """Return the library's `progress=`: a bar on a terminal, unless --quiet."""
        return False if self.quiet else None

    def note(self, text: str) -> None:
        """Print one line on stderr. It may hold rich's markup; escape text that comes from outside."""
        if not self.quiet:
            # soft_wrap: a line is not broken at the width of the terminal, so that paths can be copied and searched.
            self._stderr().print(text, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning on stderr."""
        if not self.quiet:
            self._stderr().print(f"[yellow]warning:[/yellow] {marked(text)}", soft_wrap=True)

    def show(self, *what: RenderableType) -> None:
        """Print the result for people on stdout; nothing with --json."""
        if not self.json:
            console = terminal()
            for part in what:
                console.print(part)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Show on a terminal what is being done and for how long; store the time as `timings[what]`."""
        began = time.perf_counter()
        with self._spinner(what):
            yield
        self.run.timings[what] = round(time.perf_counter() - began, 3)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Store the time like `busy`, for work that shows its own progress."""
        began = time.perf_counter()
        yield
        self.run.timings[what] = round(time.perf_counter() - began, 3)

    def _spinner(self, what: str) -> contextlib.AbstractContextManager[object]:
        if self.quiet or not sys.stderr.isatty():
            return contextlib.nullcontext()
        bar = rich_progress.Progress(
            rich_progress.SpinnerColumn(),
            rich_progress.TextColumn("{task.description}"),
            rich_progress.TimeElapsedColumn(),
            console=self._stderr(),
            transient=True,
        )
        bar.add_task(what, total=None)
        return bar

    def _stderr(self) -> Console:
        return terminal(stderr=True)

    # -- run record -------------------------------------------------------------------------------------------------

    def uses(self, name: str, data: Interactions) -> None:
        """Store the sizes and the fingerprint of input data in the run record."""
        users, items = data.shape
        self.run.data[name] = {
            "users": users, "items": items, "interactions": data.nnz, "fingerprint": data.fingerprint()
        }  # fmt: skip

    def record_beside(self, made: Path) -> None:
        """Write the run record beside this file as NAME.VERB.toml, or into this folder as VERB.toml."""
        name = f"{self.run.verb.replace(' ', '-')}.toml"
        self._place = made / name if made.is_dir() else made.with_name(f"{made.stem}.{name}")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the verb inside; afterwards write its record and print its JSON."""
        yield
        self.run.timings["total"] = round(time.perf_counter() - self._began, 3)
        place = self._write_record()
        if self.json:
            extra = {"record": None if place is None else str(place), "seconds": self.run.timings["total"]}
            typer.echo(json_text({"verb": self.run.verb, **self.result, **extra}))
        sys.stdout.flush()

    def _write_record(self) -> Path | None:
        unwanted = self.no_record or (self.records is YesNo.no and self.record is None)
        place = None if unwanted else self.record or self._place
        if place is None:
            return None
        # Lists and tables of results are for --json; the record has the single values.
        plain = (str, bool, int, float)
        self.run.result = {name: value for name, value in self.result.items() if isinstance(value, plain)}
        try:
            self.run.write(place)
        except CannotWrite as error:
            if self.record is not None:
                raise
            self.warn(f"the run record was not written: {error.message}")  # nobody asked for a record at this place
            return None
        self.note(f"record  {marked(place)}")
        return place


# Kinds of log records that are not shown. The command line has its own message for an interruption. The progress bar
# shows "compiling", once after an installation.
_HIDDEN = ("interrupted", "compiling")


class _Notes(logging.Handler):
    """Print log records as notes and warnings of the session."""

    def __init__(self, session: Session):
        super().__init__(logging.INFO)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "kind", None) in _HIDDEN:
            return
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self._session.warn(text)
        else:
            self._session.note(marked(text))


@contextlib.contextmanager
def forwarded(session: Session) -> Iterator[None]:
    """Send warnings and the library's log to the session while a verb runs."""
    log = logging.getLogger("fairmf")
    level, spreads, notes = log.level, log.propagate, _Notes(session)
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(notes)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: session.warn(str(message))
            yield
    finally:
        log.removeHandler(notes)
        log.setLevel(level)
        log.propagate = spreads
