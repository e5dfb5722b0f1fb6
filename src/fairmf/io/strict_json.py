"""Read and write JSON strictly: no repeated keys, no NaN or Infinity, no deep nesting."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 40  # far deeper than anything that is stored here
MAX_DIGITS = 1000  # converting digits to an integer takes quadratic time
MAX_VALUES = 2_000_000  # a parsed value takes far more memory than its text, which may have two bytes


class Malformed(Exception):
    """A stored file is damaged. The message does not name the file: `container.reading` adds its name."""


def dump(value: object) -> str:
    """Write compact JSON in ASCII; raise TypeError or ValueError for values that JSON does not have."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def parse(text: str, what: str) -> Any:
    """Parse JSON; raise Malformed if it is not valid or too large. `what` names the text in the message."""
    # An upper bound of the number of values, found without parsing.
    if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        raise Malformed(f"{what} holds more than {MAX_VALUES:,} values")
    try:
        value = json.loads(
            text, object_pairs_hook=_no_repeats, parse_constant=_no_constant, parse_float=_finite, parse_int=_short
        )
    except RecursionError as error:
        raise Malformed(f"{what} is nested too deeply") from error
    except ValueError as error:
        raise Malformed(f"{what} is not valid JSON ({error})") from error
    _check_depth(value, what)
    return value


def _no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key appears twice")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _short(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has more than {MAX_DIGITS} digits")
    return int(text)


def _check_depth(value: object, what: str) -> None:
    # Level by level instead of recursively, because recursion is what deep nesting would break.
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for whole in level
            if isinstance(whole, (dict, list))
            for part in (whole.values() if isinstance(whole, dict) else whole)
        ]
        if not level:
            return
    raise Malformed(f"{what} is nested too deeply")
