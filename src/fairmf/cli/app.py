"""Run the `fairmf` command: find the verb, run it, return a documented exit code.

A verb is a function in a file of its own, `cli/VERB.py`, and a line in `VERBS`; docs/decisions/0009-command-line.md
explains how to add one. A file is imported when its verb is run, so that `fairmf --help` stays fast.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer
from typer.core import TyperCommand

from fairmf.cli import errors
from fairmf.cli.config import verb_of
from fairmf.cli.help import VerbCommand, VerbGroup
from fairmf.cli.options import expanded, unwrapped
from fairmf.cli.session import Session, forwarded
from fairmf.version import __version__

if TYPE_CHECKING:
    from fairmf.types import Record

# Classes of click. Typer has a copy of click in some versions, so that their module depends on the version.
Command: TypeAlias = Any
CompletionItem: TypeAlias = Any
Context: TypeAlias = Any
HelpFormatter: TypeAlias = Any


class Verb(NamedTuple):
    """The panel and the summary of a verb, for --help. They are known without importing the verb's file."""

    panel: str
    summary: str


DATA, MODEL, TOOLS = "Data", "Models", "Tools"
VERBS = {
    "inspect": Verb(DATA, "Describe a file of events: counts, popularity of items, warnings."),
    "split": Verb(DATA, "Split events into training, validation and test data."),
    "fit": Verb(MODEL, "Train a model."),
    "calibrate": Verb(MODEL, "Prepare a model for --evenness, and show what each evenness costs."),
    "evaluate": Verb(MODEL, "Measure a model, or lists, on held-out users."),
    "tradeoff": Verb(MODEL, "Measure accuracy and exposure at many values of evenness."),
    "report": Verb(MODEL, "Write an HTML page that shows who gains from evenness, and what it costs."),
    "target": Verb(MODEL, "Find the evenness that meets a goal, such as a Gini of at most 0.8."),
    "tune": Verb(MODEL, "Search for good settings on the validation users of a split."),
    "recommend": Verb(MODEL, "Recommend items to users."),
    "rerank": Verb(MODEL, "Make lists so that every item is shown often enough."),
    "audit": Verb(MODEL, "Compare two sets of lists: who gains, who loses, what it costs."),
    "experiment": Verb(MODEL, "Plan an A/B test: how many users you need to detect the effect of an evenness."),
    "serve": Verb(MODEL, "Serve a model over HTTP: send a history, get a list, at an evenness of your choice."),
    "export": Verb(MODEL, "Export vectors to files or vector databases, or tables of similar or popular items."),
    "card": Verb(MODEL, "Write a model card from a model and its run records."),
    "datasets": Verb(DATA, "List, show and download benchmark data sets, or make synthetic events."),
    "doctor": Verb(TOOLS, "Check the installation: what works, and what is missing."),
    "warmup": Verb(TOOLS, "Compile all kernels in advance, so that new processes start faster."),
    "reproduce": Verb(TOOLS, "Reproduce a table or figure of the paper."),
    "leaderboard": Verb(TOOLS, "Tune our models on public data, and show published results beside them."),
    "demo": Verb(TOOLS, "Train and compare models on synthetic data, and write a report."),
}
"""Every verb, in the order of --help. The verb is the function of its name in `fairmf/cli/VERB.py`."""


