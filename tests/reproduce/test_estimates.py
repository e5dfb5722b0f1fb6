"""The cost model: hand-counted operations, and what it is made of grows as it should."""

import pytest
from small_experiment import small

from fairmf.reproduce.estimate import Estimate, Shape, Speed, duration, estimate, measure_speed, shape_of
from fairmf.reproduce.spec import experiments

SHAPE = Shape(users=1000, items=100, interactions=5000, held_out=50)


def seconds(text, **costs):
    price = {"cg": 0.0, "exact": 0.0, "ranking": 0.0, "dense": 0.0} | costs
    whole = small("epoch_time", **text).limited(seeds=1, epochs=None, without=())
    return estimate(whole, SHAPE, Speed(**price)).seconds


def test_operations_are_counted_as_stated():
    def by_cg(d):
        return 2 * 5000 * d + 1100 * d**2

    def exact(d):
        return 5000 * d**2 + 1100 * d**3 / 3

    def blocks(d, b):
        return 5000 * d * b + 1100 * d * b**2 / 3 + 1100 * d**2

    assert seconds({}, cg=1.0) == 3 * (by_cg(2) + by_cg(4))
    assert seconds({}, exact=1.0, ranking=1.0, dense=1.0) == 0
    assert seconds({"epochs = 3": "epochs = 3, solver = 'cholesky'"}, exact=1.0) == pytest.approx(
        3 * (exact(2) + exact(4))
    )
    subspace = {"epochs = 3": "epochs = 3, solver = 'subspace', block_size = 2"}
    assert seconds(subspace, exact=1.0) == pytest.approx(3 * (blocks(2, 2) + blocks(4, 2)))
    admm = {'model = "ials"': 'model = "fiadmm"'}
    assert seconds(admm, cg=1.0) == 3 * sum(2 * 5000 * d + 1000 * d**2 for d in (2, 4))
    assert seconds(admm, exact=1.0) == pytest.approx(3 * sum(5000 * d**2 / 2 + 100 * d**3 / 3 for d in (2, 4)))


def test_operations_become_cheaper_as_factors_grow():
    def at(factors, solver, **gains):
        changes = {"grid = { factors = [2, 4] }": f"grid = {{ factors = [{factors}] }}"}
        changes["epochs = 3"] = f"epochs = 3, solver = '{solver}'"
        return seconds(changes, cg=1.0, exact=1.0, **gains)

    for solver, gain in (("eigenbasis_cg", "cg_gain"), ("cholesky", "exact_gain")):
        for factors, times in ((16, 1), (32, 1), (128, 2), (512, 4), (2048, 4)):
            assert at(factors, solver) == pytest.approx(times * at(factors, solver, **{gain: 0.5})), (solver, factors)
    at_blocks = {"epochs = 3": "epochs = 3, solver = 'subspace', block_size = 64"}
    at_blocks["grid = { factors = [2, 4] }"] = "grid = { factors = [256] }"
    assert seconds(at_blocks, exact=1.0) == pytest.approx(2 * seconds(at_blocks, exact=1.0, exact_gain=1.0))


def test_lists_are_counted_with_dials_shares_and_both_parts():
    whole = small("fronts").limited(seeds=1, epochs=None, without=())
    one_list = 50 * 100 * 4
    fair = 2 * (2 * (1 + 3)) * one_list  # two fits, two parts, alone and with FairRec
    dialled = 2 * 2 * one_list
    assert estimate(whole, SHAPE, Speed(0, 0, 1.0, 0)).seconds == fair + dialled


def test_a_later_round_counts_too():
    whole = small("ranking_table")
    told = estimate(whole, SHAPE, Speed(1.0, 0, 0, 0))
    assert (told.pieces, told.left) == (7, 7)
    one_fit = 3 * (2 * 5000 * 4 + 1100 * 16)
    assert told.seconds == 6 * one_fit  # Popularity costs nothing


def test_every_experiment_has_an_estimate():
    speed = Speed(1e-9, 1e-9, 1e-9, 1e-11)
    for name, one in experiments().items():
        there, here = estimate(one, shape_of(one.data), speed), estimate(one.on("ml-1m"), shape_of("ml-1m"), speed)
        assert 0 < here.seconds < there.seconds, name
        assert 1e8 < here.bytes < there.bytes < 1e11, name


def test_this_machine_is_measured():
    speed = measure_speed()
    assert measure_speed() is speed  # once per process
    for cost in (speed.cg, speed.exact, speed.ranking, speed.dense):
        assert 0 < cost < 1e-4
    for gain in (speed.cg_gain, speed.exact_gain):
        assert 0 <= gain <= 1


def test_words():
    assert [duration(s) for s in (0.2, 80, 400, 9000, 400_000)] == ["1 s", "80 s", "6.7 min", "2.5 hours", "4.6 days"]
    told = Estimate(10, 4, 400.0, 2_500_000_000).words()
    assert told == "10 pieces (6 done, 4 left), about 6.7 min (rough), about 2.5 GB of memory"
    assert Estimate(10, 0, 0.0, 2_500_000_000).words() == "10 pieces, all done"
