"""Declare hyper-parameters once: a dataclass field with its range, meaning and default.

Constructors only store what they are given; `check_settings` is called by `fit` and says what is wrong in one sentence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairmf.errors import InvalidParameter


def setting(
    default: Any,
    doc: str,
    *,
    symbol: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    integer: bool = False,
    choices: Sequence[Any] = (),
) -> Any:
    """Declare one hyper-parameter. `low`/`high` are allowed values, `above` is not; `choices` are words (or None)."""
    limits = {"low": low, "high": high, "above": above, "integer": integer, "choices": tuple(choices)}
    numeric = low is not None or high is not None or above is not None or integer
    return dataclasses.field(default=default, metadata={"doc": doc, "symbol": symbol, "numeric": numeric, **limits})


def settings_of(owner: Any) -> dict[str, Any]:
    """All settings of the dataclass `owner`, by name."""
    return {field.name: getattr(owner, field.name) for field in dataclasses.fields(owner)}


def store_settings(owner: Any, values: Mapping[str, Any]) -> None:
    """Set some of them, all or none; as in constructors, values are not checked here."""
    known = [field.name for field in dataclasses.fields(owner)]
    for name in values:
        if name not in known:
            raise InvalidParameter(
                f"{type(owner).__name__} has no parameter {name!r}. It has {', '.join(map(repr, known))}."
            )
    for name, value in values.items():
        setattr(owner, name, value)


def check_settings(owner: Any) -> None:
    """Raise InvalidParameter for the first field of the dataclass `owner` that is out of its declared range."""
    for field in dataclasses.fields(owner):
        if "doc" in field.metadata:
            check_setting(type(owner).__name__, field, getattr(owner, field.name))


def check_setting(owner_name: str, field: dataclasses.Field[Any], value: Any) -> None:
    """Check one value against the range its field declares."""
    rule = field.metadata
    if any(value is choice or (isinstance(value, str) and value == choice) for choice in rule["choices"]):
        return
    expected = describe_range(field)
    wrong = InvalidParameter(f"The {field.name!r} parameter of {owner_name} must be {expected}. Got {value!r} instead.")
    if not rule["numeric"]:
        if rule["choices"]:
            raise wrong
        return
    # 4.0 is no integer: shapes, ranges and seeds further down would refuse it with a less helpful message.
    kinds = (int, np.integer) if rule["integer"] else (int, float, np.integer, np.floating)
    if not isinstance(value, kinds) or isinstance(value, (bool, np.bool_)) or not math.isfinite(value):
        raise wrong
    if (
        (rule["low"] is not None and value < rule["low"])
        or (rule["high"] is not None and value > rule["high"])
        or (rule["above"] is not None and value <= rule["above"])
    ):
        raise wrong


def describe_range(field: dataclasses.Field[Any]) -> str:
    """Say the allowed values in words: `an integer >= 1`, `a number > 0 or 'auto'`."""
    rule = field.metadata
    words = []
    if rule["numeric"]:
        bounds = [
            f"{sign} {rule[key]:g}"
            for key, sign in (("low", ">="), ("above", ">"), ("high", "<="))
            if rule[key] is not None
        ]
        words.append(("an integer " if rule["integer"] else "a number ") + " and ".join(bounds))
    words += [repr(choice) for choice in rule["choices"]]
    return " or ".join(word.strip() for word in words)
