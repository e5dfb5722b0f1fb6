"""The dial of a model stored without histories: from user_sensitivity, h_i = H_i^-1 q1."""

import numpy as np
import pytest
from small_models import N, assert_same_model, data, fitted, same_bits

from fairmf import FairALS, load_model
from fairmf.errors import InvalidParameter, MissingHistories
from fairmf.models.dial import dialled_users, user_sensitivity


def naive_sensitivity(model, interactions):
    """H_i^-1 q1 by a double loop in float64."""
    settings, V = model.fitted.settings, model.item_factors.astype(np.float64)
    strength, result = settings["unobserved_weight"], []
    dense = interactions.to_csr().toarray().astype(np.float64)
    for i in range(N):
        ridge = settings["regularization"] * (dense[i].sum() + strength * len(V)) ** settings["regularization_exponent"]
        H = strength * V.T @ V + ridge * np.eye(V.shape[1])
        for j in range(len(V)):
            H += dense[i, j] * np.outer(V[j], V[j])
        result.append(np.linalg.solve(H, model.fitted.merit))
    return np.array(result)


@pytest.mark.parametrize("name", ["fair_als", "fair_als_exact", "ials"])
def test_sensitivity_is_the_inverse_applied_to_the_merit_direction(name, weighted):
    model = fitted(name, weighted)
    expected = naive_sensitivity(model, data(weighted))
    tolerance = 2e-6 if model.backend == "cpu" else 1e-12
    np.testing.assert_allclose(user_sensitivity(model), expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", ["fair_als", "ials"])
def test_dialled_without_histories_as_with_them(name, weighted, tmp_path):
    model = fitted(name, weighted)
    model.save(tmp_path / "model", interactions=False, user_sensitivity=True)
    loaded = load_model(tmp_path / "model")
    assert_same_model(loaded, model, histories=False)
    for fairness in (0.0, model.fitted.fairness, 0.7, 10.0):
        turned, expected = loaded.with_fairness(fairness), model.with_fairness(fairness)
        assert turned.fitted.fairness == fairness
        size = np.abs(expected.user_factors).max()
        np.testing.assert_allclose(turned.user_factors, expected.user_factors, rtol=0, atol=2e-3 * size)
        again = loaded.with_fairness(5.0).with_fairness(fairness)
        np.testing.assert_allclose(again.user_factors, turned.user_factors, rtol=0, atol=1e-5 * size)
    assert not np.allclose(loaded.with_fairness(10.0).user_factors, model.user_factors, atol=0.1)


def test_some_rows(tmp_path):
    fitted().save(tmp_path / "model", interactions=False, user_sensitivity=True)
    loaded, rows = load_model(tmp_path / "model"), np.array([5, 3, 3])
    assert same_bits(dialled_users(loaded, rows, 1.5), dialled_users(loaded, None, 1.5)[rows])
    assert same_bits(dialled_users(loaded, rows, loaded.fitted.fairness), loaded.user_factors[rows])
    np.testing.assert_array_equal(dialled_users(fitted(), rows, 1.5), fitted().with_fairness(1.5).user_factors[rows])
    with pytest.raises(InvalidParameter, match="'fairness' parameter must be a number >= 0"):
        dialled_users(loaded, rows, -1.0)


def test_it_is_kept_until_told_otherwise(tmp_path):
    fitted().save(tmp_path / "a", interactions=False, user_sensitivity=True)
    first = load_model(tmp_path / "a")
    first.save(tmp_path / "b")
    assert same_bits(load_model(tmp_path / "b").fitted.user_sensitivity, first.fitted.user_sensitivity)
    first.save(tmp_path / "c", user_sensitivity=False)
    assert load_model(tmp_path / "c").fitted.user_sensitivity is None
    fitted().save(tmp_path / "d")
    assert load_model(tmp_path / "d").fitted.user_sensitivity is None


def test_what_has_no_sensitivity_says_so(tmp_path):
    with pytest.raises(InvalidParameter, match="Popularity has no dial"):
        fitted("popularity").save(tmp_path / "model", user_sensitivity=True)
    fitted().save(tmp_path / "model", interactions=False)
    with pytest.raises(MissingHistories, match="which user_sensitivity needs"):
        load_model(tmp_path / "model").save(tmp_path / "more", user_sensitivity=True)
    with pytest.raises(InvalidParameter, match="needs users that are solved to convergence, and this model's are not"):
        fitted("fiadmm").save(tmp_path / "more", user_sensitivity=True)
    assert not (tmp_path / "more").exists()
    model = fitted("fiadmm")
    solved = model.with_fairness(model.fitted.fairness)
    solved.save(tmp_path / "more", interactions=False, user_sensitivity=True)
    expected = model.with_fairness(4.0).user_factors
    turned = load_model(tmp_path / "more").with_fairness(4.0).user_factors
    np.testing.assert_allclose(turned, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_no_merit_no_sensitivity():
    model = FairALS(factors=3, epochs=1, unobserved_weight=0.0, fairness=0.0).fit(data())
    assert not model.fitted.merit.any()
    np.testing.assert_array_equal(user_sensitivity(model), np.zeros((N, 3)))


def test_stored_users_are_recommended_to_at_any_fairness_without_histories(tmp_path):
    model = fitted()
    model.save(tmp_path / "model", interactions=False, user_sensitivity=True)
    loaded = load_model(tmp_path / "model")
    users = model.fitted.user_ids.values
    asked = {"N": 5, "fairness": 6.0, "filter_already_liked_items": False}
    seen = np.flatnonzero(np.diff(model.fitted.interactions.by_user.indptr))
    (ids, scores), (expected_ids, expected) = (m.recommend(users[seen], **asked) for m in (loaded, model))
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert (ids == expected_ids).mean() > 0.95  # equal but for scores that rounding cannot tell apart
    plain, _ = loaded.recommend(users[seen], N=5, filter_already_liked_items=False)
    assert (ids != plain).any()
    assert loaded.score(users[seen[0]], ids[0, 0], fairness=6.0) == pytest.approx(float(scores[0, 0]), abs=1e-4)
    with pytest.raises(MissingHistories, match="pass user_items"):
        loaded.recommend(users[seen], N=5, fairness=6.0)  # what they had is not known, so it cannot be left out
