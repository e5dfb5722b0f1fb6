"""Turn exceptions into one error line, a hint and an exit code.

Errors of the library carry a `message`, a `hint` and the name of the wrong argument (`parameter`). This module replaces
the argument by the flag of the verb. A hint of the command line, where there is one, replaces the library's.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping

import typer

from fairmf import errors
from fairmf.cli.terminal import echo

DONE = 0
PROBLEM = 1
USAGE = 2
MISSING_PACKAGE = 3
CANNOT_WRITE = 4
NOT_FETCHED = 5
DIVERGED = 6
BUG = 70
INTERRUPTED = 130
NO_READER = 141

TERMINATED = "SIGTERM"
"""The text of the KeyboardInterrupt that stands for SIGTERM, and the reason in the history of a fit that it ends."""

EXIT_CODES = {
    DONE: "done",
    PROBLEM: "a problem with data, files or settings",
    USAGE: "wrong usage: an unknown command or flag, a missing value or a value of the wrong type",
    MISSING_PACKAGE: "an optional package is not installed",
    CANNOT_WRITE: "the output could not be written (an older file is unchanged)",
    NOT_FETCHED: "a data set could not be downloaded, or its terms are not accepted",
    DIVERGED: "training gave numbers that are not finite",
    BUG: "an internal error: please report it",
    INTERRUPTED: "interrupted by Ctrl-C",
    NO_READER: "the program that reads the output closed the pipe",
}
"""Exit codes, as `fairmf --help` and docs/decisions/0009-command-line.md show them."""

_USAGE_ERROR = typer.BadParameter.__mro__[1]  # click's UsageError, wherever this version of typer keeps it
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.MissingDependency, MISSING_PACKAGE),
    (errors.CannotWrite, CANNOT_WRITE),
    (errors.DownloadFailed, NOT_FETCHED),
    (errors.LicenceNotAccepted, NOT_FETCHED),
    (errors.NotFinite, DIVERGED),
    (errors.FairmfError, PROBLEM),
    (OSError, PROBLEM),
    (MemoryError, PROBLEM),
)
_FLAG_OF = {"random_state": "seed", "weights": "weight", "N": "top", "target_share": "share"}
"""Arguments of the library whose flag has another name. All other flags are named like the argument."""
_HINTS_BY_PARAMETER = {
    "unprotected": "--unprotected downloads it anyway; --from PATH uses your own copy",
    "from_path": "if you have a copy, read it with: fairmf datasets fetch NAME --from PATH",
    "users": "for users that the model does not know, give their events: --new-users FILE; or give them popular "
    "items: --unknown popular",
    "items": "write item ids as in the data that the model was trained on",
    "folder": "to make one: fairmf split FILE -o split",
}
"""Hints for errors that are solved in another way on the command line than in Python."""
_HINTS_BY_KIND: tuple[tuple[type[BaseException], str], ...] = (
    (errors.CannotWrite, "choose another path, free disk space, or check the permissions"),
    (errors.DownloadFailed, "if you have a copy, read it with: fairmf datasets fetch NAME --from PATH"),
    (errors.BrokenFile, "check that this is the right file; if it is, create it again"),
    (errors.NotFinite, "raise --regularization, or lower the confidences, for example with --reweight log"),
    (errors.MissingHistories, "fit the model without --no-histories"),
    (errors.InvalidParameter, "--help lists ranges and defaults"),
    (MemoryError, "use fewer --factors or a smaller file"),
)


class Problem(errors.FairmfError):
    """An error of the command line itself, such as flags that do not go together."""

    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message, hint=hint)


def report(error: BaseException, debug: bool, flags: Mapping[str, str] | None = None) -> int:
    """Print the error and its hint, and return the exit code. `flags` maps the verb's parameters to its flags."""
    if debug:
        echo("".join(traceback.format_exception(error)), err=True)
    if isinstance(error, _USAGE_ERROR):
        return _report_usage(error)  # type: ignore[arg-type]
    code = next((code for kind, code in _CODES if isinstance(error, kind)), BUG)
    if code == BUG:
        _print(f"Internal error, {type(error).__name__}: {error}", "run it again with --debug and report the output")
    else:
        _print(_message(error), _hint(error, flags or {}))
    return code


def _message(error: BaseException) -> str:
    if isinstance(error, errors.FairmfError):
        return error.message if error.message.endswith((".", "?", '"')) else f"{error.message}."
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'} cannot be used: {error.strerror or error}."
    return str(error) or "There is not enough memory."


def _hint(error: BaseException, flags: Mapping[str, str]) -> str:
    if isinstance(error, errors.LicenceNotAccepted) and error.dataset:
        return f"to accept them: fairmf datasets fetch {error.dataset} --yes"
    if isinstance(error, errors.FairmfError):
        name = error.parameter or ""
        if name in _HINTS_BY_PARAMETER:
            return _HINTS_BY_PARAMETER[name]
        flag = flags.get(name) or flags.get(_FLAG_OF.get(name, name))
        if error.hint is not None:
            return error.hint_for(flag or name)
        if isinstance(error, errors.InvalidParameter) and flag:
            return f"--help lists the range and the default of {flag}"
    return next((hint for kind, hint in _HINTS_BY_KIND if isinstance(error, kind)), "")


def _report_usage(error: typer.BadParameter) -> int:
    message, source = error.format_message(), _config_source(error)
    command = "fairmf" if error.ctx is None else error.ctx.command_path
    _print(f"{message.rstrip('.')} (from {source})." if source else message, f"{command} --help")
    return USAGE


def _config_source(error: typer.BadParameter) -> str | None:
    """Return the configuration file that a bad value came from; None if it was typed."""
    context, parameter = error.ctx, getattr(error, "param", None)
    if context is None or parameter is None or not context.default_map or parameter.name not in context.default_map:
        return None
    source = context.get_parameter_source(parameter.name)
    return str(context.meta.get("fairmf.config")) if source is not None and source.name == "DEFAULT_MAP" else None


def _print(message: str, hint: str) -> None:
    echo(" ".join(message.split()), label=typer.style("Error:", fg="red", bold=True), err=True)
    if hint:
        echo(" ".join(hint.split()), label=typer.style("hint:", bold=True), err=True)
