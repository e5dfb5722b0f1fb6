"""The search along the dial on curves whose answer is known in closed form: no model, no data."""

import math

import numpy as np
import pytest

from fairmf.control.target import MOST, Goal, furthest, nearest
from fairmf.control.trade_off import Curve, cover, marked


class FakeDial:
    """Gini falls to its minimum at `lowest` and rises again; nDCG falls like 1 / (1 + psi)."""

    def __init__(self, lowest=6.0, floor=0.4):
        self.lowest, self.floor, self.rows = lowest, floor, {}
        self.metrics = ("ndcg@100", "gini@20", "coverage@20")

    def gini(self, psi):
        return self.floor + 0.5 * (math.log1p(psi) - math.log1p(self.lowest)) ** 2 / math.log1p(self.lowest) ** 2

    def __call__(self, psi):
        if psi not in self.rows:
            self.rows[psi] = {
                "way": "dial", "fairness": psi, "ndcg@100": 0.4 / (1 + 0.1 * psi),
                "gini@20": self.gini(psi), "coverage@20": psi / (10 + psi),
            }  # fmt: skip
        return self.rows[psi]

    def first_steps(self):
        return [0.0, *(0.25 * 2**k for k in range(16))]


@pytest.mark.parametrize("wanted", [0.85, 0.7, 0.5, 0.42])
def test_the_smallest_fairness_with_that_gini(wanted):
    dial = FakeDial()
    row = nearest(dial, Goal("gini@20", wanted, at_most=True), "gini@20")
    exact = next(psi for psi in np.linspace(0, 6, 60_001) if dial.gini(psi) <= wanted)
    assert row["gini@20"] <= wanted
    assert row["gini@20"] > wanted - 0.005
    assert row["fairness"] == pytest.approx(exact, abs=0.05)
    assert len(dial.rows) <= MOST


def test_a_goal_that_holds_already_leaves_the_dial_at_0():
    assert nearest(FakeDial(), Goal("gini@20", 0.95, at_most=True), "gini@20")["fairness"] == 0


def test_an_unreachable_gini_ends_near_the_minimum_and_not_past_it():
    dial = FakeDial(lowest=5.3)
    row = nearest(dial, Goal("gini@20", 0.3, at_most=True), "gini@20")
    assert row["fairness"] == pytest.approx(5.3, abs=0.4)
    assert row["gini@20"] == min(r["gini@20"] for r in dial.rows.values())


def test_a_minimum_between_two_doublings_is_found():
    dial = FakeDial(lowest=5.3, floor=0.4)  # the doublings 4 and 8 both lie above .405
    assert min(dial.gini(4), dial.gini(8)) > 0.405
    row = nearest(dial, Goal("gini@20", 0.405, at_most=True), "gini@20")
    assert row["gini@20"] <= 0.405


def test_coverage_is_not_bought_past_the_gini_minimum():
    dial = FakeDial(lowest=6.0)
    row = nearest(dial, Goal("coverage@20", 0.6, at_most=False), "gini@20")  # needs psi = 15
    assert not Goal("coverage@20", 0.6, at_most=False).met_by(row)
    assert row["fairness"] <= min(dial.rows, key=lambda psi: dial.rows[psi]["gini@20"])
    assert nearest(FakeDial(), Goal("coverage@20", 0.2, at_most=False), "gini@20")["fairness"] == pytest.approx(
        2.5, abs=0.1
    )


@pytest.mark.parametrize("loss", [0.02, 0.1, 0.3])
def test_the_largest_fairness_that_keeps_the_quality(loss):
    goal = Goal("ndcg@100", 0.4 * (1 - loss), at_most=False)
    row = furthest(FakeDial(), goal, "gini@20")
    assert goal.met_by(row)
    assert row["fairness"] == pytest.approx(10 * (1 / (1 - loss) - 1), rel=0.05)


def test_quality_to_spare_takes_the_gini_minimum_and_no_more():
    row = furthest(FakeDial(lowest=5.3), Goal("ndcg@100", 0.0, at_most=False), "gini@20")
    assert row["fairness"] == pytest.approx(5.3, abs=0.4)


def test_no_loss_at_all_means_the_dial_at_0():
    assert furthest(FakeDial(), Goal("ndcg@100", 0.4, at_most=False), "gini@20")["fairness"] == 0


def test_points_cover_the_curve_evenly():
    dial = FakeDial()
    cover(dial, 25, "ndcg@100", "gini@20")
    rows = marked(dial, "gini@20")
    assert len(rows) == 25
    useful = [row for row in rows if not row["past_minimum"]]
    ginis = np.array([row["gini@20"] for row in useful])
    assert (np.diff(ginis) < 0).all()
    assert np.abs(np.diff(ginis)).max() < 0.12 * np.ptp(ginis)
    assert rows[-1]["past_minimum"]


@pytest.mark.parametrize("points", [2, 3, 5])
def test_few_points_are_few_evaluations(points):
    dial = FakeDial()
    cover(dial, points, "ndcg@100", "gini@20")
    assert len(dial.rows) == points


def test_the_front_holds_what_nothing_beats():
    rows = [(0.4, 0.9), (0.38, 0.8), (0.37, 0.85), (0.3, 0.8), (0.2, 0.7), (0.4, 0.95)]
    curve = Curve(tuple({"ndcg@100": q, "gini@20": g} for q, g in rows), ("ndcg@100", "gini@20"))
    assert [(r["ndcg@100"], r["gini@20"]) for r in curve.front()] == [(0.2, 0.7), (0.38, 0.8), (0.4, 0.9)]
