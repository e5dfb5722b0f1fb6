"""Sentences and tables: the true numbers, and what gets worse said as clearly as what gets better."""

import dataclasses
import math

import numpy as np
import pytest

from fairmf.metrics.audit_change import Change, Estimate, UserChange
from fairmf.metrics.audit_result import GroupChange
from fairmf.metrics.evaluate import Evaluation
from fairmf.metrics.registry import known_names, parse_metric
from fairmf.metrics.sentences import arrow, cut, shown_change, signed, spoken_share, title, written, written_change
from fairmf.reports.content import Contender, Content, Position, summary

METRICS = ("ndcg@100", "gini@20", "coverage@20", "bottom50_share@20")
BEFORE = {"ndcg@100": 0.4, "gini@20": 0.9, "coverage@20": 0.25, "bottom50_share@20": 0.03}
AFTER = {"ndcg@100": 0.3952, "gini@20": 0.7, "coverage@20": 0.5, "bottom50_share@20": 0.11}


def content_of(before=BEFORE, after=AFTER, ends=None, **more):
    changes = {m: Change(before[m], after[m], *(ends or {}).get(m, (None, None))) for m in before}
    positions = (Position("fairness 0", before, 0.0), Position("fairness 2", after, 2.0, changes, **more))
    return Content(
        "t", "s", positions, 1, METRICS, "ndcg@100", "gini@20", "fairness", share=spoken_share(after, 20), at=20
    )  # fmt: skip


def test_the_headline_tells_gain_and_cost():
    content = content_of(ends={"ndcg@100": (-0.007, -0.002), "bottom50_share@20": (0.07, 0.09)})
    assert content.headline(content.after) == (
        "From fairness 0 to fairness 2, the least-shown half of the catalogue gets 11.0% of the exposure, up from 3.0% "
        "(+8.0 points, 95% interval +7.0 to +9.0), and nDCG@100 falls from 0.400 to 0.395 "
        "(−1.2%, −0.005, 95% interval −0.007 to −0.002)."
    )


def test_the_summary_is_two_short_sentences():
    content = content_of(ends={"ndcg@100": (-0.007, -0.002), "bottom50_share@20": (0.07, 0.09)})
    assert content.short() == [
        "For items, from fairness 0 to fairness 2: the least-shown half of the catalogue gets 11.0% of all places in "
        "lists, instead of 3.0%.",
        "For users: nDCG@100, the accuracy of lists, falls from 0.400 to 0.395 (−1.2%).",
    ]
    doubtful = content_of(ends={"ndcg@100": (-0.01, 0.001)}).short()[1]
    assert doubtful.endswith("(−1.2%), which may be chance.")


def test_the_advice_names_what_is_suggested_and_what_serves_now():
    content = content_of()
    assert content.advice() == ""  # a curve does not know what serves
    other = dataclasses.replace(content, served="fairness 0")
    assert other.advice() == "Suggested: fairness 2. Today: fairness 0."
    assert dataclasses.replace(content, served="fairness 2").advice().endswith("The model serves this already.")


def test_an_interval_without_width_is_left_out():
    """All samples of users agree where a share is 0 in each: "95% interval +8.0 to +8.0" would look certain."""
    content = content_of(ends={"ndcg@100": (-0.007, -0.002), "bottom50_share@20": (0.08, 0.08)})
    assert "up from 3.0% (+8.0 points), and nDCG@100" in content.headline(content.after)


def test_changes_add_up_as_they_are_written():
    """0.7004 - 0.6595 is 0.0409, but the page says 0.700 and 0.660 (0.6595 rounds up): the change must be 0.040."""
    change = Change(0.7004, 0.6596)
    assert shown_change("ndcg@100", change) == "−0.040"
    assert written_change("ndcg@100", change.difference) == "−0.041"
    assert shown_change("coverage@20", Change(0.12349, 0.12451)) == "+0.2 points"  # 12.3% and 12.5%


def test_the_headline_hides_no_loss_for_items():
    content = content_of(before=AFTER, after=BEFORE)
    text = content.headline(content.after)
    assert "gets 3.0% of the exposure, down from 11.0% (−8.0 points)" in text
    assert "nDCG@100 rises from 0.395 to 0.400 (+1.2%, +0.005)" in text
    told = " ".join(content.summary())
    assert "Better: nDCG@100. Worse: Gini@20, Coverage@20, Bottom-half share@20." in told


