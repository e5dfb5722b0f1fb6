"""Texts as 64-bit words, as the compiled reader hands them to the table of ids, without a string on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TextWords:
    """Text k is words[places[k]:places[k + 1]], closed and filled as `numbering.to_words` does it."""

    words: NDArray[np.uint64]
    places: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places) - 1

    def take(self, rows: NDArray[np.int64]) -> TextWords:
        """The texts at the given positions."""
        lengths = np.diff(self.places)[rows]
        places = np.concatenate(([0], np.cumsum(lengths)))
        which = np.arange(places[-1]) + np.repeat(self.places[:-1][rows] - places[:-1], lengths)
        return TextWords(self.words[which], places)
