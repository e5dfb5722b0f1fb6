"""scikit-learn's contract for settings, and the way over from implicit."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from conftest import peer_library, random_rows

from fairmf import load_model, synthetic
from fairmf.data.interactions import Interactions
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter, NotFitted, UnknownId
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
    with pytest.raises(InvalidParameter, match=r"IALS has no parameter 'colour'\. It has 'factors', 'regul"):
        model.set_params(factors=3, colour=1.0)
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


# -- what users of implicit expect ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"iterations": 10}, r"has no parameter 'iterations'; did you mean epochs\?"),
        ({"alpha": 40.0}, "from-implicit"),
        ({"use_gpu": True}, "backend='cuda'"),
        ({"factor": 8}, "did you mean factors"),
        ({"evenness": 0.3}, "after training"),
    ],
)
@pytest.mark.parametrize("kind", [FairALS, IALS, FiADMM, Popularity])
def test_a_keyword_that_does_not_exist_names_the_one_that_was_meant(kind, wrong, hint):
    if kind is Popularity and hint == "did you mean factors":
        hint = "has no parameter"
    with pytest.raises(TypeError, match=hint) as raised:
        kind(**wrong)
    assert isinstance(raised.value, InvalidParameter)
    with pytest.raises(InvalidParameter, match=hint):
        kind().set_params(**wrong)


def test_constructors_keep_their_signature():
    assert [*inspect.signature(IALS).parameters][:3] == ["factors", "regularization", "regularization_exponent"]
    with pytest.raises(TypeError, match="positional"):
        Popularity(1, "cpu", 3)


def test_a_model_that_is_not_fitted_lacks_its_attributes():
    model = IALS()
    assert not hasattr(model, "item_factors")
    with pytest.raises(AttributeError, match="not fitted"):
        _ = model.user_factors
    with pytest.raises(NotFitted):
        model.recommend(0)


def test_an_id_of_another_type_is_named():
    matrix = sp.csr_matrix([[1, 1], [1, 0]])
    numbers = Interactions.from_csr(matrix, user_ids=[1, 2], item_ids=[10, 11])
    texts = Interactions.from_csr(matrix, user_ids=["1", "2"], item_ids=["10", "11"])
    by_number, by_text = (IALS(factors=2, epochs=1).fit(data) for data in (numbers, texts))
    with pytest.raises(UnknownId, match="user ids of these data are integers: pass 1 instead of '1'"):
        by_number.recommend("1")
    with pytest.raises(UnknownId, match="user ids of these data are texts: pass '1' instead of 1"):
        by_text.recommend(1)
    with pytest.raises(IndexError, match="item ids of these data are integers: pass 10 instead of '10'"):
        by_number.similar_items("10")
    with pytest.raises(UnknownId) as unknown:
        by_number.recommend("x")
    assert unknown.value.hint is None


def test_functions_are_callbacks():
    seen = []
    data = synthetic(40, 30, 300)
    model = IALS(factors=3, epochs=3).fit(data, callbacks=[lambda *told: seen.append(told)])
    assert [epoch for epoch, _, _ in seen] == [0, 1, 2]
    assert [loss for _, _, loss in seen] == model.history.column("objective.total")
    assert all(seconds > 0 for _, seconds, _ in seen)


def test_similar_items_of_recalculated_vectors():
    data = synthetic(60, 40, 600)
    model = IALS(factors=4, epochs=3).fit(data)
    users = data.to_csr().T.tocsr()
    asked = data.item_ids.values[[3, 8]]
    ids, cosines = model.similar_items(asked, 5, recalculate_item=True, item_users=users[[3, 8]])
    vectors, stored = model.fold_in_items(users[[3, 8]]), model.item_factors
    expected = (vectors @ stored.T) / np.linalg.norm(vectors, axis=1)[:, None] / np.linalg.norm(stored, axis=1)
    for k, item in enumerate((3, 8)):
        best = np.sort(np.delete(expected[k], item))[::-1][:4]
        assert ids[k][0] == data.item_ids.values[item]
        assert cosines[k] == pytest.approx([expected[k][item], *best], abs=1e-5)
        assert cosines[k] == pytest.approx(expected[k][data.item_ids.positions(ids[k])], abs=1e-5)
    # Rows of other items change the answer: they are used.
    other = model.similar_items(asked, 5, recalculate_item=True, item_users=users[[5, 6]])[1]
    assert not np.allclose(other, cosines)
    with pytest.raises(InvalidData, match="1 rows for 2 items"):
        model.similar_items(asked, recalculate_item=True, item_users=users[[3]])
    with pytest.raises(InvalidParameter, match="item_users"):
        model.similar_items(asked, recalculate_item=True)


def test_models_are_saved_to_and_loaded_from_open_files(tmp_path):
    model = IALS(factors=3, epochs=2).fit(synthetic(40, 30, 300))
    with (tmp_path / "m").open("wb+") as file:
        model.save(file)
        file.seek(0)
        found = IALS.load(file)
    assert np.array_equal(found.item_factors, model.item_factors)
    assert np.array_equal(load_model(tmp_path / "m").user_factors, model.user_factors)
    with pytest.raises(BrokenFile, match="class IALS, not FairALS"):
        FairALS.load(tmp_path / "m")


def test_repr_is_one_short_line():
    model = FairALS(factors=3, epochs=2)
    assert repr(model) == "FairALS(factors=3, epochs=2)"
    assert repr(model.fit(synthetic(40, 30, 300))) == "FairALS(factors=3, epochs=2), fitted to 40 users x 30 items"
    assert repr(Popularity()) == "Popularity()"
