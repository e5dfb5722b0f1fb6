"""Texts as 64-bit words, as the compiled reader hands them to the table of ids, without a string on the way."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Another one in every process, which keeps anyone from preparing ids that all collide. Codes do not depend on it.
SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))


@dataclass(frozen=True)
class TextWords:
    """Text k is words[places[k]:places[k + 1]], closed and filled as `numbering.to_words` does it."""

    words: NDArray[np.uint64]
    places: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    @classmethod
    def hashed(cls, words: NDArray[np.uint64], places: NDArray[np.int64]) -> TextWords:
        """With the hashes, computed here so that the thread that reads does it and not the one that numbers."""
        from fairmf.interactions.numbering import hash_texts

        hashes = np.empty(len(places) - 1, dtype=np.uint64)
        hash_texts(words, places, SEED, hashes)
        return cls(words, places, hashes)

    def __len__(self) -> int:
        return len(self.places) - 1

    def take(self, rows: NDArray[np.int64]) -> TextWords:
        """The texts at the given positions."""
        lengths = np.diff(self.places)[rows]
        places = np.concatenate(([0], np.cumsum(lengths)))
        which = np.arange(places[-1]) + np.repeat(self.places[:-1][rows] - places[:-1], lengths)
        return TextWords(self.words[which], places, self.hashes[rows])
