"""A killed experiment goes on: no piece is computed twice, and it ends as one that was never killed."""

import signal
import subprocess
import sys
import time

import pytest
import small_experiment
from conftest import slow_values
from small_experiment import small, stored

from fairmf.reproduce.measure import MEASURES, measure
from fairmf.reproduce.run import open_run, reproduce


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("split")


@pytest.fixture(scope="module")
def data(place):
    return stored(place)


class Counting:
    """Measures, and remembers what."""

    def __init__(self):
        self.pieces = []

    def __call__(self, piece, split):
        self.pieces.append(piece)
        return measure(piece, split)


def timeless(value):
    """Without what differs from run to run: how long it took."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "fit_seconds")}
    return [timeless(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", slow_values(1, 3, 6))
def test_killed_in_the_middle_and_resumed(place, data, tmp_path, number):
    out = tmp_path / "out"
    out.mkdir()
    program = [sys.executable, small_experiment.__file__, str(place), str(out), str(number)]
    process = subprocess.Popen(program)
    deadline = time.monotonic() + 240
    while not (out / "stuck").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path.name: path.read_bytes() for path in (out / "pieces").glob("*.json")}
    assert len(before) == number - 1
    assert not (out / "results.json").exists()

    whole, counting = small("ranking_table"), Counting()
    resumed = reproduce(whole, data, out, progress=False, measure=counting)
    never_killed = reproduce(whole, data, tmp_path / "other", progress=False)
    assert never_killed.computed == 7
    assert resumed.computed == len(counting.pieces) == 7 - (number - 1)
    assert {name: (out / "pieces" / name).read_bytes() for name in before} == before
    assert timeless(resumed.results) == timeless(never_killed.results)

    files = {path.name: path.read_bytes() for path in out.glob("*.*")}
    again = reproduce(whole, data, out, progress=False, measure=Counting())
    assert again.computed == 0
    assert {path.name: path.read_bytes() for path in out.glob("*.*")} == files


@pytest.mark.usefixtures("empty_plots")
def test_a_changed_setting_is_computed_anew_and_nothing_else_is(data, tmp_path):
    reproduce(small("fronts"), data, tmp_path, progress=False)
    counting = Counting()
    changed = small("fronts", **{"[0.5, 2.0]": "[0.5, 3.0]"})
    done = reproduce(changed, data, tmp_path, progress=False, measure=counting)
    assert [(p.series, p.settings["fairness"]) for p in counting.pieces] == [("fair", 3.0)] * 2
    assert len(done.results["pieces"]) == 6  # what no longer belongs to it is not told
    more = reproduce(changed, data, tmp_path, seeds=3, progress=False)
    assert more.computed == 3
    assert reproduce(changed, data, tmp_path, seeds=3, epochs=2, progress=False).computed == 9


@pytest.mark.usefixtures("empty_plots")
def test_other_data_are_other_pieces(data, tmp_path):
    from fairmf import split_by_user, synthetic_events
    from fairmf.reproduce.data import load_data

    whole = small("epoch_time")
    assert reproduce(whole, data, tmp_path / "out", progress=False).computed == 4
    split_by_user(synthetic_events(n_users=190, n_items=60, n_interactions=3000), heldout=40).save(tmp_path / "b")
    assert reproduce(whole, load_data(str(tmp_path / "b")), tmp_path / "out", progress=False).computed == 4


@pytest.mark.usefixtures("empty_plots")
def test_a_damaged_piece_is_computed_again(data, tmp_path):
    first = reproduce(small("fronts"), data, tmp_path, progress=False)
    path = sorted((tmp_path / "pieces").glob("*.json"))[0]
    path.write_bytes(path.read_bytes()[:-20])
    again = reproduce(small("fronts"), data, tmp_path, progress=False)
    assert again.computed == 1
    assert timeless(again.results) == timeless(first.results)


def test_a_fit_that_was_interrupted_is_not_stored(data, tmp_path, monkeypatch):
    from fairmf.models.als import FairALS

    plain = FairALS.epoch

    def interrupted(self, problem, state):
        interrupted.calls += 1
        if interrupted.calls == 2:
            raise KeyboardInterrupt
        return plain(self, problem, state)

    interrupted.calls = 0
    monkeypatch.setattr(FairALS, "epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(small("fronts"), data, tmp_path, progress=False)
    assert list((tmp_path).rglob("*.json")) == []


@pytest.mark.usefixtures("empty_plots")
def test_estimates_count_what_is_left(data, tmp_path):
    run = open_run(small("ranking_table"), data, tmp_path)
    before = run.estimate()
    assert (before.pieces, before.left) == (7, 7)
    assert not list(tmp_path.iterdir())  # nothing is written
    reproduce(small("ranking_table"), data, tmp_path, progress=False)
    after = run.estimate()
    assert (after.pieces, after.left, after.seconds) == (7, 0, 0)


def test_every_measure_is_of_some_kind():
    used = {kind: small(kind) for kind in small_experiment.SMALL}
    from fairmf.reproduce.kinds import kind_of

    assert {kind_of(one).plan(one, [])[0].how["measure"] for one in used.values()} == set(MEASURES)
