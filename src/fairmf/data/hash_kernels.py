"""Number ids in compiled code with open hash tables.

A slot holds a code (integers) or the position of a record (texts), and -1 if it is free. The ids themselves are stored
and compared, so that two ids with the same hash keep different codes. `seed` is `encode.SEED`. Kernels release the GIL,
so that other threads go on parsing.
"""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel

# Odd constants with well-spread bits: multiplying by them mixes the bits of a value.
_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_HALF, _ONE, _ZERO = np.uint64(32), np.uint64(1), np.uint64(0)
_BYTE, _CLOSING = np.uint64(8), np.uint64(255)
_GROUP = 64  # texts whose memory is requested together


def _mix(value, seed):
    """Return a 64-bit hash. Every bit of the value affects the low bits, which choose the slot."""
    value = (value ^ seed) * _A
    value = (value ^ (value >> _HALF)) * _B
    return value ^ (value >> _HALF)


mix = kernel(_mix)


def _number_integers(values, slots, known, count, seed, codes):
    """Fill `codes` (out). Return how many values were done (it stops if the table is half full), and the new count."""
    mask = np.uint64(len(slots) - 1)
    for k in range(len(values)):
        value = values[k]
        # The number of slots is a power of two, so the mask takes the hash modulo that number.
        place = mix(value, seed) & mask
        while True:
            code = slots[place]
            if code < 0:
                # A table that is at most half full keeps the runs of occupied slots short.
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
    """Write text k, letters[offsets[k]:offsets[k + 1]], as 64-bit words to words[places[k]:places[k + 1]] (out).

    A byte of 255 closes each text and zeros fill its last word, so that different texts have different words.
    """
    at = 0
    for k in range(len(offsets) - 1):
        # Unsigned: for signed positions the compiler would check every access for negative numbers.
        start, stop = np.uint64(offsets[k]), np.uint64(offsets[k + 1])
        places[k] = at
        while start + _BYTE <= stop:
            word = _ZERO
            for b in range(8):
                word |= np.uint64(letters[start + np.uint64(b)]) << np.uint64(8 * b)
            words[at] = word
            at += 1
            start += _BYTE
        # The rest of the text, from its last byte to its first, with the closing byte above them.
        word = _CLOSING
        while stop > start:
            stop -= _ONE
            word = (word << _BYTE) | np.uint64(letters[stop])
        words[at] = word
        at += 1
    places[len(offsets) - 1] = at


def _hash_words(words, start, stop, seed):
    """Return the hash of a text: the hash of each word is the seed of the next."""
    h = seed
    for k in range(start, stop):
        h = mix(words[k], h)
    return h


hash_words = kernel(_hash_words)


def _hash_texts(words, places, seed, hashes):
    """Fill `hashes` (out) with the hash of every text."""
    for k in range(len(places) - 1):
        hashes[k] = hash_words(words, places[k], places[k + 1], seed)


def _number_texts(words, places, hashes, slots, starts, known, count, codes):
    """Fill `codes` (out) like `number_integers`, for texts as words. Also stops if `known` is full.

    Code c has the record known[starts[c]:starts[c + 1]]: the code, then its words. Slots hold the starts of records.
    The closing byte 255 occurs in no UTF-8, so a comparison with a longer or shorter text ends there.

    Texts are looked up in groups. Reading the slots and records of a whole group first lets the CPU fetch them from
    memory at the same time; one by one, each text would wait twice.
    """
    mask = np.uint64(len(slots) - 1)
    rows = len(places) - 1
    touched = np.empty(_GROUP, dtype=np.int64)
    for first in range(0, rows, _GROUP):
        size = min(_GROUP, rows - first)
        for k in range(size):
            # These reads do not depend on each other: the CPU waits for all of them at once.
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
                    # The second limit leaves room for this record and for comparing any text with the last record.
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
    """Put the codes of all known ids into `slots` (out), which must be free."""
    for code in range(len(known)):
        put(slots, mix(known[code], seed), code)


def _refill_texts(known, starts, slots, seed):
    """Put the records of all known texts into `slots` (out), which must be free."""
    for code in range(len(starts) - 1):
        put(slots, hash_words(known, starts[code] + 1, starts[code + 1], seed), starts[code])


def _put(slots, hashed, content):
    """Write to the first free slot from the hash on (linear probing)."""
    mask = np.uint64(len(slots) - 1)
    place = hashed & mask
    while slots[place] >= 0:
        place = (place + _ONE) & mask
    slots[place] = content


put = kernel(_put)
number_integers = kernel(_number_integers)
refill_integers = kernel(_refill_integers)
to_words = kernel(_to_words)
hash_texts = kernel(_hash_texts)
number_texts = kernel(_number_texts)
refill_texts = kernel(_refill_texts)
