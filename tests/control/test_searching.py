"""The search along the path of evenness on curves whose answer is known in closed form: no model, no data."""

import numpy as np
import pytest

from fairmf.control.target import CLOSE, Goal, furthest, nearest, room
from fairmf.control.trade_off import Curve


class FakePath:
    """Gini falls linearly from .9 to .4; nDCG falls like a parabola; coverage has its top at evenness .8."""

    def __init__(self):
        self.rows = {}

    def __call__(self, evenness):
        if evenness not in self.rows:
            self.rows[evenness] = {
                "evenness": evenness, "ndcg@100": 0.4 - 0.2 * evenness**2,
                "gini@20": 0.9 - 0.5 * evenness, "coverage@20": 0.6 - (evenness - 0.8) ** 2,
            }  # fmt: skip
        return self.rows[evenness]


@pytest.mark.parametrize("wanted", [0.85, 0.7, 0.5, 0.42])
def test_the_smallest_evenness_with_that_gini(wanted):
    path = FakePath()
    row = nearest(path, Goal("gini@20", wanted, at_most=True))
    assert wanted - 2 * CLOSE <= row["gini@20"] <= wanted
    assert row["evenness"] == pytest.approx((0.9 - wanted) / 0.5, abs=0.002)
    assert len(path.rows) <= 14


def test_a_goal_that_holds_already_is_evenness_0():
    assert nearest(FakePath(), Goal("gini@20", 0.95, at_most=True))["evenness"] == 0


def test_an_unreachable_gini_ends_after_two_measurements():
    path = FakePath()
    assert nearest(path, Goal("gini@20", 0.3, at_most=True))["evenness"] == 1
    assert sorted(path.rows) == [0, 1]


def test_coverage_that_only_inner_levels_have_is_found():
    row = nearest(FakePath(), Goal("coverage@20", 0.58, at_most=False))
    assert row["coverage@20"] >= 0.58 > FakePath()(1.0)["coverage@20"]
    assert row["evenness"] == pytest.approx(0.8 - np.sqrt(0.02), abs=0.005)
    # If no level has it, the nearest that was measured is taken.
    assert nearest(FakePath(), Goal("coverage@20", 0.7, at_most=False))["evenness"] == 0.75


@pytest.mark.parametrize("loss", [0.02, 0.1, 0.3])
def test_the_largest_evenness_that_keeps_the_quality(loss):
    goal = Goal("ndcg@100", 0.4 * (1 - loss), at_most=False)
    row = furthest(FakePath(), goal)
    assert goal.met_by(row)
    assert row["evenness"] == pytest.approx(np.sqrt(2 * loss), abs=0.005)


def test_quality_to_spare_takes_the_most_even_level_and_no_loss_the_first():
    assert furthest(FakePath(), Goal("ndcg@100", 0.0, at_most=False))["evenness"] == 1
    assert furthest(FakePath(), Goal("ndcg@100", 0.4, at_most=False))["evenness"] == 0


def test_a_bound_is_a_python_bool():
    for value in (np.float64(0.5), np.float32(0.9)):
        assert type(Goal("gini@20", 0.7, at_most=True).met_by({"gini@20": value})) is bool


def test_what_no_lists_could_meet_is_said():
    # 10 lists of 3 for 40 items: 30 items are shown once, 10 never. Gini by its definition, over all pairs.
    counts = np.repeat([1, 0], [30, 10])
    lowest = np.abs(counts[:, None] - counts).sum() / (2 * 40 * 30)
    assert f"the lowest possible gini@3 is {lowest:.4f}" in room(Goal("gini@3", lowest - 0.01, True), 10, 40, 3)
    assert room(Goal("gini@3", lowest + 1e-9, True), 10, 40, 3) == ""
    assert "the highest possible coverage@3 is 0.7500" in room(Goal("coverage@3", 0.76, False), 10, 40, 3)
    assert room(Goal("coverage@3", 0.75, False), 10, 40, 3) == ""


def test_the_front_holds_what_nothing_beats():
    rows = [(0.4, 0.9), (0.38, 0.8), (0.37, 0.85), (0.3, 0.8), (0.2, 0.7), (0.4, 0.95)]
    curve = Curve(tuple({"ndcg@100": q, "gini@20": g} for q, g in rows), ("ndcg@100", "gini@20"))
    assert [(r["ndcg@100"], r["gini@20"]) for r in curve.front()] == [(0.2, 0.7), (0.38, 0.8), (0.4, 0.9)]
