"""What goes wrong, as one clear line, a hint and a documented exit code."""

from __future__ import annotations

import re
import traceback
from typing import Any

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

EXIT_CODES = {
    DONE: "done",
    PROBLEM: "a problem with data, files or settings",
    USAGE: "wrong usage: an unknown verb or flag, a value that is missing or of the wrong kind",
    MISSING_PACKAGE: "an optional package is not installed",
    CANNOT_WRITE: "the output could not be written; what was there before is unchanged",
    NOT_FETCHED: "a data set could not be fetched, or its terms are not accepted",
    DIVERGED: "training gave numbers that are not finite",
    BUG: "an internal error: please report it",
    INTERRUPTED: "interrupted by Ctrl-C",
    NO_READER: "whoever was reading the output went away",
}
"""Exit codes, as `fairmf --help` and docs/decisions/0009-command-line.md show them."""

# click's own classes, wherever this version of typer keeps them.
UsageError: Any = typer.BadParameter.__mro__[1]
ClickException: Any = typer.BadParameter.__mro__[2]

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
_HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (errors.CannotWrite, "name another place, or make room or rights there"),
    (errors.DownloadFailed, "a copy you have is read with: fairmf datasets fetch NAME --from PATH"),
    (errors.BrokenFile, "check that it is the file you mean; if it is, make it again"),
    (errors.NotFinite, "raise --regularization, or lower the confidences, for example with --reweight log"),
    (errors.MissingHistories, "fit the model without --no-histories"),
    (errors.InvalidParameter, "ranges and defaults are listed by --help"),
    (MemoryError, "fewer --factors or a smaller file need less memory"),
)
_HINTS_BY_WORDS = (
    ("comes over plain http", "--unprotected fetches it nevertheless; --from PATH takes a copy you have"),
    ("users are unknown", "users the model does not know are folded in from their events: --new-users FILE"),
    ("leaves nobody to train on", "hold out fewer: --heldout N"),
    ("items (columns), the model", "evaluate a model on the split it was trained on"),
    ("The model knows", "evaluate a model on the split it was trained on"),
    ("items are unknown", "items are named as in the data the model was trained on"),
    ("invalid UTF8", "--encoding latin-1 reads most old files"),
    ("cannot be read as CSV", "--delimiter, --no-header and --encoding say how a text is to be read"),
    ("two different columns", "--user and --item name them"),
    ("is not the folder of a split", "fairmf split FILE -o split makes one"),
    ("pip install", ""),
)
# Arguments of the library that errors speak of, and the flags that stand for them.
_FLAG_OF = {"weights": "weight", "text_ids": "text-ids", "random_state": "seed", "from_path": "from"}
_ARGUMENT = re.compile(
    r"\b(user|item|weights|time|rating|delimiter|encoding|heldout)=('[^']*'|\w+(?:\.\w+)*)?"
    r"|(?<!')\b(rating_above|text_ids|min_user|min_item|random_state|from_path|unprotected)\b(?:=('[^']*'|\w+(?:\.\w+)*))?"
)


class Problem(errors.FairmfError):
    """Something only the command line can say, with its own hint."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


def report(error: BaseException, debug: bool) -> int:
    """Print the error as a person needs it and return the exit code."""
    if debug:
        echo("".join(traceback.format_exception(error)), err=True)
    if isinstance(error, UsageError):
        return _usage(error)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), BUG)
    if code == BUG:
        _lines(f"Internal error, {type(error).__name__}: {error}", "run it again with --debug and report what it shows")
        return BUG
    message, hint = _message(error), _hint(error)
    if not hint and isinstance(error, (errors.InvalidData, errors.InvalidParameter)):
        message, hint = _advice(message)
    _lines(message, hint)
    return code


def _advice(message: str) -> tuple[str, str]:
    """The library's errors say what is wrong; and then, after a semicolon, how to mend it."""
    wrong, found, advice = message.rpartition("; ")
    if found:
        return f"{wrong}.", advice.rstrip(".")
    return message, ""


def _usage(error: Any) -> int:
    source = _config_source(error)
    message = error.format_message()
    _lines(f"{message.rstrip('.')} (from {source})." if source else message, _usage_hint(error))
    return USAGE


def _config_source(error: Any) -> str | None:
    """The file a bad value came from, where it did not come from the command line."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None or not context.default_map or parameter.name not in context.default_map:
        return None
    source = context.get_parameter_source(parameter.name)
    return str(context.meta.get("fairmf.config")) if source is not None and source.name == "DEFAULT_MAP" else None


def _usage_hint(error: Any) -> str:
    command = error.ctx.command_path if getattr(error, "ctx", None) is not None else "fairmf"
    return f"{command} --help"


def _message(error: BaseException) -> str:
    if isinstance(error, MemoryError) and not str(error):
        return "There is not enough memory."
    if isinstance(error, OSError) and not isinstance(error, errors.FairmfError):
        what = error.filename if error.filename is not None else "A file"
        return f"{what} cannot be used: {error.strerror or error}."
    if isinstance(error, OSError) and error.strerror:  # without the number in front
        return f"{error.strerror}."
    return _ARGUMENT.sub(_as_flag, str(error).removesuffix(" To accept, pass accept_licence=True."))


def _as_flag(found: re.Match[str]) -> str:
    name, value = found[1] or found[3], found[2] or found[4]
    flag = _FLAG_OF.get(name, name.replace("_", "-"))
    return f"--{flag} {value.strip(chr(39))}" if value and value != "True" else f"--{flag}"


def _hint(error: BaseException) -> str:
    own = getattr(error, "hint", None)
    if own is not None:
        return str(own)
    if isinstance(error, errors.LicenceNotAccepted):
        named = re.search(r"(?:data set|terms of) (\S+) ", str(error))
        return f"to accept them: fairmf datasets fetch {named[1] if named else 'NAME'} --yes"
    said = next((hint for words, hint in _HINTS_BY_WORDS if words in str(error)), None)
    if said is not None:
        return said
    if isinstance(error, errors.InvalidParameter) and "; " in str(error):
        return ""
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")


def _lines(message: str, hint: str) -> None:
    echo(" ".join(message.split()), label=typer.style("Error:", fg="red", bold=True), err=True)
    if hint:
        echo(" ".join(hint.split()), label=typer.style("hint:", bold=True), err=True)
