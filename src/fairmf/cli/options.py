"""Bundle flags in dataclasses, and parse flag values that are lists.

A verb is a function whose parameters are flags. Flags that belong together, or that several verbs share, are the fields
of a subclass of `Flags`. A verb gets all of them by annotating one parameter with that class.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar, get_type_hints

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.help import HELP_ALL, has_experts, name_values

if TYPE_CHECKING:
    from fairmf.types import Record, Settings

Self = TypeVar("Self", bound="Flags")


class Flags:
    """Base class of bundles: dataclasses whose fields are annotated like the parameters of a typer command."""

    place: ClassVar[int] = 0
    """Where --help lists these flags: 0 first, larger numbers later. Flags that many verbs share come last."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the flags as parameters of a function."""
        hints = get_type_hints(cls, include_extras=True)
        keyword = inspect.Parameter.KEYWORD_ONLY
        return [
            inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        ]

    @classmethod
    def collect(cls: type[Self], values: Settings) -> Self:
        """Return the bundle with these values."""
        return cls(**values)


@dataclass
class Intervals(Flags):
    """Confidence intervals by resampling users."""

    bootstrap: Annotated[
        int, typer.Option(min=0, help="Number of resamples of the users for confidence intervals; 0 for no intervals.")
    ] = 200
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the resamples.")] = 0

    def arguments(self) -> Record:
        """Return the values as the library's functions take them."""
        return {"bootstrap": self.bootstrap, "confidence": self.confidence, "random_state": self.seed}


class Reweight(str, Enum):
    """Transformations of weights."""

    log = "log"
    bm25 = "bm25"


def expanded(function: Callable[..., None], run: Callable[..., None]) -> Callable[..., None]:
    """Return a function for typer: the verb with every bundle replaced by its flags.

    When called, it puts the values back into their bundles and calls `run(function, arguments, context)`.
    """
    # Not get_type_hints: before Python 3.11 it wraps what has the default None in Optional, which hides the class.
    declared = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, list[inspect.Parameter]] = {}
    bundles: dict[str, type[Flags]] = {}
    for parameter in declared:
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, Flags):
            bundles[parameter.name], groups[parameter.name] = kind, kind.parameters()
        else:
            groups[parameter.name] = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    order = sorted(groups, key=lambda name: bundles[name].place if name in bundles else 0)
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    flags = [parameter for name in order for parameter in groups[name]]
    name_values(flags)
    everything = [context, *flags, *([HELP_ALL] if has_experts(flags) else [])]

    def call(**values: object) -> None:
        arguments: Record = {}
        for name, parameters in groups.items():
            given = {parameter.name: values[parameter.name] for parameter in parameters}
            arguments[name] = bundles[name].collect(given) if name in bundles else given[name]
        run(function, arguments, values["context"])

    call.__name__, call.__doc__ = function.__name__, unwrapped(function.__doc__ or "")
    call.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in everything}
    return call


def unwrapped(text: str) -> str:
    """Put every paragraph of a docstring on one line, so that lines break at the width of the terminal."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else " ".join(part.split()) for part in paragraphs)


def comma_list(text: str | None) -> list[str] | None:
    """Split a value at its commas; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def integers(flag: str, text: str) -> list[int]:
    """Parse whole numbers separated by commas."""
    try:
        return [int(part) for part in comma_list(text) or []]
    except ValueError:
        raise Problem(
            f"{flag} takes whole numbers separated by commas. Got {text!r} instead.", f"for example {flag} 20,100"
        ) from None


def numbers(flag: str, text: str) -> list[float]:
    """Parse numbers separated by commas."""
    try:
        return [float(part) for part in comma_list(text) or []]
    except ValueError:
        raise Problem(
            f"{flag} takes numbers separated by commas. Got {text!r} instead.", f"for example {flag} 0,0.5,1"
        ) from None


def number_or_word(text: str) -> int | float | str:
    """Return the text as a number if it is one; otherwise return the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def starting(words: Iterable[str] | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function for typer's `autocompletion=` that completes these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in (words() if callable(words) else words) if word.startswith(incomplete)]

    return complete
