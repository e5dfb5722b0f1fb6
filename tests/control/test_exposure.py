"""Exposure bounds at the level of models: offsets are learned, served, stored; FairRec in one call."""

import dataclasses

import numpy as np
import pytest
from conftest import paper_als

from fairmf import FairALS, FiADMM, evaluate, fit_offsets, load_model, split_by_user, synthetic
from fairmf.errors import InvalidParameter, MissingHistories

SPLIT = split_by_user(synthetic(700, 180, 17_000, random_state=1), heldout=160, protocol="seeded")
K = 10


@pytest.fixture(scope="module")
def model():
    return paper_als(factors=8, epochs=4).fit(SPLIT.train)


@pytest.fixture(scope="module")
def bounded(model):
    return fit_offsets(model, K=K, min_exposure=0.5)


def shares(model, users=None):
    """Exposure counted from the lists that `recommend` gives."""
    everyone = np.arange(model.n_users) if users is None else users
    lists, _ = model.recommend(everyone, N=K, by="row")
    return np.bincount(lists.ravel(), minlength=model.n_items) * model.n_items / lists.size


def test_the_floor_holds_for_nearly_all_and_costs_little(model, bounded):
    before, after = shares(model), shares(bounded.model)
    np.testing.assert_allclose(bounded.share, after, atol=1e-9)
    assert (before < 0.5).mean() > 0.4
    assert np.maximum(0.5 - after, 0).mean() < 0.1 * np.maximum(0.5 - before, 0).mean()
    assert bounded.violations["items_below_floor"] == (after < 0.5).sum()
    assert (bounded.model.fitted.item_offsets >= 0).all()


def test_it_carries_over_to_users_who_were_not_there(model, bounded):
    plain, fair = (evaluate(m, SPLIT.validation, at=K, bootstrap=0) for m in (model, bounded.model))
    assert fair[f"gini@{K}"] < plain[f"gini@{K}"] - 0.08
    assert fair[f"coverage@{K}"] > plain[f"coverage@{K}"]
    assert fair[f"recall@{K}"] > 0.6 * plain[f"recall@{K}"]


def test_offsets_are_added_wherever_scores_are(model, bounded):
    fair, offset = bounded.model, bounded.model.fitted.item_offsets
    users, items = np.array([3, 4, 5]), np.array([7, 8, 9])
    ids, by_row = SPLIT.train.user_ids.values, SPLIT.train.item_ids.values
    pairs = ids[users], by_row[items]
    np.testing.assert_allclose(fair.score(*pairs), model.score(*pairs) + offset[items], atol=1e-5)
    best, scores = fair.recommend(ids[3], N=5)
    np.testing.assert_allclose(fair.score(ids[3], best), scores, atol=1e-5)
    explained = fair.explain(ids[3], best[0])
    at = SPLIT.train.item_ids.position(best[0])
    assert explained.offset == pytest.approx(float(offset[at]))
    assert explained.score == pytest.approx(float(scores[0]), abs=1e-3)
    total = sum(amount for _, amount in explained.contributions) - explained.fairness_cost + explained.offset
    assert explained.score == pytest.approx(total)


def test_offsets_stay_with_the_model(bounded, tmp_path):
    fair = bounded.model
    fair.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(shares(loaded), shares(fair))
    turned = fair.with_fairness(0.0)
    np.testing.assert_array_equal(turned.fitted.item_offsets, fair.fitted.item_offsets)


def test_the_index_serves_with_the_offsets(bounded):
    pytest.importorskip("faiss", reason="the [ann] extra is not installed")
    fair = bounded.model
    through = fair.with_ann()  # so few items are all looked at: exact
    (exact, scores), (near, others) = (m.recommend(SPLIT.train.user_ids.values[:50], N=K) for m in (fair, through))
    np.testing.assert_allclose(scores, others, rtol=1e-4, atol=1e-5)
    apart = np.abs(np.diff(scores, axis=1)).min(axis=1) > 1e-4  # items with the same score may change places
    np.testing.assert_array_equal(exact[apart], near[apart])
    assert apart.mean() > 0.5


def test_a_cohort_can_be_bounded_itself(model, bounded):
    held_out = SPLIT.validation
    own = fit_offsets(model, K=K, min_exposure=0.5, cohort=held_out)
    a, b = (evaluate(m.model, held_out, at=K, bootstrap=0)[f"gini@{K}"] for m in (own, bounded))
    assert a < b


def test_caps_lower_what_is_shown_most(model):
    capped = fit_offsets(model, K=K, max_exposure=2.0)
    assert shares(model).max() > 3
    assert shares(capped.model).max() < 2.3
    assert (capped.model.fitted.item_offsets <= 0).all()


def test_fairrec_in_one_call_keeps_its_promise(model):
    made = model.recommend_fairly(N=K, share=0.5)
    assert made.ids.shape == (model.n_users, K)
    counts = np.bincount(SPLIT.train.item_ids.positions(made.ids.ravel()), minlength=model.n_items)
    assert made.certificate.realised == counts.min()
    assert len(made.certificate.short) <= K or made.certificate.kept
    some = SPLIT.train.user_ids.values[[5, 3]]
    np.testing.assert_array_equal(model.recommend_fairly(list(some), N=3).users, some)


@pytest.mark.parametrize(
    "base", [paper_als(factors=6, epochs=3), FairALS(factors=6, epochs=3), FiADMM(factors=6, epochs=10)]
)
def test_fairrec_on_top_of_any_model_can_be_evaluated(base):
    fitted = base.fit(SPLIT.train)
    plain = evaluate(fitted, SPLIT.validation, at=K, bootstrap=0)
    fair = evaluate(fitted.with_fairrec(0.5), SPLIT.validation, at=K, bootstrap=0)
    assert fair[f"gini@{K}"] < plain[f"gini@{K}"] - 0.1
    longer = fitted.with_fairrec(0.5, K=50, order="allocation")
    first = evaluate(longer, SPLIT.validation, at=K, bootstrap=0)
    assert first[f"gini@{K}"] < plain[f"gini@{K}"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give min_exposure"),
        ({"min_exposure": 2}, "'min_exposure' parameter of fit_offsets must be a number >= 0 and <= 1"),
        ({"max_exposure": 0.5}, "max_exposure must be at least 1"),
        ({"min_exposure": 0.5, "K": 200}, "K must be below the number of items"),
        ({"min_exposure": 0.5, "K": 0}, "'K' parameter of fit_offsets must be an integer >= 1"),
        ({"min_exposure": 0.5, "iterations": 1.5}, "'iterations' parameter of fit_offsets must be an integer >= 1"),
    ],
)
def test_what_cannot_be_bounded_is_said(model, options, message):
    with pytest.raises(InvalidParameter, match=message):
        fit_offsets(model, **options)


def test_without_histories_there_is_nothing_to_learn_on(model):
    bare = FairALS()
    bare._fitted = dataclasses.replace(model.fitted, interactions=None)
    with pytest.raises(MissingHistories, match="fit_offsets"):
        fit_offsets(bare, min_exposure=0.5)
    with pytest.raises(InvalidParameter, match="cannot be asked for"):
        next(model.with_fairrec(0.5, K=5).rank(SPLIT.validation.fold_in, 10))
