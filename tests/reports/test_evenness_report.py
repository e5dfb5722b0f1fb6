"""A report along the path of evenness: its levels, what each costs, and the words it uses."""

import re
from functools import cache

import numpy as np
import pytest
from small_report import data_of, naive_exposure, small_split, text_of

from fairmf import IALS, FairALS, Level, audit, calibrate, evaluate, fit_offsets, report
from fairmf.control.quick_path import quick_path
from fairmf.data.popularity import gini
from fairmf.models.evenness import EvennessPath, Knot
from fairmf.reports.stops import place_on

CHOSEN = [0.0, 0.4, 1.0]


@cache
def fitted():
    """A calibrated model; nobody may change it."""
    model = FairALS(factors=6, epochs=4, fairness=1.0).fit(small_split().train)
    calibrate(model, small_split(), bootstrap=0)
    return model


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report(fitted(), small_split(), path, evenness=CHOSEN, bootstrap=30)
    page = path.read_text(encoding="utf-8")
    return page, data_of(page)


def reported(tmp_path, model, split=None, **options):
    path = report(model, split or small_split(), tmp_path / "r.html", bootstrap=0, examples=0, **options)
    page = path.read_text(encoding="utf-8")
    return page, data_of(page)


def test_levels_are_those_of_the_path(written):
    _, data = written
    split, path = small_split(), fitted().fitted.path
    assert [p["evenness"] for p in data["positions"]] == CHOSEN
    assert [p["name"] for p in data["positions"]] == ["evenness 0", "evenness 0.4", "evenness 1"]
    assert (data["knob"], data["chosen"]) == ("evenness", 1)
    for position, evenness in zip(data["positions"], CHOSEN, strict=True):
        blocks = fitted().rank(split.test.fold_in, 20, evenness=path.level(evenness))
        exposure = naive_exposure(np.concatenate([items for _, items in blocks]), split.train.n_items, 20)
        assert position["values"]["gini@20"] == pytest.approx(float(gini(exposure)))
        assert position["fairness"] == path.level(evenness).fairness


def test_values_have_the_intervals_of_evaluate(written):
    _, data = written
    for position, evenness in zip(data["positions"], CHOSEN, strict=True):
        found = evaluate(fitted(), small_split().test, at=(20, 100), bootstrap=30, evenness=evenness)
        for metric in ("ndcg@100", "ndcg@20", "gini@20"):
            low, high = found.intervals[metric]
            assert position["ends"][metric] == f"{low:.3f} to {high:.3f}"
    assert float(position["ends"]["gini@20"].split(" to ")[0]) < position["values"]["gini@20"]


def test_an_audit_has_intervals_of_both_sides():
    split = small_split()
    sides = [{"evenness": Level(0.0)}, {"evenness": Level(1.0, 0.5, 0.2)}]
    found = audit(fitted(), fitted(), split, before_options=sides[0], after_options=sides[1], bootstrap=25)
    for metric in ("ndcg@20", "recall@20", "gini@20", "coverage@20"):
        for ends, options in zip((found[metric].before_ends, found[metric].after_ends), sides, strict=True):
            alone = evaluate(fitted(), split.test, at=20, bootstrap=25, **options)
            assert ends == pytest.approx(alone.intervals[metric])
    without = audit(fitted(), fitted(), split, after_options=sides[1], bootstrap=0)
    assert without["gini@20"].after_ends is None


def test_the_page_says_what_each_evenness_costs(written):
    page, data = written
    text, n = text_of(page), small_split().test.n_users
    assert f"{n} test users" in text
    assert not re.findall(r"[a-z]\.[A-Z]", text.split("How this was made")[0])  # sentences that run together
    assert f"calibrated on {small_split().validation.n_users} users, for nDCG@100 against Gini@20" in text
    costs = text_of(re.search(r'<section id="costs".*?</section>', page, flags=re.DOTALL)[0])
    assert f"{n} test users" in costs
    first = data["positions"][0]["values"]["ndcg@100"]
    for position in data["positions"][1:]:
        difference, *ends = (100 * x / first for x in position["changes"]["ndcg@100"])
        low, high = (f"{end:+.1f}%".replace("-", "−") for end in ends)
        assert f"{difference:+.1f}%".replace("-", "−") + f" {low} to {high}" in costs
        lose, gain = position["users"]
        assert f"{lose:.1%} / {gain:.1%}" in costs
        for metric in ("ndcg@100", "ndcg@20", "gini@20"):
            assert f"{position['values'][metric]:.3f} {position['ends'][metric]}" in costs
    levels = [fitted().fitted.path.level(evenness) for evenness in CHOSEN]
    stands = text_of(page).split("What each evenness stands for")[-1]
    for evenness, level in zip(CHOSEN, levels, strict=True):
        assert f"{evenness:g} {level.flatten:.3g} {level.discount:.3g} {level.lift:.3g} {level.fairness:.3g}" in stands


def test_fairness_names_only_what_the_model_was_trained_with(written):
    page, data = written
    assert "FairALS trained with fairness 1;" in text_of(page)
    assert text_of(page).lower().count("fairness") == 1
    assert not any("fairness" in p[key].lower() for p in data["positions"] for key in ("name", "sentence"))
    assert "This fairness" not in page  # the scripts write sentences too


