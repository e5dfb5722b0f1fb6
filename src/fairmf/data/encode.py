"""Turn ids into integer codes, batch by batch: every id gets the next free code when it first appears.

There is a table for integers, one for text and one for anything hashable. Compiled kernels are loaded on first use,
because small data do not need them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import frozen
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData
from fairmf.io.values import plain
from fairmf.lazy import lazy_module
from fairmf.types import Array

if TYPE_CHECKING:
    import pyarrow as pa

    from fairmf.data import hash_kernels
else:
    pa = lazy_module("pyarrow")
    hash_kernels = lazy_module("fairmf.data.hash_kernels")

Values: TypeAlias = "pa.Array | TextWords | list[Hashable]"
"""A column of one batch. Ids may also be words, or a list of objects that Arrow cannot hold."""

# Drawn anew in every process, so that nobody can prepare ids that all collide. Codes do not depend on it.
SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))


@dataclass(frozen=True)
class TextWords:
    """Hold texts as 64-bit words: text k is words[places[k]:places[k + 1]], as `hash_kernels.to_words` writes it.

    The compiled CSV reader passes texts on in this form, which saves making a Python string of each.
    """

    words: NDArray[np.uint64]
    places: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    @classmethod
    def hashed(cls, words: NDArray[np.uint64], places: NDArray[np.int64]) -> TextWords:
        """Compute the hashes already in the thread that reads, to spare the one thread that encodes ids."""
        hashes = np.empty(len(places) - 1, dtype=np.uint64)
        hash_kernels.hash_texts(words, places, SEED, hashes)
        return cls(words, places, hashes)

    def __len__(self) -> int:
        return len(self.places) - 1

    def take(self, rows: NDArray[np.int64]) -> TextWords:
        """Return the texts at the given positions."""
        lengths = np.diff(self.places)[rows]
        places = np.concatenate(([0], np.cumsum(lengths)))
        which = np.arange(places[-1]) + np.repeat(self.places[:-1][rows] - places[:-1], lengths)
        return TextWords(self.words[which], places, self.hashes[rows])


# Initial sizes of the tables; both double when they are full. The number of slots must be a power of two.
_FIRST_SLOTS = 1 << 12
_FIRST_WORDS = 1 << 14


class IntegerTable:
    """Number 64-bit integers with a compiled hash table."""

    def __init__(self) -> None:
        self._slots = np.full(_FIRST_SLOTS, -1, dtype=np.int32)
        # The bits of the ids: the kernel hashes unsigned numbers, `ids` reads them as signed ones.
        self._known = np.empty(_FIRST_SLOTS // 2, dtype=np.uint64)
        self._count = 0

    def encode(self, array: pa.Array) -> NDArray[np.int32]:
        """Return the codes of an Arrow array without nulls; pyarrow.ArrowInvalid if one does not fit 64 bits."""
        array = array.cast(pa.int64())
        # Not `to_numpy`, which imports pandas (slow) where it is installed.
        buffer = array.buffers()[1] if len(array) else b""
        values = frozen(np.frombuffer(buffer, dtype=np.uint64)[array.offset : array.offset + len(array)])
        codes = np.empty(len(values), dtype=np.int32)
        done = 0
        while True:
            step, self._count = hash_kernels.number_integers(
                values[done:], self._slots, self._known, self._count, SEED, codes[done:]
            )
            done += step
            if done == len(values):
                return codes
            self._grow()  # the kernel stops when the table is half full

    def ids(self) -> NDArray[np.int64]:
        """Return all ids seen, by code."""
        return self._known[: self._count].view(np.int64)

    def _grow(self) -> None:
        self._slots = _more_slots(self._slots)
        self._known = _longer(self._known, len(self._slots) // 2)
        hash_kernels.refill_integers(self._known[: self._count], self._slots, SEED)


class TextTable:
    """Number texts with a compiled hash table, which stores them as words (`hash_kernels.to_words`) in one array."""

    def __init__(self) -> None:
        self._slots = np.full(_FIRST_SLOTS, -1, dtype=np.int32)
        self._starts = np.zeros(_FIRST_SLOTS // 2 + 1, dtype=np.int64)
        self._known = np.zeros(_FIRST_WORDS, dtype=np.uint64)
        self._count = 0

    def encode(self, array: pa.Array) -> NDArray[np.int32]:
        """Return the codes of an Arrow array of (large) strings without nulls."""
        return self.encode_words(_words(array))

    def encode_words(self, texts: TextWords) -> NDArray[np.int32]:
        """Return the codes of texts that were converted to words before."""
        words, places, hashes = texts.words, texts.places, texts.hashes
        longest = int(np.diff(places).max(initial=0))
        self._grow(longest)
        codes = np.empty(len(texts), dtype=np.int32)
        done = 0
        while True:
            step, self._count = hash_kernels.number_texts(
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
        """Return all ids seen, by code; raise UnicodeDecodeError for what is not UTF-8."""
        starts = self._starts[: self._count + 1]
        text = self._known[: starts[-1]].astype("<u8").tobytes()
        found = np.empty(self._count, dtype=object)
        # The first 8 bytes of a record are its code.
        for code, (a, b) in enumerate(itertools.pairwise((8 * starts).tolist())):
            found[code] = text[a + 8 : b].rstrip(b"\0")[:-1].decode()  # the closing byte is the last that is not zero
        return found

    def _grow(self, longest: int) -> None:
        """Enlarge the arrays if one more text may not fit.

        `longest` is the number of words of the longest text to come: a comparison may read as many past the last text.
        """
        used = int(self._starts[self._count])
        if used + 2 * longest + 1 >= len(self._known):
            if used >= 2**30:  # 8 GB of ids: the next size could not be addressed by the slots
                raise OverflowError
            self._known = _longer(self._known, max(2 * len(self._known), used + 2 * longest + 2))
        if 2 * self._count >= len(self._slots):
            self._slots = _more_slots(self._slots)
            self._starts = _longer(self._starts, len(self._slots) // 2 + 1)
            hash_kernels.refill_texts(self._known, self._starts[: self._count + 1], self._slots, SEED)


class ObjectTable:
    """Number any hashable objects with a Python dictionary."""

    def __init__(self, ids: Iterable[Hashable] = ()):
        self._codes: dict[Hashable, int] = {value: code for code, value in enumerate(ids)}

    def encode(self, array: pa.Array) -> NDArray[np.int32]:
        """Return the codes of an Arrow array without nulls. Only distinct values pass through the dictionary."""
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

    def encode_each(self, values: Sequence[Hashable]) -> NDArray[np.int32]:
        """Return the codes of Python objects; raise TypeError where one cannot be hashed."""
        codes = self._codes
        # len(codes) is evaluated before a new id is inserted, so it is the next free code.
        found = (codes.setdefault(plain(value), len(codes)) for value in values)
        return np.fromiter(found, dtype=np.int32, count=len(values))

    def ids(self) -> list[Hashable]:
        """Return all ids seen, by code."""
        return list(self._codes)


def _words(array: pa.Array) -> TextWords:
    """Convert an Arrow array of (large) strings to words."""
    # Read Arrow's buffers directly: offsets of the texts, and all letters in one array.
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    places = np.zeros(len(array) + 1, dtype=np.int64)
    _, offsets_buffer, data = array.buffers()
    if len(array) == 0:
        return TextWords.hashed(np.zeros(0, dtype=np.uint64), places)
    letters = frozen(np.frombuffer(b"" if data is None else data, dtype=np.uint8))
    offsets = np.frombuffer(offsets_buffer, dtype=width)[array.offset : array.offset + len(array) + 1]
    # A text of b bytes takes b // 8 + 1 words, and the sum of these is at most this.
    words = np.empty(int(offsets[-1] - offsets[0]) // 8 + len(array), dtype=np.uint64)
    hash_kernels.to_words(letters, offsets.astype(np.int64), words, places)
    return TextWords.hashed(words, places)


def _more_slots(slots: NDArray[np.int32]) -> NDArray[np.int32]:
    # Half full, these slots hold 2^31 ids, all that an int32 can number.
    if len(slots) >= 2**32:
        raise OverflowError
    return np.full(2 * len(slots), -1, dtype=np.int32)


def _longer(array: Array, length: int) -> Array:
    longer = np.empty(length, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _hashable(value: object) -> Hashable:
    """Return a list, which cannot be hashed, as a tuple; anything else as it is."""
    return tuple(_hashable(part) for part in value) if isinstance(value, list) else value


# Below this many rows a Python dictionary is quicker than loading compiled code.
_MANY_ROWS = 1 << 19


class IdEncoder:
    """Give every id the next free code when it first appears.

    Ids start in a Python dictionary. Once there are many rows, or from the start with `many`, integers and text move to
    a compiled table. Other ids, and integers beyond 64 bits, stay in the dictionary.
    """

    def __init__(self, column: str | int, many: bool = False):
        self.column = column
        self._many = many
        self._table: IntegerTable | TextTable | ObjectTable = ObjectTable()
        self._rows = 0
        self._tried = False
        self._kind: str | None = None

    def encode(self, values: Values) -> NDArray[np.int32]:
        """Return the codes of a batch without missing values: an Arrow array, TextWords, or a list of objects."""
        try:
            if isinstance(values, TextWords):
                return self._encode_words(values)
            return self._objects().encode_each(values) if isinstance(values, list) else self._encode_arrow(values)
        except TypeError as error:
            raise InvalidData(
                f"Column {self.column!r} holds ids that cannot be hashed ({error}).",
                hint="use numbers, strings or tuples instead",
            ) from error
        except OverflowError as error:
            raise InvalidData(
                f"Column {self.column!r} holds 2^31 or more different ids, more than an int32 can number."
            ) from error

    def ids(self) -> Ids:
        """Return all ids seen, by code."""
        try:
            return Ids(self._table.ids())
        except UnicodeDecodeError as error:
            raise InvalidData(f"Column {self.column!r} holds text that is not UTF-8: {error}.") from error

    def _encode_words(self, values: TextWords) -> NDArray[np.int32]:
        # A reader that gives words gives nothing else, so this is the first batch or the table is there.
        if not isinstance(self._table, TextTable):
            self._table = TextTable()
        return self._table.encode_words(values)

    def _encode_arrow(self, values: pa.Array) -> NDArray[np.int32]:
        array = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if isinstance(array, pa.ExtensionArray):
            return self._objects().encode(array)
        self._check_kind(array.type)
        fitting = _table_of(array.type)
        self._rows += len(array)
        if not self._tried and fitting is not None and (self._many or self._rows >= _MANY_ROWS):
            # Tried once: ids that do not fit the compiled table stay in the dictionary.
            self._tried = True
            self._compile(fitting(), array.type)
        if fitting is not None and isinstance(self._table, fitting):
            try:
                return self._table.encode(array)
            except pa.ArrowInvalid:  # an unsigned integer from 2^63 on
                pass
        return self._objects().encode(array)

    def _compile(self, table: IntegerTable | TextTable, arrow_type: pa.DataType) -> None:
        """Switch to a compiled table, and copy the codes given so far to it."""
        # The ids are encoded in the order of their codes, so every id gets its old code again.
        known = self._table.ids()
        with contextlib.suppress(pa.ArrowInvalid, OverflowError):  # integers beyond 64 bits stay where they are
            if len(known):
                table.encode(pa.array(known, type=arrow_type))
            self._table = table

    def _objects(self) -> ObjectTable:
        """Switch to the table for any kind of id, and copy the codes given so far to it."""
        if not isinstance(self._table, ObjectTable):
            self._table = ObjectTable(self._table.ids().tolist())
        return self._table

    def _check_kind(self, arrow_type: pa.DataType) -> None:
        # 7 and "7" would be two ids: a column that changes its type from file to file is a mistake in the data.
        kind = kind_of(arrow_type)
        if self._kind not in (None, kind):
            raise InvalidData(
                f"Column {self.column!r} holds {self._kind} in one file and {kind} in another.",
                hint="write it with one type in all of them",
            )
        self._kind = kind


def kind_of(arrow_type: pa.DataType) -> str:
    """Return the kind of ids that an Arrow type holds; all ids of a column must be of one kind."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    kind = "integers" if pa.types.is_integer(arrow_type) else str(arrow_type)
    return "text" if "string" in kind else kind


def _table_of(arrow_type: pa.DataType) -> type[IntegerTable] | type[TextTable] | None:
    if pa.types.is_integer(arrow_type):
        return IntegerTable
    return TextTable if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) else None
