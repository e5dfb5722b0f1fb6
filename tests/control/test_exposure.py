"""Exposure bounds at the level of models: offsets are learned, served, stored; FairRec in one call."""

import dataclasses

import numpy as np
import pytest
from conftest import paper_als

from fairmf import FairALS, FiADMM, Interactions, evaluate, fit_offsets, load_model, split_by_user, synthetic
from fairmf.control import check_offsets
from fairmf.control.check_offsets import HeldOutCheck, held_out_rows
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories
from fairmf.ranking import learn_offsets
from fairmf.ranking.repair_offsets import Ranked

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


def plain_gini(values):
    ascending, m = np.sort(values), len(values)
    return sum((2 * r - m - 1) * value for r, value in enumerate(ascending, 1)) / (m * ascending.sum())


def test_the_floor_holds_for_nearly_all_and_costs_little(model, bounded):
    before, after = shares(model), shares(bounded.model)
    np.testing.assert_allclose(bounded.share, after, atol=1e-9)
    assert (before < 0.5).mean() > 0.4
    # A few items have the same scores for everybody: no offset gives one user the one, another user the other.
    below = int((after < 0.5 - 1e-9).sum())
    assert below < 0.1 * model.n_items
    assert np.maximum(0.5 - after, 0).mean() < 0.05 * np.maximum(0.5 - before, 0).mean()
    assert bounded.violations["items_below_floor"] == below
    assert bounded.n_users == model.n_users
    assert f"{138 - below} of 138 items ({1 - below / 138:.2%}) within the bounds for {model.n_users} users" in repr(
        bounded
    )
    assert (bounded.model.fitted.item_offsets >= 0).all()


def test_it_carries_over_to_users_who_were_not_there(model, bounded):
    plain, fair = (evaluate(m, SPLIT.validation, at=K, bootstrap=0) for m in (model, bounded.model))
    assert fair[f"gini@{K}"] < plain[f"gini@{K}"] - 0.08
    assert fair[f"coverage@{K}"] > plain[f"coverage@{K}"]
    assert fair[f"recall@{K}"] > 0.6 * plain[f"recall@{K}"]


def test_what_is_outside_the_bounds_is_named(model):
    rough = fit_offsets(model, K=K, min_exposure=0.9, max_exposure=1.1, iterations=2, check=False)
    share, v = rough.share, rough.violations
    below, above = share < 0.9, share > 1.1
    assert below.sum() > 0
    assert above.sum() > 0
    said = repr(rough)
    assert f"{138 - below.sum() - above.sum()} of 138 items" in said
    assert f"{below.sum()} below the minimum, by {(0.9 - share[below]).mean():.3g} of an equal share" in said
    assert f"{above.sum()} above the maximum, by {(share[above] - 1.1).mean():.3g} of an equal share" in said
    assert (v["items_below_floor"], v["items_above_cap"]) == (below.sum(), above.sum())
    assert "not checked on other users" in said


def test_users_who_were_held_out_are_measured(model, bounded):
    """Their Gini with plain lists, counted here; the offsets of the check were learned without them."""
    found = bounded.check
    rows, held = held_out_rows(model.n_users, 0)
    assert len(held) == found.n_users == model.n_users // 5
    assert sorted([*rows, *held]) == list(range(model.n_users))
    assert found.gini_before == pytest.approx(plain_gini(shares(model, held)))
    assert found.gini_after < found.gini_before - 0.05
    assert found.gini_after == pytest.approx(plain_gini(shares(bounded.model, held)), abs=0.05)
    assert 0 < found.gini_error < 0.03
    assert found.ndcg_before is None
    assert f"{found.n_users} users not learned on: Gini {found.gini_before:.3f} to" in repr(bounded)


def test_given_users_are_checked_with_their_targets(model):
    made = fit_offsets(model, K=K, min_exposure=0.3, check=SPLIT.validation)
    names = [f"gini@{K}", f"ndcg@{K}"]
    plain, fair = (evaluate(m, SPLIT.validation, metrics=names, bootstrap=0) for m in (model, made.model))
    assert made.check.n_users == SPLIT.validation.n_users
    assert made.check.gini_before == pytest.approx(plain[names[0]])
    assert made.check.ndcg_before == pytest.approx(plain[names[1]])
    # The last items were moved inside the bounds after the check.
    assert made.check.gini_after == pytest.approx(fair[names[0]], abs=0.02)
    assert made.check.ndcg_after == pytest.approx(fair[names[1]], abs=0.01)


