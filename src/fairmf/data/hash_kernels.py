"""Number ids in compiled code with open hash tables.

The slots hold codes, or where their records are (-1 = free); ids themselves are kept, so that a match is exact. `seed`
is `text_words.SEED`. The kernels do not hold the interpreter's lock, so that parsing goes on meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairmf.kernels import kernel

_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd, with their bits well spread
_HALF, _ONE, _ZERO = np.uint64(32), np.uint64(1), np.uint64(0)
_BYTE, _CLOSING = np.uint64(8), np.uint64(255)
_GROUP = 64


def _mix(value, seed):
    """A 64-bit hash: every bit of the value reaches the low bits, which choose the slot."""
    value = (value ^ seed) * _A
    value = (value ^ (value >> _HALF)) * _B
    return value ^ (value >> _HALF)


mix = kernel(_mix)


def _number_integers(values, slots, known, count, seed, codes):
    """Fill `codes` (out). Returns how many values were done, fewer where the table is half full, and the new count."""
    mask = np.uint64(len(slots) - 1)
    for k in range(len(values)):
        value = values[k]
        place = mix(value, seed) & mask
        while True:
            code = slots[place]
            if code < 0:
                if 2 * count >= len(slots):
                    return k, count
                slots[place] = code = count
                known[count] = value
                count += 1
                break
            if known[code] == value:
                break
            place = (place + _ONE) & mask
        codes[k] = code
    return len(values), count


def _to_words(letters, offsets, words, places):
    """Texts as 64-bit words (out): text k, letters[offsets[k]:offsets[k + 1]], becomes words[places[k]:places[k + 1]].

    A byte of 255 closes each text and zeros fill its last word, so that different texts have different words.
    """
    at = 0
    for k in range(len(offsets) - 1):
        # Unsigned, or the compiler guards every byte against negative positions.
        start, stop = np.uint64(offsets[k]), np.uint64(offsets[k + 1])
        places[k] = at
        while start + _BYTE <= stop:
            word = _ZERO
            for b in range(8):
                word |= np.uint64(letters[start + np.uint64(b)]) << np.uint64(8 * b)
            words[at] = word
            at += 1
            start += _BYTE
        word = _CLOSING
        while stop > start:
            stop -= _ONE
            word = (word << _BYTE) | np.uint64(letters[stop])
        words[at] = word
        at += 1
    places[len(offsets) - 1] = at


def _hash_words(words, start, stop, seed):
    h = seed
    for k in range(start, stop):
        h = mix(words[k], h)
    return h


hash_words = kernel(_hash_words)


def _hash_texts(words, places, seed, hashes):
    for k in range(len(places) - 1):
        hashes[k] = hash_words(words, places[k], places[k + 1], seed)


def _number_texts(words, places, hashes, slots, starts, known, count, codes):
    """As `number_integers`, for texts as words. Stops also where `known` is full.

    Code c has the record known[starts[c]:starts[c + 1]]: the code and its words; the slots hold where records start.
    (The closing byte ends a comparison with a longer or a shorter text: it is in no UTF-8.) Rows go in groups, whose
    memory is touched first without waiting for it: one by one, each row would wait twice.
    """
    mask = np.uint64(len(slots) - 1)
    rows = len(places) - 1
    touched = np.empty(_GROUP, dtype=np.int64)
    for first in range(0, rows, _GROUP):
        size = min(_GROUP, rows - first)
        for k in range(size):
            touched[k] = slots[hashes[first + k] & mask]
        for k in range(size):
            touched[k] = known[max(touched[k], 0)]
        for k in range(size):
            start, length = places[first + k], places[first + k + 1] - places[first + k]
            place = hashes[first + k] & mask
            while True:
                at = np.int64(slots[place])
                if at < 0:
                    at = starts[count]
                    if 2 * count >= len(slots) or at + 2 * length + 1 >= len(known):
                        return first + k, count
                    slots[place] = at
                    known[at] = count
                    known[at + 1 : at + 1 + length] = words[start : start + length]
                    count += 1
                    starts[count] = at + 1 + length
                    break
                w = 0
                while w < length and known[at + 1 + w] == words[start + w]:
                    w += 1
                if w == length:
                    break
                place = (place + _ONE) & mask
            codes[first + k] = known[at]
    return rows, count


def _refill_integers(known, slots, seed):
    """Put the codes of the known ids into empty slots."""
    for code in range(len(known)):
        put(slots, mix(known[code], seed), code)


def _refill_texts(known, starts, slots, seed):
    for code in range(len(starts) - 1):
        put(slots, hash_words(known, starts[code] + 1, starts[code + 1], seed), starts[code])


def _put(slots, hashed, content):
    mask = np.uint64(len(slots) - 1)
    place = hashed & mask
    while slots[place] >= 0:
        place = (place + _ONE) & mask
    slots[place] = content


put = kernel(_put)
number_integers: Any = kernel(_number_integers)
refill_integers: Any = kernel(_refill_integers)
to_words: Any = kernel(_to_words)
hash_texts: Any = kernel(_hash_texts)
number_texts: Any = kernel(_number_texts)
refill_texts: Any = kernel(_refill_texts)
