"""Test the random start: Philox against published values, normal numbers against SciPy, equal bits on all backends."""

import numpy as np
import pytest
from conftest import as_numpy
from scipy import stats
from scipy.special import ndtri

from fairmf.backends.random_start import ITEMS, USERS, Stream, normal_rows, philox
from fairmf.backends.registry import get_backend


def key_of(seed):
    """Return the key that a fit makes of a seed."""
    return tuple(map(int, np.random.SeedSequence(seed).generate_state(2, np.uint32)))


STREAM = Stream(key_of(7), USERS)
FAR = np.array([5, 0, 2**31 - 1, 2**33 + 5, 5])


# The known answers published with Random123 (kat_vectors, philox4x32 10).
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)  # fmt: skip
def test_philox_gives_its_published_answers(counter, key, words):
    found = philox(key, [np.uint64(word) for word in counter])
    assert " ".join(f"{int(word):08x}" for word in found) == words


def naive_number(stream, row, k):
    """One number in Python's own integers, and SciPy's normal quantile of its uniform."""
    key, counter = list(stream.key), [k // 4, row % 2**32, row // 2**32, stream.side]
    for _ in range(10):
        left, right = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (right >> 32) ^ counter[1] ^ key[0], right % 2**32, (left >> 32) ^ counter[3] ^ key[1], left % 2**32,
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return ndtri(((counter[k % 4] >> 9) + 0.5) / 2**23)


def test_numbers_are_normal_quantiles_of_the_words():
    found = normal_rows(STREAM, FAR, 9, 0.25)
    expected = [[0.25 * naive_number(STREAM, int(row), k) for k in range(9)] for row in FAR]
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_numbers_are_normal_and_independent():
    drawn = normal_rows(STREAM, np.arange(4000), 32, 1.0).astype(np.float64)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3
    assert abs(drawn.mean()) < 4 / np.sqrt(drawn.size)
    correlation = np.corrcoef(np.hstack((drawn, normal_rows(Stream(STREAM.key, ITEMS), np.arange(4000), 32, 1.0))).T)
    assert np.abs(correlation - np.eye(64)).max() < 5 / np.sqrt(4000)


@pytest.mark.parametrize("factors", [1, 4, 6, 37])
def test_every_backend_draws_the_same_bits(backend, factors):
    for numbers in (None, FAR, np.arange(700, 0, -1), np.empty(0, dtype=np.int64)):
        rows = np.arange(1000) if numbers is None else numbers
        out = backend.empty(len(rows), factors)
        backend.draw_normal(STREAM, numbers, 0.3, out)
        np.testing.assert_array_equal(as_numpy(out), normal_rows(STREAM, rows, factors, 0.3))


def test_a_row_does_not_depend_on_how_many_are_drawn_and_every_seed_and_side_has_its_own():
    cpu = get_backend("cpu")

    def drawn(stream, rows, factors):
        out = cpu.empty(rows, factors)
        cpu.draw_normal(stream, None, 1.0, out)
        return out

    large = drawn(STREAM, 3000, 16)
    np.testing.assert_array_equal(drawn(STREAM, 10, 16), large[:10])
    np.testing.assert_array_equal(drawn(STREAM, 10, 8), large[:10, :8])
    others = Stream(STREAM.key, ITEMS), Stream(key_of(8), USERS), Stream(key_of(7 + 2**64), USERS)
    for other in others:
        assert not (drawn(other, 10, 16) == large[:10]).any()
