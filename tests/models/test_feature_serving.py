"""Test models with features at work (docs/features.md): tables, new items and users, reasons, lists, tuning, floors."""

import copy

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from small_features import SETTINGS, D, M, N, P, matrix, model_of, some_data

from fairmf import (
    IALS,
    FairALS,
    Interactions,
    evaluate,
    fit_offsets,
    load_model,
    split_by_item,
    synthetic,
    synthetic_events,
    tune,
)
from fairmf.data.synthetic import theme_of
from fairmf.errors import InvalidData


@pytest.fixture(scope="module")
def data():
    return some_data()


@pytest.mark.parametrize("options", [{}, {"fairness": 2.0}, {"evenness": 0.5}])
def test_lists_that_are_evaluated_are_those_that_are_served(data, options):
    """Features of users count in `rank` as in `recommend`, also for users without history and at another fairness."""
    model = model_of(FairALS, epochs=5, fairness=0.5).fit(data, user_features=matrix(N, P), progress=False)
    ranked = np.concatenate([lists for _, lists in model.rank(data, 6, known_users=True, **options)])
    np.testing.assert_array_equal(ranked, model.recommend(range(N), N=6, by="row", **options)[0])
    popular = model.rank(data, 6)  # the same histories as those of new users, without features
    assert (np.concatenate([lists for _, lists in popular])[:2] != ranked[:2]).any(axis=1).all()


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(1)
    genres = ["Drama", "War", "Comedy"]
    return pd.DataFrame(
        {
            "item_id": [f"i{j}" for j in range(M) if j != 4],
            "genre": ["|".join(sorted(generator.choice(genres, 2, replace=False))) for _ in range(M - 1)],
            "year": generator.integers(1950, 2000, M - 1),
            "maker": generator.choice(["A", "B"], M - 1),
        }
    )


@pytest.fixture(scope="module")
def fitted(data, table):
    settings = {"epochs": 30, "fairness": 0.3, "item_balance": 0, "user_balance": 0}
    return model_of(FairALS, backend="cpu", **settings).fit(data, item_features=table, progress=False)


def test_a_table_is_aligned_by_ids_and_rows_may_be_missing(data, table, fitted):
    side = fitted.fitted.item_features
    assert set(side.names) == {"genre=Drama", "genre=Comedy", "genre=War", "year", "maker=A", "maker=B"}
    assert len(side.rows.row(4)[0]) == 0  # the table does not name i4
    shuffled = table.sample(frac=1, random_state=2)
    settings = {"epochs": 30, "fairness": 0.3, "item_balance": 0, "user_balance": 0}
    again = model_of(FairALS, backend="cpu", **settings).fit(data, item_features=shuffled, progress=False)
    names, own = again.fitted.item_features.names, side.names
    order = [names.index(name) for name in own]
    np.testing.assert_allclose(again.fitted.item_features.map[order], side.map, atol=1e-3)
    with pytest.raises(InvalidData, match="No id of the table"):
        model_of().fit(data, item_features=table.assign(item_id=range(M - 1)), progress=False)


