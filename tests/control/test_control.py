"""trade_off, fit_path and fit_to_target on small data: what they measure, train and refuse."""

import copy
import dataclasses

import numpy as np
import pytest
from conftest import paper_als

from fairmf import (
    IALS,
    FairALS,
    FiADMM,
    Popularity,
    evaluate,
    fit_offsets,
    fit_path,
    fit_to_target,
    load_model,
    split_by_user,
    synthetic,
    trade_off,
)
from fairmf.control.target import Goal, advice, measure_alternatives
from fairmf.control.trade_off import Curve
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.evenness import EvennessPath, Knot, Level

SPLIT = split_by_user(synthetic(220, 100, 4_000, random_state=1), heldout=50, protocol="seeded")
METRICS = ("ndcg@100", "recall@20", "gini@20", "coverage@20")


@pytest.fixture(scope="module")
def model():
    return paper_als(factors=12, epochs=6).fit(SPLIT.train)


def level_of(row):
    return Level(row["fairness"], row["flatten"], row["discount"])


def test_the_curve_is_what_evaluate_measures_at_each_level(model):
    curve = trade_off(model, SPLIT, evenness=[1, 0, 0.3])
    assert curve.column("evenness") == [1, 0, 0.3]
    assert curve.column("way") == ["evenness"] * 3
    for row in curve:
        expected = evaluate(model, SPLIT.validation, metrics=METRICS, bootstrap=0, evenness=level_of(row))
        assert [row[name] for name in METRICS] == [expected[name] for name in METRICS]
    ginis, strengths = curve.column("gini@20"), np.array([level_of(row).strengths for row in curve])
    assert ginis[1] > ginis[2] > ginis[0]
    assert (strengths[1] <= strengths[2]).all()
    assert (strengths[2] <= strengths[0]).all()


def test_a_calibrated_model_is_measured_along_its_own_path(model):
    own = copy.copy(model)
    knots = (Knot(Level(0.0), 0.8, 0.4), Knot(Level(0.0, 0.0, 0.5), 0.6, 0.2))
    own._fitted = dataclasses.replace(model.fitted, path=EvennessPath(knots, 20, "ndcg@100", 7))
    curve = trade_off(own, SPLIT, points=3, metrics=["gini@20"])  # no accuracy is needed: the path is known
    assert curve.column("discount") == pytest.approx([0, 0.25, 0.5])
    assert curve.column("evenness") == [0, 0.5, 1]


def test_the_experts_dial_is_what_evaluate_measures_at_each_fairness(model):
    curve = trade_off(model, SPLIT, fairness=[3, 0, 0.5])
    assert curve.column("fairness") == [3, 0, 0.5]
    assert curve.column("way") == ["dial"] * 3
    for row in curve:
        expected = evaluate(model, SPLIT.validation, metrics=METRICS, bootstrap=0, fairness=row["fairness"])
        assert [row[name] for name in METRICS] == [expected[name] for name in METRICS]


def test_the_model_is_neither_trained_nor_changed(model, monkeypatch):
    before = model.user_factors.copy()
    monkeypatch.setattr(FairALS, "fit", lambda *_: pytest.fail("trained"))
    curve = trade_off(model, SPLIT, points=7)
    assert len(curve) == 7
    assert [curve.rows[k]["evenness"] for k in (0, 3, 6)] == [0, 0.5, 1]
    np.testing.assert_array_equal(model.user_factors, before)
    assert model.fitted.path is None


def test_the_table_goes_to_arrow_and_pandas(model):
    curve = trade_off(model, SPLIT.validation, points=3) + trade_off(model, SPLIT, fairness=[1])
    frame = curve.table().to_pandas()
    assert list(frame["way"]) == ["evenness"] * 3 + ["dial"]
    assert frame["gini@20"].between(0, 1).all()


def test_a_curve_says_for_how_many_users(model):
    curve = trade_off(model, SPLIT, points=2)
    assert curve.n_users == 50
    assert repr(curve).endswith("(lists of 50 users)")
    other = Curve(({**curve.rows[0], "n_users": 40},), curve.metrics)
    assert (curve + other).n_users is None
    assert "n_users" in repr(curve + other).splitlines()[0]


