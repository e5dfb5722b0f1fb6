"""Read settings from the TOML or JSON file of `--config`. Flags on the command line override the file.

The file has the names of flags as keys, at the top level or in a table named like the verb (`[fit]`), which overrides
the top level. It may also be the record of an earlier run. Values mean the same as on the command line; a list stands
for values separated by commas.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from fairmf.cli.errors import Problem
from fairmf.io import strict_json
from fairmf.lazy import lazy_module
from fairmf.reports.run_record import RECORD_KEY, RECORD_VERSION, parse_toml

if TYPE_CHECKING:
    from fairmf import params
    from fairmf.cli import app
    from fairmf.models import registry
    from fairmf.types import Record
else:
    app = lazy_module("fairmf.cli.app")  # which imports this module
    params, registry = lazy_module("fairmf.params"), lazy_module("fairmf.models.registry")

_LARGEST = 1 << 20  # bytes of a configuration; a larger file is surely another one, such as the data
_VERB = re.compile("[a-z]+( [a-z]+)?")
NOT_SETTINGS = ("config", "record", "records", "no_record", "json", "quiet", "debug", "help", "help_all")


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the settings in the file the defaults of this run. This is the callback of `--config`."""
    if path is None or context.resilient_parsing:
        return path
    parameters = {parameter.name: parameter for parameter in context.command.params if parameter.name}
    known = {name: name for name in parameters if name not in NOT_SETTINGS}
    for name in list(known):
        known |= {flag.lstrip("-").replace("-", "_"): name for flag in parameters[name].opts}
    values = settings_for(verb_of(context), read_config(path), path, known)
    # click's way to change defaults for one run; values are checked as on the command line.
    context.default_map = {name: _as_typed(name, value, parameters[name], path) for name, value in values.items()}
    context.meta["fairmf.config"] = path
    return path


def verb_of(context: typer.Context) -> str:
    """Return the verb as it is typed after `fairmf`."""
    names: list[str] = []
    step: Any = context
    while step is not None and step.parent is not None:
        names.insert(0, str(step.info_name))
        step = step.parent
    return " ".join(names)


def read_config(path: Path) -> Record:
    """Read the table in the file."""
    try:
        if path.exists() and not (path.is_file() and path.stat().st_size <= _LARGEST):
            reason = "it is too large" if path.is_file() else "it is not a file"
            raise Problem(f"The configuration {path} cannot be read: {reason}.", "--config takes a TOML or JSON file")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise Problem(
            f"The configuration {path} cannot be read: {reason}.", "--config takes a TOML or JSON file"
        ) from error
    kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
    try:
        content = strict_json.parse(text, "it") if kind == "JSON" else parse_toml(text)
    except (ValueError, strict_json.Malformed) as error:
        reason = str(
            error.__cause__ if isinstance(error.__cause__, ValueError) else error
        )  # the message of the json module
        raise Problem(
            f"The configuration {path} is not valid {kind}: {reason}.", 'texts need quotes, as in model = "ials"'
        ) from error
    if not isinstance(content, dict):
        raise Problem(f"The configuration {path} holds no table of settings.", 'write for example {"factors": 64}')
    return content


def settings_for(verb: str, content: Record, path: Path, known: Mapping[str, str]) -> Record:
    """Return the settings in the file for a verb, by parameter.

    `known` maps the names that a setting may have to its parameter. For other names, raise a Problem that suggests the
    most similar one.
    """
    if RECORD_KEY in content:
        content = _recorded(verb, content, path)
        added = _newer_settings(content.get("model")) if "regularization" in known else {}  # verbs that train models
        content = {**added, **content}
    tables = {name: value for name, value in content.items() if isinstance(value, dict) and name in app.VERBS}
    # The table of the verb overrides the top level; tables of other verbs are ignored.
    values = {name: value for name, value in content.items() if name not in tables} | tables.get(verb, {})
    settings = {}
    for name, value in values.items():
        if value is None:  # JSON's null: not set
            continue
        plain = str(name).replace("-", "_")
        if plain not in known:
            names = app.VERBS if isinstance(value, dict) else known
            near = difflib.get_close_matches(plain, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"fairmf {verb} --help lists what can be set"
            raise Problem(f"{path} sets {name!r}, which 'fairmf {verb}' does not know.", hint)
        settings[known[plain]] = value
    return settings


def _recorded(verb: str, record: Record, path: Path) -> Record:
    """Return the settings in the record of a run of the same verb."""
    version = record[RECORD_KEY]
    if type(version) is not int or version != RECORD_VERSION:
        raise Problem(
            f"{path} is a run record of version {str(version)[:20]!r}; this fairmf reads version {RECORD_VERSION}.",
            "upgrade fairmf, or remove that line to use the settings anyway",
        )
    made_by = record.get("verb")
    if made_by != verb:
        # The hint is a command to paste: only a known verb and a quoted file name may be in it.
        if not isinstance(made_by, str) or made_by.partition(" ")[0] not in app.VERBS or not _VERB.fullmatch(made_by):
            raise Problem(f"{path} does not name the verb it records: {str(made_by)[:40]!r} is not a verb.")
        hint = f"fairmf {made_by} --config {shlex.quote(str(path))}"
        raise Problem(f"{path} is the record of 'fairmf {made_by}', which 'fairmf {verb}' cannot repeat.", hint)
    settings = record.get("settings", {})
    if not isinstance(settings, dict):
        raise Problem(f"The settings in {path} are not a table.")
    return settings


def _newer_settings(model: object) -> Record:
    """Return the settings of a model that older versions did not have, with the values that repeat their runs.

    A record has all settings of its model: one that it lacks is newer than the record, and its default may differ.
    """
    kind = next((k for k in registry.MODELS.values() if str(model).lower() in (k.name, k.class_name.lower())), None)
    return {} if kind is None or not kind.has_factors else params.absent_values(kind.load())


class _Parameter(Protocol):
    """The part of click's parameters that is needed here."""

    nargs: int


def _as_typed(name: str, value: object, parameter: _Parameter, path: Path) -> bool | str | list[str]:
    """Return the value as if typed on the command line, so that the same checks apply: 2.7 is not an integer."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise Problem(f"{name!r} in {path} must be true or false. Got {value!r} instead.")
        return value
    if isinstance(value, list) and all(isinstance(part, (str, int, float)) for part in value):
        typed = [_word(part) for part in value]
        return typed if parameter.nargs != 1 else ",".join(typed)
    if isinstance(value, (str, int, float, date, time)):
        return [_word(value)] if parameter.nargs != 1 else _word(value)
    raise Problem(f"{name!r} in {path} must be one value. Got {value!r} instead.")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