def test_add_items_predicts_and_partial_fit_combines(data, table, fitted, tmp_path):
    model = copy.copy(fitted)
    new = pd.DataFrame({"item_id": ["new", "i3"], "genre": ["War", "Drama|War"], "year": [1980, 1960], "maker": "A"})
    before = fitted.item_factors.copy()
    model.add_items(new)
    assert model.n_items == M + 1
    np.testing.assert_allclose(model.item_factors[M], fitted.predict_items(new)[0], rtol=1e-6)
    np.testing.assert_allclose(model.item_factors[3], fitted.predict_items(new)[1], rtol=1e-6)
    keep = np.setdiff1d(np.arange(M), [3])
    np.testing.assert_array_equal(model.item_factors[keep], before[keep])
    np.testing.assert_array_equal(model.fitted.merit, fitted.fitted.merit)  # items nobody touched do not count
    # Once users come, what they do and what the features predict are combined as in the items' half-step.
    users = np.zeros((1, N))
    users[0, 5:12] = 1
    history = sp.csr_array(users)
    model.partial_fit_items(["new"], history)
    assert model.fitted.item_features.counted[M]
    U, t = model.user_factors.astype(float), model.user_factors.astype(float).mean(axis=0)
    weights = model.fitted.interactions.to_csr()[5:12, [M]].toarray().ravel()
    own = U[5:12]
    H = (own.T * weights) @ own + 0.1 * U.T @ U + 0.3 * 0.1 * N * np.outer(t, t)
    ridge = 0.05 * (weights.sum() + 0.1 * N)
    right = own.T @ weights + ridge * fitted.predict_items(new)[0]
    np.testing.assert_allclose(
        model.item_factors[M], np.linalg.solve(H + ridge * np.eye(D), right), rtol=2e-3, atol=1e-4
    )
    # A file keeps the encoder: new items pass through it after loading.
    model.save(tmp_path / "model.fairmf")
    loaded = load_model(tmp_path / "model.fairmf")
    np.testing.assert_array_equal(loaded.predict_items(new), model.predict_items(new))
    np.testing.assert_array_equal(loaded.fold_in(model.fitted.interactions), model.fold_in(model.fitted.interactions))
    assert loaded.feature_effects("genre") == model.feature_effects("genre")


def test_fold_in_items_combines_features_and_users(data, table, fitted):
    row = data.to_csr().T.tocsr()[[5]]
    given = Interactions.from_csr(row, weights="values")
    features = table[table.item_id == "i5"]
    with_features = fitted.fold_in_items(given, features=features)
    plain = fitted.fold_in_items(given)
    target = fitted.item_factors[5]
    assert np.abs(with_features - target).max() < 0.2 * np.abs(plain - target).max()
    empty = Interactions.from_csr(sp.csr_array((1, N)), allow_empty=True)
    np.testing.assert_array_equal(fitted.fold_in_items(empty, features=features), fitted.predict_items(features))
    with pytest.raises(InvalidData, match="features has 24 rows for 1 items"):
        fitted.fold_in_items(given, features=table)


def test_explain_says_what_came_from_features(data, fitted):
    cold, warm = fitted.explain("u5", "i3"), fitted.explain("u5", "i5")
    parts = sum(amount for _, amount in cold.contributions) - cold.fairness_cost
    assert cold.score == pytest.approx(parts, rel=1e-6)
    assert cold.item_features == pytest.approx(cold.score, rel=1e-4)  # nobody has taught the model anything about i3
    assert warm.item_features != pytest.approx(warm.score, rel=1e-2)
    assert "by the item's features" in str(cold)
    assert fitted.explain("u5", "i4").item_features == 0  # it has no features


def test_feature_effects_are_mean_scores(fitted):
    found = fitted.feature_effects("genre")
    assert [record["effect"] for record in found] == sorted((r["effect"] for r in found), reverse=True)
    side = fitted.fitted.item_features
    for record in found:
        scores = fitted.user_factors.astype(float) @ side.map[side.names.index(record["feature"])].astype(float)
        assert record["effect"] == pytest.approx(scores.mean(), abs=1e-6)
        assert record["spread"] == pytest.approx(scores.std(), abs=1e-6)
    with pytest.raises(InvalidData, match="There are no features 'colour'"):
        fitted.feature_effects("colour")


# -- users -------------------------------------------------------------------------------------------------------------


