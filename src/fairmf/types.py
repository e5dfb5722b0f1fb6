"""Names for types that many modules use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""A NumPy array of any type."""

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value as JSON has it."""

Record: TypeAlias = dict[str, Any]
"""Named values of several kinds: an epoch's record, a row of results, settings that are stored."""

Settings: TypeAlias = Mapping[str, Any]
"""Hyper-parameters by name."""
