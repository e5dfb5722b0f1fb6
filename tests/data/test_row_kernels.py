"""Compiled code for large rows gives the same answers as NumPy for small ones, to the bit, on any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp

from fairmf import Interactions, threads
from fairmf.data import csr, row_kernels
from fairmf.data.csr import Rows
from fairmf.data.weighting import Balance
from fairmf.errors import InvalidData

KINDS = ("binary", "weighted", "dislikes")


def some_rows(kind, n=300, m=70, seed=0):
    """Rows of very different lengths, empty rows and columns among them."""
    rng = np.random.default_rng(seed)
    chances = np.where(np.arange(n) % 7 == 0, 0.0, rng.random(n) ** 4)[:, None] * (np.arange(m) % 5 != 0)
    dense = rng.random((n, m)) < chances
    weights = rng.gamma(1.0, size=dense.sum()).astype(np.float32) + np.float32(0.01)
    if kind == "dislikes":
        weights *= rng.choice(np.float32([-1, 1]), size=len(weights))
    indptr = np.concatenate(([0], np.cumsum(dense.sum(axis=1)))).astype(np.int64)
    return Rows(indptr, np.nonzero(dense)[1].astype(np.int32), None if kind == "binary" else weights), m


def both(monkeypatch, compute, number_of_threads=4):
    """Return the answer for small rows, and that for large ones."""
    monkeypatch.setattr(csr, "LARGE", 1 << 60)
    small = compute()
    monkeypatch.setattr(csr, "LARGE", 0)
    monkeypatch.setattr(threads, "WORTH_WAKING", 1.0)
    monkeypatch.setattr(threads, "SMALLEST", 1.0)
    with threads.use(number_of_threads):
        return small, compute()


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_transposed_as_scipy_does_it(monkeypatch, kind, number):
    rows, m = some_rows(kind)
    monkeypatch.setattr(row_kernels.threads, "count", lambda: number)
    assert_same(*both(monkeypatch, lambda: csr.transpose(rows, m), number))


@pytest.mark.parametrize("kind", KINDS)
def test_transposed_twice_is_the_matrix(monkeypatch, kind):
    rows, m = some_rows(kind, seed=1)
    monkeypatch.setattr(csr, "LARGE", 0)
    assert_same(csr.transpose(csr.transpose(rows, m), rows.count), rows)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_counts(monkeypatch, kind):
    rows, m = some_rows(kind)
    assert_same(*both(monkeypatch, lambda: [rows.sums(), rows.column_counts(m)]))
    naive_sums, naive_counts = np.zeros(rows.count), np.zeros(m)
    for i in range(rows.count):
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            weight = 1.0 if rows.weights is None else float(rows.weights[e])
            naive_sums[i] += abs(weight)
            naive_counts[rows.indices[e]] += weight > 0
    np.testing.assert_array_equal(rows.sums(), naive_sums)
    np.testing.assert_array_equal(rows.column_counts(m), naive_counts)


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_balanced(monkeypatch, kind, number):
    rows, m = some_rows(kind)

    def balance():
        how = Balance(0.5, 0.25, rows.column_counts(m), 1.0)
        totals = how.totals(rows)
        how = how.normalised([totals])
        return np.array(totals), how.balanced(rows)

    assert_same(*both(monkeypatch, balance, number))


@pytest.mark.parametrize("values", ["binary", "confidences", "bool", "int8", "int64"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_a_clean_matrix_is_read_alike(monkeypatch, values, index):
    rows, m = some_rows("weighted")
    data = rows.weights if values == "confidences" else np.ones(rows.nnz, values if values != "binary" else np.float32)
    matrix = sp.csr_array((data, rows.indices, rows.indptr), shape=(rows.count, m))
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)

    for weights in (None, "values"):
        found = both(monkeypatch, lambda w=weights: Interactions.from_csr(matrix, weights=w).by_user)
        assert_same(*found)
        assert not np.shares_memory(found[1].indices, matrix.indices)


@pytest.mark.parametrize("damage", ["zero", "unsorted", "repeated", "outside", "negative index", "nan", "infinite"])
def test_what_needs_cleaning_or_is_wrong_is_found(monkeypatch, damage):
    rows, m = some_rows("weighted")
    data, indices = rows.weights.copy(), rows.indices.copy()
    start = int(rows.indptr[np.argmax(np.diff(rows.indptr))])  # of a long row
    if damage == "zero":
        data[start] = 0
    elif damage == "unsorted":
        indices[start : start + 2] = indices[start : start + 2][::-1].copy()
    elif damage == "repeated":
        indices[start + 1] = indices[start]
    elif damage == "outside":
        indices[-1] = m
    elif damage == "negative index":
        indices[start] = -1
    else:
        data[start] = np.nan if damage == "nan" else np.inf
    matrix = sp.csr_array((data, indices, rows.indptr), shape=(rows.count, m))

    def read():
        try:
            return Interactions.from_csr(matrix, weights="values").by_user
        except InvalidData as error:
            return str(error)

    small, large = both(monkeypatch, read)
    if damage in ("zero", "unsorted", "repeated"):
        assert_same(small, large)
    else:
        assert small == large
        assert isinstance(small, str)


@pytest.mark.parametrize("large", [False, True])
def test_a_matrix_may_be_shared_instead_of_copied(monkeypatch, large):
    rows, m = some_rows("weighted")
    monkeypatch.setattr(csr, "LARGE", 0 if large else 1 << 60)
    matrix = sp.csr_array((rows.weights, rows.indices, rows.indptr), shape=(rows.count, m))
    matrix.indices = matrix.indices.astype(np.int32)
    shared = Interactions.from_csr(matrix, weights="values", copy=False)
    assert np.shares_memory(shared.by_user.indices, matrix.indices)
    assert np.shares_memory(shared.by_user.weights, matrix.data)
    assert matrix.indices.flags.writeable  # the matrix stays as it is
    assert shared.fingerprint() == Interactions.from_csr(matrix, weights="values").fingerprint()


def test_a_fit_on_large_rows_has_the_same_bits(monkeypatch):
    from fairmf import FairALS

    rows, m = some_rows("binary")
    matrix = sp.csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=(rows.count, m))

    def factors():
        model = FairALS(factors=8, epochs=2, fairness=1.0).fit(matrix, progress=False)
        return model.user_factors, model.item_factors

    assert_same(*both(monkeypatch, factors))
