"""Exposure control while serving: prices approach the dual of the linear programme, and survive restarts."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import random_rows
from scipy.optimize import linprog

from fairmf import HistoryRequest
from fairmf.control.exposure_control import ControlSettings, ExposureControl, exposure_control
from fairmf.data.groups import read_groups
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter
from fairmf.models.als import IALS

N, M, K = 300, 12, 3
RNG = np.random.default_rng(5)
SCORES = RNG.normal(size=(N, M)) + np.linspace(1.5, -1.5, M)  # the first items are popular
FLOOR, CAP = 0.5, 1.8


def programme(floor, cap):
    """The best total score of K items per user within the bounds, and the price of each item, by SciPy."""
    share = np.kron(np.ones(N), np.eye(M)) * M / (N * K)
    per_user = np.kron(np.eye(N), np.ones(M))
    found = linprog(
        -SCORES.ravel(),
        A_ub=np.vstack([-share, share]),
        b_ub=np.concatenate([np.full(M, -floor), np.full(M, cap)]),
        A_eq=per_user,
        b_eq=np.full(N, K),
        bounds=(0, 1),
    )
    up, down = -found.ineqlin.marginals[:M], -found.ineqlin.marginals[M:]
    return -found.fun / N, (up - down) * M / (N * K)  # of one showing instead of one share


def served(control, lists, scores=SCORES, at_once=20, seed=0):
    """Serve random users; return mean prices and mean score of the second half."""
    rng, prices, values = np.random.default_rng(seed), [], []
    for turn in range(lists // at_once):
        users = rng.integers(0, len(scores), at_once)
        best = np.argsort(-(scores[users] + control.prices), axis=1)[:, :K]
        control.record(best)
        if turn >= lists // at_once // 2:
            prices.append(control.prices)
            values.append(np.take_along_axis(scores[users], best, 1).sum(axis=1).mean())
    return np.mean(prices, axis=0), np.mean(values)


def new(floor=FLOOR, cap=CAP, window=3000, step=0.6, **more):
    settings = ControlSettings(window=window, step=step, floor=floor, cap=cap, **more)
    return ExposureControl(settings, np.arange(M), tuple(f"item {j}" for j in range(M)), spread=float(SCORES.std()))


def test_with_fixed_demand_prices_approach_those_of_the_linear_programme():
    best, expected = programme(FLOOR, CAP)
    assert (expected > 0.1).any()
    assert (expected < -0.1).any()
    control = new()
    prices, score = served(control, 60_000)
    np.testing.assert_allclose(prices, expected, atol=0.08)
    free = np.sort(SCORES, axis=1)[:, -K:].sum(axis=1).mean()
    assert best < free
    assert score == pytest.approx(best, abs=0.25 * (free - best))
    assert (control.shares > FLOOR - 0.1).all()
    assert (control.shares < CAP + 0.15).all()
    assert control.report()["lists"] == 60_000


def test_units_far_from_their_floor_get_there_within_two_windows():
    """Eight spreads below the lists: with steps of constant size that takes eight windows."""
    scores = SCORES.copy()
    scores[:, -3:] -= 8 * SCORES.std()
    control, shown = new(floor=0.4, cap=None, step=1.0), np.zeros(M)
    served(control, 6000, scores)
    rng = np.random.default_rng(9)
    for _ in range(150):
        best = np.argsort(-(scores[rng.integers(0, N, 20)] + control.prices), axis=1)[:, :K]
        control.record(best)
        shown += np.bincount(best.ravel(), minlength=M)
    assert (shown / shown.sum() * M > 0.8 * 0.4).all()


def test_nothing_moves_where_no_bound_binds():
    control = new(floor=None, cap=3.99)
    served(control, 10_000)
    assert not control.prices.any()
    rare = new(floor=0.01, cap=None)  # all have more, but not in each of the short times between two steps
    prices, _ = served(rare, 10_000)
    assert prices.max() < 0.1 * rare.spread


def test_prices_follow_when_demand_turns_round():
    control = new()
    first, _ = served(control, 30_000)
    second, _ = served(control, 30_000, scores=SCORES[:, ::-1])
    assert first[0] < -0.1 < 0.1 < first[-1]
    assert second[0] > 0.1 > -0.1 > second[-1]


def test_groups_share_a_price_and_single_bounds_are_named():
    codes = np.repeat([0, 1, 2], 4)
    settings = ControlSettings(window=2000, step=0.5, per="group", floors={"7": 0.6}, caps={"big": 1.5})
    control = ExposureControl(settings, codes, ("big", "middle", 7), spread=1.0)
    assert control.floors.tolist() == [0, 0, 0.6]
    assert control.caps.tolist() == [1.5, np.inf, np.inf]
    served(control, 20_000)
    assert len(set(control.prices[codes == 2])) == 1
    assert control.prices[8] > 0 == control.prices[4] > control.prices[0]
    assert control.shares[2] == pytest.approx(0.6, abs=0.08)
    assert control.shares[0] == pytest.approx(1.5, abs=0.08)


def test_state_survives_a_restart(tmp_path):
    control = new()
    served(control, 5000)
    control.save(tmp_path / "state")
    again = new()
    again.restore(tmp_path / "state")
    assert again.prices.tobytes() == control.prices.tobytes()
    assert again.shares.tobytes() == control.shares.tobytes()
    for one in (control, again):
        served(one, 1000, seed=3)
    assert again.prices.tobytes() == control.prices.tobytes()
    unbounded = new(floor=None, cap=None)
    unbounded.restore(tmp_path / "state")
    assert not unbounded.prices.any()
    other = ExposureControl(ControlSettings(floor=0.5), np.arange(M), tuple(range(M)), 1.0)
    with pytest.raises(InvalidData, match="other items"):
        other.restore(tmp_path / "state")
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(content[:-9] + b"\x7f" * 9)
    with pytest.raises(BrokenFile):
        again.restore(tmp_path / "state")


def test_a_unit_that_cannot_be_shown_gathers_a_bounded_price():
    control = new(floor=0.9, cap=None, window=50, step=5.0)
    for _ in range(2000):
        control.record([0, 1, 2])
    assert control.prices.max() <= 20 * control.spread


def test_threads_lose_no_counts():
    control = new(window=1000)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: control.record([k % M, -1, (k + 1) % M]), range(2000)))
    assert control.lists == 2000
    assert control.shares == pytest.approx(np.ones(M), abs=0.2)


def test_the_file_of_bounds(tmp_path):
    path = tmp_path / "floors.toml"
    path.write_text('window = 500\nstep = 0.5\nper = "group"\nfloor = 0.1\n[floors]\n"a" = 0.4\n[caps]\n"b" = 2\n')
    settings = ControlSettings.read(path)
    assert settings == ControlSettings(500, 0.5, "group", 0.1, None, {"a": 0.4}, {"b": 2})
    for text, match in (
        ("flor = 1", "no setting 'flor'"),
        ("window = [", "not a TOML file"),
        ("window = 1", "window"),
        ("step = 0", "step"),
        ('per = "user"', "per must"),
        ("floor = -1", "floor"),
        ("cap = 0", "cap"),
        ("floors = 3", "floors must be a table"),
        ('[caps]\nx = "y"', "caps"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidParameter, match=match):
            ControlSettings.read(path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"floor": 1.2, "cap": None}, InvalidParameter),
        ({"floor": None, "cap": 0.9}, InvalidParameter),
        ({"floors": {"item 3": 3.0}, "cap": 2.0}, InvalidParameter),
        ({"floors": {"item 99": 0.1}}, InvalidData),
    ],
)
def test_bounds_that_cannot_be(options, error):
    with pytest.raises(error):
        new(**options)


def test_rows_that_are_no_items():
    with pytest.raises(InvalidData, match="row 0 to 11"):
        new().record([3, 12])


def test_control_of_a_model(tmp_path):
    rows = random_rows(60, 40)
    ids = Ids([f"film {j}" for j in range(40)])
    model = IALS(factors=4, epochs=2).fit(Interactions(rows, 40, None, ids), progress=False)
    history = ["film 5", "film 6"]
    last = model.recommend_for(history, N=38)[0][-1]
    control = exposure_control(model, ControlSettings(window=100, floors={last: 0.5}))
    assert control.floors[ids.position(last)] == 0.5
    for _ in range(20):
        control.record(ids.positions(model.recommend_for(history, N=5)[0]))
    assert control.prices[ids.position(last)] > 0
    even = model.recommend_histories([HistoryRequest(history, N=5)], prices=control.prices * 100)[0]
    assert even.ids[0] == last
    path = tmp_path / "floors.toml"
    path.write_text('per = "group"\nfloor = 0.5\n')
    with pytest.raises(InvalidData, match="group of every item"):
        exposure_control(model, path)
    groups = read_groups(["even", "odd"] * 20, 40, ids)
    assert exposure_control(model, path, groups).names == ("even", "odd")
