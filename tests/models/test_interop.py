"""scikit-learn's contract for settings, and the way over from implicit."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from conftest import peer_library, random_rows

from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidParameter, NotFitted
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.popularity import Popularity

ROOT = Path(__file__).resolve().parents[2]
DATA = Interactions(random_rows(60, 40, density=0.15), 40)
MODELS = [
    IALS(factors=7),
    FairALS(fairness=3.0, epochs=2),
    FiADMM(rho=5.0, lambda_f=2.0, epochs=5),
    Popularity(num_threads=1),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_settings_can_be_read_and_a_model_rebuilt_from_them(model):
    params = model.get_params()
    assert params == model.get_params(deep=False)
    again = type(model)(**params)
    assert again.get_params() == params
    assert repr(again) == repr(model)
    assert params["num_threads"] == model.num_threads


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_scikit_learns_clone(model):
    base = pytest.importorskip("sklearn.base")
    trained = type(model)(**model.get_params()).set_params(num_threads=1)
    trained.fit(DATA)
    twin = base.clone(trained)
    assert twin is not trained
    assert twin.get_params() == trained.get_params()
    with pytest.raises(NotFitted):
        _ = twin.fitted


def test_set_params_stores_and_leaves_the_fit_alone():
    model = FairALS(factors=4, epochs=2).fit(DATA)
    before = model.fold_in(DATA)
    assert model.set_params(regularization=3.0, fairness=9.0) is model
    assert (model.regularization, model.fairness) == (3.0, 9.0)
    np.testing.assert_array_equal(model.fold_in(DATA), before)
    model.set_params(factors=-1)  # stored as a constructor would: fit says what is wrong
    with pytest.raises(InvalidParameter, match=r"'factors' parameter of FairALS must be an integer >= 1\. Got -1"):
        model.fit(DATA)


def test_unknown_settings_are_named_and_nothing_is_stored():
    model = IALS()
    with pytest.raises(InvalidParameter, match=r"IALS has no parameter 'alpha'\. It has 'factors', 'regul"):
        model.set_params(factors=3, alpha=1.0)
    assert model.factors == 128
    with pytest.raises(InvalidParameter, match="has no parameter '_fitted'"):
        model.set_params(_fitted=None)


def test_factors_are_numpy_arrays():
    model = IALS(factors=4, epochs=1).fit(DATA)
    for factors, rows in ((model.user_factors, 60), (model.item_factors, 40)):
        assert type(factors) is np.ndarray
        assert factors.dtype == np.float32
        assert factors.shape == (rows, 4)


# -- implicit ----------------------------------------------------------------------------------------------------------


def implicits(alpha, regularization, factors, iterations):
    als = peer_library("implicit.cpu.als")
    with threadpoolctl.threadpool_limits(1, "blas"):  # implicit warns otherwise
        return als.AlternatingLeastSquares(
            factors=factors, alpha=alpha, regularization=regularization, iterations=iterations, use_cg=False,
            num_threads=1, dtype=np.float64, random_state=0,
        )  # fmt: skip


@pytest.mark.parametrize("alpha", [2.0, 20.0])
def test_the_same_model_as_implicit(alpha):
    """The translation of docs/from-implicit.md, for alpha > 1 and a matrix of ones.

    Both run the same number of half-steps from the same items: implicit's users are solved once more, as ours are.
    """
    regularization, d, epochs = 0.4, 5, 6
    peer = implicits(alpha, regularization, d, epochs)
    user_items = sp.csr_matrix(DATA.to_csr())
    generator = np.random.default_rng(3)
    start_u, start_v = generator.normal(0, 0.3, size=(60, d)), generator.normal(0, 0.3, size=(40, d))
    peer.user_factors, peer.item_factors = start_u.copy(), start_v.copy()
    arrays = np.array(user_items.data, dtype=np.float64), np.array(user_items.indices), np.array(user_items.indptr)
    writable = sp.csr_matrix(arrays, shape=user_items.shape)
    with threadpoolctl.threadpool_limits(1, "blas"):
        peer.fit(writable, show_progress=False)
        theirs = peer.recalculate_user(np.arange(60), writable) @ peer.item_factors.T
    shrink = 1 - 1 / alpha
    model = IALS(
        factors=d, unobserved_weight=1 / (alpha - 1), regularization=regularization / alpha,
        regularization_exponent=0.0, epochs=epochs, solver="cholesky", backend="reference",
    )  # fmt: skip
    model.fit(DATA, init=(np.sqrt(shrink) * start_u, np.sqrt(shrink) * start_v))
    ours = model.user_factors @ model.item_factors.T
    np.testing.assert_allclose(ours, shrink * theirs, atol=1e-5)
    # Without any of the three the scores are others.
    for wrong in (
        {"unobserved_weight": 1 / alpha},
        {"regularization": regularization},
        {"regularization_exponent": 1.0},
    ):
        other = IALS(**(model.get_params() | wrong)).fit(DATA, init=(start_u, np.sqrt(shrink) * start_v))
        assert np.abs(other.user_factors @ other.item_factors.T - shrink * theirs).max() > 1e-3


@pytest.mark.parametrize("page", ["from-implicit.md", "fold-in.md"])
def test_the_examples_of_the_documentation_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:  # one after the other: later blocks use what earlier ones made
        exec(compile(block, page, "exec"), names)
