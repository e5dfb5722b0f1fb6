"""The quick path: what it measures, what it keeps, and that it is no worse than the whole calibration."""

import copy
import itertools

import numpy as np
import pytest

from fairmf import FairALS, calibrate, evaluate, fit_offsets, split_by_user, synthetic
from fairmf.control import quick_path as quick
from fairmf.control.level_grid import Point
from fairmf.models.evenness import EvennessPath, Knot, Level

SPLIT = split_by_user(synthetic(500, 200, 10_000, random_state=2), heldout=120, protocol="seeded")


@pytest.fixture(scope="module")
def model():
    return FairALS(factors=12, epochs=6).fit(SPLIT.train)


def test_the_knots_are_what_evaluate_measures_where_the_sample_is_everybody(model):
    turned = quick.on_path(model, SPLIT.validation, 20, "ndcg@100")
    path = turned.fitted.path
    assert (path.at, path.quality, path.n_users) == (20, "ndcg@100", 120)
    assert len(path.knots) > 3
    axes = (quick.COARSE.fairness, quick.COARSE.flatten, quick.COARSE.discount, (0.0, *quick.COARSE.lift))
    on_grid = [all(x in axis for x, axis in zip(k.level.strengths, axes, strict=True)) for k in path.knots]
    assert not all(on_grid)  # the second round found better levels between those of the grid
    for knot in path.knots:
        found = evaluate(
            turned, SPLIT.validation, metrics=["ndcg@100", "gini@20"], bootstrap=0, evenness=knot.level
        )  # fmt: skip
        assert (knot.gini, knot.quality) == pytest.approx((found["gini@20"], found["ndcg@100"]), abs=2e-3)
    for before, after in itertools.pairwise(path.knots):
        assert all(a <= b for a, b in zip(before.level.strengths, after.level.strengths, strict=True))
    assert model.fitted.path is None


def test_the_sample_bounds_the_work(model, monkeypatch):
    monkeypatch.setattr(quick, "PAIRS", 60 * model.n_items)
    monkeypatch.setattr(quick, "FEWEST", 40)
    assert quick.on_path(model, SPLIT.validation, 20, "ndcg@100").fitted.path.n_users == 60
    monkeypatch.setattr(quick, "PAIRS", 1)
    assert quick.on_path(model, SPLIT.validation, 20, "ndcg@100").fitted.path.n_users == 40


@pytest.mark.slow
def test_it_loses_little_against_the_whole_calibration(model):
    whole = copy.copy(model)
    calibrate(whole, SPLIT.validation, bootstrap=0)
    short = quick.on_path(model, SPLIT.validation, 20, "ndcg@100")

    def quality_at(turned, ginis):
        rows = [
            evaluate(turned, SPLIT.validation, metrics=["ndcg@100", "gini@20"], bootstrap=0, evenness=k / 20)
            for k in range(21)
        ]
        rows.sort(key=lambda row: row["gini@20"])
        return np.interp(ginis, [row["gini@20"] for row in rows], [row["ndcg@100"] for row in rows])

    ends = [[knot.gini for knot in turned.fitted.path.knots] for turned in (whole, short)]
    ginis = np.linspace(max(end[-1] for end in ends), min(end[0] for end in ends), 7)
    assert (quality_at(short, ginis) >= 0.97 * quality_at(whole, ginis)).all()


def test_a_model_with_a_path_keeps_it(model):
    own = copy.copy(model)
    calibrate(own, SPLIT.validation, bootstrap=0)
    assert quick.on_path(own, SPLIT.validation, 20, "ndcg@100") is own


def test_offsets_are_left_out_and_the_default_level_stays(model):
    turned = quick.on_path(model.with_evenness(Level(flatten=0.5)), SPLIT.validation, 20, "ndcg@100")
    assert (turned.fitted.flatten, turned.fitted.discount) == (0.5, 0)
    assert turned.fitted.path == quick.on_path(model, SPLIT.validation, 20, "ndcg@100").fitted.path
    offset = fit_offsets(model, K=20, min_exposure=0.5).model
    assert quick.on_path(offset, SPLIT.validation, 20, "ndcg@100").fitted.item_offsets is None


def test_neighbours_are_half_steps_around_the_chain_and_between_its_knots():
    points = [Point(Level(psi, g, 0.0), 0.9, 0.1, np.ones(2)) for psi in (0.0, 1.0) for g in (0.0, 0.5, 1.0)]
    chain = [points[0], points[4]]  # (0, 0) and (1, .5)
    found = {level.strengths for level in quick.neighbours(chain, points)}
    assert found == {
        (0.5, 0.25, 0, 0),  # between both
        (0.5, 0, 0, 0), (0, 0.25, 0, 0),  # around the first
        (0.5, 0.5, 0, 0), (1, 0.25, 0, 0), (1, 0.75, 0, 0),  # around the second
    }  # fmt: skip


def test_a_path_of_one_knot_serves_that_level():
    path = EvennessPath((Knot(Level(0.0, 0.5), 0.5, 0.2),), 20, "ndcg@100")
    assert path.level(0.0) == path.level(1.0) == Level(0.0, 0.5, 0.0)
