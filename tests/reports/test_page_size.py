"""The page stays small whatever the catalogue, and says what it leaves out."""

import numpy as np
import pytest
from small_report import data_of, text_of

from fairmf.metrics.audit_change import Change
from fairmf.metrics.audit_result import GroupChange
from fairmf.reports.content import Catalogue, Content, Example, Position
from fairmf.reports.measure import MOST_EXAMPLES
from fairmf.reports.page import page
from fairmf.reports.payload import movers, shown_groups, shown_items
from fairmf.reports.stops import MOST_STOPS

METRICS = ("ndcg@100", "gini@20")


def large(m, stops=MOST_STOPS, examples=MOST_EXAMPLES, groups=5000, seed=0):
    """As much as a report may hold, with names as long and as costly as they come."""
    random = np.random.default_rng(seed)
    names = [f"{j}" + "<🎈" * 300 for j in range(m)]
    labels = [f"{j % groups}" + "<>" * 300 for j in range(m)]
    changes = {metric: Change(0.5, 0.4, -0.2, 0.0) for metric in METRICS}
    of_groups = tuple(GroupChange(labels[g], 3, 1, 2, Change(0.1, 0.1 + g / 1e6, 0, 0)) for g in range(groups))
    positions = []
    for k in range(stops):
        exposure = np.where(random.random(m) < 0.3, random.integers(0, 1_000_000, m), 0).astype(float)
        lists = np.stack([random.permutation(m)[:10] for _ in range(examples)])
        more = {"changes": changes, "groups": of_groups} if k else {}
        positions.append(
            Position(f"fairness {k}", dict.fromkeys(METRICS, 0.5), float(k), exposure=exposure, lists=lists, **more)
        )
    users = tuple(Example(f"User {k}", tuple(range(k, k + 30)), (1, 2)) for k in range(examples))
    catalogue = Catalogue(names, labels, random.integers(1, 9999, m).astype(float))
    return Content("t", "s", tuple(positions), 1, METRICS, *METRICS, at=20, catalogue=catalogue, examples=users)


@pytest.fixture(scope="module")
def content():
    return large(10_000)


@pytest.mark.slow
def test_the_largest_page_is_below_six_megabytes():
    made = page(large(100_000))
    assert len(made.encode()) < 6_000_000
    data = data_of(made)
    assert data["items"]["total"] == 100_000
    assert len(data["items"]["names"]) == 4000
    assert "100,000 items" in text_of(made)


def test_items_that_are_named_are_always_listed(content):
    shown = shown_items(content)
    assert len(set(shown.tolist())) == len(shown) == 4000
    listed = set(shown.tolist())
    for position in content.positions:
        assert set(position.lists.ravel().tolist()) <= listed
        for part in movers(content.before, position):
            assert set(part) <= listed
    first = content.before.exposure[shown]
    assert (np.diff(first) <= 0).all()


def test_others_are_listed_by_their_highest_exposure():
    small = large(m=300, stops=3, examples=1, groups=3)
    shown = set(shown_items(small, most=150).tolist())
    highest = np.max([p.exposure for p in small.positions], axis=0)
    named = set(range(8))  # the part of the example's history that is shown
    for position in small.positions:
        gainers, losers = movers(small.before, position)
        named |= {*position.lists.ravel().tolist(), *gainers, *losers}
    left = [j for j in range(300) if j not in shown]
    assert named <= shown
    assert max(highest[left]) <= min(highest[j] for j in shown - named)
    assert len(shown_items(small, most=1000)) == 300


def test_groups_that_change_most_are_listed(content):
    shown = shown_groups(content)
    assert len(shown) == 200
    assert set(shown) == set(range(4800, 5000))