def test_offsets_do_not_follow_the_path(model):
    offset = fit_offsets(model, K=20, min_exposure=0.5).model
    assert trade_off(offset, SPLIT, evenness=[0.5]).column("gini@20") == (
        trade_off(model, SPLIT, evenness=[0.5]).column("gini@20")
    )


def test_a_re_trained_path_reaches_what_cold_fits_reach():
    split = split_by_user(synthetic(900, 300, 22_000, random_state=1), heldout=150, protocol="seeded")
    values = [0, 1, 3]
    settings = {"factors": 12, "epochs": 16}
    path = fit_path(FairALS(**settings), split, fairness=values)
    assert path.column("way") == ["re-trained"] * 3
    for row in path:
        cold = FairALS(**settings, fairness=row["trained_fairness"]).fit(split.train)
        assert row["objective"] <= cold.history.column("objective.total")[-1] * 1.001
        assert row["epochs"] == 16 if row["trained_fairness"] == 0 else row["epochs"] < 16
        expected = evaluate(cold, split.validation, metrics=METRICS, bootstrap=0)
        assert row["gini@20"] == pytest.approx(expected["gini@20"], abs=0.02)


def test_trained_and_asked_for_fairness_are_two_columns(model):
    both = trade_off(model, SPLIT, fairness=[2]) + fit_path(FairALS(factors=4, epochs=2), SPLIT, fairness=[3])
    assert both.column("fairness") == [2, None]
    assert both.column("trained_fairness") == [None, 3]
    assert both.table().column("trained_fairness").to_pylist() == [None, 3]
    heading, *rows, _ = repr(both).splitlines()
    assert heading.split()[:3] == ["way", "fairness", "trained_fairness"]
    assert {len(row) for row in rows} == {len(heading)}
    assert ">trained_fairness<" in both._repr_html_()


def test_a_path_starts_each_fit_from_the_one_before(monkeypatch):
    seen = []
    real = FairALS.fit

    def watched(self, data, *, init=None, **options):
        seen.append((self.fairness, self.tolerance, None if init is None else init.fairness))
        return real(self, data, init=init, **options)

    monkeypatch.setattr(FairALS, "fit", watched)
    model = FairALS(factors=4, epochs=5, fairness=3.0)
    fit_path(model, SPLIT, fairness=[2, 0, 1], tolerance=0.01)
    assert seen == [(0, 0.0, None), (1, 0.01, 0), (2, 0.01, 1)]
    assert model.fairness == 3.0  # as it was given


def test_the_target_model_serves_with_the_evenness_found(model, tmp_path):
    plain = evaluate(model, SPLIT.validation, metrics=METRICS, bootstrap=0)
    wanted = plain["gini@20"] - 0.05
    result = fit_to_target(model, SPLIT, max_gini=wanted)
    assert result.reached is True
    assert 0 < result.evenness < 1
    found = evaluate(result.model, SPLIT.validation, metrics=METRICS, bootstrap=0)
    assert wanted - 0.005 <= found["gini@20"] <= wanted
    assert f"is reached at evenness {result.evenness:g}" in result.message
    assert "for the lists of 50 users" in result.message
    fitted = result.model.fitted
    assert (fitted.fairness, fitted.flatten, fitted.discount, fitted.lift) == result.level.strengths
    assert result.model.fitted.path.level(result.evenness) == result.level
    result.model.save(tmp_path / "m.fairmf")  # one object to serve: level and path are in its file
    loaded = load_model(tmp_path / "m.fairmf")
    again = evaluate(loaded, SPLIT.validation, metrics=METRICS, bootstrap=0)
    assert again["gini@20"] == pytest.approx(found["gini@20"], abs=1e-12)
    assert loaded.fitted.path == result.model.fitted.path
    assert model.fitted.path is None


@pytest.fixture(scope="module")
def unreached(model):
    return fit_to_target(model, SPLIT, max_gini=0.0, alternatives=True)


def test_an_unreachable_target_says_so(model, unreached):
    assert unreached.reached is False
    assert "gini@20 <= 0 cannot be reached; the most even point is evenness 1" in unreached.message
    assert unreached.evenness == 1
    assert unreached.model.fitted.flatten == unreached.level.flatten
    quick = fit_to_target(model, SPLIT, max_gini=0.0)
    assert 'FairRec can make lists more even: alternatives="fairrec"' in quick.message
    assert len(quick.curve) == 2
    assert "fairrec" not in unreached.message


