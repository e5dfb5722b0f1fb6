"""The path of evenness: the best monotone chain, against a search of all chains."""

import copy
import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from fairmf import FairALS, Popularity, calibrate, evaluate, load_model, recalibrate, split_by_user, synthetic
from fairmf.control import level_grid
from fairmf.control.level_grid import Cohort, Point, monotone_chain, refined_chain, thinned
from fairmf.control.quick_path import on_path
from fairmf.data.popularity import gini
from fairmf.errors import InvalidParameter
from fairmf.metrics.registry import parse_metric
from fairmf.models.evenness import Level


def random_points(seed, count):
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 3, (count, 4)).astype(float)
    gini, quality = rng.random(count) * rng.choice([0.2, 1.0]), rng.random(count)
    return [Point(Level(*levels[i]), gini[i], quality[i], rng.random(5)) for i in range(count)]


def area(chain):
    """Under straight lines, but under the more even knot where two are more than .05 apart."""
    total = 0.0
    for a, b in itertools.pairwise(chain):
        total += (a.gini - b.gini) * (b.quality if a.gini - b.gini > 0.05 else (a.quality + b.quality) / 2)
    return total


def is_monotone(chain):
    def strengths(point):
        return np.array([point.level.fairness, point.level.flatten, point.level.discount, point.level.lift])

    return all(b.gini < a.gini and (strengths(b) >= strengths(a)).all() for a, b in itertools.pairwise(chain))


@pytest.mark.parametrize("seed", range(12))
def test_no_chain_encloses_more_area(seed):
    points = random_points(seed, 8)
    least = 0.2
    start = max(points, key=lambda point: point.quality)
    others = [point for point in points if point is not start and point.quality >= least]
    chains = (
        (start, *rest)
        for size in range(len(others) + 1)
        for some in itertools.combinations(others, size)
        for rest in [sorted(some, key=lambda point: -point.gini)]
    )
    best = max(area(chain) for chain in chains if is_monotone(chain))
    found = monotone_chain(points, least)
    assert found[0] is start
    assert is_monotone(found)
    assert area(found) == pytest.approx(best)


class Valley:
    """A cohort whose quality falls steeply at first: all levels are below the line from the first to the last."""

    def __init__(self):
        self.asked = []

    def measure(self, level):
        self.asked.append(level)
        x = level.discount
        return Point(level, 0.9 - 0.6 * x, 0.2 + 0.2 * (1 - x) ** 4, np.ones(3))


def test_a_chain_is_measured_where_it_leaves_points_out():
    cohort = Valley()
    points = [cohort.measure(Level(0.0, 0.0, x)) for x in (0.0, 1.0)]
    chain = refined_chain(cohort, points, 0.0, lambda _: None, gap=0.06)
    assert max(a.gini - b.gini for a, b in itertools.pairwise(chain)) <= 0.06
    for point in chain:
        assert point.quality == pytest.approx(0.2 + 0.2 * (1 - point.level.discount) ** 4)


def test_levels_between_distant_knots_are_tried():
    """Equal strengths are best here, and no step of the grid has them."""

    class Diagonal:
        def measure(self, level):
            g, h = level.flatten, level.discount
            return Point(level, 0.9 - 0.2 * (g + h), 0.4 - 0.1 * (g + h) - 0.2 * abs(g - h), np.ones(3))

    cohort = Diagonal()
    points = [cohort.measure(Level(0.0, g, h)) for g, h in ((0, 0), (0, 0.5), (1, 1))]
    chain = refined_chain(cohort, points, 0.0, lambda _: None)
    assert Level(0.0, 0.5, 0.5) in [point.level for point in chain]
    assert Level(0.0, 0.0, 0.5) not in [point.level for point in chain]


def test_a_chain_ends_where_hardly_any_gini_is_left():
    falling = [(0.9, 0.40), (0.8, 0.38), (0.705, 0.30), (0.700, 0.22), (0.698, 0.15)]
    points = [Point(Level(float(k)), gini, quality, np.ones(3)) for k, (gini, quality) in enumerate(falling)]
    assert refined_chain(None, points, 0.0, lambda _: None, gap=1.0) == points[:3]


def test_points_below_the_least_quality_are_left_out():
    points = [Point(Level(0.0), 0.9, 0.4, np.ones(3)), Point(Level(1.0), 0.5, 0.1, np.ones(3))]
    assert len(monotone_chain(points, 0.2)) == 1
    assert len(monotone_chain(points, 0.1)) == 2


def test_knots_within_a_standard_error_are_dropped():
    rng = np.random.default_rng(0)
    base = rng.random(400)

    def point(loss, gini):
        noise = rng.normal(0, 0.1, 400)  # a standard error of .007 for a difference
        per_user = base - loss + noise - noise.mean()
        return Point(Level(1 - gini), gini, float(per_user.mean()), per_user)

    chain = [point(0, 0.9), point(0.001, 0.85), point(0.1, 0.8), point(0.101, 0.7), point(0.102, 0.6)]
    assert thinned(chain) == [chain[0], chain[2], chain[4]]
    assert thinned(chain[:1]) == chain[:1]


