"""Balanced confidences belong to the model: the same history has the same vector everywhere."""

import pickle

import numpy as np
import pytest
from in_process import InProcess

from fairmf import IALS, FairALS, FiADMM, Interactions, load_model, synthetic
from fairmf.data.csr import Rows
from fairmf.data.weighting import Balance
from fairmf.errors import InvalidData
from fairmf.models.fit_loop import balanced_like

DATA = synthetic(120, 50, 1500, random_state=4)
SETTINGS = {"factors": 6, "regularization": 0.05, "backend": "reference"}
BALANCE = {"item_balance": 0.4, "user_balance": 0.3}
MODELS = [(IALS, "eigenbasis_cg"), (FairALS, "cholesky"), (FairALS, "subspace"), (FiADMM, "cholesky")]


def by_hand(data, item_balance, user_balance):
    """The same data with the confidences of the formula, for a model that knows of no balance."""
    full = data.to_csr().toarray() > 0
    f, a = np.maximum(full.sum(axis=0), 1), np.maximum(full.sum(axis=1), 1)
    rows = data.by_user
    raw = np.ones(rows.nnz) if rows.weights is None else rows.weights.astype(float)
    users = np.repeat(np.arange(data.n_users), np.diff(rows.indptr))
    c = raw * f[rows.indices] ** -item_balance * a[users] ** -user_balance
    weights = (c * raw.mean() / c.mean()).astype(np.float32)
    return Interactions(Rows(rows.indptr, rows.indices, weights), data.n_items, data.user_ids, data.item_ids)