def test_what_goes_further_than_the_dial_is_measured_on_the_same_users(model, unreached):
    rows = list(unreached.alternatives)
    assert [(row["way"], row.get("min_exposure"), row.get("share")) for row in rows] == [
        *(("offsets", share, None) for share in (0.25, 0.5, 1.0)),
        *(("FairRec", None, share) for share in (0.25, 0.5, 1.0)),
    ]
    for row in rows:
        assert row["fairness"] == model.fitted.fairness  # on top of the model as it was given, not as it was dialled
        if row["way"] == "offsets":
            served = fit_offsets(model, K=20, min_exposure=row["min_exposure"]).model  # learned on the training users
            assert row["ndcg@100"] == evaluate(served, SPLIT.validation, metrics=METRICS, bootstrap=0)["ndcg@100"]
        else:
            served = model.with_fairrec(row["share"], K=20)
            assert row["ndcg@100"] is None  # its lists end at 20
        found = evaluate(served, SPLIT.validation, metrics=METRICS[1:], bootstrap=0)
        assert [row[name] for name in METRICS[1:]] == [found[name] for name in METRICS[1:]]
    assert min(unreached.alternatives.column("gini@20")) < min(unreached.curve.column("gini@20"))
    assert unreached.alternatives.table().num_rows == 6


def test_the_message_names_the_best_of_either_way(unreached):
    for way, name in (("offsets", "min_exposure"), ("FairRec", "share")):
        nearest = min((row for row in unreached.alternatives if row["way"] == way), key=lambda row: row["gini@20"])
        expected = f"{way} with {name} {nearest[name]:g}: gini@20 {nearest['gini@20']:.4f}"
        assert expected in unreached.message
        assert f"recall@20 {nearest['recall@20']:.4f}" in unreached.message


def test_of_several_that_reach_the_goal_the_most_accurate_is_advised():
    rows = [
        {"way": "FairRec", "fairness": 1, "share": share, "ndcg@100": None, "recall@20": recall, "gini@20": gini}
        for share, recall, gini in ((0.25, 0.4, 0.7), (0.5, 0.3, 0.5), (1.0, 0.2, 0.1))
    ]
    measured = Curve(tuple(rows), ("ndcg@100", "recall@20", "gini@20"))
    said = advice(measured, Goal("gini@20", 0.6, at_most=True), "recall@20")
    found = "FairRec with share 0.5: gini@20 0.5000, recall@20 0.3000."
    assert said == f"Other methods, applied to the given model, for the same users: {found}"
    assert "share 0.25" in advice(measured, Goal("recall@20", 0.5, at_most=False), "recall@20")
    assert advice(Curve((), measured.metrics), Goal("gini@20", 0.6, at_most=True), "recall@20") == ""


def test_alternatives_are_measured_only_if_asked_for_and_needed(model, monkeypatch):
    only = fit_to_target(model, SPLIT, max_gini=0.0, alternatives="fairrec")
    assert only.alternatives.column("way") == ["FairRec"] * 3
    assert "FairRec with share 1: gini@20" in only.message
    monkeypatch.setattr("fairmf.control.target.measure_alternatives", lambda *_: pytest.fail("measured"))
    for result in (
        fit_to_target(model, SPLIT, max_gini=0.0),
        fit_to_target(model, SPLIT, max_gini=0.99, alternatives="all"),
    ):
        assert len(result.alternatives) == 0
        assert "offsets" not in result.message


def test_fairrec_is_named_where_an_evenness_reaches_a_low_gini(model, monkeypatch):
    def named(**goal):
        found = fit_to_target(model, SPLIT, **goal)
        assert found.reached
        return "FairRec keeps more accuracy" in found.message

    assert named(max_gini=0.3)
    assert not named(max_gini=0.45)  # met by evenness 0, which costs nothing
    assert not named(max_ndcg_loss=0.05)
    monkeypatch.setattr("fairmf.control.target.FAIRREC_BEST", 0.3)
    assert not named(max_gini=0.3)


def test_without_histories_offsets_are_learned_on_the_validation_users(model):
    bare = FairALS()
    bare._fitted = dataclasses.replace(model.fitted, interactions=None)
    result = fit_to_target(bare, SPLIT.validation, max_gini=0.0, alternatives="offsets")
    own = fit_offsets(model, K=20, min_exposure=0.5, cohort=SPLIT.validation).model
    expected = evaluate(own, SPLIT.validation, metrics=METRICS, bootstrap=0)
    assert [result.alternatives.rows[1][name] for name in METRICS] == [expected[name] for name in METRICS]
    assert len(result.alternatives) == 3


