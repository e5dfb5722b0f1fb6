"""Ids: the names users and items had in the data, by position, and back."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData


class Ids:
    """An immutable, duplicate-free list of hashable ids. Position k is row (or column) k of the matrix.

    Integers are kept as a NumPy integer array, everything else as an object array, so that ids come back as the kind
    they went in.
    """

    def __init__(self, values: Sequence[Hashable] | NDArray[Any]):
        array = _as_id_array(values)
        array.flags.writeable = False
        self.values = array

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(x) for x in self.values[:3].tolist())
        return f"Ids({len(self):,}: {shown}{', ...' if len(self) > 3 else ''})"

    @functools.cached_property
    def _positions(self) -> dict[Hashable, int]:
        positions = {value: k for k, value in enumerate(self.values.tolist())}
        if len(positions) != len(self.values):
            seen: set[Hashable] = set()
            twice = next(x for x in self.values.tolist() if x in seen or seen.add(x))  # type: ignore[func-returns-value]
            raise InvalidData(f"Ids must be unique: {twice!r} appears more than once.")
        return positions

    def __contains__(self, value: object) -> bool:
        return value in self._positions

    def position(self, value: Hashable) -> int:
        """The position of one id; KeyError if it is unknown."""
        return self._positions[value.item() if isinstance(value, np.generic) else value]

    def positions(self, values: Iterable[Hashable], kind: str = "id") -> NDArray[np.int64]:
        """Positions of many ids. Unknown ones are an error that names the first of them."""
        wanted = values.tolist() if isinstance(values, np.ndarray) else list(values)
        found = [self._positions.get(v.item() if isinstance(v, np.generic) else v, -1) for v in wanted]
        result = np.asarray(found, dtype=np.int64)
        if (result < 0).any():
            unknown = np.flatnonzero(result < 0)
            raise InvalidData(
                f"{len(unknown):,} of {len(wanted):,} {kind}s are unknown, the first is {wanted[unknown[0]]!r}."
            )
        return result

    def take(self, positions: NDArray[np.integer]) -> Ids:
        """The ids at the given positions, in that order."""
        return Ids(self.values[positions])


def _as_id_array(values: Sequence[Hashable] | NDArray[Any]) -> NDArray[Any]:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu":
        return values.copy()
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if listed and all(type(v) is int for v in listed):
        return np.asarray(listed)  # falls back to an object array by itself for integers beyond 64 bits
    array = np.empty(len(listed), dtype=object)
    # Filled one by one: NumPy would read a list of tuples as a second dimension.
    for k, value in enumerate(listed):
        array[k] = value
    return array