def test_points_below_the_line_from_start_to_end_stay_on_the_path():
    chain = [Point(Level(k), 0.9 - 0.1 * k, quality, np.ones(3)) for k, quality in enumerate((0.4, 0.25, 0.2))]
    assert monotone_chain(chain, 0.1) == chain


SPLIT = split_by_user(synthetic(700, 250, 14000, random_state=5), heldout=150, protocol="seeded")
MODEL = FairALS(factors=12, epochs=5, fairness=0.5).fit(SPLIT.train, progress=False)
LEVELS = [Level(0.0), Level(0.5, 0.3, 0.1), Level(4.0, 0.0, 0.4), Level(2.0, 1.0, 0.0)]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_measured_as_evaluate_measures_it(level, kept, monkeypatch):
    """With scores and targets that are kept for all levels, and with blocks that are made anew."""
    if not kept:
        monkeypatch.setattr(level_grid, "KEPT", 4 * 20 * 250)
    cohort = Cohort.of(MODEL, SPLIT.validation, 10, parse_metric("ndcg@50"), None)
    point = cohort.measure(level)
    found = evaluate(MODEL, SPLIT.validation, metrics=["ndcg@50", "gini@10"], bootstrap=0, evenness=level)
    assert point.gini == pytest.approx(found["gini@10"], abs=2e-3)  # nearly equal scores may change places
    assert point.quality == pytest.approx(found["ndcg@50"], abs=1e-3)


def test_calibration_stores_a_path_that_evenness_runs_along(tmp_path):
    model = copy.copy(MODEL)
    before = model.recommend(SPLIT.train.user_ids.values[:20], N=10)[0]
    found = calibrate(model, SPLIT, at=10, quality="ndcg@50", bootstrap=20, progress=False)
    path = model.fitted.path
    assert path is found.path
    assert MODEL.fitted.path is None
    assert np.array_equal(model.recommend(SPLIT.train.user_ids.values[:20], N=10)[0], before)
    ginis = [
        evaluate(model, SPLIT.validation, metrics=["gini@10"], bootstrap=0, evenness=e)["gini@10"] for e in (0, 0.5, 1)
    ]
    assert ginis[0] > ginis[1] > ginis[2]
    # Evenness is linear in the Gini of the users it was measured on, as far as levels between knots are.
    assert ginis[1] == pytest.approx((ginis[0] + ginis[2]) / 2, abs=0.03)
    assert path.n_users == SPLIT.validation.n_users
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").fitted.path == path
    # What it costs is measured on the test users, with intervals.
    assert found.shown_on == "test"
    own = evaluate(model, SPLIT.test, metrics=["gini@10"], bootstrap=0, evenness=0.3)["gini@10"]
    table = found.table()
    assert table["gini@10"][3].as_py() == pytest.approx(own)
    assert table["gini@10_low"][3].as_py() <= own <= table["gini@10_high"][3].as_py()
    assert "150 test users" in repr(found)


@pytest.mark.slow
def test_the_first_knot_has_the_best_quality():
    found = calibrate(copy.copy(MODEL), SPLIT.validation, bootstrap=0, progress=False)
    plain = evaluate(MODEL, SPLIT.validation, metrics=["ndcg@100"], bootstrap=0, evenness=Level(0.0))["ndcg@100"]
    assert found.path.knots[0].quality >= plain - 1e-9
    assert found.path.knots[-1].quality >= 0.5 * found.path.knots[0].quality - 1e-9
    assert found.shown_on == "validation"


def test_a_sample_finds_the_levels_and_all_users_measure_them():
    model = copy.copy(MODEL)
    found = calibrate(model, SPLIT, users=60, bootstrap=0, progress=False)
    assert found.path.n_users == 150
    for knot in found.path.knots:
        own = evaluate(model, SPLIT.validation, metrics=["gini@20"], bootstrap=0, evenness=knot.level)
        assert knot.gini == pytest.approx(own["gini@20"], abs=2e-3)


@pytest.fixture(scope="module")
def lifted():
    """A split and a calibrated model whose path uses lift."""
    split = split_by_user(synthetic(600, 400, 24_000, random_state=1), heldout=150, protocol="seeded")
    model = FairALS(factors=16, epochs=8, item_balance=0.0, user_balance=0.0).fit(split.train, progress=False)
    calibrate(model, split.validation, bootstrap=0, progress=False)
    return split, model


def test_lift_is_used_where_it_makes_the_path_better(lifted, monkeypatch):
    split, model = lifted
    assert model.fitted.path.knots[-1].level.lift > 0.5
    without = copy.copy(model)
    monkeypatch.setattr("fairmf.control.calibrate.learned_prices", lambda *_: None)
    calibrate(without, split.validation, bootstrap=0, progress=False)
    assert without.fitted.item_prices is None
    paths = [found.fitted.path.knots for found in (model, without)]
    levels = np.linspace(max(path[-1].gini for path in paths) + 0.01, 0.75, 5)
    best, other = (
        np.interp(levels, [k.gini for k in path[::-1]], [k.quality for k in path[::-1]]) for path in paths
    )  # fmt: skip
    assert best.mean() > other.mean() + 0.003