def test_stored_users_that_cannot_be_turned_are_said(model):
    bare = FairALS()
    knots = (Knot(Level(0.0), 0.8, 0.4), Knot(Level(3.0), 0.5, 0.2))
    path = EvennessPath(knots, 20, "ndcg@100", 7)
    bare._fitted = dataclasses.replace(model.fitted, interactions=None, path=path)
    result = fit_to_target(bare, SPLIT.validation, max_gini=0.0)
    assert "holds no histories: pass evenness=1 with each request" in result.message
    assert result.model.fitted.path == path


def test_lists_of_the_whole_catalogue_leave_nothing_to_offset(model):
    found = measure_alternatives(model, SPLIT.validation, ("recall@20", "gini@200"), at=200)
    assert found.column("way") == ["FairRec"] * 3


def test_a_loss_is_kept_on_the_validation_users(model):
    result = fit_to_target(model, SPLIT, max_ndcg_loss=0.05)
    best = result.model.fitted.path.level(0.0)
    plain, found = (
        evaluate(m, SPLIT.validation, metrics=METRICS, bootstrap=0) for m in (model.with_evenness(best), result.model)
    )
    assert found["ndcg@100"] >= 0.95 * plain["ndcg@100"]
    assert found["gini@20"] < plain["gini@20"]


def test_an_unfitted_model_is_trained_on_the_training_part():
    result = fit_to_target(FairALS(factors=6, epochs=2), SPLIT, min_coverage=0.0)
    assert result.reached is True
    assert result.evenness == 0
    assert result.model.n_users == SPLIT.train.n_users


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: trade_off(m, SPLIT, fairness=[]), "fairness holds no values"),
        (lambda m: trade_off(m, SPLIT, evenness=[]), "evenness holds no values"),
        (lambda m: trade_off(m, SPLIT, evenness=[1.1]), "evenness"),
        (lambda m: trade_off(m, SPLIT, evenness=[1], fairness=[1]), "not both"),
        (lambda m: fit_to_target(m, SPLIT, max_gini=0.5, alternatives="magic"), "'alternatives' parameter of fit_to"),
        (lambda m: fit_to_target(m, SPLIT, max_gini=0.5, at=0), "'at' parameter of fit_to_target"),
        (lambda m: fit_to_target(Popularity().fit(SPLIT.train), SPLIT, max_gini=0.5), "no dial"),
        (lambda m: trade_off(m, SPLIT, fairness=[-1]), "number >= 0"),
        (lambda m: trade_off(m, SPLIT, points=1), "'points' parameter of trade_off must be an integer >= 2"),
        (lambda m: trade_off(m, SPLIT, metrics=["ndcg@100"]), "gini@K"),
        (lambda m: trade_off(m, SPLIT.train), "Expected a Split or a HeldOut"),
        (lambda m: trade_off(Popularity().fit(SPLIT.train), SPLIT), "no dial"),
        (lambda m: fit_path(IALS(), SPLIT, fairness=[1]), "no fairness to train with"),
        (lambda m: fit_path(FairALS(), SPLIT.validation, fairness=[1]), "whole Split"),
        (lambda m: fit_path(FairALS(), SPLIT, fairness=[1], tolerance=-1), "'tolerance' parameter of fit_path must be"),
        (lambda m: fit_to_target(m, SPLIT), "exactly one of"),
        (lambda m: fit_to_target(m, SPLIT, max_gini=0.5, min_coverage=0.5), "exactly one of"),
        (lambda m: fit_to_target(m, SPLIT, max_gini=1.5), ">= 0 and <= 1"),
        (lambda m: fit_to_target(FairALS(), SPLIT.validation, max_gini=0.5), "not fitted"),
    ],
)
def test_what_cannot_be_done_is_said(model, call, message):
    with pytest.raises((InvalidParameter, InvalidData), match=message):
        call(model)


def test_fiadmm_has_a_path_too():
    path = fit_path(FiADMM(factors=4, epochs=10), SPLIT, fairness=[0.5, 1])
    assert len(path) == 2
