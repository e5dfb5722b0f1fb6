"""Draw the random start of a fit: the normal numbers of a row depend only on seed, side and row, on every backend.

    words(row) = Philox4x32-10(key, counter = (block, row mod 2^32, row div 2^32, side)),  4 words a block
    x          = (2 (word >> 9) + 1) / 2^23 - 1                                            uniform on (-1, 1)
    number     = sqrt(2) erfinv(x),  erfinv by a polynomial in -log(1 - x^2)

A process can draw some rows without drawing the others: in parallel on the CPU, on a device, in a shard. Numbers are
float32, and every backend does the same operations in the same order with the same rounding (no fused multiply-add), so
that they agree to the last bit. This file is the definition in plain NumPy; backends/cpu/rows.py (`draw_rows`) and
backends/cuda/kernels/random_start.cu implement it as kernels, and the contract tests compare all of them.

References: Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3" (Philox); Giles (2010),
"Approximating the erfinv function"; Moshier's Cephes library (the logarithm).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

USERS, ITEMS = 0, 1

ROUNDS = 10
# The constants of the paper on Philox.
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)

_f = np.float32
HALF, ONE, STEP = _f(0.5), _f(1.0), _f(2.0**-22)
ROOT_HALF, ROOT_TWO = _f(0.5**0.5), _f(2.0**0.5)
# ln 2 in two parts: the first has so few digits that its product with an exponent is exact.
LN_2_HIGH, LN_2_LOW = _f(0.693359375), _f(-2.12194440e-4)
LOGARITHM = tuple(
    _f(c)
    for c in (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )
)  # fmt: skip
# erfinv(x) / x as a polynomial in w - 2.5 where w = -log(1 - x^2) < 5 (99.7 % of all numbers), else in sqrt(w) - 3.
MIDDLE_BELOW, MIDDLE_AT, TAIL_AT = _f(5.0), _f(2.5), _f(3.0)
MIDDLE = tuple(
    _f(c)
    for c in (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
        -0.00417768164, 0.246640727, 1.50140941,
    )
)  # fmt: skip
TAIL = tuple(
    _f(c)
    for c in (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
        0.00943887047, 1.00167406, 2.83297682,
    )
)  # fmt: skip


Words: TypeAlias = NDArray[np.uint64] | np.uint64


class Stream(NamedTuple):
    """Name the random numbers of one side of a fit."""

    key: tuple[int, int]
    """Of the generator: two words that `np.random.SeedSequence` makes of a seed of any size."""
    side: int
    """USERS or ITEMS."""


def normal_rows(stream: Stream, numbers: NDArray[np.integer], factors: int, scale: float) -> NDArray[np.float32]:
    """Draw Normal(0, scale^2) for the rows with the given numbers."""
    blocks = -(-factors // 4)
    rows = np.asarray(numbers).astype(np.uint64)[:, None]
    counter: list[Words] = [
        np.arange(blocks, dtype=np.uint64)[None, :],
        rows & LOW,
        rows >> WORD,
        np.uint64(stream.side),
    ]
    words = np.stack(np.broadcast_arrays(*philox(stream.key, counter)), axis=-1)
    drawn = _normal(words.reshape(len(rows), 4 * blocks)[:, :factors])
    return drawn * _f(scale)


def philox(key: tuple[int, int], counter: Sequence[Words]) -> list[Words]:
    """Return four random words for a counter of four words, by Philox4x32-10."""
    first, second = (np.uint64(word) for word in key)
    a, b, c, d = counter
    for _ in range(ROUNDS):
        left, right = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (right >> WORD) ^ b ^ first, right & LOW, (left >> WORD) ^ d ^ second, left & LOW
        first, second = (first + KEY_STEPS[0]) & LOW, (second + KEY_STEPS[1]) & LOW
    return [a, b, c, d]


def _normal(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    # The top 23 bits of a word, which float32 holds exactly: x is never -1 or 1, where erfinv is infinite.
    x = ((words >> np.uint64(9)).astype(np.float32) + HALF) * STEP - ONE
    w = -_logarithm((ONE - x) * (ONE + x))
    ratio = np.where(w < MIDDLE_BELOW, _polynomial(MIDDLE, w - MIDDLE_AT), _polynomial(TAIL, np.sqrt(w) - TAIL_AT))
    normal: NDArray[np.float32] = ratio * x * ROOT_TWO
    return normal


def _logarithm(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the natural logarithm of float32 in (0, 1], by exponent and mantissa."""
    bits = values.view(np.int32)
    exponent = ((bits >> 23) - 126).astype(np.float32)
    mantissa = ((bits & 0x007FFFFF) | 0x3F000000).view(np.float32)  # in [1/2, 1)
    # Move the mantissa to [sqrt(1/2), sqrt(2)), so that m, in which the polynomial is, is small.
    small = mantissa < ROOT_HALF
    exponent = np.where(small, exponent - ONE, exponent)
    m = np.where(small, mantissa + mantissa, mantissa) - ONE
    square = m * m
    tail = _polynomial(LOGARITHM, m) * m * square + LN_2_LOW * exponent - HALF * square
    logarithm: NDArray[np.float32] = m + tail + LN_2_HIGH * exponent
    return logarithm


def _polynomial(coefficients: tuple[np.float32, ...], x: NDArray[np.float32]) -> NDArray[np.float32]:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total
