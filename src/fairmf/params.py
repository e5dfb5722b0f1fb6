"""Declare hyper-parameters once, as dataclass fields with range, meaning and default; check them and other arguments.

Constructors only store what they are given; `fit` calls `check_settings`, which says in one sentence what is wrong.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Mapping
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
    choices: Iterable[str | bool | None] = (),
) -> Any:
    """Declare one hyper-parameter. `low`/`high` are allowed values, `above` is not; `choices` are words (or None).

    Where `choices` is a table by name, names that are added to the table later are allowed too.
    """
    allowed = choices if isinstance(choices, Mapping) else tuple(choices)
    limits = {"low": low, "high": high, "above": above, "integer": integer, "choices": allowed}
    numeric = low is not None or high is not None or above is not None or integer
    return dataclasses.field(default=default, metadata={"doc": doc, "symbol": symbol, "numeric": numeric, **limits})


def settings_of(owner: Any) -> dict[str, Any]:
    """Return all settings of the dataclass `owner`, by name."""
    return {field.name: getattr(owner, field.name) for field in dataclasses.fields(owner)}


def store_settings(owner: Any, values: Mapping[str, Any]) -> None:
    """Set some settings of `owner`, all or none. As in constructors, values are not checked here."""
    known = [field.name for field in dataclasses.fields(owner)]
    for name in values:
        if name not in known:
            raise InvalidParameter(
                f"{type(owner).__name__} has no parameter {name!r}. It has {', '.join(map(repr, known))}.",
                parameter=name,
            )
    for name, value in values.items():
        setattr(owner, name, value)


def check_settings(owner: Any) -> None:
    """Raise InvalidParameter for the first field of the dataclass `owner` that is out of its declared range."""
    for field in dataclasses.fields(owner):
        if "doc" in field.metadata:
            check_setting(type(owner).__name__, field, getattr(owner, field.name))


def check_setting(owner: str, field: dataclasses.Field[Any], value: object) -> None:
    """Check one value against the range that its field declares."""
    rule = field.metadata
    if rule["numeric"]:
        limits = {key: rule[key] for key in ("low", "above", "high", "integer", "choices")}
        check_number(owner, field.name, value, **limits)
    elif rule["choices"] and not _chosen(value, rule["choices"]):
        raise _wrong(owner, field.name, describe_range(field), value)


def describe_range(field: dataclasses.Field[Any]) -> str:
    """Say the allowed values in words: `an integer >= 1`, `a number > 0 or 'auto'`."""
    rule = field.metadata
    bounds = {key: rule[key] for key in ("low", "above", "high")}
    words = [_range_words(rule["integer"], bounds)] if rule["numeric"] else []
    return " or ".join([*words, *map(repr, rule["choices"])])


# Checks of plain arguments. All say: The 'x' parameter of Y must be ... Got ... instead.


def check_number(
    owner: str, name: str, value: Any, *, integer: bool = False, choices: Iterable[object] = (), **bounds: float | None
) -> None:
    """Raise InvalidParameter unless `value` is one of `choices`, or a finite number within the bounds.

    Parameters
    ----------
    owner, name : str
        The function or class, and its parameter, for the message.
    value : object
        What was given. Booleans are not numbers, and 4.0 is not an integer: shapes, ranges and seeds further down
        would refuse it with a less helpful message.
    integer : bool
        Accept integers only.
    choices : iterable
        Words, or None, that are allowed as well.
    **bounds : float or None
        `low` and `high` are allowed themselves, `above` and `below` are not.
    """
    if _chosen(value, choices):
        return
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    number = isinstance(value, kinds) and not isinstance(value, (bool, np.bool_)) and math.isfinite(value)
    if not number or not all(_BOUNDS[key][1](value, end) for key, end in bounds.items() if end is not None):
        raise _wrong(owner, name, " or ".join([_range_words(integer, bounds), *map(repr, choices)]), value)


def check_count(owner: str, name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return the value as an int; raise InvalidParameter unless it is an integer from `low` to `high`."""
    check_number(owner, name, value, integer=True, low=low, high=high)
    return int(value)


def check_seed(owner: str, value: Any) -> None:
    """Raise InvalidParameter for what NumPy cannot take as a seed. None draws one."""
    check_number(owner, "random_state", value, integer=True, low=0, choices=(None,))


def check_share(owner: str, name: str, value: Any) -> float:
    """Return the value as a float; raise InvalidParameter unless it is between 0 and 1, both excluded."""
    check_number(owner, name, value, above=0, below=1)
    return float(value)


def check_not_negative(owner: str, name: str, value: Any) -> float:
    """Return the value as a float; raise InvalidParameter unless it is a number >= 0."""
    check_number(owner, name, value, low=0)
    return float(value)


_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
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


def _chosen(value: object, choices: Iterable[object]) -> bool:
    # Compared by identity first: an array has no single truth value.
    return any(value is choice or (isinstance(value, str) and value == choice) for choice in choices)


def _wrong(owner: str, name: str, expected: str, value: object) -> InvalidParameter:
    of = f" of {owner}" if owner else ""
    return InvalidParameter(f"The {name!r} parameter{of} must be {expected}. Got {value!r} instead.", parameter=name)
