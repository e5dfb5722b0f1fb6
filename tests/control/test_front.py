"""Fronts against loops over all pairs, and areas against a grid of cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmf.control.trade_off import dominates, front_positions, hypervolume
from fairmf.errors import InvalidParameter


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [((3, 1), (2, 1), True), ((3, 1), (3, 1), False), ((3, 2), (2, 1), False), ((2, 0), (2, 1), True)],
)
def test_dominates_by_hand(a, b, expected):
    assert dominates(a, b, [False, True]) is expected  # more of the first, less of the second


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20), st.booleans(), st.booleans())
def test_front_and_area_equal_counting(points, first, second):
    lower = (first, second)
    sign = [-1 if less else 1 for less in lower]
    gains = [(sign[0] * x, sign[1] * y) for x, y in points]
    beaten = [any(h[0] >= g[0] and h[1] >= g[1] and h != g for h in gains) for g in gains]
    found = front_positions(points, lower)
    assert sorted(found) == [i for i in range(len(points)) if not beaten[i]]
    assert [gains[i][0] for i in found] == sorted((gains[i][0] for i in found), reverse=True)
    worst = (3, 3)
    # Unit cells between the corner and each point: covered by at least one of them.
    corner = (sign[0] * 3, sign[1] * 3)
    cells = sum(
        any(g[0] >= corner[0] + x + 1 and g[1] >= corner[1] + y + 1 for g in gains) for x in range(7) for y in range(7)
    )
    assert hypervolume(points, worst, lower) == pytest.approx(cells)
    assert hypervolume([points[i] for i in found], worst, lower) == pytest.approx(cells)


def test_nothing_inside_the_rectangle():
    assert hypervolume([(0.1, 0.99)], (0.2, 0.95), (False, True)) == 0
    assert hypervolume([], (0.2, 0.95), (False, True)) == 0
    assert hypervolume(np.array([[0.4, 0.85]]), (0.2, 0.95), (False, True)) == pytest.approx(0.2 * 0.1)
    with pytest.raises(InvalidParameter, match="two objectives"):
        hypervolume([], (1, 1), (True,))
