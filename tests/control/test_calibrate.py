"""The path of evenness: the best monotone chain, against a search of all chains."""

import itertools

import numpy as np
import pytest

from fairmf.control.calibrate import Point, monotone_chain, thinned
from fairmf.models.evenness import Level


def random_points(seed, count):
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 3, (count, 3)).astype(float)
    gini, quality = rng.random(count), rng.random(count)
    return [Point(Level(*levels[i]), gini[i], quality[i], rng.random(5)) for i in range(count)]


def area(chain):
    return sum((a.gini - b.gini) * b.quality for a, b in itertools.pairwise(chain))


def is_monotone(chain):
    def strengths(point):
        return np.array([point.level.fairness, point.level.flatten, point.level.discount])

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