def test_with_a_slider_of_fairness_the_word_is_for_the_slider_alone(tmp_path):
    page, _ = reported(tmp_path, fitted(), fairness=[0, 2])
    assert "trained with fairness" not in page
    assert "What each fairness costs" in page
    assert "evenness" not in text_of(page).lower()


def test_a_model_without_a_path_gets_one_on_validation_users(tmp_path):
    split, model = small_split(), FairALS(factors=6, epochs=4).fit(small_split().train)
    page, data = reported(tmp_path, model, evenness=[0, 0.5])
    assert model.fitted.path is None
    path = quick_path(model, split.validation, 20, "ndcg@100")
    assert [p["fairness"] for p in data["positions"]] == [path.level(e).fairness for e in (0, 0.5)]
    found = evaluate(model, split.test, at=20, bootstrap=0, evenness=path.level(0.5))
    assert data["positions"][1]["values"]["gini@20"] == pytest.approx(found["gini@20"])
    assert f"a quick path of evenness was found on {split.validation.n_users} validation users" in page
    page, data = reported(tmp_path, model, split.test, evenness=[0.5])
    assert f"found on {split.test.n_users} of these users" in page
    assert [p["evenness"] for p in data["positions"]] == [0, 0.5]


def test_the_summary_is_about_the_evenness_that_the_model_serves_with(tmp_path):
    page, data = reported(tmp_path, fitted())
    assert "The suggested evenness 0.3 is a moderate start, not a rule." in page
    assert "Today: evenness 0." in page  # its path begins with the fairness of training
    assert [p["evenness"] for p in data["positions"]] == [k / 10 for k in range(11)]
    assert data["positions"][data["chosen"]]["evenness"] == 0.3
    _, data = reported(tmp_path, fitted().with_evenness(0.47))
    assert data["positions"][data["chosen"]]["evenness"] == 0.47
    assert data["series"] == []
    _, data = reported(tmp_path, fitted(), evenness=[0.2, 0.9], chosen=0.6)
    assert [p["evenness"] for p in data["positions"]] == [0.2, 0.6, 0.9]
    assert data["chosen"] == 1


def test_the_model_as_it_serves_is_a_point_beside_the_path(tmp_path):
    split = small_split()
    model = fitted().with_evenness(Level(None, 0.9))  # no level of the path
    page, data = reported(tmp_path, model)
    assert "Today: a level beside this path (nDCG@" in page
    (series,) = data["series"]
    found = evaluate(model, split.test, at=(20, 100), bootstrap=0)
    assert series["points"][0][:2] == pytest.approx([found["gini@20"], found["ndcg@100"]])
    bounded = IALS(factors=6, epochs=4).fit(split.train)
    calibrate(bounded, split, bootstrap=0)
    bounded = fit_offsets(bounded, K=20, min_exposure=0.5).model
    page, data = reported(tmp_path, bounded, evenness=[0, 1])
    assert "Today: with exposure offsets (nDCG@" in page
    found = evaluate(bounded, split.test, at=(20, 100), bootstrap=0)
    assert data["series"][0]["points"][0][0] == pytest.approx(found["gini@20"])
    assert data["positions"][0]["values"]["gini@20"] != pytest.approx(found["gini@20"])


def test_scores_as_trained_are_without_evenness(tmp_path):
    """Where calibration found more accurate lists at another level, evenness 0 is not what serves."""
    model = FairALS(factors=6, epochs=4).fit(small_split().train)
    knots = (Knot(Level(0.0, 0.5), 0.9, 0.4), Knot(Level(0.0, 1.0), 0.8, 0.39))
    model.fitted.__dict__["path"] = EvennessPath(knots, 20, "ndcg@100", 50)
    assert "Today: without evenness (nDCG@" in reported(tmp_path, model, evenness=[0, 1])[0]


def test_a_path_of_one_level_is_said(tmp_path):
    model = FairALS(factors=6, epochs=4).fit(small_split().train)
    model.fitted.__dict__["path"] = EvennessPath((Knot(Level(0.0), 0.9, 0.4),), 20, "ndcg@100", 50)
    page, data = reported(tmp_path, model, evenness=[0, 1])
    assert "every evenness gives the same lists" in page
    assert data["positions"][0]["values"] == data["positions"][1]["values"]


def test_the_place_of_a_level_on_a_path():
    knots = (
        Knot(Level(0.0), 0.9, 0.4),
        Knot(Level(0.0, 0.5), 0.8, 0.39),
        Knot(Level(0.0, 0.5, 0.4), 0.75, 0.38),
        Knot(Level(2.0, 1.0, 0.4), 0.4, 0.2),
    )
    path = EvennessPath(knots, 20, "ndcg@100", 50)
    for evenness in (0, 0.07, 0.2, 0.25, 0.3, 0.777, 1):
        assert place_on(path, path.level(evenness)) == pytest.approx(evenness, abs=1e-5)
    for level in (Level(0.1), Level(0.0, 0.4, 0.1), Level(0.0, 0.5, 0.5), Level(4.0, 1.5, 0.4)):
        assert place_on(path, level) is None
