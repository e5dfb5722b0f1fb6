"""Checks of plain arguments, worded alike wherever data is split or measured."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from fairmf.errors import InvalidParameter


def check_count(owner: str, name: str, value: Any, low: int) -> int:
    """The value as an int; anything but an integer >= low is refused."""
    if not isinstance(value, Integral) or value is True or value is False or value < low:
        raise _wrong(owner, name, f"an integer >= {low}", value)
    return int(value)


def check_seed(owner: str, value: Any) -> None:
    """Refuse what NumPy cannot take as a seed. None draws one."""
    if value is not None:
        check_count(owner, "random_state", value, 0)


def check_share(owner: str, name: str, value: Any) -> float:
    """The value as a float; anything but a number strictly between 0 and 1 is refused."""
    if not _is_number(value) or not 0 < value < 1:
        raise _wrong(owner, name, "a number between 0 and 1, both excluded", value)
    return float(value)


def check_not_negative(owner: str, name: str, value: Any) -> float:
    """The value as a float; anything but a number >= 0 is refused."""
    if not _is_number(value) or value < 0:
        raise _wrong(owner, name, "a number >= 0", value)
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and value is not True and value is not False and math.isfinite(value)


def _wrong(owner: str, name: str, expected: str, value: Any) -> InvalidParameter:
    return InvalidParameter(f"The {name!r} parameter of {owner} must be {expected}. Got {value!r} instead.")
