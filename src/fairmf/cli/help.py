"""Show the help of a verb: what most runs need with `--help`, all flags with `--help-all`.

Flags for experts are those in a panel whose title is in `EXPERT_PANELS`. The rest of the help is typer's.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

INTERNALS = "Solvers and other internals"
LEVELS = "For experts, instead of --evenness"
EXPERT_PANELS = (INTERNALS, LEVELS)
_ALL = "fairmf.help_all"  # key in click's context
_WORDS: dict[type, str] = {bool: "", int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
"""How the values of a flag are named, by their type. A flag without a value has no name."""


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Print the help with all flags, and end. This is the callback of --help-all."""
    if wanted and not context.resilient_parsing:
        context.meta[_ALL] = True
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit


HELP_ALL = inspect.Parameter(
    "help_all", inspect.Parameter.KEYWORD_ONLY, default=False,
    annotation=Annotated[bool, typer.Option(
        "--help-all", metavar="", is_eager=True, callback=_show_all, help="Show all flags, those for experts too."
    )],
)  # fmt: skip
"""The flag --help-all, for verbs that have flags for experts."""


class VerbCommand(TyperCommand):
    """A verb, whose help leaves out the flags for experts unless all are asked for."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the flag --help."""
        return without_value(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        everything, epilog = self.params, self.epilog
        for parameter in everything:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = _nothing  # type: ignore[attr-defined]  # typer would show <str>
        experts = [p for p in everything if getattr(p, "rich_help_panel", None) in EXPERT_PANELS]
        if experts and _ALL not in ctx.meta:
            self.params = [p for p in everything if p not in experts]
            flags = ", ".join(max(p.opts, key=len) for p in experts)
            self.epilog = f"[bold]{ctx.command_path} --help-all[/bold] also shows the flags for experts: {flags}."
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params, self.epilog = everything, epilog


class VerbGroup(TyperGroup):
    """A group of verbs, whose own flags show no types."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the flag --help."""
        return without_value(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, which lists the verbs."""
        for option in self.params:
            without_value(option)
        super().format_help(ctx, formatter)


def without_value(option: Any) -> Any:
    """Return a flag of typer's own so that its help shows no type."""
    if option is not None:
        option.metavar = ""
    return option


def name_values(parameters: Iterable[inspect.Parameter]) -> None:
    """Name the values of all flags in plain words (INTEGER, PATH), where no name is given and there are no choices."""
    for parameter in parameters:
        option = option_of(parameter)
        if option is None or option.metavar is not None:
            continue
        kinds = get_args(parameter.annotation)[0]
        option.metavar = next((_WORDS[kind] for kind in (kinds, *get_args(kinds)) if kind in _WORDS), None)


def option_of(parameter: inspect.Parameter) -> OptionInfo | None:
    """Return the declaration of a flag; None for an argument."""
    return next((part for part in get_args(parameter.annotation) if isinstance(part, OptionInfo)), None)


def has_experts(parameters: Iterable[inspect.Parameter]) -> bool:
    """Return whether some of the flags are for experts."""
    return any(getattr(option_of(parameter), "rich_help_panel", None) in EXPERT_PANELS for parameter in parameters)


def _nothing(*_: object, **__: object) -> None:
    return None
