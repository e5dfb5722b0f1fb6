"""Balanced confidences against a double loop."""

import numpy as np
import pytest

from fairmf.data.csr import Rows
from fairmf.data.weighting import Balance


def random_rows(weighted, n=30, m=12, seed=0):
    rng = np.random.default_rng(seed)
    full = rng.random((n, m)) < 0.3
    full[4] = False  # a user without items
    full[:, 5] = False  # an item without users
    indptr = np.concatenate([[0], np.cumsum(full.sum(axis=1))])
    indices = np.nonzero(full)[1].astype(np.int32)
    return Rows(indptr, indices, rng.uniform(0.5, 4, len(indices)).astype(np.float32) if weighted else None), full


def learned(rows, n_items, item_balance, user_balance):
    """Return the balance of these rows alone, as a fit learns it."""
    found = Balance(item_balance, user_balance, rows.column_counts(n_items), 1.0)
    return found.normalised([found.totals(rows)])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("b_items", "b_users"), [(0.4, 0.0), (0.0, 0.5), (0.7, 0.3), (0.0, 0.0)])
def test_confidences_are_the_formula(weighted, b_items, b_users):
    rows, full = random_rows(weighted)
    found = learned(rows, 12, b_items, b_users)
    f, a = np.maximum(full.sum(axis=0), 1), np.maximum(full.sum(axis=1), 1)
    raw, expected = [], []
    for i in range(30):
        for j, r in zip(*rows.row(i), strict=True) if weighted else ((j, 1.0) for j in rows.row(i)[0]):
            raw.append(float(r))
            expected.append(float(r) * f[j] ** -b_items * a[i] ** -b_users)
    z = np.mean(expected) / np.mean(raw)
    assert found.norm == pytest.approx(z, rel=1e-12)
    np.testing.assert_allclose(found.weights(rows), np.array(expected) / z, rtol=1e-6)
    assert found.weights(rows).mean(dtype=np.float64) == pytest.approx(np.mean(raw), rel=1e-6)


def test_a_history_is_weighted_alike_alone_and_among_others():
    rows, _ = random_rows(True)
    balance = learned(rows, 12, 0.4, 0.5)
    together = balance.weights(rows)
    for i in (0, 7, 29):
        assert np.array_equal(balance.weights(rows.take(np.array([i]))), together[rows.indptr[i] : rows.indptr[i + 1]])


def test_rows_of_items_have_the_same_confidences():
    rows, full = random_rows(True)
    balance = learned(rows, 12, 0.4, 0.5)
    order = np.lexsort((np.repeat(np.arange(30), np.diff(rows.indptr)), rows.indices))
    users = np.repeat(np.arange(30, dtype=np.int32), np.diff(rows.indptr))[order]
    by_item = Rows(np.concatenate([[0], np.cumsum(full.sum(axis=0))]), users, rows.weights[order])
    found = balance.item_weights(by_item, np.diff(rows.indptr))
    np.testing.assert_allclose(found, balance.weights(rows)[order], rtol=1e-6)
