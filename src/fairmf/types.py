"""Define names for types that many modules use, and what a constant array is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import scipy.sparse as sp

Array: TypeAlias = NDArray[Any]
"""A NumPy array of any dtype."""

Floats: TypeAlias = NDArray[np.float64]
"""A NumPy array of float64."""

Ints: TypeAlias = NDArray[np.integer]
"""A NumPy array of integers of any size."""

SparseMatrix: TypeAlias = "sp.sparray | sp.spmatrix"
"""A SciPy sparse array or matrix, in any of its formats."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value that JSON can hold."""

Record: TypeAlias = dict[str, Any]
"""Values of several types by name: the record of an epoch, a row of results, a JSON object."""

Settings: TypeAlias = Mapping[str, Any]
"""Hyper-parameters by name."""


def frozen(array: Array) -> Array:
    """Return a view that cannot be written to; an array that is read-only already is returned as it is.

    A read-only array is a constant: backends may cache what they derive from it (backends/contract.py). Kernels that
    get only such arrays are compiled once, whoever owns the memory.
    """
    if not array.flags.writeable:
        return array
    view = array.view()
    view.setflags(write=False)
    return view
