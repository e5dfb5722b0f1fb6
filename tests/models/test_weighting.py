"""A model remembers how its data were weighted: the same raw history gives the same vector everywhere."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import paper_als

from fairmf import IALS, FiADMM, Interactions, Popularity, Split, load_model
from fairmf.data.split import HeldOut
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter, MissingHistories
from fairmf.io import container
from fairmf.models.model_file import MODEL

SIZES = (60, 40)


def plays(seed=0):
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 9, SIZES) * (rng.random(SIZES) < 0.2)
    dense[:, 0] = 0
    dense[:, 1] = 1  # nobody is without history
    return dense.astype(np.float32)


def interactions(dense, **ids):
    return Interactions.from_csr(sp.csr_array(dense), weights="values", **ids)


def naive(how, history, train):
    """The weights of one raw history, entry by entry, with the item lengths of `train`."""
    found = np.zeros(len(history))
    length, m = train.sum(axis=0), train.shape[1]
    for j in np.flatnonzero(history):
        c = float(history[j])
        if how == "log":
            found[j] = np.log2(1 + c)
        else:
            saturated = c * 101 / (100 * (0.2 + 0.8 * length[j] / length.mean()) + c)
            found[j] = saturated * np.log(m / (1 + np.count_nonzero(history)))
    return found


def naive_vector(model, weights, fairness):
    """u = (sum_j c_j v_j v_j' + alpha0 G + lambda I)^-1 (sum_j c_j v_j - psi q1), in float64."""
    V = model.item_factors.astype(float)
    m, d = V.shape
    ridge = model.regularization * (weights.sum() + model.unobserved_weight * m) ** model.regularization_exponent
    H = (V.T * weights) @ V + model.unobserved_weight * V.T @ V + ridge * np.eye(d)
    return np.linalg.solve(H, V.T @ weights - fairness * model.fitted.merit)


def fitted(how, model=paper_als, dense=None, **ids):
    data = interactions(plays() if dense is None else dense, **ids).reweighted(how)
    return model(factors=6, epochs=4, regularization=0.05).fit(data, progress=False)


@pytest.mark.parametrize("how", ["log", "bm25"])
@pytest.mark.parametrize("model", [paper_als, IALS, FiADMM])
def test_a_raw_history_is_weighted_like_the_training_data(how, model):
    made, new = fitted(how, model), plays(seed=5)[:4]
    weights = np.array([naive(how, row, plays()) for row in new])
    expected = np.array([naive_vector(made, row, made.fitted.fairness) for row in weights])
    assert np.allclose(made.fold_in(interactions(new)), expected, atol=1e-4)
    one = np.flatnonzero(new[0])
    assert np.allclose(made.fold_in_user(one, new[0, one]), expected[0], atol=1e-4)


@pytest.mark.parametrize("how", ["log", "bm25"])
def test_one_history_has_one_vector_everywhere(how, tmp_path):
    made, raw = fitted(how), interactions(plays())
    weighted = raw.reweighted(how)
    assert np.array_equal(made.fold_in(raw), made.fold_in(weighted))
    assert np.allclose(made.fold_in(raw), made.user_factors, atol=1e-3)
    users = np.arange(raw.n_users)
    expected = made.recommend(users, N=5, recalculate_user=True)
    made.save(tmp_path / "m.fairmf")
    made.save(tmp_path / "private.fairmf", interactions=False)
    for model in (made, load_model(tmp_path / "m.fairmf"), load_model(tmp_path / "private.fairmf")):
        assert model.fitted.weighting == weighted.weighting
        for found in (
            model.recommend(users, raw, N=5, recalculate_user=True),
            model.recommend(users, weighted, N=5, recalculate_user=True),
        ):
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        batches = model.recommend_batches(users, N=5, user_items=raw, recalculate_user=True, batch_size=7)
        assert np.array_equal(np.concatenate([batch.ids for batch in batches]), expected[0])
        ranked = np.concatenate([lists for _, lists in model.rank(raw, 5)])
        assert np.array_equal(ranked, expected[0])
        given = model.explain(None, 3, user_items=raw.take_users(np.array([2])))
        assert given.score == pytest.approx(made.explain(2, 3).score)
        assert given.contributions == made.explain(2, 3).contributions


@pytest.mark.parametrize("how", ["log", "bm25"])
def test_added_users_are_weighted(how):
    made, new = fitted(how), plays(seed=5)[:3]
    expected = made.fold_in(interactions(new))
    grown = made.partial_fit_users([60, 61, 7], interactions(new))
    assert np.allclose(grown.user_factors[[60, 61, 7]], expected)
    held = grown.fitted.interactions
    assert held.weighting == grown.fitted.weighting
    for row, history in zip((60, 61, 7), new, strict=True):
        assert np.allclose(held.to_csr().toarray()[row], naive(how, history, plays()), rtol=1e-5)
    assert np.allclose(grown.with_fairness(1.0).user_factors[[60, 61, 7]], expected, atol=1e-5)


@pytest.mark.parametrize("how", ["log", "bm25"])
def test_rows_of_training_items_are_weighted(how):
    made, dense = fitted(how, IALS), plays()
    batch = interactions(dense.T[5:9])
    weights = np.array([naive(how, row, dense) for row in dense])[:, 5:9].T
    U = made.user_factors.astype(float)
    for vector, c in zip(made.fold_in_items(batch), weights, strict=True):
        ridge = 0.05 * (c.sum() + 0.1 * len(U))
        H = (U.T * c) @ U + 0.1 * U.T @ U + ridge * np.eye(6)
        assert np.allclose(vector, np.linalg.solve(H, U.T @ c), atol=1e-4)


@pytest.mark.parametrize("how", ["log", "bm25"])
def test_added_items_enter_the_histories_weighted(how):
    made, dense = fitted(how), plays()
    column = plays(seed=9)[:, 2]
    column[::2] = 4
    grown = made.partial_fit_items([40], interactions(column[None, :]))
    whole = np.column_stack((dense, column))
    vectors = grown.fold_in(grown.fitted.interactions)
    assert np.allclose(grown.fold_in(interactions(whole)), vectors, atol=1e-5)
    found = grown.fitted.interactions.to_csr().toarray()
    lengths = whole.sum(axis=0)
    for i, j in np.argwhere(whole):
        c, expected = float(whole[i, j]), np.log2(1 + whole[i, j])
        if how == "bm25":  # mean length and number of items stay those of training
            expected = c * 101 / (100 * (0.2 + 0.8 * lengths[j] / dense.sum(axis=0).mean()) + c)
            expected *= np.log(40 / (1 + np.count_nonzero(whole[i])))
        assert found[i, j] == pytest.approx(expected, rel=1e-5)


def test_new_items_need_histories_where_users_count(tmp_path):
    made = fitted("bm25")
    made.save(tmp_path / "m.fairmf", interactions=False)
    with pytest.raises(MissingHistories, match="the weight of a new item"):
        load_model(tmp_path / "m.fairmf").fold_in_items(interactions(plays().T[:2]))
    with pytest.raises(InvalidData, match="raw"):
        made.fold_in_items(interactions(plays().T[:2]).reweighted("bm25"))


def test_a_history_that_was_weighted_otherwise_is_refused():
    made, raw = fitted("bm25"), interactions(plays())
    with pytest.raises(InvalidData, match=r"'log'.*'bm25'.*raw"):
        made.fold_in(raw.reweighted("log"))
    with pytest.raises(InvalidData, match="other data"):
        made.fold_in(interactions(plays(seed=3)).reweighted("bm25"))
    with pytest.raises(InvalidData, match=r"'bm25'.*'log'"):
        fitted("log").fold_in(raw.reweighted("bm25"))
    with pytest.raises(InvalidParameter, match="already"):
        raw.reweighted("log").reweighted("log")


def test_a_model_of_raw_data_takes_histories_as_they_are(tmp_path):
    raw = interactions(plays())
    made = IALS(factors=4, epochs=2).fit(raw, progress=False)
    assert made.fitted.weighting is None
    made.save(tmp_path / "m.fairmf")
    # Without any weighting the file does not speak of it.
    stored = (tmp_path / "m.fairmf").read_bytes()
    assert b"weighting" not in stored
    assert load_model(tmp_path / "m.fairmf").fitted.weighting is None
    assert not np.allclose(made.fold_in(raw), made.fold_in(raw.reweighted("log")))


def test_popularity_and_parts_of_a_split_remember(tmp_path):
    raw = interactions(plays())
    for how in ("log", "bm25"):
        data = raw.reweighted(how)
        assert data.take_users(np.array([1, 2])).weighting == data.weighting
        Popularity().fit(data).save(tmp_path / "p.fairmf")
        assert load_model(tmp_path / "p.fairmf").fitted.weighting == data.weighting
        new = interactions(plays(seed=4))
        shown = new.reweighted(how)
        targets = interactions(np.eye(*SIZES, dtype=np.float32) * (plays(seed=4) == 0))
        Split(data, HeldOut(shown, targets), HeldOut(new, targets)).save(tmp_path / how)
        found = Split.load(tmp_path / how)
        assert found.train.weighting == data.weighting
        assert found.validation.fold_in.weighting == shown.weighting
        assert found.test.fold_in.weighting is None


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ("log", {"how": "tfidf"}),
        ("log", {"how": "log", "K1": 1.0}),
        ("log", {"how": "bm25", "K1": 1.0, "B": 0.5, "mean_length": 2.0, "n_items": 40}),
        ("bm25", {"how": "log"}),
        ("bm25", {"how": "bm25", "K1": 0.0, "B": 0.5, "mean_length": 2.0, "n_items": 40}),
        ("bm25", {"how": "bm25", "K1": 1.0, "B": 2.0, "mean_length": 2.0, "n_items": 40}),
        ("bm25", {"how": "bm25", "K1": 1.0, "B": 0.5, "mean_length": 0.0, "n_items": 40}),
        ("bm25", {"how": "bm25", "K1": 1.0, "B": 0.5, "mean_length": 2.0, "n_items": "40"}),
        ("bm25", None),
    ],
)
def test_a_file_that_says_something_impossible_is_refused(how, part, tmp_path):
    path = tmp_path / "m.fairmf"
    fitted(how).save(path)
    content, arrays = container.read(path, MODEL)
    content["weighting"] = part
    container.write(path, MODEL, content, arrays)
    with pytest.raises(BrokenFile):
        load_model(path)
