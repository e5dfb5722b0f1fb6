"""Levels along a calibrated path."""

import pytest

from fairmf.errors import InvalidParameter
from fairmf.models.evenness import EvennessPath, Knot, Level, requested

PATH = EvennessPath(
    (
        Knot(Level(1.0, 0.0, 0.0), 0.9, 0.40),
        Knot(Level(1.0, 0.4, 0.0), 0.8, 0.38),
        Knot(Level(3.0, 0.4, 0.5), 0.5, 0.20),
    ),
    at=20,
    quality="ndcg@100",
)  # fmt: skip


def test_evenness_is_linear_in_gini():
    assert PATH.level(0) == Level(1.0, 0.0, 0.0)
    assert PATH.level(1) == Level(3.0, 0.4, 0.5)
    halfway = PATH.level(0.5)  # Gini .7: a third of the way from the second knot to the third
    assert halfway.fairness == pytest.approx(1 + 2 / 3)
    assert halfway.flatten == pytest.approx(0.4)
    assert halfway.discount == pytest.approx(0.5 / 3)
    assert PATH.expected(0.5) == pytest.approx((0.7, 0.38 - 0.18 / 3))
    assert PATH.expected(0.125) == pytest.approx((0.85, 0.39))


def test_a_path_of_one_knot_is_the_same_everywhere():
    path = EvennessPath(PATH.knots[:1], 20, "ndcg@100")
    assert path.level(0.0) == path.level(1.0) == PATH.knots[0].level


@pytest.mark.parametrize("knots", [(), PATH.knots[::-1], (PATH.knots[0], PATH.knots[0])])
def test_gini_must_fall_along_a_path(knots):
    with pytest.raises(InvalidParameter, match="Gini that falls"):
        EvennessPath(tuple(knots), 20, "ndcg@100")


@pytest.mark.parametrize("evenness", [-0.1, 1.1, float("nan"), "much", None, True])
def test_evenness_is_a_number_from_0_to_1(evenness):
    with pytest.raises(InvalidParameter, match="'evenness' parameter must be a number >= 0 and <= 1"):
        PATH.level(evenness)
    with pytest.raises(InvalidParameter, match="'evenness'"):
        requested(None, evenness)


def test_without_a_path_both_strengths_are_the_evenness():
    assert requested(None, 0.3) == Level(None, 0.3, 0.3)
    assert requested(PATH, Level(None, 0.2)) == Level(None, 0.2)
