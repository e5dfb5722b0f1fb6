"""Test more interactions than 32 bits can count: every offset must be 64 bits wide."""

import os
from dataclasses import replace

import numpy as np
import pytest
from conftest import as_numpy

from fairmf.backends.contract import Effort, HalfStep
from fairmf.backends.registry import get_backend, what_is_missing
from fairmf.data.csr import Rows

PERIOD, ITEMS, D, TIMES = 2048, 2048, 8, 1000
LENGTHS = np.where(np.arange(PERIOD) % 2, 1000, 1100)  # rows that one block works on, and rows that are cut


def what_is_too_small() -> str | None:
    missing = what_is_missing()
    if missing is not None:
        return missing
    import cupy as cp

    if cp.cuda.runtime.memGetInfo()[0] < 60 << 30 or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 60e9:
        return "2.2e9 interactions need 60 GB of memory, on the device and on the host"
    return None


REASON = what_is_too_small()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


def periodic_rows():
    """The same 2048 rows a thousand times: what holds for one period must hold, bit for bit, for the last."""
    generator = np.random.default_rng(0)
    period = np.concatenate([np.sort(generator.permutation(ITEMS)[:length]) for length in LENGTHS]).astype(np.int32)
    indices = np.empty((TIMES, len(period)), np.int32)
    indices[:] = period
    indptr = np.concatenate(([0], np.cumsum(np.tile(LENGTHS, TIMES)))).astype(np.int64)
    return Rows(indptr, indices.reshape(-1), None)


def test_beyond_two_to_the_31_interactions():
    rows, backend = periodic_rows(), get_backend("cuda")
    assert rows.nnz > 2**31
    generator = np.random.default_rng(1)
    x, y = (generator.normal(0, 0.3, size=(count, D)).astype(np.float32) for count in (PERIOD, ITEMS))
    ridge = np.tile(generator.random(PERIOD) + 1.0, TIMES)
    first = rows.block(0, PERIOD)
    with backend.threads(0):
        start, other = np.tile(x, (TIMES, 1)), backend.array(y)
        this = backend.array(start)
        loss = backend.observed_loss(rows, this, other)
        assert loss == pytest.approx(TIMES * backend.observed_loss(first, backend.array(x), other), rel=1e-9)
        diagonal, zero = backend.vector(np.ones(D)), backend.vector(np.zeros(D))
        step = HalfStep(backend, rows, other, diagonal, ridge, zero)
        out = backend.residual(step, this)
        backend.improve(step, this, Effort(2))
        for values in (out, this):
            found = as_numpy(values).reshape(TIMES, PERIOD, D)
            assert np.isfinite(found[0]).all()
            assert (found == found[0]).all()
        single = backend.array(x)
        backend.improve(replace(step, rows=first, ridge=ridge[:PERIOD]), single, Effort(2))
        np.testing.assert_array_equal(as_numpy(this)[-PERIOD:], as_numpy(single))
        items, scores = np.empty((len(start), 5), np.int32), np.empty((len(start), 5), np.float32)
        backend.top_k(this, other, 5, rows, items, scores)
    assert (items.reshape(TIMES, PERIOD, 5) == items[:PERIOD]).all()
    last = rows.row(rows.count - 1)[0]
    assert not np.isin(items[-1], last).any()
