"""`--config FILE`: settings from TOML or JSON. What stands on the command line wins over what stands in the file.

A file holds settings by the names of the flags, at the top or in a table named like the verb (`[fit]`), where the table
wins; or it is the record of an earlier run, whose settings are taken. A value means what it would mean on the
command line; a list is what a flag takes with commas.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

import typer

from fairmf.cli.failures import Problem
from fairmf.reporting.run_record import RECORD_KEY, parse_toml

NOT_SETTINGS = ("config", "record", "no_record", "json", "quiet", "debug", "help")


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Callback of `--config`: the file's settings become the defaults of this run."""
    if path is None or context.resilient_parsing:
        return path
    parameters = {parameter.name: parameter for parameter in context.command.params if parameter.name}
    known = {name: name for name in parameters if name not in NOT_SETTINGS}
    for name in list(known):
        known |= {flag.lstrip("-").replace("-", "_"): name for flag in parameters[name].opts}
    values = settings_for(verb_of(context), read_config(path), path, known)
    # The way of click: a default of its own for this run, with all checks that the command line has.
    context.default_map = {name: _as_typed(name, value, parameters[name], path) for name, value in values.items()}
    context.meta["fairmf.config"] = path
    return path


def verb_of(context: typer.Context) -> str:
    """The verb as it is typed after `fairmf`."""
    names: list[str] = []
    step: Any = context
    while step is not None and step.parent is not None:
        names.insert(0, str(step.info_name))
        step = step.parent
    return " ".join(names)


def read_config(path: Path) -> dict[str, Any]:
    """The table in the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise Problem(
            f"The configuration {path} cannot be read: {reason}.", "--config takes a TOML or JSON file"
        ) from error
    try:
        content = json.loads(text) if path.suffix.lower() == ".json" else parse_toml(text)
    except ValueError as error:
        kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
        raise Problem(
            f"The configuration {path} is not valid {kind}: {error}.", 'texts need quotes, as in model = "ials"'
        ) from error
    if not isinstance(content, dict):
        raise Problem(f"The configuration {path} holds no table of settings.", 'write for example {"factors": 64}')
    return content


def settings_for(verb: str, content: dict[str, Any], path: Path, known: Mapping[str, str]) -> dict[str, Any]:
    """The settings that the file has for a verb, by parameter; unknown names are an error that suggests the nearest.

    `known` maps what a setting may be called to its parameter.
    """
    from fairmf.cli.app import VERBS

    if RECORD_KEY in content:
        made_by = content.get("verb")
        if made_by != verb:
            raise Problem(
                f"{path} is the record of 'fairmf {made_by}', which 'fairmf {verb}' cannot repeat.",
                f"fairmf {made_by} --config {path}",
            )
        content = content.get("settings", {})
    tables = {name: value for name, value in content.items() if isinstance(value, dict) and name in VERBS}
    values = {name: value for name, value in content.items() if name not in tables} | tables.get(verb, {})
    settings = {}
    for name, value in values.items():
        if value is None:  # JSON's null: not set
            continue
        plain = str(name).replace("-", "_")
        if plain not in known:
            names = VERBS if isinstance(value, dict) else known
            near = difflib.get_close_matches(plain, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"fairmf {verb} --help lists what can be set"
            raise Problem(f"{path} sets {name!r}, which 'fairmf {verb}' does not know.", hint)
        settings[known[plain]] = value
    return settings


def _as_typed(name: str, value: Any, parameter: Any, path: Path) -> Any:
    """The value as it would be typed, so that 2.7 is no integer and "maybe" is no flag."""
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


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
