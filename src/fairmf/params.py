"""Declare hyper-parameters as dataclass fields with range, meaning and default, and check arguments.

Constructors only store what they are given. `fit` calls `check_settings`, whose errors say in one sentence what is
wrong.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fairmf.errors import InvalidParameter, UnknownParameter
from fairmf.types import Record, Settings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
WORDS = str, bool, type(None)  # the types of choices; a number or an array is none, and `in` would compare it


def setting(
    default: T,
    doc: str,
    *,
    symbol: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    integer: bool = False,
    choices: Iterable[str | bool | None] = (),
) -> T:
    """Declare one hyper-parameter: its default, meaning, symbol in the paper and range.

    `low` and `high` are allowed values, `above` is not. `choices` are words (or None) that are allowed. If `choices` is
    a mapping, its keys are allowed, including those that are added later.
    """
    allowed = choices if isinstance(choices, Mapping) else tuple(choices)
    limits = {"low": low, "high": high, "above": above, "integer": integer, "choices": allowed}
    numeric = low is not None or high is not None or above is not None or integer
    told = {"doc": doc, "symbol": symbol, "numeric": numeric}
    return dataclasses.field(default=default, metadata={**told, **limits})


def settings_of(owner: Any) -> Record:
    """Return all settings of the dataclass `owner`, by name."""
    return {field.name: getattr(owner, field.name) for field in dataclasses.fields(owner)}


def absent_values(owner: type) -> Record:
    """Return the settings that older versions did not have, each with the value that files without it mean.

    Classes name them in ABSENT. The default of a setting may change later, so it says nothing about files that were
    written before.
    """
    return {name: value for kind in reversed(owner.__mro__) for name, value in vars(kind).get("ABSENT", {}).items()}


def store_settings(owner: Any, values: Settings) -> None:
    """Set some settings of `owner`; set none if a name is unknown. As in constructors, values are not checked."""
    known = [field.name for field in dataclasses.fields(owner)]
    for name in values:
        if name not in known:
            raise unknown_setting(type(owner).__name__, name, known)
    for name, value in values.items():
        setattr(owner, name, value)


_IMPLICIT = "docs/from-implicit.md translates the settings of implicit"
ELSEWHERE = {
    "iterations": f"did you mean epochs? {_IMPLICIT}",
    "alpha": f"use unobserved_weight, which is another number: {_IMPLICIT}",
    "use_cg": f"use solver='eigenbasis_cg' or solver='cholesky'; {_IMPLICIT}",
    "use_gpu": f"use backend='cuda'; {_IMPLICIT}",
    "use_native": "leave it out: all fits are compiled",
    "calculate_training_loss": "leave it out: model.history has the loss of every epoch",
    "dtype": "leave it out: factors are float32",
    "show_progress": "it is an argument of fit: fit(data, progress=False)",
    "rank": "did you mean factors?",
    "no_components": "did you mean factors?",
    "maxIter": "did you mean epochs?",
    "regParam": "did you mean regularization?",
    "seed": "did you mean random_state?",
    "evenness": "evenness is chosen after training: model.recommend(user, evenness=0.3)",
}
"""What settings of other libraries (implicit, Spark, LightFM) are called here."""


def unknown_setting(owner: str, name: str, known: Sequence[str]) -> UnknownParameter:
    """Return the error for a setting that does not exist: it names the one that was probably meant, or else all."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = ELSEWHERE.get(name) or (f"did you mean {near[0]}?" if near else None)
    listed = "" if hint else f" It has {', '.join(map(repr, known))}."
    return UnknownParameter(f"{owner} has no parameter {name!r}.{listed}", hint=hint, parameter=name)


def hinted(kind: type[T]) -> type[T]:
    """Decorate a dataclass of settings: a keyword that its constructor does not know raises `unknown_setting`."""
    construct: Any = kind.__init__
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]

    @functools.wraps(construct)
    def checked(self: object, *args: object, **settings: object) -> None:
        for name in settings:
            if name not in known:
                raise unknown_setting(kind.__name__, name, known)
        construct(self, *args, **settings)

    kind.__init__ = checked  # type: ignore[method-assign]
    return kind


def changed_settings(owner: Any) -> Record:
    """Return the settings of `owner` that differ from their defaults."""
    now = {field.name: (getattr(owner, field.name), field.default) for field in dataclasses.fields(owner)}
    return {name: value for name, (value, default) in now.items() if value != default}


def check_settings(owner: Any) -> Record:
    """Return all settings of the dataclass `owner`; raise InvalidParameter for the first outside its declared range."""
    settings = {}
    for field in dataclasses.fields(owner):
        settings[field.name] = value = getattr(owner, field.name)
        # Only fields that `setting` declared have a range.
        if "doc" in field.metadata:
            name, rule = type(owner).__name__, field.metadata
            if rule["numeric"]:
                limits = {key: rule[key] for key in ("low", "above", "high", "integer", "choices")}
                check_number(name, field.name, value, **limits)
            elif rule["choices"] and not (isinstance(value, WORDS) and value in rule["choices"]):
                raise _wrong(name, field.name, describe_range(field), value)
    return settings


