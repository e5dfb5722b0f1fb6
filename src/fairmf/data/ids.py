"""Hold the ids of users or items by position, and find the position of an id."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData, UnknownId
from fairmf.io.values import plain
from fairmf.lazy import cached_property
from fairmf.types import Array

Names: TypeAlias = Sequence[Hashable] | Array
"""Users or items by name: original ids where the data had ids, else (or with by="row") row numbers."""


class Ids:
    """Hold an immutable list of unique, hashable ids. Position k is row (or column) k of the matrix.

    Parameters
    ----------
    values : sequence of hashable objects, or an array
        Integers are kept as a NumPy integer array and everything else as an object array, so that ids keep their type.

    Examples
    --------
    >>> ids = Ids(["ann", "bob", "eve"])
    >>> ids.positions(["eve", "ann"]).tolist()
    [2, 0]
    >>> "dan" in ids
    False
    """

    def __init__(self, values: Ids | Sequence[Hashable] | NDArray[Any]):
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

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        # Made on first lookup: a dictionary takes many times the memory of the array.
        try:
            positions = {value: k for k, value in enumerate(self.values.tolist())}
        except TypeError as error:
            raise InvalidData(f"Ids must be hashable, such as numbers, strings or tuples: {error}.") from error
        if len(positions) != len(self.values):
            seen: set[Hashable] = set()
            twice = next(x for x in self.values.tolist() if x in seen or seen.add(x))  # type: ignore[func-returns-value]
            raise InvalidData(f"Ids must be unique: {twice!r} appears more than once.")
        return positions

    def __contains__(self, value: object) -> bool:
        return value in self._positions

    def position(self, value: Hashable) -> int:
        """Return the position of one id.

        Parameters
        ----------
        value : id

        Returns
        -------
        int

        Raises
        ------
        KeyError
            If the id is unknown.
        """
        return self._positions[plain(value)]

    def positions(self, values: Iterable[Hashable], kind: str = "id") -> NDArray[np.int64]:
        """Return the positions of many ids.

        Parameters
        ----------
        values : iterable of ids
        kind : str
            What the ids are called in an error: "user", "item".

        Returns
        -------
        array of int64

        Raises
        ------
        InvalidData
            If any are unknown; the message names the first.
        """
        wanted = values.tolist() if isinstance(values, np.ndarray) else list(values)
        try:
            found = [self._positions.get(plain(v), -1) for v in wanted]
        except TypeError as error:
            raise InvalidData(f"A {kind} is named by a number, a string or a tuple: {error}.") from error
        result = np.asarray(found, dtype=np.int64)
        if (result < 0).any():
            unknown = np.flatnonzero(result < 0)
            first = wanted[unknown[0]]
            raise UnknownId(
                f"{len(unknown):,} of {len(wanted):,} {kind}s are unknown, the first is {first!r}.",
                hint=self._other_type(first, kind),
                parameter=f"{kind}s",
            )
        return result

    def _other_type(self, value: object, kind: str) -> str | None:
        """Return a hint where an id is known, but as another type: "1" instead of 1."""
        other: Hashable = str(value)
        if isinstance(value, str):
            other = int(value) if value.strip().lstrip("+-").isdecimal() else None
        if other is None or other not in self:
            return None
        words = "integers" if isinstance(other, int) else "texts"
        return f"the {kind} ids of these data are {words}: pass {other!r} instead of {value!r}"

    def check(self, kind: str) -> Ids:
        """Check that ids are unique, hashable and not missing.

        Parameters
        ----------
        kind : str
            What the ids are called in an error: "user", "item".

        Returns
        -------
        Ids
            This object.

        Raises
        ------
        InvalidData
            If an id is repeated, cannot be hashed, or is None or NaN.
        """
        if self.values.dtype.kind in "iu":
            if len(np.unique(self.values)) != len(self.values):
                self._positions  # noqa: B018  (raises, and names the id that appears twice)
            return self
        missing = [k for k, value in enumerate(self.values.tolist()) if is_missing(value)]
        if missing:
            raise InvalidData(
                f"{len(missing):,} of the {kind}_ids are null or NaN, the first at position {missing[0]}.",
                hint=f"give every {kind} an id",
            )
        self._positions  # noqa: B018
        return self

    def take(self, positions: NDArray[np.integer]) -> Ids:
        """Return the ids at the given positions, in that order.

        Parameters
        ----------
        positions : array of int

        Returns
        -------
        Ids
        """
        return Ids(self.values[positions])

    def named(self, positions: NDArray[np.integer]) -> NDArray[Any]:
        """Return the ids at positions, such as those of recommended items.

        Parameters
        ----------
        positions : array of int, any shape
            -1 stands for a missing item.

        Returns
        -------
        array
            Ids in the same shape. Missing ones are -1, or None if ids are not integers.

        Examples
        --------
        >>> Ids(["ann", "bob"]).named(np.array([[1, -1]])).tolist()
        [['bob', None]]
        """
        names = self.values
        if names.dtype.kind == "u":  # unsigned integers have no -1; those beyond int64 become Python integers
            names = names.astype(np.int64 if names.max(initial=0) < 2**63 else object)
        ids: Array = names[positions]  # position -1 reads the last name and is overwritten next
        ids[positions < 0] = -1 if names.dtype.kind == "i" else None
        return ids


def _as_id_array(values: Ids | Sequence[Hashable] | Array) -> Array:
    if isinstance(values, Ids):
        return values.values.copy()
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InvalidData(f"Ids must be a list or an array with one dimension, this one has {values.ndim}.")
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values.copy()
    listed = values.tolist() if isinstance(values, np.ndarray) else [plain(value) for value in values]
    if listed and all(type(value) is int for value in listed) and _fits_int64(listed):
        return np.asarray(listed, dtype=np.int64)
    # Filled one by one: NumPy would read a list of tuples as a second dimension.
    return np.fromiter(listed, dtype=object, count=len(listed))


def check_orientation(shape: tuple[int, int], users: Ids | None, items: Ids | None) -> None:
    """Raise InvalidData unless a matrix has a row for each user id and a column for each item id."""
    given = [(ids, axis) for axis, ids in enumerate((users, items)) if ids is not None]
    if all(len(ids) == shape[axis] for ids, axis in given):
        return
    if all(len(ids) == shape[1 - axis] for ids, axis in given):
        raise InvalidData(
            f"The matrix looks transposed: users must be rows, but its shape {shape} fits the ids only the other way "
            "round.",
            hint="pass matrix.T",
        )
    for ids, axis in given:
        if len(ids) != shape[axis]:
            kind, side = (("user", "rows"), ("item", "columns"))[axis]
            raise InvalidData(
                f"{kind}_ids holds {len(ids):,} ids, but the matrix has {shape[axis]:,} {side}.",
                hint=f"give one id per {kind}",
            )


def written_id(text: str) -> int | str:
    """Return a text that is written as Python writes integers as an integer, and any other text as it is.

    So 7 is an integer, while 007, +7, 0x7 and 1_000 remain texts: they are other ids than 7 and 1000.
    """
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else text


def is_missing(value: object) -> bool:
    """Return whether this is None or NaN, which cannot be ids."""
    return value is None or (isinstance(value, float) and value != value)


def _fits_int64(values: Sequence[int]) -> bool:
    # NumPy would turn integers beyond 64 bits into rounded floats.
    return min(values) >= -(2**63) and max(values) < 2**63


# -- users and items by name: by id where the data had ids, else by row number -----------------------------------------


def is_one(names: object) -> bool:
    """Return whether one user or item is named, rather than many. A tuple is one: tuples can be ids."""
    return isinstance(names, (str, bytes, tuple)) or np.ndim(names) == 0  # type: ignore[arg-type]


def as_list(names: Hashable | Names) -> Names:
    """Return a sequence of names, also if one name was given."""
    return [names] if is_one(names) else names  # type: ignore[list-item, return-value]


def positions(names: Names, ids: Ids | None, size: int, kind: str) -> NDArray[np.int64]:
    """Return the rows of users or items (`kind`) named by `ids`, or by row number if `ids` is None."""
    if ids is not None:
        return ids.positions(names, kind=kind)
    if size == 0 and len(names):
        raise InvalidData(
            f"This model holds no {kind}s: give their histories, with recalculate_user=True (docs/cluster.md)."
        )
    rows = row_numbers(names, kind)
    if len(rows) and (rows.min() < 0 or rows.max() >= size):
        raise UnknownId(f"{kind.capitalize()} rows go from 0 to {size - 1:,}; got {rows.min()}..{rows.max()}.")
    return rows


def row_numbers(names: Names, kind: str) -> NDArray[np.int64]:
    """Return names that are row numbers as an array; raise InvalidData if they are not."""
    try:
        rows = np.asarray(names)
    except ValueError:  # lists of unequal length
        rows = np.zeros((0, 0))
    rows = rows.astype(np.int64) if rows.shape == (0,) else rows  # an empty list reads as floats
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise InvalidData(f"{kind.capitalize()}s are named by row number here: without {kind} ids, or with by='row'.")
    return rows.astype(np.int64)


def named(rows: NDArray[np.integer], ids: Ids | None) -> Array:
    """Return positions as ids (see `Ids.named`), or as they are if there are no ids."""
    return rows if ids is None else ids.named(rows)
