"""Tables that give every id the next free code when it first appears: for integers, for text, for anything hashable.

The compiled kernels are imported on first use: small data do without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.interactions.ids import plain
from fairmf.interactions.text_words import SEED, TextWords

_FIRST_SLOTS = 1 << 12
_FIRST_WORDS = 1 << 14


class IntegerTable:
    """Codes of 64-bit integers."""

    def __init__(self) -> None:
        self._slots = np.full(_FIRST_SLOTS, -1, dtype=np.int32)
        self._known = np.empty(_FIRST_SLOTS // 2, dtype=np.uint64)
        self._count = 0

    def encode(self, array: Any) -> NDArray[np.int32]:
        """Codes of an Arrow array of integers without nulls; pyarrow.ArrowInvalid if one does not fit 64 bits."""
        import pyarrow as pa

        from fairmf.interactions.numbering import number_integers

        array = array.cast(pa.int64())
        # Not by `to_numpy`, which imports pandas where there is one.
        buffer = array.buffers()[1] if len(array) else b""
        values = np.frombuffer(buffer, dtype=np.uint64)[array.offset : array.offset + len(array)]
        values.flags.writeable = False  # one compiled variant, whoever owns the memory
        codes = np.empty(len(values), dtype=np.int32)
        done = 0
        while True:
            step, self._count = number_integers(
                values[done:], self._slots, self._known, self._count, SEED, codes[done:]
            )
            done += step
            if done == len(values):
                return codes
            self._grow()

    def ids(self) -> NDArray[np.int64]:
        """All ids seen, by code."""
        return self._known[: self._count].view(np.int64)

    def _grow(self) -> None:
        from fairmf.interactions.numbering import refill_integers

        self._slots = _more_slots(self._slots)
        self._known = _longer(self._known, len(self._slots) // 2)
        refill_integers(self._known[: self._count], self._slots, SEED)


class TextTable:
    """Codes of texts, which are kept one after the other, as the words of `numbering.to_words`."""

    def __init__(self) -> None:
        self._slots = np.full(_FIRST_SLOTS, -1, dtype=np.int32)
        self._starts = np.zeros(_FIRST_SLOTS // 2 + 1, dtype=np.int64)
        self._known = np.zeros(_FIRST_WORDS, dtype=np.uint64)
        self._count = 0

    def encode(self, array: Any) -> NDArray[np.int32]:
        """Codes of an Arrow array of (large) strings without nulls."""
        return self.encode_words(_words(array))

    def encode_words(self, texts: TextWords) -> NDArray[np.int32]:
        """Codes of texts that are words already."""
        from fairmf.interactions.numbering import number_texts

        words, places, hashes = texts.words, texts.places, texts.hashes
        longest = int(np.diff(places).max(initial=0))
        self._grow(longest)
        codes = np.empty(len(texts), dtype=np.int32)
        done = 0
        while True:
            step, self._count = number_texts(
                words,
                places[done:],
                hashes[done:],
                self._slots,
                self._starts,
                self._known,
                self._count,
                codes[done:],
            )
            done += step
            if done == len(codes):
                return codes
            self._grow(longest)

    def ids(self) -> NDArray[np.object_]:
        """All ids seen, by code. Raises UnicodeDecodeError for what is not UTF-8."""
        starts = self._starts[: self._count + 1]
        text = self._known[: starts[-1]].astype("<u8").tobytes()
        found = np.empty(self._count, dtype=object)
        for code, (a, b) in enumerate(itertools.pairwise((8 * starts).tolist())):
            found[code] = text[a + 8 : b].rstrip(b"\0")[:-1].decode()  # the closing byte is the last that is not zero
        return found

    def _grow(self, longest: int) -> None:
        """Room for one more text, and for comparing any of this many words to the last one."""
        from fairmf.interactions.numbering import refill_texts

        used = int(self._starts[self._count])
        if used + 2 * longest + 1 >= len(self._known):
            if used >= 2**30:  # 8 GB of ids: the next size could not be addressed by the slots
                raise OverflowError
            self._known = _longer(self._known, max(2 * len(self._known), used + 2 * longest + 2))
        if 2 * self._count >= len(self._slots):
            self._slots = _more_slots(self._slots)
            self._starts = _longer(self._starts, len(self._slots) // 2 + 1)
            refill_texts(self._known, self._starts[: self._count + 1], self._slots, SEED)


class ObjectTable:
    """Codes of any hashable objects, in a Python dictionary."""

    def __init__(self, ids: Iterable[Hashable] = ()):
        self._codes: dict[Hashable, int] = {value: code for code, value in enumerate(ids)}

    def encode(self, array: Any) -> NDArray[np.int32]:
        """Codes of an Arrow array without nulls. Only its distinct values pass through the dictionary."""
        import pyarrow as pa

        if isinstance(array, pa.ExtensionArray):
            return self.encode_each(array.to_pylist())
        try:
            encoded = array.dictionary_encode()
        except pa.ArrowNotImplementedError:  # lists, structs: Arrow has no dictionary of these
            return self.encode_each([_hashable(value) for value in array.to_pylist()])
        # Arrow's dictionary is in order of first appearance, so codes are too.
        known = self.encode_each(encoded.dictionary.to_pylist())
        codes: NDArray[np.int32] = known[encoded.indices.to_numpy(zero_copy_only=False)]
        return codes

    def encode_each(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """Codes of Python objects. Raises TypeError where one cannot be hashed."""
        codes = self._codes
        found = (codes.setdefault(plain(value), len(codes)) for value in values)
        return np.fromiter(found, dtype=np.int32, count=len(values))

    def ids(self) -> list[Hashable]:
        """All ids seen, by code."""
        return list(self._codes)


def _words(array: Any) -> TextWords:
    """The texts of an Arrow string array."""
    import pyarrow as pa

    from fairmf.interactions.numbering import to_words

    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    places = np.zeros(len(array) + 1, dtype=np.int64)
    _, offsets_buffer, data = array.buffers()
    if len(array) == 0:
        return TextWords.hashed(np.zeros(0, dtype=np.uint64), places)
    letters = np.frombuffer(b"" if data is None else data, dtype=np.uint8)
    letters.flags.writeable = False
    offsets = np.frombuffer(offsets_buffer, dtype=width)[array.offset : array.offset + len(array) + 1]
    words = np.empty(int(offsets[-1] - offsets[0]) // 8 + len(array), dtype=np.uint64)
    to_words(letters, offsets.astype(np.int64), words, places)
    return TextWords.hashed(words, places)


def _more_slots(slots: NDArray[np.int32]) -> NDArray[np.int32]:
    if len(slots) >= 2**32:
        raise OverflowError
    return np.full(2 * len(slots), -1, dtype=np.int32)


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.empty(length, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _hashable(value: Any) -> Any:
    return tuple(_hashable(part) for part in value) if isinstance(value, list) else value