class Verbs(VerbGroup):
    """A group of commands that imports a verb when it is needed."""

    _listing = False

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        """Return the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: object, cmd_name: str) -> Command | None:  # noqa: ARG002
        """Return the verb as a command. While verbs are listed, return a stub, so that no verb is imported."""
        if cmd_name not in VERBS:
            return None
        if self._listing:
            return TyperCommand(name=cmd_name, help=VERBS[cmd_name].summary, rich_help_panel=VERBS[cmd_name].panel)
        return load_verb(cmd_name)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Find the verb; for an unknown name, suggest similar ones."""
        # Suggestions are made from the keys of `commands` alone, so that no verb is imported for them.
        names: dict[str, Command] = dict.fromkeys(VERBS)
        self.commands = names
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Print the help, which lists the verbs."""
        with self._only_listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a verb."""
        with self._only_listing():
            return super().shell_complete(ctx, incomplete)

    @contextlib.contextmanager
    def _only_listing(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False


def load_verb(name: str) -> Command:
    """Return the click command of a verb: the function of that name, or the typer app `verbs` where it has several."""
    module = importlib.import_module(f"fairmf.cli.{name}")
    if hasattr(module, "verbs"):
        return typer.main.get_command(module.verbs)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    add_verb(alone, getattr(module, name), name)
    return typer.main.get_command(alone)


def add_verb(group: typer.Typer, function: Callable[..., None], name: str) -> None:
    """Add a function as a verb of a group: expand its bundles of flags, and run it in a session."""
    group.command(name, cls=VerbCommand)(expanded(function, _run))


class _KeptError(Exception):
    """Ends a verb that Ctrl-C interrupted after it had something to keep."""


def _run(function: Callable[..., None], arguments: Record, context: typer.Context) -> None:
    # Every verb asks for a session by annotating a parameter with the class; its name is the verb's choice.
    session = next(value for value in arguments.values() if isinstance(value, Session))
    if context.obj is not None:  # the dictionary of flags that `run` passes
        context.obj.update({parameter.name: max(parameter.opts, key=len) for parameter in context.command.params})
    session.start(verb_of(context), context.params)
    with forwarded(session), session.running():
        function(**arguments)
    if session.interrupted:  # the verb has kept what was done, and said so
        raise _KeptError


app = typer.Typer(
    cls=Verbs,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    epilog="[bold]fairmf COMMAND --help[/bold] shows the flags of a command, with examples. Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in errors.EXIT_CODES.items())
    + ".",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairmf {__version__}")
        raise typer.Exit


_ABOUT = """Matrix factorisation that is fair to items: from a file of events to recommendations and a report.

The exposure of an item is the number of users whose list of recommendations holds it. Evenness is a setting from 0 to
1. It says how evenly the lists of all users show the items. 0 gives the most accurate lists. 1 gives the most even
lists that keep at least half of the accuracy. You choose it when lists are made, with --evenness. fairmf calibrate
shows what it costs."""


@app.callback(help=unwrapped(_ABOUT))
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Show the help if no verb is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of `errors.EXIT_CODES`."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    # Looked up in the text, because parsing the flags may itself be what fails.
    debug = "--debug" in arguments
    flags: dict[str, str] = {}  # the flag of each parameter of the verb; `_run` fills it, error messages use it
    try:
        with _terminated_as_interrupted():
            command = typer.main.get_command(app)
            # standalone_mode=False: click raises its errors instead of printing them, so that they are reported here.
            code = command.main(list(arguments), prog_name="fairmf", standalone_mode=False, obj=flags)
        sys.stdout.flush()  # here, so that a closed pipe is noticed below and not at exit
    except SystemExit as error:  # raised by completion, and by rich and typer where the pipe is closed
        if isinstance(error.__context__, BrokenPipeError):
            _forget_stdout()
            return errors.NO_READER
        return int(error.code or 0)
    except _KeptError:
        return errors.INTERRUPTED
    except (KeyboardInterrupt, typer.Abort):
        code = errors.INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return errors.NO_READER
    except Exception as error:
        return errors.report(error, debug, flags)
    if code == errors.INTERRUPTED:  # typer may turn Ctrl-C into this code
        typer.echo("Interrupted. No partial file was left behind.", err=True)
    return code if isinstance(code, int) else errors.DONE


def _forget_stdout() -> None:
    """Close stdout, whose reader has closed the pipe: the interpreter would fail when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that temporary files are removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt(errors.TERMINATED)

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