def test_users_with_features(data, tmp_path):
    people = pd.DataFrame({"user_id": data.user_ids.values, "country": ["AT", "BE"] * (N // 2)})
    model = model_of(FairALS, backend="cpu", epochs=40, fairness=0.4).fit(data, user_features=people, progress=False)
    side = model.fitted.user_features
    assert side.n_counted == N - 2
    np.testing.assert_allclose(model.user_factors[0], side.predicted()[0], rtol=1e-6)
    # Stored users equal their own fold-in, with their features; and at another fairness they are solved again.
    np.testing.assert_allclose(model.fold_in(data)[5:], model.user_factors[5:], atol=2e-3)
    plain = model.fold_in(Interactions.from_csr(data.to_csr(), weights="values"))
    assert np.abs(plain[5:] - model.user_factors[5:]).max() > 0.01
    back = model.with_fairness(2.0).with_fairness(0.4)
    np.testing.assert_allclose(back.user_factors[5:], model.user_factors[5:], atol=2e-3)
    # A visitor without a history, known by country alone, gets a list of their own, and not the popular one.
    lists, scores = model.recommend(["u0", "u1"], N=5)
    assert np.isfinite(scores).all()
    model.add_users(pd.DataFrame({"user_id": ["visitor"], "country": ["BE"]}))
    assert model.recommend("visitor", N=5)[0].tolist() == lists[1].tolist()
    found = model.explain("u5", "i5")
    parts = sum(amount for _, amount in found.contributions) - found.fairness_cost + found.user_features
    assert found.score == pytest.approx(parts)
    assert found.score == pytest.approx(float(model.user_factors[5] @ model.item_factors[5]), abs=5e-3)
    history = data.take_users([6])
    new = Interactions.from_csr(history.to_csr(), weights="values", item_ids=data.item_ids.values)
    given = model.fold_in(new, features=pd.DataFrame({"user_id": ["x"], "country": ["AT"]}))
    np.testing.assert_allclose(given[0], model.user_factors[6], atol=2e-3)
    model.save(tmp_path / "model.fairmf")
    np.testing.assert_array_equal(load_model(tmp_path / "model.fairmf").fold_in(data), model.fold_in(data))


@pytest.mark.parametrize("named", [True, False])
def test_a_user_who_was_added_keeps_their_features_when_a_history_comes(data, named):
    """Prior and data combine as in the users' half-step, also for a matrix, whose rows have no ids."""
    people = pd.DataFrame({"user_id": data.user_ids.values, "country": ["AT", "BE"] * (N // 2)})
    own = data if named else Interactions.from_csr(data.to_csr(), weights="values")
    given = people if named else np.eye(2)[[0, 1] * (N // 2)]
    settings = {"backend": "cpu", "epochs": 20, "fairness": 0.4, "item_balance": 0, "user_balance": 0}
    model = model_of(FairALS, **settings).fit(own, user_features=given, progress=False)
    visitor = "visitor" if named else N
    added = pd.DataFrame({"user_id": [visitor], "country": ["BE"]}) if named else np.array([[0.0, 1.0]])
    model.add_users(added, **({} if named else {"ids": [visitor]}))
    history = sp.csr_array(([1.0, 1.0], ([0, 0], [5, 9])), shape=(1, M), dtype=np.float32)
    model.partial_fit_users([visitor], history)
    fitted, V = model.fitted, model.item_factors.astype(float)
    counted = V[own.by_item.sums() > 0] if fitted.item_features is not None else V
    ridge = 0.05 * (2 + 0.1 * len(counted))
    H = V[[5, 9]].T @ V[[5, 9]] + 0.1 * counted.T @ counted + ridge * np.eye(D)
    prior = fitted.user_features.predicted()[N].astype(float)
    expected = np.linalg.solve(H, V[[5, 9]].sum(axis=0) + ridge * prior - 0.4 * fitted.merit)
    np.testing.assert_allclose(model.user_factors[N], expected, rtol=2e-3, atol=1e-4)
    if named:  # a history that is given in a request, of a user who is known
        scores = model.recommend([visitor], history, N=M, recalculate_user=True, by="id")[1]
        best = np.sort(np.delete(V @ expected, [5, 9]))[::-1]
        np.testing.assert_allclose(scores[0][: M - 2], best, rtol=1e-2, atol=1e-3)
        stranger = model.recommend(["nobody"], history, N=M, recalculate_user=True)[1]
        assert np.abs(stranger[0] - scores[0])[: M - 2].max() > 1e-3


def test_an_item_without_interactions_has_neighbours_by_its_features(data):
    items = pd.DataFrame({"item_id": data.item_ids.values, "genre": ["War", "Drama"] * 12 + ["War"]})
    model = IALS(**{**SETTINGS, "epochs": 5}).fit(data, item_features=items, progress=False)
    model.add_items(pd.DataFrame({"item_id": ["new"], "genre": ["Drama"]}))
    near = model.similar_items("new", N=5)[0].tolist()
    assert near[0] == "new"
    assert None not in near
    assert {"i3", "i7"} & set(near)  # which have no interactions either, and the same genre


def test_tuning_searches_how_little_features_matter(monkeypatch):
    pytest.importorskip("optuna", reason='needs the tune extra: pip install "fairmf[tune]"')
    split = split_by_item(synthetic(60, 40, 600), cold_share=0.1, target_share=0.1)
    X = matrix(40, P)
    model = IALS(factors=3, epochs=2)
    given, fit = [], IALS.fit
    monkeypatch.setattr(
        IALS, "fit", lambda self, *data, **o: given.append(o.get("item_features")) or fit(self, *data, **o)
    )
    found = tune(model, split, metric="cold_recall@5", item_features=X, trials=2, progress=False, also=())
    assert len(given) == 2
    assert all(features is X for features in given)
    assert all(0.01 <= trial.settings["feature_regularization"] <= 10 for trial in found.trials)
    assert found.trials[0].settings["feature_regularization"] == 0.1  # the model's own comes first
    assert found.best_model().fitted.item_features is not None
    without = tune(model, split, trials=1, progress=False, also=())
    assert "feature_regularization" not in without.trials[0].settings


def test_a_floor_by_offsets_reaches_cold_items():
    events = synthetic(300, 80, 6000)
    split = split_by_item(events, cold_share=0.1, target_share=0.1)
    themes = pd.DataFrame({"item_id": split.train.item_ids.values})
    themes["theme"] = [theme_of(title) for title in themes["item_id"]]
    themes["size"] = np.random.default_rng(0).random(80)  # items with the same features could not be told apart
    model = FairALS(factors=8, epochs=5).fit(split.train, item_features=themes, progress=False)
    cold = split.train.by_item.sums() == 0
    found = fit_offsets(model, K=10, min_exposure=0.3, check=False, progress=False)
    lists = model.recommend(split.train.user_ids.values, N=10)[0]
    names = split.train.item_ids.values[cold]
    before = np.array([(lists == name).sum() for name in names]) * 80 / lists.size
    assert (before < 0.3).any()
    assert (found.share[cold] >= 0.3 - 1e-9).all()


def test_evenness_without_calibration_does_not_fill_lists_with_new_items():
    """With f_j = 1 for items without interactions, a fifth of the catalogue had 78 % of exposure, and Gini rose."""
    events = synthetic_events(n_users=600, n_items=300, n_interactions=20_000)
    titles = pd.DataFrame({"item_id": events.item_ids.values})
    titles["theme"] = [theme_of(title) for title in titles["item_id"]]
    titles["title"] = titles["item_id"]
    split = split_by_item(events, cold_share=0.1, target_share=0.1)
    model = FairALS(factors=16, epochs=10, regularization=0.05).fit(split.train, item_features=titles, progress=False)
    metrics = ["gini@20", "cold_share@20"]
    found = [evaluate(model, split.test, metrics=metrics, train=split.train, evenness=e) for e in (0.0, 0.4, 0.6)]
    gini, share = ([one[name] for one in found] for name in metrics)
    assert gini[1] < gini[0] - 0.2
    assert max(share) < 0.55
    new = ~model.fitted.item_features.counted
    expected = np.exp(model.fitted.item_dial.log_counts[new])
    assert 1.5 < np.median(expected) < 10  # the median of the others is 3
    assert not model.fitted.item_dial.counts[new].any()  # what is stored and shown stays what was counted
