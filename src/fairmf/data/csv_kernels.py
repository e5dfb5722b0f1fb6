"""Cut plain delimited text into columns in compiled code.

Only simple text is read here: lines with equally many columns that end in a newline, no quotes, integers of up to 18
digits without leading zeros, decimals of up to 15 digits (for which one division rounds exactly as a full parser does),
and text that is not one of Arrow's spellings of null. At anything else `cut` returns -1, and Arrow's parser reads the
file instead.

Text is processed in words of eight bytes, the first byte lowest. The first delimiter in a word is found like the first
zero byte in "Hacker's Delight" (chapter 6).
"""

from __future__ import annotations

import numpy as np

from fairmf.data.csv_contract import DECIMAL, INTEGER, PADDING, TEXT
from fairmf.data.hash_kernels import mix
from fairmf.kernels import kernel

_NEWLINE, _MINUS, _POINT, _NOUGHT = (np.uint8(ord(letter)) for letter in "\n-.0")
_NINE = np.uint8(9)
_POWERS = np.array([10.0**k for k in range(19)])
_GIVEN_UP = -1
_0, _1, _7, _8, _56 = (np.uint64(k) for k in (0, 1, 7, 8, 56))
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_NOUGHTS, _LOW, _TO_NINE = (np.uint64(k) for k in (0x3030303030303030, 0x7F7F7F7F7F7F7F7F, 0x7676767676767676))
_CLOSING = np.uint64(255)


def _word(block, at):
    """Return the eight bytes from `at` on as one number."""
    found = _0
    for k in range(8):  # compiled to a single load
        found |= np.uint64(block[at + np.uint64(k)]) << np.uint64(8 * k)
    return found


word = kernel(_word, inline="always")


def _bytes_before(marks):
    """Return how many bytes come before the first marked one (highest bit set); 8 if none is marked."""
    if marks == _0:
        return _8
    # The lowest mark minus one has all bits below it set. Shifted, each byte below the mark ends in a one; the
    # multiplication adds these ones up in the highest byte.
    below = ((marks & (~marks + _1)) - _1) >> _7
    return ((below & _ONES) * _ONES) >> _56


bytes_before = kernel(_bytes_before, inline="always")


