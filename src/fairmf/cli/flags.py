"""Flags that several verbs share: declared once, as a bundle. A verb asks for one by annotating a parameter with it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

import typer

Self = TypeVar("Self", bound="Flags")


class Flags:
    """A bundle of flags: a dataclass whose fields are annotated as the parameters of a typer command are."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """The flags, as parameters of a function."""
        hints = get_type_hints(cls, include_extras=True)
        return [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        ]

    @classmethod
    def collect(cls: type[Self], values: Mapping[str, Any]) -> Self:
        """The bundle with these values."""
        return cls(**values)


def expanded(function: Callable[..., None], run: Callable[..., None]) -> Callable[..., None]:
    """A function whose signature typer understands: every bundle replaced by its flags.

    It calls `run(function, arguments, context)` with the bundles put together again.
    """
    own, bundles = [], {}
    # Not get_type_hints: before Python 3.11 it wraps what has the default None in Optional, which hides the name.
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, Flags):
            bundles[parameter.name] = kind
        else:
            own.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    shared = {name: kind.parameters() for name, kind in bundles.items()}
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    everything = [context, *own] + [parameter for parameters in shared.values() for parameter in parameters]

    def call(**values: Any) -> None:
        arguments = {parameter.name: values[parameter.name] for parameter in own}
        for name, kind in bundles.items():
            arguments[name] = kind.collect({parameter.name: values[parameter.name] for parameter in shared[name]})
        run(function, arguments, values["context"])

    call.__name__, call.__doc__ = function.__name__, unwrapped(function.__doc__ or "")
    call.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in everything}
    return call


def unwrapped(text: str) -> str:
    """A docstring with every paragraph on one line, so that the terminal's width decides where it is broken."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else " ".join(part.split()) for part in paragraphs)
