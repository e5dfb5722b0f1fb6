"""The state of a fit, whatever its model, as arrays and numbers; and back, by the pattern of another state.

Nothing in a file says which class to build: a resumed fit makes its starting state as always, and the stored values
are put in the places of that one's, if they are of the same kind and shape.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairmf.backends import Backend
from fairmf.files import typed_values
from fairmf.files.container import Arrays
from fairmf.files.strict_json import Malformed


@runtime_checkable
class Refillable(Protocol):
    """An array whose numbers are elsewhere."""

    shape: tuple[int, ...]

    def stored(self) -> Any:
        """The numbers for a file, if they are to be in one; else none."""

    def filled_with(self, values: Any) -> Any:
        """The like of this with other values."""


def take_apart(state: Any, prefix: str, backend: Backend) -> tuple[dict[str, Any], Arrays]:
    """The numbers of a state dataclass, as a table, and its arrays by dotted name."""
    numbers: dict[str, Any] = {}
    arrays: Arrays = {}
    for field in dataclasses.fields(state):
        name, value = f"{prefix}.{field.name}", getattr(state, field.name)
        if dataclasses.is_dataclass(value):
            numbers[field.name], own = take_apart(value, name, backend)
            arrays |= own
        elif isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, Refillable):
            arrays[name] = value.stored()
        elif hasattr(value, "shape") and not isinstance(value, np.generic):
            arrays[name] = backend.host(value)
        else:
            numbers[field.name] = typed_values.encode(value)
    return numbers, arrays


def put_together(pattern: Any, prefix: str, numbers: Any, arrays: Arrays, backend: Backend) -> Any:
    """A state like `pattern` with the stored values. Takes what it uses out of `arrays`."""
    if not isinstance(numbers, dict):
        raise Malformed(f"its {prefix} is incomplete")
    values: dict[str, Any] = {}
    for field in dataclasses.fields(pattern):
        name, example = f"{prefix}.{field.name}", getattr(pattern, field.name)
        if dataclasses.is_dataclass(example):
            values[field.name] = put_together(example, name, numbers.get(field.name), arrays, backend)
        elif hasattr(example, "shape") and not isinstance(example, np.generic):
            values[field.name] = _array(name, example, arrays, backend)
        else:
            values[field.name] = _number(name, example, numbers, field.name)
    return type(pattern)(**values)


def _array(name: str, example: Any, arrays: Arrays, backend: Backend) -> Any:
    array = arrays.pop(name, None)
    if array is None or not _fits(array, example):
        raise Malformed(f"its {name} is not an array of shape {tuple(example.shape)} and kind {example.dtype}")
    if isinstance(example, np.ndarray):
        return array
    if isinstance(example, Refillable):
        return example.filled_with(array)
    return backend.array(array) if array.dtype == backend.dtype else backend.vector(array)


def _fits(array: Any, example: Any) -> bool:
    # Users that stay in the workers of a cluster are not stored, but made again from what is.
    left_out = isinstance(example, Refillable) and array.shape == (0, *example.shape[1:])
    return (array.shape == example.shape or left_out) and array.dtype == example.dtype


def _number(name: str, example: Any, numbers: dict[str, Any], key: str) -> Any:
    if key not in numbers:
        raise Malformed(f"its {name} is missing")
    value = typed_values.decode(numbers[key])
    allowed: tuple[type, ...] = (int, float) if isinstance(example, (float, np.floating)) else (type(example),)
    if type(value) not in allowed:
        raise Malformed(f"its {name} is of the wrong kind")
    return value