def _digits(block, at):
    """Return the number written at `at`, the position after its digits, and how many digits there are.

    Up to seven digits fit in one word: the bytes after them are shifted out, then digits are combined in pairs, pairs
    in fours, and fours to the number, with one multiplication each.
    """
    found = word(block, at) ^ _NOUGHTS  # digits become 0 to 9, all other bytes something larger
    count = bytes_before((((found & _LOW) + _TO_NINE) | found) & _HIGH)
    if count < _8:
        # Shifting by 64 bits is undefined, so no digits are a case of their own.
        found = found << (_8 * (_8 - count)) if count > _0 else _0
        found = (found * np.uint64(10) + (found >> _8)) & np.uint64(0x00FF00FF00FF00FF)
        found = (found * np.uint64(100) + (found >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
        found = (found * np.uint64(10000) + (found >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        return np.int64(found), at + count, np.int64(count)
    # Beyond 18 digits the value may overflow; callers then refuse the number because of its count.
    value, start = np.int64(0), at
    while True:
        digit = np.uint8(block[at] - _NOUGHT)  # anything below "0" wraps around to far above 9
        if digit > _NINE:
            return value, at, np.int64(at - start)
        value = np.int64(10) * value + np.int64(digit)
        at += _1


digits = kernel(_digits, inline="always")


def _is_null(block, start, length, nulls):
    """Return whether a field is one of the spellings of null, which are rows of a length and letters."""
    for n in range(len(nulls)):
        if nulls[n, 0] != length:
            continue
        k = 0
        while k < length and block[start + np.uint64(k)] == nulls[n, k + 1]:
            k += 1
        if k == length:
            return True
    return False


is_null = kernel(_is_null)


def _stop(block, at, delimiters, newlines):
    """Return the word at `at`, and how many of its bytes come before the first delimiter or newline."""
    found = word(block, at)
    # A byte that matches becomes zero. The subtraction may borrow, and then marks bytes above the first zero
    # by mistake; but only the first mark is used.
    one, other = found ^ delimiters, found ^ newlines
    return found, bytes_before((((one - _ONES) & ~one) | ((other - _ONES) & ~other)) & _HIGH)


stop = kernel(_stop, inline="always")


def _decimal(block, at):
    """Return the decimal at `at`, without a sign, and the position after it; 0 if there is none or it is too long."""
    value, at, count = digits(block, at)
    after = 0
    if count > 0 and block[at] == _POINT:
        more, at, after = digits(block, at + _1)
        if after == 0 or count + after > 15:
            return 0.0, _0
        # At most 15 digits: exact as an integer and as a float64, so the division below is correctly rounded.
        value = value * np.int64(_POWERS[after]) + more
    if count == 0 or count > 15:
        return 0.0, _0
    return np.float64(value) / _POWERS[after], at


decimal = kernel(_decimal)


def _cut(
    block, delimiter, repeats, kinds, rows_of, nulls, null_starts, integers, decimals, words, places, hashes, seed
):
    """Cut `block` (whole lines, then padding) into columns. Return the number of rows, or -1 to leave it to Arrow.

    `kinds` says what each column of the file holds, and `rows_of` which row of `integers`, `decimals`, or `words`,
    `places` and `hashes` (all out) receives it. The delimiter is the byte `delimiter`, `repeats` times: twice in "::".
    Texts are written as words, as `hash_kernels.to_words` does, and hashed at the same time.
    """
    at, row, width, size = _0, 0, len(kinds), np.uint64(len(block) - PADDING)
    delimiters, newlines = np.uint64(delimiter) * _ONES, np.uint64(_NEWLINE) * _ONES
    while at < size:
        if block[at] == _NEWLINE:  # an empty line is no row
            at += _1
            continue
        for column in range(width):
            kind, own = kinds[column], rows_of[column]
            if kind == INTEGER or kind == DECIMAL:  # noqa: SIM109  (compiled: a tuple would be searched)
                negative = block[at] == _MINUS
                if negative:
                    at += _1
                if kind == INTEGER:
                    leading_zero = block[at] == _NOUGHT
                    value, at, count = digits(block, at)
                    # 007 and -0 are text: other ids than 7 and 0.
                    if count == 0 or count > 18 or (leading_zero and (count > 1 or negative)):
                        return _GIVEN_UP
                    integers[own, row] = -value if negative else value
                else:
                    magnitude, at = decimal(block, at)
                    if at == _0:
                        return _GIVEN_UP
                    decimals[own, row] = -magnitude if negative else magnitude
            else:
                # Text, or a column that is skipped: go on word by word up to the next delimiter or newline.
                start, end, hashed = at, places[own, row] if kind == TEXT else 0, seed
                text, before = stop(block, at, delimiters, newlines)
                while before == _8:
                    if kind == TEXT:
                        words[own, end] = text
                        hashed = mix(text, hashed)
                        end += 1
                    at += _8
                    text, before = stop(block, at, delimiters, newlines)
                at += before
                if kind == TEXT:
                    if at == start or (null_starts[block[start]] and is_null(block, start, at - start, nulls)):
                        return _GIVEN_UP
                    # The last word: the bytes before the delimiter, the closing byte, zeros.
                    kept = (_1 << (_8 * before)) - _1
                    last = (text & kept) | (_CLOSING << (_8 * before))
                    words[own, end] = last
                    hashes[own, row] = mix(last, hashed)
                    places[own, row + 1] = end + 1
            if block[at] != (_NEWLINE if column == width - 1 else delimiter):
                return _GIVEN_UP
            at += _1
            if column < width - 1:
                for _ in range(1, repeats):
                    if block[at] != delimiter:
                        return _GIVEN_UP
                    at += _1
        row += 1
    return row


cut = kernel(_cut)