def test_doubt_is_told():
    content = content_of(ends={"ndcg@100": (-0.01, 0.001), "gini@20": (-0.22, -0.18)})
    assert "95% interval −0.010 to +0.001, which contains 0: not statistically significant)" in content.headline(
        content.after
    )
    told = " ".join(content.summary())
    assert "No clear change: nDCG@100." in told
    assert "Better: Gini@20" in told
    assert "Worse" not in told


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (0.4, 0.4, "nDCG@100 stays at 0.400"),
        (0.0, 0.1, "nDCG@100 rises from 0.000 to 0.100 (+0.100)"),
        (math.nan, math.nan, "nDCG@100 cannot be measured"),
    ],
)
def test_odd_qualities(before, after, told):
    content = content_of({**BEFORE, "ndcg@100": before}, {**AFTER, "ndcg@100": after})
    assert told in content.headline(content.after)
    assert "nan" not in " ".join(content.summary())


def test_the_first_stop_is_compared_with_nothing():
    content = content_of()
    assert "compared with fairness 0: nDCG@100 0.400, Gini@20 0.900" in content.headline(content.before)


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({"bottom50_share@20": 0.2, "bottom80_share@20": 0.5}, "bottom50_share@20"),
        ({"bottom50_share@20": 0.001, "bottom80_share@20": 0.5, "tail_share@20": 0.6}, "bottom80_share@20"),
        ({"bottom50_share@20": 0.0, "bottom80_share@20": 0.0, "tail_share@20": 0.0}, "tail_share@20"),
        ({"gini@20": 0.5}, None),
    ],
)
def test_the_share_that_is_spoken_of(values, share):
    assert spoken_share(values, 20) == share


def test_without_shares_the_inequality_is_told():
    before, after = ({"ndcg@100": x, "gini@20": y} for x, y in ((0.4, 0.9), (0.3, 0.8)))
    positions = (Position("fairness 0", before, 0.0), Position("fairness 2", after, 2.0))
    content = Content("t", "s", positions, 1, ("ndcg@100", "gini@20"), "ndcg@100", "gini@20", at=20)
    assert "Gini@20 of exposure falls from 0.900 to 0.800 (−0.100)" in content.headline(content.after)


def test_users_groups_and_the_end_of_the_dial_are_told():
    users = UserChange("ndcg@100", 80, {}, Estimate(-0.21), Estimate(0.4), Estimate(0.35))
    shares = {"big": (0.9, 0.6), "mid": (0.1, 0.15), "small": (0.0, 0.25)}
    groups = tuple(GroupChange(name, 5, 0, 0, Change(*share)) for name, share in shares.items())
    content = content_of(users={"ndcg@100": users}, groups=groups, past_minimum=True)
    told = " ".join(content.summary())
    assert "nDCG@100 falls for 40.0% and rises for 35.0% of the 80 users with held-out items" in told
    assert "changes by −0.210 on average" in told
    assert "rise most: small (+25.0 points), mid (+5.0 points); those that fall most: big (−30.0" in told
    assert "This fairness is past the lowest Gini: a lower fairness spreads exposure more evenly." in told


def test_every_metric_has_words():
    for name in known_names():
        assert parse_metric(f"{name}@5").title
        assert parse_metric(f"{name}@5").meaning
    assert title("ndcg@100") == "nDCG@100"
    assert title("group_gini@20") == "Gini of groups@20"
    assert [arrow(metric) for metric in ("ndcg@100", "gini@20", "coverage@20")] == ["↑", "↓", "↑"]


def test_numbers_as_they_are_written():
    assert written("gini@20", 0.98765) == "0.988"
    assert written("coverage@20", 0.98765) == "98.8%"
    assert written("coverage@20", None) == written("gini@20", math.nan) == written_change("gini@20", None) == "–"
    assert written_change("coverage@20", -0.0123) == "−1.2 points"
    assert signed(-0.00001, 3) == signed(0.00001, 3) == "0.000"
    assert signed(1234.5, 1) == "+1,234.5"
    assert len(cut("x" * 500)) == 120


def contender(name, ndcg, exposure):
    values = {"ndcg@100": ndcg, "gini@20": 0.5, "coverage@20": float(np.mean(np.array(exposure) > 0))}
    return Contender(name, Evaluation(values, {}, {20: np.array(exposure, float)}, {}, 5, 5), 1.0)


def test_the_demos_closing_sentence():
    after = contender("after", 0.38, [5, 5, 5, 5, 80])
    text = summary(contender("before", 0.4, [0, 0, 0, 0, 100]), after)
    assert "gets 20.0% of the exposure, up from 0.0%" in text
    assert "nDCG@100 falls from 0.400 to 0.380 (−5.0%, −0.020)" in text
    assert "from 20.0% to 100.0%" in text
    assert "nDCG@100 rises from 0.000 to 0.380 (+0.380)" in summary(contender("nothing", 0.0, [0, 0, 0, 0, 100]), after)
