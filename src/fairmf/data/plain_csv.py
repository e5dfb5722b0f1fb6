"""Cut plain delimited text into columns, and leave anything unusual to Arrow's parser.

With Arrow's parser alone, reading 10 million rows took 2.3 times as long (2.0 times the CPU time with integer ids, 1.7
times with text ids; medians of five processes each, in turn). It makes an array of texts, which must be hashed, and
checked for 007 and +7, in further passes; here ids are hashed while they are cut. Without that check, which keeps 007
and 7 apart, Arrow would take 1.4 and 1.3 times the CPU time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import ColumnName
from fairmf.data.csv_contract import DECIMAL, INTEGER, KINDS, PADDING, TEXT
from fairmf.data.encode import SEED, TextWords, Values
from fairmf.lazy import lazy_module
from fairmf.types import Array

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    from fairmf.data import csv_kernels
else:
    pa = lazy_module("pyarrow")
    arrow_csv = lazy_module("pyarrow.csv")
    csv_kernels = lazy_module("fairmf.data.csv_kernels")  # imports Numba


class NotPlain(Exception):
    """Something in the file needs Arrow's parser."""


class PlainColumns:
    """Cut blocks of a file into columns with a compiled kernel.

    Parameters
    ----------
    width
        Number of columns in the file.
    wanted
        Name and type ("int64", "double" or "string") of the columns to read, by position.
    delimiter
        One character, perhaps repeated, as in `::`.
    quotes_are_text
        Whether a quote is plain text; otherwise a block with quotes raises NotPlain.
    literal
        Whether words such as NA are plain text; otherwise they raise NotPlain.
    """

    def __init__(
        self,
        width: int,
        wanted: Mapping[int, tuple[ColumnName, str]],
        delimiter: str,
        quotes_are_text: bool = False,
        literal: bool = False,
    ):
        # The kernel compares with one byte, and a delimiter must not be part of a number.
        if len(set(delimiter)) != 1 or not delimiter.isascii() or delimiter[0] in '-.0123456789"\r\n':
            raise NotPlain
        self._wanted = wanted
        self._delimiter = np.uint8(ord(delimiter[0]))
        self._repeats = len(delimiter)
        self._quotes_are_text = quotes_are_text
        self._rooms: dict[int, tuple[int, tuple[Array, ...]]] = {}
        self.kinds = np.full(width, 0, dtype=np.int64)
        self.places = np.zeros(width, dtype=np.int64)
        for column, (_, kind) in wanted.items():
            if kind not in KINDS:
                raise NotPlain
            self.places[column] = (self.kinds == KINDS[kind]).sum()
            self.kinds[column] = KINDS[kind]
        spellings = [] if literal else arrow_csv.ConvertOptions().null_values
        self._nulls, self._null_starts = _null_spellings(spellings)

    def cut(self, block: bytes, room: int = 0) -> dict[ColumnName, Values]:
        """Cut whole lines into columns, as Arrow arrays or TextWords; raise NotPlain if they need Arrow's parser.

        `room` is the number of a set of buffers. The columns are valid until the next call with the same number. Calls
        with different numbers may run at the same time.
        """
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if (b'"' in block and not self._quotes_are_text) or b"\r" in block or not _is_text(block):
            raise NotPlain
        # The kernel reads words of eight bytes, so it may look past the last line.
        data = np.frombuffer(block + bytes(PADDING), dtype=np.uint8)
        columns = (self.kinds, self.places, self._nulls, self._null_starts)
        buffers = integers, decimals, words, places, hashes = self._room(room, len(block))
        rows = csv_kernels.cut(data, self._delimiter, self._repeats, *columns, *buffers, SEED)
        if rows < 0:
            raise NotPlain
        found: dict[ColumnName, Values] = {}
        for column, (name, _) in self._wanted.items():
            own = self.places[column]
            if self.kinds[column] == TEXT:
                found[name] = TextWords(words[own], places[own, : rows + 1], hashes[own, :rows])
            else:
                found[name] = _arrow((integers if self.kinds[column] == INTEGER else decimals)[own], rows)
        return found

    def _room(self, number: int, size: int) -> tuple[Array, ...]:
        """Return buffers that are large enough for the columns of a block of `size` bytes.

        They are reused, because allocating new ones takes as long as cutting.
        """
        if size > self._rooms.get(number, (0,))[0]:
            rows = size // len(self.kinds)  # at most: every field takes a delimiter or a newline
            integers, decimals, texts = ((self.kinds == kind).sum() for kind in (INTEGER, DECIMAL, TEXT))
            # Whole words of text, and a last, partly filled word for each row.
            words = np.empty((texts, size // 8 + rows + 1), dtype=np.uint64)
            places = np.zeros((texts, rows + 1), dtype=np.int64)
            numbers = np.empty((integers, rows), dtype=np.int64), np.empty((decimals, rows))
            hashes = np.empty((texts, rows), dtype=np.uint64)
            self._rooms[number] = size, (*numbers, words, places, hashes)
        return self._rooms[number][1]


def _arrow(values: Array, rows: int) -> pa.Array:
    kind = pa.int64() if values.dtype == np.int64 else pa.float64()
    # From buffers, because `pyarrow.array` would import pandas to see whether the values are pandas' own.
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values)])


def _is_text(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _null_spellings(spellings: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return Arrow's spellings of null as a table (row: length, letters), and which bytes a spelling begins with."""
    encoded = [text.encode() for text in spellings if text]
    table = np.zeros((len(encoded), 1 + max(map(len, encoded), default=0)), dtype=np.uint8)
    starts = np.zeros(256, dtype=bool)
    for row, text in zip(table, encoded, strict=True):
        row[0], row[1 : len(text) + 1] = len(text), np.frombuffer(text, dtype=np.uint8)
        starts[text[0]] = True
    return table, starts
