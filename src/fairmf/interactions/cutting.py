"""Cutting plain delimited text into columns, in compiled code.

Only what leaves no doubt is read here: lines of equal width that end in a newline, no quotes, integers of up to 18
digits, decimals of up to 15 (for which one division rounds exactly as a full parser does), text that is not one of
Arrow's spellings of null. At the first doubt `cut` gives up and Arrow's reader, which defines the meaning, takes over.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairmf.interactions.plain_csv import DECIMAL, INTEGER, TEXT

_NEWLINE, _MINUS, _POINT, _NOUGHT = (np.uint8(ord(letter)) for letter in "\n-.0")
_NINE = np.uint8(9)
_ONE = np.uint64(1)
_POWERS = np.array([10.0**k for k in range(19)])
_GIVEN_UP = -1


def _digits(block, at):  # type: ignore[no-untyped-def]
    """The number written at `at`, where its digits end, and how many there are."""
    value, start = np.int64(0), at
    while True:
        digit = np.uint8(block[at] - _NOUGHT)  # anything below "0" wraps around to far above 9
        if digit > _NINE:
            return value, at, at - start
        value = 10 * value + np.int64(digit)
        at += _ONE


digits = numba.njit(cache=True, nogil=True, inline="always")(_digits)


def _is_null(block, start, length, nulls):  # type: ignore[no-untyped-def]
    for n in range(len(nulls)):
        if nulls[n, 0] != length:
            continue
        k = 0
        while k < length and block[start + np.uint64(k)] == nulls[n, k + 1]:
            k += 1
        if k == length:
            return True
    return False


is_null = numba.njit(cache=True, nogil=True)(_is_null)


def _cut(block, delimiter, kinds, places, nulls, null_starts, integers, decimals, letters, ends):  # type: ignore[no-untyped-def]
    """Fill the columns (out) from `block`, which ends in a newline. Returns the number of rows, or -1 where in doubt.

    `kinds` and `places` say for every column of the file what it holds and which row of `integers`, `decimals`, or
    `letters` and `ends` takes it.
    """
    at, row, width = np.uint64(0), 0, len(kinds)
    while at < len(block):
        if block[at] == _NEWLINE:  # an empty line is no row
            at += _ONE
            continue
        for column in range(width):
            kind, place = kinds[column], places[column]
            start = at
            if kind in (INTEGER, DECIMAL):
                negative = block[at] == _MINUS
                if negative:
                    at += _ONE
                value, at, count = digits(block, at)
                if count == 0 or count > 18:
                    return _GIVEN_UP
                if kind == INTEGER:
                    integers[place, row] = -value if negative else value
                else:
                    after = np.uint64(0)
                    if block[at] == _POINT:
                        more, at, after = digits(block, at + _ONE)
                        if after == 0 or count + after > 15:
                            return _GIVEN_UP
                        value = value * np.int64(_POWERS[after]) + more
                    if count > 15:
                        return _GIVEN_UP
                    number = np.float64(value) / _POWERS[after]
                    decimals[place, row] = -number if negative else number
            else:
                while block[at] != delimiter and block[at] != _NEWLINE:
                    at += _ONE
                if kind == TEXT:
                    length = np.int64(at - start)
                    if length == 0 or (null_starts[block[start]] and is_null(block, start, length, nulls)):
                        return _GIVEN_UP
                    end = ends[place, row]
                    for k in range(length):
                        letters[place, end + k] = block[start + np.uint64(k)]
                    ends[place, row + 1] = end + length
            if block[at] != (_NEWLINE if column == width - 1 else delimiter):
                return _GIVEN_UP
            at += _ONE
        row += 1
    return row


cut: Any = numba.njit(cache=True, nogil=True)(_cut)