@pytest.mark.parametrize(("model", "solver"), MODELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_is_that_of_the_weights_by_hand(model, solver, weighted):
    data = DATA.reweighted("bm25") if weighted else DATA
    found = model(**SETTINGS, **BALANCE, solver=solver, epochs=3).fit(data, progress=False)
    plain = model(**SETTINGS, item_balance=0.0, user_balance=0.0, solver=solver, epochs=3)
    expected = plain.fit(by_hand(data, 0.4, 0.3), progress=False)
    np.testing.assert_allclose(found.item_factors, expected.item_factors, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.user_factors, expected.user_factors, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.fitted.popularity, data.by_item.sums())


def test_without_balance_nothing_changes():
    plain = IALS(factors=6, epochs=3).fit(DATA, progress=False)
    zero = FairALS(factors=6, epochs=3, fairness=0.0, item_balance=0.0, user_balance=0.0).fit(DATA, progress=False)
    assert np.array_equal(plain.item_factors, zero.item_factors)
    assert zero.fitted.weighting is None


def test_the_defaults_are_balances_without_fairness():
    default = FairALS(factors=6, epochs=3).fit(DATA, progress=False)
    named = FairALS(factors=6, epochs=3, fairness=0.0, item_balance=0.25, user_balance=0.25).fit(DATA, progress=False)
    assert np.array_equal(default.item_factors, named.item_factors)
    assert (default.fitted.weighting.item_balance, default.fitted.weighting.user_balance) == (0.25, 0.25)
    assert default.fitted.trained_fairness == 0.0
    for plain in (IALS(), FiADMM()):  # the papers' methods
        assert (plain.item_balance, plain.user_balance) == (0.0, 0.0)


@pytest.mark.parametrize("how", [None, "bm25"])
def test_the_file_names_the_data_that_were_given(how, tmp_path):
    """Not the balanced confidences that the model holds."""
    data = DATA if how is None else DATA.reweighted(how)
    model = FairALS(factors=4, epochs=1, **BALANCE).fit(data, progress=False)
    assert model.fitted.interactions.fingerprint() != data.fingerprint()
    model.save(tmp_path / "one.fairmf")
    again = pickle.loads(pickle.dumps(load_model(tmp_path / "one.fairmf")))
    again.save(tmp_path / "two.fairmf")
    again.save(tmp_path / "three.fairmf", interactions=False)
    load_model(tmp_path / "three.fairmf").save(tmp_path / "four.fairmf")
    for name in ("one", "two", "three", "four"):
        assert load_model(tmp_path / f"{name}.fairmf").fitted.provenance["data_fingerprint"] == data.fingerprint()
    grown = again.partial_fit_users([10**6], Interactions(DATA.by_user.take(np.array([3])), DATA.n_items))
    grown.save(tmp_path / "grown.fairmf")  # other data now
    assert load_model(tmp_path / "grown.fairmf").fitted.provenance["data_fingerprint"] != data.fingerprint()


@pytest.mark.parametrize("strength", [1, np.float32(0.3), 0.3])
def test_strengths_of_any_number_type_are_stored(strength, tmp_path):
    model = FairALS(factors=4, epochs=1, item_balance=strength, user_balance=strength).fit(DATA, progress=False)
    model.save(tmp_path / "m.fairmf")
    again = load_model(tmp_path / "m.fairmf")
    assert again.fitted.weighting == model.fitted.weighting
    assert again.item_balance == strength


def test_weighted_histories_of_a_balanced_model():
    """They are balanced if they were weighted like the training data, and refused otherwise."""
    model = FairALS(factors=4, epochs=2, **BALANCE).fit(DATA.reweighted("bm25"), progress=False)
    raw = Interactions(DATA.by_user, DATA.n_items)
    np.testing.assert_allclose(model.fold_in(raw), model.fold_in(DATA.reweighted("bm25")), atol=1e-6)
    with pytest.raises(InvalidData, match=r"by 'log', the model's data by 'bm25' and 'balance'; give the raw"):
        model.fold_in(DATA.reweighted("log"))
    with pytest.raises(InvalidData, match=r"by 'balance', the model's data by 'bm25' and 'balance' of other data"):
        model.fold_in(balanced_like(FairALS(item_balance=0.1, user_balance=0.1), DATA)[0])
    plain = FairALS(factors=4, epochs=2, **BALANCE).fit(DATA, progress=False)
    with pytest.raises(InvalidData, match=r"by 'bm25', the model's data by 'balance'"):
        plain.fold_in(DATA.reweighted("bm25"))


@pytest.mark.parametrize("size", [3e38, 1e-37])
def test_confidences_stay_numbers_above_0(size):
    """Strong balances would lead beyond float32, where a file would be refused later."""
    rows = DATA.by_user
    data = Interactions(rows._replace(weights=np.full(rows.nnz, size, np.float32)), DATA.n_items)
    made, _ = balanced_like(FairALS(item_balance=4.0, user_balance=4.0), data)
    weights = made.by_user.weights
    assert np.isfinite(weights).all()
    assert (weights > 0).all()
    entries = made.weighting.item_weights(rows.block(0, 5)._replace(weights=None), np.full(DATA.n_users, 10**6))
    assert np.isfinite(entries).all()
    assert (entries > 0).all()


@pytest.mark.parametrize("fairness", [0.0, 1.0])
def test_training_users_fold_in_to_their_vectors(fairness, tmp_path):
    model = FairALS(**SETTINGS, **BALANCE, fairness=fairness, epochs=60, solver="cholesky").fit(DATA, progress=False)
    raw = Interactions(DATA.by_user, DATA.n_items)
    np.testing.assert_allclose(model.fold_in(raw), model.user_factors, atol=1e-6)
    one = model.fold_in(Interactions(DATA.by_user.take(np.array([7])), DATA.n_items))
    np.testing.assert_allclose(one[0], model.user_factors[7], atol=1e-6)
    model.save(tmp_path / "model.fairmf")
    again = load_model(tmp_path / "model.fairmf")
    assert isinstance(again.fitted.weighting, Balance)
    assert np.array_equal(again.fold_in(raw), model.fold_in(raw))
    lists, _ = model.recommend(DATA.user_ids.values[:9], N=5)
    new, _ = again.recommend(DATA.user_ids.values[:9], raw.take_users(np.arange(9)), N=5, recalculate_user=True)
    assert np.array_equal(lists, new)


def test_the_gradient_is_zero_at_the_fixed_point():
    """With the confidences of the formula, by central differences of a naive F."""
    data = synthetic(40, 25, 300, random_state=4)
    model = IALS(**SETTINGS, **BALANCE, epochs=300, solver="cholesky").fit(data, progress=False)
    C = by_hand(data, 0.4, 0.3).to_csr().toarray().astype(float)
    n, m = C.shape
    alpha0, l2 = model.unobserved_weight, model.regularization
    ridge_u, ridge_v = l2 * (C.sum(axis=1) + alpha0 * m), l2 * (C.sum(axis=0) + alpha0 * n)

    def objective(U, V):
        S = U @ V.T
        fit = (C * (1 - S) ** 2).sum() + alpha0 * (S**2).sum()
        return 0.5 * (fit + (ridge_u[:, None] * U**2).sum() + (ridge_v[:, None] * V**2).sum())

    U, V = model.user_factors.astype(float), model.item_factors.astype(float)
    scale = objective(U, V)
    rng = np.random.default_rng(0)
    for _ in range(5):
        dU, dV = rng.normal(size=U.shape), rng.normal(size=V.shape)
        slope = (objective(U + 1e-5 * dU, V + 1e-5 * dV) - objective(U - 1e-5 * dU, V - 1e-5 * dV)) / 2e-5
        assert abs(slope) < 1e-4 * scale


def test_shards_are_balanced_alike():
    settings = {"factors": 6, "epochs": 3, "backend": "reference"}
    local = FairALS(**settings, **BALANCE).fit(DATA, progress=False)
    sharded = FairALS(**settings, **BALANCE, engine="ray").fit(DATA, progress=False, cluster=InProcess(shards=3))
    np.testing.assert_allclose(sharded.item_factors, local.item_factors, atol=1e-6)


def test_new_users_and_items_are_weighted_as_in_training():
    model = FairALS(**SETTINGS, **BALANCE, fairness=0.0, epochs=5).fit(DATA, progress=False)
    before = model.fitted.weighting
    history = Interactions(DATA.by_user.take(np.array([3])), DATA.n_items)
    model.partial_fit_users(["new"] if DATA.user_ids.values.dtype.kind == "O" else [10**6], history)
    np.testing.assert_allclose(model.user_factors[-1], model.fold_in(history)[0], atol=1e-6)
    assert model.fitted.weighting.norm == before.norm
    users = model.n_users
    column = Rows(np.array([0, 4]), np.array([1, 5, 9, users - 1], dtype=np.int32), None)
    model.partial_fit_items(["new"] if DATA.item_ids.values.dtype.kind == "O" else [10**6], Interactions(column, users))
    after = model.fitted.weighting
    assert after.item_counts[-1] == 4
    assert after.norm == before.norm
    assert np.array_equal(after.item_counts[:-1], before.item_counts)
    # Stored histories carry the weights that raw ones would get now.
    held = model.fitted.interactions.by_user
    np.testing.assert_allclose(held.weights, after.weights(held._replace(weights=None)), rtol=1e-5)
