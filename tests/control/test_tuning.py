"""Tuning: what is searched and kept, the same trials for the same seed, interruption and resumption."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny import SPACE, tiny_split, tiny_tune

from fairmf.control import tuning
from fairmf.control.calibrate import calibrate
from fairmf.control.quick_path import on_path
from fairmf.control.trade_off import Curve, dominates, level_of
from fairmf.control.tuning import tune
from fairmf.control.tuning_result import best_within
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter, MissingDependency, NotFinite
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import IALS, FairALS
from fairmf.models.model_file import load_model
from fairmf.models.popularity import Popularity

optuna = pytest.importorskip("optuna", reason='needs the tune extra: pip install "fairmf[tune]"')

BOTH = ("ndcg@100", "gini@20")
OPEN = {"regularization": (1e-3, 0.3), "fairness": (0.1, 10), "dial": (0.1, 5)}


@pytest.fixture(scope="module")
def split():
    return tiny_split()


@pytest.fixture(scope="module")
def found(split):
    return tiny_tune(split)


@pytest.fixture(scope="module")
def both(split):
    return tiny_tune(split, FairALS(factors=4, epochs=4, fairness=1.0), objectives=BOTH, space=OPEN, trials=10)


def tried(result):
    return [(t.state, t.settings, t.dial, t.metrics) for t in result.trials]


# -- what is found ----------------------------------------------------------------------------------------------------


def test_the_best_trial_is_the_best_and_its_model_the_same_again(split, found):
    complete = [t for t in found.trials if t.state == "complete"]
    best = found.best()
    assert best.metrics["ndcg@100"] == max(t.metrics["ndcg@100"] for t in complete)
    model = found.best_model()
    assert {name: getattr(model, name) for name in best.settings} == best.settings
    again = evaluate(model, split.validation, metrics=list(best.metrics), bootstrap=0)
    assert {label: again[label] for label in best.metrics} == best.metrics  # to the bit
    assert best.metrics["ndcg@100"] == found.study.best_value


def test_trials_lie_in_the_space_and_begin_with_the_models_own_settings(found):
    own = found.trials[0].settings
    assert (own["regularization"], own["unobserved_weight"], own["factors"]) == (0.005, 0.1, 4)
    for t in found.trials:
        assert 1e-3 <= t.settings["regularization"] <= 0.3
        assert t.settings["factors"] in (2, 4, 8)
        assert t.dial is None
    assert len({t.settings["regularization"] for t in found.trials}) == len(found.trials) == 8


def test_test_users_play_no_part(split, found):
    other = Split(split.train, split.validation, split.validation, method="by_time")
    assert tried(tiny_tune(other)) == tried(found)


def test_front_of_two_objectives(split, both):
    front = both.pareto_front()
    points = {t.number: (t.metrics["ndcg@100"], t.metrics["gini@20"]) for t in both.trials}
    expected = {n for n, p in points.items() if not any(dominates(q, p, (False, True)) for q in points.values())}
    assert {t.number for t in front} == expected == {t.number for t in both.study.best_trials}
    values = [t.metrics["ndcg@100"] for t in front]
    assert values == sorted(values, reverse=True)
    assert all(t.state == "complete" for t in both.trials)  # nothing is pruned with two objectives
    assert both.trials[0].settings["fairness"] == both.trials[0].dial == 1.0


def test_the_dial_of_every_model_on_the_front_makes_a_denser_front(split, both):
    dense = both.dialled_front(split, points=5)
    trials = {trial.number: trial for trial in both.pareto_front()}
    assert {row["trial"] for row in dense} <= set(trials)
    row = dense.rows[0]
    model = trials[row["trial"]].build(both.model).fit(split.train, settle=False)
    turned = on_path(model, split.validation, 20, "ndcg@100")  # with the prices that lift needs
    found = evaluate(turned, split.validation, metrics=both.objectives, bootstrap=0, evenness=level_of(row))
    assert [row[label] for label in both.objectives] == [found[label] for label in both.objectives]
    points = [(row["ndcg@100"], row["gini@20"]) for row in dense]
    assert not any(a[0] >= b[0] and a[1] <= b[1] and a != b for a in points for b in points)


def test_with_several_objectives_the_evenness_of_lists_is_searched_from_the_models_own_settings_on(split):
    model = FairALS(factors=16, epochs=2, item_balance=0.1)
    found = tiny_tune(split, model, objectives=BOTH, space=None, trials=5)
    first = found.trials[0]
    assert (first.evenness, first.dial) == (0.0, None)
    assert all(value == getattr(model, name) for name, value in first.settings.items())
    assert "fairness" not in first.settings
    trial = max(found.trials, key=lambda t: t.evenness)
    fitted = trial.build(model).fit(split.train)
    own = evaluate(fitted, split.validation, metrics=BOTH, bootstrap=0, evenness=trial.evenness)
    assert [own[label] for label in BOTH] == [trial.metrics[label] for label in BOTH]
    plain = evaluate(fitted, split.validation, metrics=BOTH, bootstrap=0)
    assert plain["gini@20"] != own["gini@20"]
    best, served = (choose(max_gini=trial.metrics["gini@20"]) for choose in (found.best, found.best_model))
    assert (served.fitted.flatten, served.fitted.discount) == (best.evenness, best.evenness)
    assert found.table().column("evenness").to_pylist() == [t.evenness for t in found.trials]


def test_the_best_under_a_constraint_serves_with_its_dial(split, both):
    # On the front, and not the first trial: that one serves with the fairness it was trained for.
    bound = next(t.metrics["gini@20"] for t in both.pareto_front() if t.dial != t.settings["fairness"])
    best = both.best(max_gini=bound)
    assert best.dial != best.settings["fairness"]
    allowed = [t for t in both.trials if t.metrics["gini@20"] <= bound]
    assert best.metrics["ndcg@100"] == max(t.metrics["ndcg@100"] for t in allowed)
    model = both.best_model(max_gini=bound)
    assert model.fitted.fairness == best.dial
    assert model.fitted.trained_fairness == pytest.approx(best.settings["fairness"])
    again = evaluate(model, split.validation, metrics=BOTH, bootstrap=0)  # no option: its own dial
    assert again["gini@20"] == pytest.approx(best.metrics["gini@20"], abs=1e-12)
    least = max(t.metrics["recall@20"] for t in both.trials)
    assert both.best(min_recall=least).metrics["recall@20"] == least
    assert both.best(**{"max_gini@20": bound}) == best
    with pytest.raises(InvalidParameter, match=r"No trial meets max_gini=0.01 .* gini@20 = 0\."):
        both.best(max_gini=0.01)
    for wrong in ({"gini": 1}, {"most_gini": 1}, {"max_entropy": 1}):
        with pytest.raises(InvalidParameter, match="A constraint is max_ or min_ and a metric that was measured"):
            both.best(**wrong)


def test_the_best_model_is_calibrated_and_its_front_is_measured_along_its_path(split, found, tmp_path):
    model = found.best_model()
    path = model.fitted.path
    assert (path.at, path.quality, path.n_users) == (20, "ndcg@100", split.validation.n_users)
    front = found.front()
    assert front.column("way") == ["tuned"] * 11
    assert front.column("evenness") == [k / 10 for k in range(11)]
    assert front.n_users == split.validation.n_users
    for row in front:
        expected = evaluate(
            model, split.validation, metrics=["ndcg@100", "gini@20"], bootstrap=0, evenness=row["evenness"]
        )
        assert (row["ndcg@100"], row["gini@20"]) == (expected["ndcg@100"], expected["gini@20"])
    model.save(tmp_path / "best.fairmf")
    assert load_model(tmp_path / "best.fairmf").fitted.path == path


def test_the_default_is_the_given_model_along_its_own_path(split, found):
    own = IALS(factors=4, epochs=6).fit(split.train)
    calibrate(own, split.validation, bootstrap=0)
    expected = [
        evaluate(own, split.validation, metrics=["gini@20"], bootstrap=0, evenness=k / 10)["gini@20"] for k in range(11)
    ]
    assert found.default.column("gini@20") == expected
    assert found.default.column("way") == ["default"] * 11
    assert found.default is found.default  # fitted once
    assert len(found.front() + found.default) == 22


def test_the_summary_compares_at_equal_gini(found):
    lines = found.summary().splitlines()
    assert "lists of 50 users" in lines[-1]
    tuned, plain = found.front(), found.default
    first = max(max(curve.column("gini@20")) for curve in (tuned, plain))
    assert f"{first:.3f}" in lines[1]
    assert f"{max(tuned.column('ndcg@100')):.4f}" in lines[1]
    assert f"{max(plain.column('ndcg@100')):.4f}" in lines[1]


def test_quality_at_a_gini_lies_between_the_points_of_a_curve():
    rows = tuple({"ndcg@10": q, "gini@10": g} for q, g in ((0.4, 0.9), (0.3, 0.7), (0.35, 0.6)))
    curve = Curve(rows, ("ndcg@10", "gini@10"))
    assert best_within(curve, 0.8) == pytest.approx(0.35)
    assert best_within(curve, 0.85) == pytest.approx(0.375)
    assert best_within(curve, 0.65) == pytest.approx(0.35)  # the point at .6 is better than the line
    assert best_within(curve, 0.5) is None
    assert best_within(curve, 1.0) == 0.4


def test_settings_chosen_from_the_data_are_not_chosen_again_in_trials(split):
    result = tiny_tune(split, IALS(factors=4, epochs=2, settings="auto"), trials=1)
    trial = result.trials[0]
    model = result.best_model()
    assert model.settings == "given"
    assert {name: model.fitted.settings[name] for name in trial.settings} == trial.settings


@pytest.mark.parametrize(
    ("first", "epochs", "expected"), [(4, 16, [4, 8]), (2, 8, [2, 4]), (4, 4, []), (3, 13, [3, 6, 12]), (0, 9, [])]
)
def test_rungs(first, epochs, expected):
    assert tuning.rungs(first, epochs) == expected


def test_the_better_half():
    assert tuning.in_better_half(0.1, [], lower=False)
    assert not tuning.in_better_half(0.1, [0.2], lower=False)
    assert tuning.in_better_half(0.1, [0.2], lower=True)
    assert not tuning.in_better_half(0.2, [0.1, 0.3], lower=False)
    assert tuning.in_better_half(0.2, [0.1, 0.3, 0.05], lower=False)


def test_an_ambiguous_constraint(split):
    result = tiny_tune(split, trials=1, also=["gini@5", "gini@20"])
    with pytest.raises(InvalidParameter, match="could mean gini@5 or gini@20"):
        result.best(max_gini=0.5)


def test_a_metric_to_be_low_is_made_low(split):
    result = tiny_tune(split, metric="gini@20", trials=6, prune=False)
    assert result.best().metrics["gini@20"] == min(t.metrics["gini@20"] for t in result.trials)
    assert result.study.direction.name == "MINIMIZE"


def test_table_and_repr(found, both):
    table = both.table().to_pandas()
    assert len(table) == 10
    assert table["on_front"].sum() == len(both.pareto_front())
    assert table["dial"].tolist() == [t.dial for t in both.trials]
    assert table["gini@20"].tolist() == [t.metrics["gini@20"] for t in both.trials]
    assert "dial" not in found.table().column_names
    assert found.table()["factors"].to_pylist() == [t.settings["factors"] for t in found.trials]
    assert repr(both) == "TuningResult(FairALS, ndcg@100 and gini@20: 10 complete)"


# -- pruning and failure ----------------------------------------------------------------------------------------------


def test_pruned_trials_stop_early_and_are_never_best(split):
    epochs = []

    class Counting(IALS):
        def epoch(self, problem, state):
            epochs[-1] += 1
            return super().epoch(problem, state)

        def fit(self, *data, **options):
            epochs.append(0)
            return super().fit(*data, **options)

    model = Counting(factors=4, epochs=8)
    result = tiny_tune(split, model, trials=14, startup_trials=2)
    states = [t.state for t in result.trials]
    assert "pruned" in states
    for count, t in zip(epochs, result.trials, strict=True):
        # Judged after two epochs, then after twice as many, and not after the last.
        assert count in (2, 4) if t.state == "pruned" else count == 8
        assert list(t.metrics) == (["ndcg@100"] if t.state == "pruned" else list(result.best().metrics))
    assert {step for t in result.study.trials for step in t.intermediate_values} == {2, 4}
    assert result.best().state == "complete"
    # A trial goes on from an epoch if it is in the better half of those that came there before it, and of itself.
    for step in (2, 4):
        seen = []
        for t in result.study.trials:
            if step in t.intermediate_values:
                seen.append(t.intermediate_values[step])
                place = sorted(seen, reverse=True).index(seen[-1])
                assert (max(t.intermediate_values) == step and t.state.name == "PRUNED") == (
                    place >= max(1, len(seen) // 2)
                )
    assert all(t.state == "complete" for t in tiny_tune(split, prune=False, startup_trials=2).trials)


def test_a_diverging_setting_counts_as_failed_and_the_search_goes_on(split):
    class Diverging(IALS):
        def fit(self, *data, **options):
            if self.factors == 2:
                raise NotFinite("factors are not finite")
            return super().fit(*data, **options)

    result = tiny_tune(split, Diverging(factors=2, epochs=3), trials=6)
    assert len(result.trials) == 6
    assert result.trials[0].state == "failed"
    assert all((t.state == "failed") == (t.settings["factors"] == 2) for t in result.trials)
    assert "failed" in repr(result)
    hopeless = tiny_tune(split, Diverging(factors=2, epochs=3), trials=3, space={"factors": [2]})
    assert hopeless.pareto_front() == []
    assert len(hopeless.table()) == 3
    with pytest.raises(InvalidParameter, match="None of the 3 trials ran to its end"):
        hopeless.best()


# -- seeds, interruption, resumption ----------------------------------------------------------------------------------


def test_the_seed_decides(split, found):
    assert tried(tiny_tune(split)) == tried(found)
    other = tiny_tune(split, random_state=1)
    assert tried(other)[1:] != tried(found)[1:]
    assert tried(tiny_tune(split, random_state=None, trials=3))[1:] != tried(found)[1:3]


@pytest.mark.slow
def test_stored_trials_are_kept_and_only_the_remaining_run(split, found, tmp_path):
    file = tmp_path / "study.db"
    first = tiny_tune(split, storage=file, trials=3)
    whole = tiny_tune(split, storage=file)
    assert tried(whole)[:3] == tried(first)
    assert [t.seconds for t in whole.trials[:3]] == [t.seconds for t in first.trials]  # not run again
    assert tried(whole) == tried(found)  # as if it had never stopped
    done = tiny_tune(split, storage=str(file), trials=2)
    assert tried(done) == tried(whole)


def stored_states(file):
    with tuning.opened(optuna, file) as storage:
        return [t.state.name for t in optuna.load_study(study_name="fairmf", storage=storage).trials]


def test_an_interruption_leaves_the_trial_to_be_done_again(split, found, tmp_path):
    file = tmp_path / "study.db"

    class Interrupted(IALS):
        fits = 0

        def fit(self, *data, **options):
            Interrupted.fits += 1
            if Interrupted.fits == 6:
                raise KeyboardInterrupt
            return super().fit(*data, **options)

    Interrupted.__name__ = "IALS"
    with pytest.raises(KeyboardInterrupt):
        tiny_tune(split, Interrupted(factors=4, epochs=6), storage=file)
    assert stored_states(file)[5] == "FAIL"
    assert tried(tiny_tune(split, storage=file)) == tried(found)


@pytest.mark.slow
def test_killed_midway_and_resumed_it_goes_on_alike(split, found, tmp_path):
    file = tmp_path / "study.db"
    child = subprocess.Popen([sys.executable, str(Path(__file__).with_name("tiny.py")), str(file)])
    try:
        deadline = time.monotonic() + 500
        while not Path(f"{file}.stuck").exists() and time.monotonic() < deadline:
            assert child.poll() is None, "the search ended before it could be killed"
            time.sleep(0.1)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()

    assert stored_states(file)[3:] == ["RUNNING"]
    resumed = tiny_tune(split, storage=file)
    assert tried(resumed) == tried(found)
    assert [t.number for t in resumed.trials] == [0, 1, 2, 4, 5, 6, 7, 8]
    assert stored_states(file)[3] == "FAIL"


@pytest.mark.slow
def test_another_question_does_not_continue_a_study(split, tmp_path):
    file = tmp_path / "study.db"
    tiny_tune(split, storage=file, trials=1)
    for change, word in (
        ({"random_state": 5}, "random_state"),
        ({"space": {**SPACE, "regularization": (1e-3, 0.2)}}, "space"),
        ({"model": IALS(factors=4, epochs=7)}, "settings"),
        ({"model": FairALS(factors=4, epochs=6)}, "model, settings"),
        ({"also": ["mrr@5"]}, "metrics"),
    ):
        with pytest.raises(InvalidParameter, match=f"study 'fairmf' in this storage was made with other .*{word}"):
            tiny_tune(split, **({"storage": file} | change))
    smaller = Split(split.train.take_users(np.arange(100)), split.validation, split.test)
    with pytest.raises(InvalidParameter, match="train"):
        tiny_tune(smaller, storage=file)
    assert len(tiny_tune(split, storage=file, study_name="other", random_state=5, trials=1).trials) == 1
    assert len(tiny_tune(split, IALS(factors=4, epochs=6, num_threads=1), storage=file, trials=2).trials) == 2


def test_a_timeout_ends_the_search(split):
    assert tiny_tune(split, timeout=0).trials == ()
    assert "no trials" in repr(tiny_tune(split, timeout=0))


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"trials": 0}, "'trials' parameter of tune must be an integer >= 1"),
        ({"timeout": -1}, "'timeout' parameter of tune"),
        ({"startup_trials": 0}, "'startup_trials' parameter of tune"),
        ({"prune_every": 0}, "'prune_every' parameter of tune"),
        ({"random_state": -1}, "'random_state' parameter of tune"),
        ({"metric": "ndcg"}, "lacks its cut-off"),
        ({"metric": "magic@5"}, "Unknown metric"),
        ({"objectives": []}, "must name at least one metric"),
        ({"objectives": BOTH, "prune": True}, "Fits cannot be judged by several objectives"),
        ({"part": "test"}, "Settings chosen on the test users make the test worthless"),
        ({"part": "train"}, "'part' parameter of tune must be 'validation' or 'test'"),
        ({"model": Popularity()}, "must be a model with settings"),
        ({"model": IALS(factors=0)}, "'factors' parameter of IALS"),
        ({"storage": "nowhere/study.db"}, "must be a file in an existing folder"),
    ],
)
def test_wrong_arguments(split, options, match):
    with pytest.raises(InvalidParameter, match=match):
        tiny_tune(split, **options)


def test_wrong_data(split):
    with pytest.raises(InvalidData, match="tune needs a Split"):
        tiny_tune(split.validation)
    users = split.validation.fold_in
    nothing = Rows(np.zeros(users.n_users + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), None)
    empty = HeldOut(users, Interactions(nothing, users.n_items, users.user_ids, users.item_ids))
    with pytest.raises(InvalidData, match="None of the validation users has targets"):
        tiny_tune(Split(split.train, empty, split.test))


def test_tuning_on_test_users_can_be_forced(split, found):
    forced = tiny_tune(split, part="test", allow_test=True, trials=1)
    own = evaluate(IALS(factors=4, epochs=6).fit(split.train), split.test, metrics=["ndcg@100"], bootstrap=0)
    assert forced.trials[0].metrics["ndcg@100"] == own["ndcg@100"]
    assert own["ndcg@100"] != found.trials[0].metrics["ndcg@100"]


def test_without_optuna_it_says_what_to_install(split, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependency, match=r'pip install "(fairmf\[tune\]|optuna)'):
        tune(IALS(), split)


def test_the_callers_optuna_keeps_its_voice(split):
    before = optuna.logging.get_verbosity()
    tiny_tune(split, trials=1)
    assert optuna.logging.get_verbosity() == before


def test_a_file_that_holds_no_trials_is_refused_in_one_line(split, tmp_path):
    (tmp_path / "notes.txt").write_text("not a database, " * 100)
    with pytest.raises(InvalidParameter, match=r"notes\.txt' cannot be used \(file is not a database\)") as caught:
        tune(FairALS(factors=2, epochs=1), split, trials=1, storage=tmp_path / "notes.txt")
    assert "\n" not in str(caught.value)
