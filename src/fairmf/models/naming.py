"""Users and items by name: original ids where the data had ids, else (or by="row") their row numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Ids


def is_one(name: Any) -> bool:
    """True for one user or item, False for many. A tuple is one: tuples can be ids."""
    return isinstance(name, (str, bytes, tuple)) or np.ndim(name) == 0


def positions(names: Sequence[Hashable] | NDArray[Any], ids: Ids | None, count: int, kind: str) -> NDArray[np.int64]:
    """The row numbers of users or items (`kind`) named by `ids`, or by row number where that is None."""
    if ids is not None:
        return ids.positions(names, kind=kind)
    try:
        rows = np.asarray(names) if len(names) else np.zeros(0, dtype=np.int64)
    except ValueError:  # lists of unequal length
        rows = np.zeros(0)
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise InvalidData(f"{kind.capitalize()}s are named by row number here: without {kind} ids, or with by='row'.")
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        raise InvalidData(f"{kind.capitalize()} rows go from 0 to {count - 1:,}; got {rows.min()}..{rows.max()}.")
    return rows.astype(np.int64)


def named(items: NDArray[np.integer], ids: Ids | None) -> NDArray[Any]:
    """Item positions as ids; a missing one (-1) stays -1, or is None where ids are not integers."""
    if ids is None:
        return items
    names = ids.values
    if names.dtype.kind == "u":  # unsigned integers cannot say -1; those beyond int64 are kept as Python integers
        names = names.astype(np.int64 if names.max(initial=0) < 2**63 else object)
    found: NDArray[Any] = names[items]  # position -1 reads the last name and is overwritten next
    found[items < 0] = -1 if names.dtype.kind == "i" else None
    return found
