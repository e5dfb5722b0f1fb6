"""Flags that several verbs share: declared once, as a bundle. A verb asks for one by annotating a parameter with it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_type_hints

import typer

from fairmf.cli.errors import Problem

# Lists on the command line: values with commas between them.


def comma_list(text: str | None) -> list[str] | None:
    """The parts between commas; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def integers(flag: str, text: str) -> list[int]:
    """Whole numbers between commas."""
    try:
        return [int(part) for part in comma_list(text) or []]
    except ValueError:
        raise Problem(
            f"{flag} takes whole numbers with commas between them. Got {text!r} instead.", f"{flag} 20,100"
        ) from None


def numbers(flag: str, text: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in comma_list(text) or []]
    except ValueError:
        raise Problem(
            f"{flag} takes numbers with commas between them. Got {text!r} instead.", f"{flag} 0,0.5,1"
        ) from None


# Completion of words that are known: names of models, of data sets, of solvers.


def starting(words: Iterable[str] | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function for typer's `autocompletion=`: those of the words that begin with what is typed already."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in (words() if callable(words) else words) if word.startswith(incomplete)]

    return complete


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
