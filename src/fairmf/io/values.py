"""Store Python values as JSON and read them back with the same types.

    1.5, "a", None, true, [..], {..}      as they are
    inf, -inf, nan                        {"$float": "inf"}
    tuple, frozenset                      {"$tuple": [..]}, {"$frozenset": [..]}
    bytes                                 {"$bytes": "hex digits"}
    date, datetime, time                  {"$date": "2024-02-29"}, ...   (ISO 8601)
    timedelta                             {"$timedelta": [days, seconds, microseconds]}
    Decimal, UUID                         {"$decimal": "1.50"}, {"$uuid": "..."}
    a mapping JSON cannot hold            {"$dict": [[key, value], ..]}

NumPy numbers become Python numbers, and arrays become lists. Subclasses of these types are refused, because they would
come back as the base type.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from fairmf.io.strict_json import MAX_DIGITS, Malformed


class NotStorable(Exception):
    """A value has a type that cannot be stored."""


def plain(value: object) -> Any:
    """Return the Python number or string behind a NumPy scalar; anything else as it is."""
    return value.item() if isinstance(value, (np.number, np.bool_, np.str_, np.bytes_)) else value


def encode(value: Any) -> Any:
    """Return a value as JSON; raise NotStorable for a type that is not in the table above."""
    # type(...) is, not isinstance: a subclass would come back as its base class. (A bool is an int, for example.)
    value = value.tolist() if isinstance(value, np.ndarray) else plain(value)
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        if abs(value) >= 10 ** (MAX_DIGITS - 1):
            raise NotStorable(f"an integer of more than {MAX_DIGITS - 1} digits")
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [encode(part) for part in value]
    if kind is dict:
        # A key that begins with $ would be taken for one of the names of types below.
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: encode(part) for key, part in value.items()}
        return {"$dict": [[encode(key), encode(part)] for key, part in value.items()]}
    if kind not in _WRITERS:
        raise NotStorable(f"a value of type {kind.__module__}.{kind.__qualname__}")
    name, writer = _WRITERS[kind]
    return {name: writer(value)}


def decode(value: object) -> Any:
    """Return the value that `encode` stored; raise Malformed if it is damaged."""
    if isinstance(value, list):
        return [decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: decode(part) for key, part in value.items()}
    (name, inner), *others = value.items()
    # `encode` writes such a mapping with one key only: anything else is damage.
    if others or name not in _READERS:
        raise Malformed(f"it holds a value of unknown kind {name[:40]!r}")
    try:
        return _READERS[name](inner)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise Malformed(f"it holds a damaged {name[1:]}") from error


def _moment(value: datetime.datetime | datetime.time) -> str:
    # A zone with daylight saving time would come back as the fixed offset of that moment.
    if value.tzinfo is not None and type(value.tzinfo) is not datetime.timezone:
        raise NotStorable(f"a {type(value).__name__} in the time zone {value.tzinfo}")
    return value.isoformat()


def _read_float(text: object) -> float:
    return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[_text(text)]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _parts(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return [decode(part) for part in value]


def _digits(value: decimal.Decimal) -> str:
    text = str(value)
    if len(text) > MAX_DIGITS:
        raise NotStorable(f"a Decimal of more than {MAX_DIGITS} digits")
    return text


def _decimal(value: object) -> decimal.Decimal:
    text = _text(value)
    if len(text) > MAX_DIGITS:
        raise ValueError
    return decimal.Decimal(text)


_WRITERS: dict[type, tuple[str, Callable[[Any], object]]] = {
    tuple: ("$tuple", lambda value: [encode(part) for part in value]),
    frozenset: ("$frozenset", lambda value: [encode(part) for part in value]),
    bytes: ("$bytes", bytes.hex),
    datetime.date: ("$date", datetime.date.isoformat),
    datetime.datetime: ("$datetime", _moment),
    datetime.time: ("$time", _moment),
    datetime.timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    decimal.Decimal: ("$decimal", _digits),
    uuid.UUID: ("$uuid", str),
}
_READERS: dict[str, Callable[[Any], object]] = {
    "$float": _read_float,
    "$tuple": lambda value: tuple(_parts(value)),
    "$frozenset": lambda value: frozenset(_parts(value)),
    "$bytes": lambda value: bytes.fromhex(_text(value)),
    "$date": datetime.date.fromisoformat,
    "$datetime": datetime.datetime.fromisoformat,
    "$time": datetime.time.fromisoformat,
    "$timedelta": lambda value: datetime.timedelta(*_parts(value)),
    "$decimal": _decimal,
    "$uuid": lambda value: uuid.UUID(_text(value)),
    "$dict": lambda value: dict(_parts(value)),
}
