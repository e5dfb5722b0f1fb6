"""An array that grows at its end without ever being held twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FIRST = 1 << 16


class GrowingArray:
    """Takes arrays by `append`; `finish` gives them as one.

    It grows in place: large arrays are moved by the system page by page, not copied (where realloc can do so), and what
    is not used yet takes an eighth at most.
    """

    def __init__(self) -> None:
        self._values: NDArray[Any] | None = None
        self._length = 0
        self._expected = 0

    def expect(self, length: int) -> None:
        """About how long it will become. What is set aside and not used is never touched, and given back."""
        self._expected = length

    def __len__(self) -> int:
        return self._length

    def append(self, values: NDArray[Any]) -> None:
        """Add values at the end. If they are of another type than those before, all become of one that holds both."""
        if len(values) == 0:
            return
        if self._values is None:
            self._values = np.empty(max(_FIRST, len(values), self._expected), dtype=values.dtype)
        if self._values.dtype != values.dtype:
            self._values = self._values.astype(np.result_type(self._values, values))
        end = self._length + len(values)
        if end > len(self._values):
            # No one else has this array, so it may move.
            self._values.resize(max(end, len(self._values) + max(len(self._values) // 8, _FIRST)), refcheck=False)
        self._values[self._length : end] = values
        self._length = end

    def finish(self) -> NDArray[Any]:
        """All values in one array; this object is empty afterwards."""
        values, length = self._values, self._length
        self._values, self._length = None, 0
        if values is None:
            return np.empty(0, dtype=np.int32)
        values.resize(length, refcheck=False)
        return values