def describe_range(field: dataclasses.Field[Any]) -> str:
    """Return the allowed values in words, such as `an integer >= 1` or `a number > 0 or 'auto'`."""
    rule = field.metadata
    bounds = {key: rule[key] for key in ("low", "above", "high")}
    words = [_range_words(rule["integer"], bounds)] if rule["numeric"] else []
    return " or ".join([*words, *map(repr, rule["choices"])])


def takes_keywords(
    keywords: type, of: Callable[..., object] | tuple[Callable[..., object], ...], note: str = ""
) -> Callable[[F], F]:
    """Decorate a function that takes a group of keywords as one: `def f(..., **group: Unpack[Keywords])`.

    `Keywords` is a TypedDict: it tells type checkers the names and types. `of` is the function or dataclass that the
    group is for, or several: they have the defaults. The function's signature then lists every keyword, for `help`,
    editors and the reference, and an unknown keyword is refused in the function's own name; `note` is added to that
    message.
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        sources = of if isinstance(of, tuple) else (of,)
        there = {name: value for each in sources for name, value in inspect.signature(each).parameters.items()}
        *named, _ = own.parameters.values()
        group = [there[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in keywords.__annotations__]
        signature = own.replace(parameters=[*named, *group])

        @functools.wraps(function)
        def call(*arguments: object, **given: object) -> object:
            for name in given:
                if name not in signature.parameters:
                    message = f"{function.__qualname__}() got an unexpected keyword argument {name!r}"
                    raise TypeError(f"{message}: {note}" if note else message)
            return function(*arguments, **given)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


# Checks of arguments. All errors read: The 'x' parameter of Y must be ... Got ... instead.


def check_number(
    owner: str,
    name: str,
    value: object,
    *,
    integer: bool = False,
    choices: Collection[object] = (),
    **bounds: float | None,
) -> None:
    """Raise InvalidParameter unless `value` is one of `choices`, or a finite number within the bounds.

    Parameters
    ----------
    owner, name : str
        The function or class, and its parameter, for the message.
    value : object
        What was given. Booleans do not count as numbers, nor 4.0 as an integer, which NumPy would refuse later with a
        less helpful message.
    integer : bool
        Accept integers only.
    choices : collection
        Words, or None, that are allowed as well.
    **bounds : float or None
        `low` and `high` are allowed themselves, `above` and `below` are not.
    """
    if isinstance(value, WORDS) and value in choices:
        return
    # bool is a subclass of int in Python.
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    if not (
        isinstance(value, kinds)
        and not isinstance(value, (bool, np.bool_))
        and math.isfinite(value)
        and all(_BOUNDS[key][1](value, end) for key, end in bounds.items() if end is not None)
    ):
        raise _wrong(owner, name, " or ".join([_range_words(integer, bounds), *map(repr, choices)]), value)


def check_count(owner: str, name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return the value as an int; raise InvalidParameter unless it is an integer from `low` to `high`."""
    check_number(owner, name, value, integer=True, low=low, high=high)
    return int(value)


def check_seed(owner: str, value: object) -> None:
    """Raise InvalidParameter unless NumPy can take the value as a seed: an integer >= 0, or None for a random one."""
    check_number(owner, "random_state", value, integer=True, low=0, choices=(None,))


def check_share(owner: str, name: str, value: Any) -> float:
    """Return the value as a float; raise InvalidParameter unless it is between 0 and 1, both excluded."""
    check_number(owner, name, value, above=0, below=1)
    return float(value)


def check_not_negative(owner: str, name: str, value: Any) -> float:
    """Return the value as a float; raise InvalidParameter unless it is a number >= 0."""
    check_number(owner, name, value, low=0)
    return float(value)


_BOUNDS: dict[str, tuple[str, Callable[[Any, float], bool]]] = {
    "low": (">=", operator.ge),
    "above": (">", operator.gt),
    "high": ("<=", operator.le),
    "below": ("<", operator.lt),
}


def _range_words(integer: bool, bounds: Mapping[str, float | None]) -> str:
    ends = [
        f"{sign} {end if isinstance(end, int) else format(end, 'g')}"
        for key, (sign, _) in _BOUNDS.items()
        if (end := bounds.get(key)) is not None
    ]
    return f"{'an integer' if integer else 'a number'} {' and '.join(ends)}".strip()


def _wrong(owner: str, name: str, expected: str, value: object) -> InvalidParameter:
    of = f" of {owner}" if owner else ""
    return InvalidParameter(f"The {name!r} parameter{of} must be {expected}. Got {value!r} instead.", parameter=name)
