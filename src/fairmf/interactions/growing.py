"""An array that grows at its end without ever being held twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Blocks of this many entries (32 MB or more) go back to the system as soon as they are freed; small ones may not.
_LARGEST_BLOCK = 1 << 23


class GrowingArray:
    """Takes arrays by `append`; `finish` gives them as one. Beside the result there is at most one block."""

    def __init__(self) -> None:
        self._blocks: list[NDArray[Any]] = []
        self._used = 0  # entries of the last block
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, values: NDArray[Any]) -> None:
        """Add values at the end."""
        self._length += len(values)
        while len(values):
            if not self._blocks or self._used == len(self._blocks[-1]) or self._blocks[-1].dtype != values.dtype:
                self._add_block(values)
            block = self._blocks[-1]
            fitting = values[: len(block) - self._used]
            block[self._used : self._used + len(fitting)] = fitting
            self._used += len(fitting)
            values = values[len(fitting) :]

    def finish(self) -> NDArray[Any]:
        """All values in one array. The blocks are let go one by one as they are copied."""
        self._close_block()
        kinds = {block.dtype for block in self._blocks}
        joined = np.empty(self._length, dtype=np.result_type(*kinds) if kinds else np.int32)
        end = self._length
        while self._blocks:
            block = self._blocks.pop()
            joined[end - len(block) : end] = block
            end -= len(block)
        return joined

    def _add_block(self, values: NDArray[Any]) -> None:
        self._close_block()
        size = max(len(values), min(2 * self._length, _LARGEST_BLOCK))
        self._blocks.append(np.empty(size, dtype=values.dtype))
        self._used = 0

    def _close_block(self) -> None:
        if self._blocks:
            self._blocks[-1] = self._blocks[-1][: self._used]
