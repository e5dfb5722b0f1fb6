"""Test fits with too little device memory: arrays that do not fit are streamed, with the same result."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import EMULATED, as_numpy

from fairmf import FairALS, FiADMM, Interactions, synthetic
from fairmf.backends.registry import what_is_missing
from fairmf.errors import InvalidParameter, NotEnoughMemory

REASON = what_is_missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

# 2 MB: neither the users' factors (768 kB each) nor the interactions (800 kB each way) may stay.
SIZE, LITTLE, BLOCK = ((600, 150, 18_000), "0.0003", 40_000) if EMULATED else ((3000, 800, 200_000), "0.002", 200_000)
DATA = synthetic(*SIZE, random_state=3)


@pytest.fixture
def little(monkeypatch):
    """Too little device memory for the users' factors and the interactions, and blocks so small that there are some."""
    monkeypatch.setenv("FAIRMF_CUDA_MEMORY_GB", LITTLE)
    monkeypatch.setattr("fairmf.backends.cuda.memory.BLOCK_BYTES", BLOCK)


@pytest.mark.parametrize("model", [FairALS, FiADMM])
@pytest.mark.parametrize("solver", ["eigenbasis_cg", "cholesky"])
def test_streamed_fit_equals_the_one_that_fits(model, solver, monkeypatch, caplog):
    settings = {"factors": 64, "epochs": 1 if EMULATED else 5, "solver": solver, "backend": "cuda"}
    whole = model(**settings).fit(DATA, progress=False)
    monkeypatch.setenv("FAIRMF_CUDA_MEMORY_GB", LITTLE)
    monkeypatch.setattr("fairmf.backends.cuda.memory.BLOCK_BYTES", BLOCK)
    caplog.clear()
    streamed = model(**settings).fit(DATA, progress=False)
    assert "interactions stay in the host's memory" in caplog.text
    assert f"factors of {DATA.n_users:,} rows x 64 stay" in caplog.text
    assert isinstance(streamed.user_factors, np.ndarray)
    last = [m.history.final["objective"]["total"] for m in (whole, streamed)]
    assert last[1] == pytest.approx(last[0], rel=1e-6)
    np.testing.assert_allclose(
        streamed.user_factors @ streamed.item_factors.T, whole.user_factors @ whole.item_factors.T, atol=1e-2
    )


@pytest.mark.parametrize("solver", ["eigenbasis_cg", "cholesky"])
def test_features_and_dislikes_are_streamed(monkeypatch, caplog, solver):
    """Right-hand sides of users' own and what their features predict are as large as the users' factors."""
    matrix = DATA.to_csr().astype(np.float32)
    matrix.data[::7] = -0.5
    given = Interactions.from_csr(matrix, weights="values")
    features = {f"{side}_features": sp.random(n, 9, 0.3, format="csr", random_state=n)
                for side, n in zip(("user", "item"), matrix.shape, strict=True)}  # fmt: skip
    settings = {"factors": 64, "epochs": 1 if EMULATED else 2, "solver": solver, "backend": "cuda"}
    whole = FairALS(**settings).fit(given, progress=False, **features)
    monkeypatch.setenv("FAIRMF_CUDA_MEMORY_GB", LITTLE)
    monkeypatch.setattr("fairmf.backends.cuda.memory.BLOCK_BYTES", BLOCK)
    streamed = FairALS(**settings).fit(given, progress=False, **features)
    assert f"factors of {DATA.n_users:,} rows x 64 stay" in caplog.text
    totals = [m.history.column("objective.total") for m in (streamed, whole)]
    np.testing.assert_allclose(*totals, rtol=1e-6)
    maps = [m.fitted.user_features.map @ m.fitted.item_features.map.T for m in (streamed, whole)]
    np.testing.assert_allclose(*maps, atol=1e-3 * np.abs(maps[1]).max())


def test_lists_and_fold_in(little):
    model = FairALS(factors=64, epochs=3, backend="cuda").fit(DATA, progress=False)
    plain = FairALS(factors=64, epochs=3).fit(DATA, progress=False)
    rows = np.arange(DATA.n_users) if DATA.user_ids is None else DATA.user_ids.values
    ours, theirs = (m.recommend(rows, N=10)[0] for m in (model, plain))
    assert (ours == theirs).mean() > 0.98
    scores = [m.fold_in(DATA) @ m.item_factors.T for m in (model, plain)]  # their bases may differ
    np.testing.assert_allclose(*scores, atol=2e-2)


def test_what_must_fit_and_does_not_gives_one_clear_line(monkeypatch):
    monkeypatch.setenv("FAIRMF_CUDA_MEMORY_GB", f"{float(LITTLE) / 2}")
    with pytest.raises(NotEnoughMemory, match=r"rows x 512 take .* GiB.*must fit twice"):
        FairALS(factors=512, epochs=1, backend="cuda").fit(DATA, progress=False)


def test_blocks_of_factors_do_not_stream_and_say_so(little):
    with pytest.raises(NotEnoughMemory, match=r"a score for each of [0-9,]+ interactions.*solver='eigenbasis_cg'"):
        FairALS(factors=64, epochs=1, backend="cuda", solver="subspace").fit(DATA, progress=False)


@pytest.mark.parametrize("value", ["much", "-1", "0", "nan"])
def test_a_limit_that_is_no_size(monkeypatch, value):
    monkeypatch.setenv("FAIRMF_CUDA_MEMORY_GB", value)
    with pytest.raises(InvalidParameter, match="FAIRMF_CUDA_MEMORY_GB must be a number of gigabytes above 0"):
        FairALS(factors=4, epochs=1, backend="cuda").fit(DATA, progress=False)


def test_reductions_of_an_array_on_the_host(little):
    from fairmf.backends.registry import get_backend

    backend = get_backend("cuda")
    values = np.random.default_rng(0).normal(size=(5000, 40)).astype(np.float32)
    weights = np.random.default_rng(1).random(5000)
    with backend.threads(0):
        this = backend.array(values)
        assert isinstance(this, np.ndarray)
        exact = values.astype(float)
        np.testing.assert_allclose(as_numpy(backend.gramian(this)), exact.T @ exact, atol=0.05)
        np.testing.assert_allclose(as_numpy(backend.mean(this)), exact.mean(axis=0), atol=1e-8)
        np.testing.assert_allclose(as_numpy(backend.weighted_squares(this, weights)), weights @ exact**2, rtol=1e-6)
        assert backend.all_finite(this)
        this[-1, -1] = np.inf
        assert not backend.all_finite(this)
