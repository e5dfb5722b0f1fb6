"""Random start rows (backends/random_start.py has the definition, and these are its bits).

Three short loops over a row instead of one, so that the compiler vectorises each: a loop that writes bits and reads
them back as a float would run one number at a time.
"""

from __future__ import annotations

import numpy as np

from fairmf.backends.random_start import (
    HALF,
    KEY_STEPS,
    LN_2_HIGH,
    LN_2_LOW,
    LOGARITHM,
    LOW,
    MIDDLE,
    MIDDLE_AT,
    MIDDLE_BELOW,
    MULTIPLIERS,
    ONE,
    ROOT_HALF,
    ROOT_TWO,
    ROUNDS,
    STEP,
    TAIL,
    TAIL_AT,
    WORD,
)
from fairmf.kernels import kernel

BLOCK_ROWS = 256


@kernel
def draw_rows(low, high, key, side, numbers, scale, bounds, out):
    """out[i] = scale * the normal numbers of row numbers[i].   in: key, side, numbers, scale, bounds   out: out"""
    d = out.shape[1]
    padded = 4 * ((d + 3) // 4)
    for b in range(low, high):
        words = np.empty(padded, dtype=np.uint32)
        uniform, exponents = np.empty(padded, dtype=np.float32), np.empty(padded, dtype=np.float32)
        values, mantissas = np.empty(padded, dtype=np.float32), np.empty(padded, dtype=np.float32)
        for i in range(bounds[b], bounds[b + 1]):
            _words(key, np.uint64(numbers[i]), side, words)
            _split(words, uniform, values, values.view(np.int32), exponents, mantissas.view(np.int32))
            _normal(uniform, exponents, mantissas, scale, out[i])


@kernel
def _words(key, row, side, words):
    """Philox4x32-10 for every counter of a row.   in: key, row, side   out: words"""
    for block in range(len(words) // 4):
        first, second = key[0], key[1]
        c0, c1, c2, c3 = np.uint64(block), row & LOW, row >> WORD, side
        for _ in range(ROUNDS):
            left, right = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
            c0, c2 = (right >> WORD) ^ c1 ^ first, (left >> WORD) ^ c3 ^ second
            c1, c3 = right & LOW, left & LOW
            first, second = (first + KEY_STEPS[0]) & LOW, (second + KEY_STEPS[1]) & LOW
        words[4 * block] = np.uint32(c0)
        words[4 * block + 1] = np.uint32(c1)
        words[4 * block + 2] = np.uint32(c2)
        words[4 * block + 3] = np.uint32(c3)


@kernel
def _split(words, uniform, values, bits, exponents, mantissa_bits):
    """Uniform x, and 1 - x^2 by exponent and mantissa; `bits` is `values`.   in: words   out: all others"""
    for k in range(len(words)):
        x = (np.float32(np.int32(words[k] >> np.uint32(9))) + HALF) * STEP - ONE
        uniform[k] = x
        values[k] = (ONE - x) * (ONE + x)
    for k in range(len(words)):
        # Numba widens int32 arithmetic to int64, for which there is no vector conversion to float: cast at each step.
        exponents[k] = np.float32(np.int32(np.int32(bits[k] >> np.int32(23)) - np.int32(126)))
        mantissa_bits[k] = np.int32(np.int32(bits[k] & np.int32(0x007FFFFF)) | np.int32(0x3F000000))


@kernel
def _normal(uniform, exponents, mantissas, scale, out):
    """in: uniform, exponents, mantissas, scale   out: out"""
    for k in range(len(out)):
        mantissa, exponent, x = mantissas[k], exponents[k], uniform[k]
        small = mantissa < ROOT_HALF
        exponent = exponent - ONE if small else exponent
        m = (mantissa + mantissa if small else mantissa) - ONE
        square = m * m
        rest = _polynomial(LOGARITHM, m) * m * square + LN_2_LOW * exponent - HALF * square
        w = -(m + rest + LN_2_HIGH * exponent)
        middle, tail = _polynomial(MIDDLE, w - MIDDLE_AT), _polynomial(TAIL, np.sqrt(w) - TAIL_AT)
        ratio = middle if w < MIDDLE_BELOW else tail
        out[k] = ratio * x * ROOT_TWO * scale


@kernel(inline="always")
def _polynomial(c, x):
    return (((((((c[0] * x + c[1]) * x + c[2]) * x + c[3]) * x + c[4]) * x + c[5]) * x + c[6]) * x + c[7]) * x + c[8]