def test_lift_is_measured_from_plain_scores_and_from_the_best_level():
    """A chain starts at the best level, so that one with a discount can only go on with that discount."""

    class Discounted:
        has_fairness = False
        model = SimpleNamespace(fitted=SimpleNamespace(trained_fairness=0.0, item_prices=np.ones(3)))

        def measure(self, level):
            gini = 0.9 - 0.1 * (level.flatten + level.discount + level.lift)
            return Point(level, gini, 0.4 - abs(level.discount - 0.1) - 0.01 * level.lift, np.ones(3))

    grid = level_grid.Grid(flatten=(0.0,), discount=(0.0, 0.1, 0.2), lift=(0.5, 1.0))
    found = {point.level for point in level_grid.measure_grid(Discounted(), 0.0, lambda _: None, grid)}
    assert {Level(0.0, 0.0, 0.0, 0.5), Level(0.0, 0.0, 0.1, 0.5), Level(0.0, 0.0, 0.1, 1.0)} <= found
    assert Level(0.0, 0.0, 0.2, 0.5) not in found


def test_a_model_that_serves_with_lift_does_so_after_another_calibration(lifted, monkeypatch):
    split, model = lifted
    served = model.with_evenness(Level(0.0, lift=0.5))
    monkeypatch.setattr("fairmf.control.calibrate._uses_prices", lambda _: False)
    calibrate(served, split.validation, bootstrap=0, progress=False)
    users = split.train.user_ids.values[:30]
    expected = model.recommend(users, N=10, evenness=Level(0.0, lift=0.5))
    np.testing.assert_array_equal(served.recommend(users, N=10)[0], expected[0])


def test_a_quick_path_uses_lift_too(lifted):
    split, model = lifted
    bare = copy.copy(model)
    bare._fitted = dataclasses.replace(model.fitted, path=None, item_prices=None)
    assert on_path(bare, split.validation, 20, "ndcg@100").fitted.path.knots[-1].level.lift > 0


def test_prices_go_with_the_model(lifted, tmp_path):
    split, model = lifted
    assert (model.fitted.item_prices >= 0).all()
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    asked = {"metrics": ["gini@20"], "bootstrap": 0, "evenness": 0.6}
    assert (
        evaluate(again, split.validation, **asked)["gini@20"] == evaluate(model, split.validation, **asked)["gini@20"]
    )
    other = FairALS(factors=16, epochs=8, item_balance=0.0, user_balance=0.0, random_state=3)
    own = recalibrate(other.fit(split.train, progress=False), model.fitted.path, progress=False)
    assert not np.array_equal(other.fitted.item_prices, model.fitted.item_prices)  # learned on its own lists
    assert own.knots[-1].gini < own.knots[0].gini - 0.2


@pytest.mark.slow
def test_a_model_without_histories_learns_prices_on_the_validation_users(lifted, tmp_path):
    split, model = lifted
    model.save(tmp_path / "lean", interactions=False)
    lean = load_model(tmp_path / "lean")
    calibrate(lean, split.validation, bootstrap=0, progress=False)
    assert lean.fitted.path.knots[-1].level.lift > 0
    assert not np.array_equal(lean.fitted.item_prices, model.fitted.item_prices)


def test_another_fit_takes_the_levels_and_has_its_own_gini():
    model = FairALS(factors=12, epochs=5, random_state=7).fit(SPLIT.train, progress=False)
    path = calibrate(copy.copy(MODEL), SPLIT.validation, bootstrap=0, progress=False).path
    own = recalibrate(model, path, progress=False)
    assert model.fitted.path is own
    assert own.n_users == model.n_users
    assert {knot.level for knot in own.knots} <= {knot.level for knot in path.knots}
    lists = model.recommend_table(N=20, evenness=own.knots[-1].level)
    counts = np.zeros(model.n_items)
    _, n = np.unique(np.array(lists["item"]), return_counts=True)
    counts[: len(n)] = n
    assert own.knots[-1].gini == pytest.approx(float(gini(counts)), abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": "gini@20"}, "must be an accuracy"),
        ({"quality": "ndcg"}, "lacks its cut-off"),
        ({"at": 0}, "'at'"),
        ({"min_quality": 2}, "'min_quality'"),
        ({"users": 0}, "'users'"),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(InvalidParameter, match=message):
        calibrate(MODEL, SPLIT, progress=False, **options)
    assert MODEL.fitted.path is None


def test_popularity_can_be_calibrated():
    """A model without fairness has the item dial alone."""
    found = calibrate(Popularity().fit(SPLIT.train), SPLIT, bootstrap=0, progress=False)
    assert all(knot.level.fairness == 0 for knot in found.path.knots)
