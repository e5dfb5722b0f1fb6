"""Test top_k against a full sort, to the bit, at sizes where it uses blocks, drops candidates and stops early."""

import functools
import inspect

import numba
import numpy as np
import pytest
from conftest import slow_values

from fairmf.backends.contract import ScoreWindow
from fairmf.backends.cpu import top_k
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows

N, M, D = 300, 1500, 6  # two blocks of users, three of items
CPU = get_backend("cpu")


def long_tailed(generator):
    """Item vectors of very different length: most users stop early."""
    return generator.normal(size=(M, D)) * (1.0 / np.arange(1, M + 1))[generator.permutation(M), None]


FACTORS = {
    "normal": lambda g: (g.normal(size=(N, D)), g.normal(size=(M, D))),
    "long-tailed": lambda g: (g.normal(size=(N, D)), long_tailed(g)),
    "small integers": lambda g: (g.integers(-2, 3, size=(N, D)), g.integers(-2, 3, size=(M, D))),
    "every item ten times": lambda g: (g.normal(size=(N, D)), g.normal(size=(M // 10, D))[g.integers(0, M // 10, M)]),
    "all items alike": lambda g: (g.normal(size=(N, D)), np.ones((M, D)) * g.normal(size=D)),
    "nearly alike": lambda g: (g.normal(size=(N, D)), np.ones((M, D)) + 1e-7 * g.normal(size=(M, D))),
    "many zeros": lambda g: (
        g.normal(size=(N, D)) * (g.random((N, 1)) < 0.5),
        g.normal(size=(M, D)) * (g.random((M, 1)) < 0.3),
    ),
    "all negative": lambda g: (-np.abs(g.normal(size=(N, D))), np.abs(g.normal(size=(M, D)))),
}


def single(generator, make):
    return tuple(np.ascontiguousarray(x, dtype=np.float32) for x in make(generator))


def excluded(generator, share=0.05):
    mask = generator.random((N, M)) < share
    mask[0], mask[1], mask[2] = False, True, True
    mask[2, 7] = False  # one item left
    return Rows(np.concatenate(([0], mask.sum(axis=1).cumsum())), np.nonzero(mask)[1].astype(np.int32), None), mask


def full_sort(U, V, mask, k):
    """The definition, in float64, rounded to float32 at the end."""
    items, scores = np.full((len(U), k), -1, np.int32), np.full((len(U), k), np.nan, np.float32)
    V = V.astype(np.float64)
    for i, u in enumerate(U.astype(np.float64)):
        score = (V * u).sum(axis=1).astype(np.float32)
        best = np.argsort(-score, kind="stable")
        best = (best if mask is None else best[~mask[i, best]])[:k]
        items[i, : len(best)], scores[i, : len(best)] = best, score[best]
    return items, scores


def ask(U, V, k, exclude, threads=0, window=None):
    found = np.empty((len(U), k), np.int32), np.empty((len(U), k), np.float32)
    with CPU.threads(threads):
        CPU.top_k(U, V, k, exclude, *found, window=window)
    return found


@pytest.mark.parametrize("k", [1, 20, 100, *slow_values(700, M)])
@pytest.mark.parametrize("kind", FACTORS)
def test_equals_a_full_sort(kind, k):
    generator = np.random.default_rng(k)
    U, V = single(generator, FACTORS[kind])
    rows, mask = excluded(generator)
    for exclude, barred in ((rows, mask), (None, None)):
        items, scores = ask(U, V, k, exclude)
        expected = full_sort(U, V, barred, k)
        np.testing.assert_array_equal(items, expected[0])
        np.testing.assert_array_equal(scores, expected[1])


@pytest.mark.parametrize("kind", FACTORS)
def test_an_answer_does_not_depend_on_who_else_asks(kind):
    """Items in their order (few users) or sorted by length (many users), in any blocks, give the same bits."""
    generator = np.random.default_rng(0)
    U, V = single(generator, FACTORS[kind])
    rows, _ = excluded(generator)
    whole = ask(U, V, 30, rows)
    for some in (np.array([5]), np.arange(40, 60), np.arange(9, 200, 2)[::-1]):
        part = ask(np.ascontiguousarray(U[some]), V, 30, rows.take(some))
        for a, b in zip(part, whole, strict=True):
            np.testing.assert_array_equal(a, b[some])


@pytest.mark.parametrize("at_once", [1, 3])
def test_long_lists_are_made_for_few_users_at_once(monkeypatch, at_once):
    """So that candidates never take more than CANDIDATE_BYTES per thread, whatever k is."""
    generator = np.random.default_rng(1)
    U, V = single(generator, FACTORS["normal"])
    rows, _ = excluded(generator)
    whole, seen, kernel = ask(U, V, 600, rows), [], top_k.top_k
    monkeypatch.setattr("fairmf.backends.cpu.backend.CANDIDATE_BYTES", at_once * 8 * (900 + 512))
    names = list(inspect.signature(kernel).parameters)
    monkeypatch.setattr("fairmf.backends.cpu.backend.is_compiled", lambda _: True)
    monkeypatch.setattr(top_k, "top_k", lambda *a: (seen.append(a[names.index("at_once")]), kernel(*a)))
    for a, b in zip(ask(U, V, 600, rows), whole, strict=True):
        np.testing.assert_array_equal(a, b)
    assert seen == [at_once]


def test_users_leave_when_no_later_item_can_matter(monkeypatch):
    """With long-tailed items the kernel never reads the later blocks."""
    generator = np.random.default_rng(0)
    U, V = single(generator, FACTORS["long-tailed"])
    order = np.argsort(-np.linalg.norm(V, axis=1))
    expected = ask(U, V, 5, None)
    V[order[1024:]] = np.nan  # whoever looked at these would find nothing that can be compared
    lengths = CPU.squared_norms
    monkeypatch.setattr(type(CPU), "squared_norms", lambda self, x: np.nan_to_num(lengths(x), nan=1e-9))
    for a, b in zip(ask(U, V, 5, None), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_users_and_no_room():
    V = np.ones((3, 2), np.float32)
    assert ask(np.empty((0, 2), np.float32), V, 2, None)[0].shape == (0, 2)
    nothing = Rows(np.array([0, 3]), np.arange(3, dtype=np.int32), None)
    items, scores = ask(np.ones((1, 2), np.float32), V, 2, nothing)
    assert items.tolist() == [[-1, -1]]
    assert np.isnan(scores).all()


@functools.cache
def from_python(kernel):
    """A kernel that only kernels call, as one that Python can call."""
    return numba.njit(lambda *arguments: kernel(*arguments))


@pytest.mark.parametrize("size", [0, 1, 2, 5, 40, 41, 700])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sort(size, dtype):
    values = np.random.default_rng(size).integers(-50, 2**30, size + 6).astype(dtype)
    values[: size // 2] = values[0]  # many equal ones
    expected = np.concatenate((values[:2], np.sort(values[2 : 2 + size]), values[2 + size :]))
    from_python(top_k.sort)(values, 2, 2 + size)
    assert values.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_kth_largest(seed):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 1 + 3 ** (seed % 5), size=1 + seed * 7).astype(np.float32)
    for k in {1, len(values) // 2 + 1, len(values)}:
        assert from_python(top_k.kth_largest)(values.copy(), len(values), k) == np.sort(values)[-k]


def test_keys_sort_as_score_then_lower_item():
    scores = np.array([0.0, -0.0, 1.5, -1.5, 1e-40, -1e-40, 3e38, -3e38, 1.5], np.float32)
    V, user = scores[:, None].copy(), np.ones(1, np.float32)
    order, keys = np.arange(9, dtype=np.int32), np.empty(9, np.int64)
    found = np.empty(9, np.float32)
    from_python(top_k.rank_exactly)(user, V, None, None, order, order, found, found.view(np.int32), 9, keys)
    expected = sorted(range(9), key=lambda j: (-scores[j], j))
    assert [from_python(top_k.item_of)(key) for key in keys[::-1]] == expected
    bits = np.array([from_python(top_k.score_bits_of)(key) for key in keys[::-1]], np.int32)
    assert bits.view(np.float32).tolist() == scores[expected].tolist()


def test_the_same_bits_for_one_thread_and_all():
    generator = np.random.default_rng(3)
    U, V = single(generator, FACTORS["normal"])
    for a, b in zip(ask(U, V, 50, None, 1), ask(U, V, 50, None, numba.config.NUMBA_NUM_THREADS), strict=True):
        np.testing.assert_array_equal(a, b)


def targets_of(U, V, generator):
    """Three items of each user, one of them likely to be in the list, and the lowest and highest of their scores."""
    targets = np.column_stack((generator.integers(0, M, (N, 2)), full_sort(U, V, None, 40)[0][:, 25]))
    scores = np.einsum("ic,itc->it", U, V[targets])
    return targets, ScoreWindow(scores.min(axis=1), scores.max(axis=1))


@pytest.mark.parametrize("kind", FACTORS)
def test_a_window_leaves_given_items_at_their_places(kind):
    generator = np.random.default_rng(4)
    U, V = single(generator, FACTORS[kind])
    rows, mask = excluded(generator)
    targets, window = targets_of(U, V, generator)
    expected, (items, _) = full_sort(U, V, mask, 30)[0], ask(U, V, 30, rows, window=window)
    for i in range(N):
        for target in targets[i]:
            np.testing.assert_array_equal(np.flatnonzero(items[i] == target), np.flatnonzero(expected[i] == target))
    assert (expected[:, :, None] == targets[:, None]).any(axis=2).sum() > N / 4  # there is something to find


def test_users_leave_when_their_list_is_above_the_window(monkeypatch):
    generator = np.random.default_rng(5)
    U, V = single(generator, FACTORS["normal"])
    lowest = full_sort(U, V, None, M)[1][:, -1]  # everybody's worst item
    given, kernel = [], top_k.top_k
    longest = list(inspect.signature(kernel).parameters).index("longest")  # one entry a block of items

    def first_block_only(*arguments):
        given.append(len(arguments[longest]))
        cut = list(arguments)
        cut[longest] = arguments[longest][:1]
        kernel(*cut)

    whole = ask(U, V, 20, None, window=ScoreWindow(lowest, lowest))
    monkeypatch.setattr("fairmf.backends.cpu.backend.is_compiled", lambda _: True)
    monkeypatch.setattr(top_k, "top_k", first_block_only)
    for a, b in zip(ask(U, V, 20, None, window=ScoreWindow(lowest, lowest)), whole, strict=True):
        np.testing.assert_array_equal(a, b)  # the first block was enough for all
    assert given[0] > 1
