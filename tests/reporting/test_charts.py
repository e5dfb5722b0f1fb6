"""Charts and the plain-words summary."""

import itertools
import re

import numpy as np
import pytest

from fairmf.metrics import Evaluation
from fairmf.reporting.charts import Frame, lorenz, quality_against_gini, ticks
from fairmf.reporting.comparison import Contender, arrow
from fairmf.reporting.html import least_shown_share, summary


def contender(name, ndcg, gini, exposure):
    values = {"ndcg@100": ndcg, "gini@20": gini, "coverage@20": float(np.mean(np.array(exposure) > 0))}
    return Contender(name, Evaluation(values, {}, {20: np.array(exposure, float)}, {}, 5, 5), 1.0)


BEFORE = contender("before <b>", 0.4, 0.9, [0, 0, 0, 0, 100])
AFTER = contender("after", 0.38, 0.5, [5, 5, 5, 5, 80])


def test_ticks_are_round_and_inside():
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(0.83 <= t <= 0.987 for t in ticks(0.83, 0.987))
    assert len(ticks(0.83, 0.987)) >= 3


def test_points_lie_where_the_values_say():
    frame = Frame((0, 1), (0, 1))
    left, right = frame.at(0.2, 0.5), frame.at(0.8, 0.5)
    low, high = frame.at(0.5, 0.2), frame.at(0.5, 0.8)
    assert left[0] < right[0]
    assert low[1] > high[1]  # up on paper is a smaller y


def test_names_are_escaped():
    for svg in (quality_against_gini([BEFORE, AFTER]), lorenz([BEFORE, AFTER])):
        assert "before &lt;b&gt;" in svg
        assert "<b>" not in svg


def test_summary_in_plain_words():
    text = summary(BEFORE, AFTER)
    assert "from 0.0% to 20.0%" in text
    assert "-5.0%" in text
    assert "from 20% to 100%" in text
    nothing = contender("nothing", 0.0, 0.9, [0, 0, 0, 0, 100])
    assert "nDCG@100 goes from 0.000 to 0.380" in summary(nothing, AFTER)


def test_arrows_point_to_the_better_side():
    assert [arrow(metric) for metric in ("ndcg@100", "gini@20", "coverage@20")] == ["↑", "↓", "↑"]


def test_least_shown_share():
    assert least_shown_share(np.array([1.0] * 10)) == pytest.approx(0.8)
    assert least_shown_share(np.zeros(10)) == 0


def test_labels_of_neighbouring_points_do_not_overlap():
    crowd = [contender(f"a long model name {k}", 0.4 + 0.0001 * k, 0.5 + 0.0001 * k, [1, 1]) for k in range(4)]
    far = contender("far away", 0.1, 0.9, [1, 1])
    svg = quality_against_gini([*crowd, far])
    lines = sorted(float(y) for y in re.findall(r'y="([\d.-]+)">a long model', svg))
    assert len(lines) == 4
    assert all(b - a > 12 for a, b in itertools.pairwise(lines))