@pytest.mark.slow
def test_offsets_that_do_not_help_others_are_refused():
    """Each user has a dimension of its own, with noise that outweighs popularity: what is learned says nothing."""
    generator = np.random.default_rng(0)
    n, m = 300, 200
    fitted = FairALS(factors=4, epochs=1).fit(synthetic(n, m, 2000)).fitted
    n, m = len(fitted.user_factors), len(fitted.item_factors)
    items = generator.normal(size=(m, n)).astype(np.float32)
    alone = FairALS()
    alone._fitted = dataclasses.replace(fitted, user_factors=np.eye(n, dtype=np.float32), item_factors=items)
    with pytest.raises(InvalidParameter, match=r"they were not learned on: for \d+ such users Gini@10 goes") as raised:
        fit_offsets(alone, K=K, min_exposure=0.8)
    assert raised.value.parameter == "min_exposure"
    assert "evenness" in raised.value.hint
    assert "check=False" in raised.value.hint
    taken = fit_offsets(alone, K=K, min_exposure=0.8, check=False)
    assert taken.check is None
    assert taken.violations["items_below_floor"] == 0  # for those it was learned on, it does what was asked


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (HeldOutCheck(600, 0.9, 0.7, 0.01), ""),
        (HeldOutCheck(600, 0.9, 0.88, 0.011), "not statistically significant"),
        (HeldOutCheck(600, 0.9, 0.95, 0.001), "not statistically significant"),
        (HeldOutCheck(600, 0.9, 0.893, 0.001), "falls by less than 0.01"),
        (HeldOutCheck(600, 0.935, 0.917, 0.001, 0.414, 0.360), "nDCG loses 13.0% for a Gini that is 1.9% lower"),
        (HeldOutCheck(600, 0.872, 0.776, 0.001, 0.345, 0.317), ""),
        (HeldOutCheck(600, 0.935, 0.917, 0.001, 0.414, 0.420), ""),
    ],
)
def test_when_offsets_are_refused(check, reason):
    if reason:
        with pytest.raises(InvalidParameter, match=reason):
            check.refuse(20, "min_exposure")
    else:
        check.refuse(20, "min_exposure")
    assert bool(reason) == bool(check.reason)


def test_learning_stops_where_held_out_users_gain_no_more(model, bounded):
    rows, held = held_out_rows(model.n_users, 0)
    said, stopped = [], []
    history = model.fitted.interactions.by_user
    for gains, seen in ((lambda _: True, said), (lambda _: False, stopped)):
        learn_offsets.learn(
            model._backend(), model.user_factors[rows], model.item_factors, history.take(rows), K,
            learn_offsets.Bounds(0.5), learn_offsets.Schedule(iterations=40, gains=gains, advance=seen.append),
        )  # fmt: skip
    assert len(said) == 40
    assert len(stopped) == 32  # the first look after three quarters of the iterations
    ranked = Ranked(
        model._backend(), model.user_factors[held], model.item_factors, history.take(held), K, np.zeros(model.n_items)
    )
    checked = check_offsets.Checked(ranked, None)
    learned = bounded.model.fitted.item_offsets.astype(float)
    assert [checked.still_gain(x * learned) for x in (0, 0.8, 1, 1, 0)] == [True, True, True, False, False]


def test_users_without_history_are_left_out(model):
    """They get popular items whatever the offsets are, so nothing can be learned on them."""
    rows = SPLIT.train.to_csr()[:300]
    rows.resize(400, rows.shape[1])
    cohort = Interactions.from_csr(rows, item_ids=SPLIT.train.item_ids)
    made = fit_offsets(model, K=K, min_exposure=0.3, cohort=cohort, iterations=30)
    assert made.n_users == 300
    with pytest.raises(InvalidData, match="No user has a history"):
        fit_offsets(model, K=K, min_exposure=0.3, cohort=cohort.take_users(np.arange(300, 400)))


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
    (exact, scores), (near, others) = (m.recommend(SPLIT.train.user_ids.values[:50], N=K + 1) for m in (fair, through))
    np.testing.assert_allclose(scores, others, rtol=1e-4, atol=1e-5)
    apart = np.abs(np.diff(scores, axis=1)).min(axis=1) > 2e-5  # items with the same score may change places
    np.testing.assert_array_equal(exact[apart, :K], near[apart, :K])  # the place after the last one may tie too
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
    np.testing.assert_array_equal(model.recommend_fairly(list(some), N=90).users, some)
    with pytest.raises(InvalidParameter, match="2 users with 3 items each have 6 places for 138 items"):
        model.recommend_fairly(list(some), N=3)


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
