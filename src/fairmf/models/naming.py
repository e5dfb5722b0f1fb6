"""Users and items by name: original ids where the data had ids, else (or by="row") their row numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Ids


def is_one(names: Any) -> bool:
    """True for one user or item, False for many. A tuple is one: tuples can be ids."""
    return isinstance(names, (str, bytes, tuple)) or np.ndim(names) == 0


def as_list(names: Any) -> Any:
    """A sequence of names, also where one was given."""
    return [names] if is_one(names) else names


def positions(names: Any, ids: Ids | None, size: int, kind: str) -> NDArray[np.int64]:
    """The rows of users or items (`kind`) named by `ids`, or by row number where that is None."""
    if ids is not None:
        return ids.positions(names, kind=kind)
    if size == 0 and len(names):
        raise InvalidData(
            f"This model holds no {kind}s: give their histories, with recalculate_user=True (docs/cluster.md)."
        )
    rows = row_numbers(names, kind)
    if len(rows) and (rows.min() < 0 or rows.max() >= size):
        raise InvalidData(f"{kind.capitalize()} rows go from 0 to {size - 1:,}; got {rows.min()}..{rows.max()}.")
    return rows


def row_numbers(names: Any, kind: str) -> NDArray[np.int64]:
    """Row numbers as they are given."""
    try:
        rows = np.asarray(names)
    except ValueError:  # lists of unequal length
        rows = np.zeros((0, 0))
    rows = rows.astype(np.int64) if rows.shape == (0,) else rows  # an empty list reads as floats
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise InvalidData(f"{kind.capitalize()}s are named by row number here: without {kind} ids, or with by='row'.")
    return rows.astype(np.int64)


def named(rows: NDArray[np.integer], ids: Ids | None) -> NDArray[Any]:
    """Positions as ids; a missing one (-1) stays -1, or is None where ids are not integers."""
    if ids is None:
        return rows
    names = ids.values
    if names.dtype.kind == "u":  # unsigned integers cannot say -1; those beyond int64 are kept as Python integers
        names = names.astype(np.int64 if names.max(initial=0) < 2**63 else object)
    found: NDArray[Any] = names[rows]  # position -1 reads the last name and is overwritten next
    found[rows < 0] = -1 if names.dtype.kind == "i" else None
    return found
