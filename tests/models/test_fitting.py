"""The fit loop: what is recorded, how a fit ends, what callbacks can do, and what survives a divergence."""

import contextlib
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import paper_als, random_factors, random_rows

from fairmf import threads
from fairmf.backends.random_start import ITEMS, USERS, Stream, normal_rows
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, NotFinite, NotFitted
from fairmf.models import fit_loop
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.fit_loop import State
from fairmf.models.objective import objective
from fairmf.models.popularity import Popularity
from fairmf.models.problem import problem_for

DATA = Interactions(random_rows(40, 30), 30)


def small(**settings):
    return IALS(**{"factors": 4, "epochs": 5, **settings})


def test_every_epoch_is_recorded():
    model = small().fit(DATA)
    assert [r["epoch"] for r in model.history.records] == [1, 2, 3, 4, 5]
    assert model.history.verdict == "ceiling"
    assert model.history.kept_epoch == 5
    assert all(seconds > 0 for seconds in model.history.column("seconds"))
    assert model.history.seconds == pytest.approx(sum(model.history.column("seconds")) + model.history.final["seconds"])
    assert set(model.history.records[0]["objective"]) == {"observed", "unobserved", "l2", "fairness", "total"}


def test_the_objective_can_be_skipped_without_changing_the_model():
    skipped = small().fit(DATA, objective_every=0)
    assert skipped.history.column("objective.total") == [None] * 5
    np.testing.assert_array_equal(skipped.user_factors, small().fit(DATA).user_factors)
    every_third = small().fit(DATA, objective_every=3).history.column("objective.total")
    assert [value is not None for value in every_third] == [False, False, True, False, True]


def test_tolerance_ends_the_fit():
    model = small(epochs=500, tolerance=1e-3).fit(DATA, objective_every=0)
    totals = model.history.column("objective.total")
    assert model.history.verdict == "converged"
    assert len(totals) < 500
    assert abs(totals[-2] - totals[-1]) <= 1e-3 * totals[-2]
    assert abs(totals[-3] - totals[-2]) > 1e-3 * totals[-3]


def test_same_seed_same_bits_other_seed_other_bits():
    a, b, c = small().fit(DATA), small().fit(DATA), small(random_state=1).fit(DATA)
    np.testing.assert_array_equal(a.user_factors, b.user_factors)
    assert not np.array_equal(a.user_factors, c.user_factors)


class Recorder:
    def __init__(self, stop_at=None, keep_at=None):
        self.seen, self.stop_at, self.keep_at = [], stop_at, keep_at

    def on_epoch(self, progress):
        self.seen.append((progress.epoch, progress.model.user_factors.copy()))
        progress.record["noted"] = progress.epoch * 10
        if progress.epoch == self.keep_at:
            progress.keep(progress.state)
        if progress.epoch == self.stop_at:
            progress.stop("enough")


def test_callbacks_see_each_epoch_and_can_stop():
    callback = Recorder(stop_at=3)
    model = FiADMM(factors=4, epochs=5).fit(DATA, callbacks=[callback])
    assert [epoch for epoch, _ in callback.seen] == [1, 2, 3]
    assert (model.history.verdict, model.history.reason) == ("stopped", "enough")
    assert model.history.column("noted") == [10, 20, 30]
    np.testing.assert_array_equal(model.user_factors, callback.seen[-1][1])


def test_callbacks_can_choose_the_state_that_is_kept():
    callback = Recorder(keep_at=2)
    model = FiADMM(factors=4, epochs=5).fit(DATA, callbacks=[callback])
    assert len(model.history) == 5
    assert model.history.kept_epoch == 2
    np.testing.assert_array_equal(model.user_factors, callback.seen[1][1])
    assert not np.array_equal(model.user_factors, callback.seen[4][1])


def test_divergence_names_cause_and_remedy_and_keeps_the_last_good_state():
    model = FiADMM(factors=4, epochs=400, gamma=100.0, rho=1.0)
    with pytest.raises(NotFinite, match=r"not finite any more in epoch \d+.*gamma=100 is probably too large"):
        model.fit(DATA)
    assert np.isfinite(model.user_factors).all()
    assert np.isfinite(model.item_factors).all()
    assert len(model.history) >= 1
    assert model.history.verdict == "diverged"
    assert model.history.kept_epoch == len(model.history)
    problem = problem_for(DATA, model.lambda_f_for(DATA.n_users), model.fitted.settings)
    kept = objective(problem, model.user_factors, model.item_factors).total
    assert kept == model.history.column("objective.total")[-1]
    model.recommend(1, N=3)


@dataclass(frozen=True)
class OddState(State):
    other: Any


class Stub:
    """A model whose first epoch yields the given state."""

    epochs, tolerance = 3, 0.0

    def __init__(self, factor, other):
        self.factor, self.other = factor, other

    def epoch(self, problem, state):
        return OddState(state.user_factors * self.factor, state.item_factors, self.other)

    def objective(self, problem, state):
        return objective(problem, state.user_factors, state.item_factors)

    def finish(self, problem, state):
        return state

    def report(self, *_):
        return {}

    def remedy(self):
        return "Do less."


@pytest.mark.parametrize(
    ("factor", "other", "wrong"),
    [
        (np.float32(np.inf), 1.0, "user_factors"),
        (np.float32(1), np.array([1.0, np.nan]), "other"),
        (np.float32(1), float("inf"), "other"),
        (np.float32(1e30), 1.0, "the objective"),  # every number is finite, their squares are not
    ],
)
def test_every_variable_and_the_objective_must_be_finite(factor, other, wrong):
    settings = {"regularization": 0.1, "regularization_exponent": 1.0, "unobserved_weight": 0.1, "backend": "cpu"}
    problem = problem_for(DATA, 0.0, settings)
    start = OddState(*random_factors(problem.backend, *DATA.shape, 2), 1.0)
    # Without F, nothing but the factors shows that they are not finite.
    for every in (1, 0)[: 1 if wrong == "the objective" else 2]:
        with pytest.raises(NotFinite, match=f"Stub: {wrong} is not finite any more in epoch 1. Do less.") as error:
            fit_loop.run(Stub(factor, other), problem, start, None, fit_loop.Options("Stub", objective_every=every))
        assert error.value.state is start


def test_the_start_is_that_of_the_documented_seed_and_scale():
    data = Interactions(random_rows(9000, 5, density=0.3), 5)
    key = tuple(np.random.SeedSequence(3).generate_state(2, np.uint32).tolist())
    streams = (Stream(key, side) for side in (USERS, ITEMS))
    scale = 0.4 / np.sqrt(2)
    start = [normal_rows(s, np.arange(rows), 2, scale) for s, rows in zip(streams, (9000, 5), strict=True)]
    settings = {"factors": 2, "epochs": 1, "random_state": 3, "init_scale": 0.4}
    ours, given = FiADMM(**settings).fit(data), FiADMM(**settings).fit(data, init=tuple(start))
    np.testing.assert_array_equal(ours.user_factors, given.user_factors)
    problem = problem_for(data, 0.0, IALS(**settings).get_params())
    U, V = IALS(**settings)._initial_factors(problem, None)
    np.testing.assert_array_equal(U, start[0])
    np.testing.assert_array_equal(V, start[1])
    drawn = [IALS(factors=2, random_state=None)._initial_factors(problem, None)[0] for _ in range(2)]
    assert not np.array_equal(*drawn)


def test_num_threads_is_used_while_fitting():
    seen = []

    class Count:
        def on_epoch(self, progress):
            seen.append(threads.count())

    small(epochs=1, num_threads=1).fit(DATA, callbacks=[Count()])
    assert seen == [1]


def test_singular_systems_are_reported_not_returned():
    with pytest.raises(NotFinite, match="raise regularization"):
        small(regularization=0.0, unobserved_weight=0.0, factors=20).fit(DATA)


def test_starting_from_another_model():
    first = small(solver="cholesky").fit(DATA)
    again = small(solver="cholesky", epochs=1).fit(DATA, init=first)
    longer = small(solver="cholesky", epochs=6).fit(DATA)
    np.testing.assert_array_equal(again.user_factors, longer.user_factors)
    before = first.user_factors.copy()
    FiADMM(factors=4, epochs=2).fit(DATA, init=(first.user_factors, first.item_factors))
    np.testing.assert_array_equal(first.user_factors, before)
    broken = first.user_factors.copy(), first.item_factors.copy()
    broken[0][0, 0] = np.nan
    with pytest.raises(InvalidParameter, match="init holds numbers that are not finite"):
        small().fit(DATA, init=broken)
    with pytest.raises(InvalidParameter, match=r"init must have factors of shapes \(40, 5\)"):
        small(factors=5).fit(DATA, init=first)


def test_sparse_matrices_are_taken_as_they_are():
    ours, theirs = small().fit(DATA), small().fit(sp.csr_matrix(DATA.to_csr()))
    np.testing.assert_array_equal(ours.user_factors, theirs.user_factors)
    counts = sp.csr_matrix(DATA.to_csr()) * 3
    with pytest.warns(UserWarning, match='values other than 1, which are ignored.*weights="values"'):
        ignored = small().fit(counts)
    np.testing.assert_array_equal(ours.user_factors, ignored.user_factors)
    with pytest.raises(InvalidData, match=r"got ndarray.*from_frame"):
        small().fit(DATA.to_csr().toarray())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factors": 0}, "The 'factors' parameter of IALS must be an integer >= 1. Got 0 instead."),
        ({"factors": 2.5}, "'factors' parameter of IALS must be an integer >= 1"),
        ({"factors": 4.0}, "Got 4.0 instead"),
        ({"epochs": 2.0}, "Got 2.0 instead"),
        ({"num_threads": 1.0}, "Got 1.0 instead"),
        ({"random_state": 1.0}, "Got 1.0 instead"),
        ({"regularization": -1}, "'regularization' parameter of IALS must be a number >= 0. Got -1 instead."),
        ({"regularization": float("nan")}, "Got nan instead"),
        ({"unobserved_weight": "much"}, "Got 'much' instead"),
        ({"init_scale": 0}, "must be a number > 0"),
        ({"epochs": True}, "Got True instead"),
        ({"backend": "tpu"}, "'backend' parameter of IALS must be 'cpu' or 'cuda' or 'reference'"),
        ({"random_state": -1}, "must be an integer >= 0 or None"),
    ],
)
def test_bad_settings_are_refused_by_fit(settings, message):
    model = IALS(**settings)  # constructors only store
    with pytest.raises(InvalidParameter) as error:
        model.fit(DATA)
    assert message in str(error.value)


@pytest.mark.parametrize("settings", [{"rho": 0}, {"rho": "much"}, {"gamma": -1}, {"fairness": -1}, {"lambda_f": -1}])
def test_bad_fiadmm_settings(settings):
    name = next(iter(settings))
    with pytest.raises(InvalidParameter, match=f"'{name}' parameter of FiADMM"):
        FiADMM(**settings).fit(DATA)


@pytest.mark.parametrize("settings", [{"lambda_f": 1.0}, {"fairness": 1.0}])
def test_fairness_without_unobserved_weight_would_do_nothing(settings):
    with pytest.raises(InvalidParameter, match="unobserved_weight > 0"):
        FiADMM(**settings, unobserved_weight=0.0).fit(DATA)
    plain = FiADMM(factors=2, epochs=2, unobserved_weight=0.0, **dict.fromkeys(settings, 0.0))
    assert plain.fit(DATA).fitted.fairness == 0


def test_asking_before_fitting():
    for model in (IALS(), FiADMM(), Popularity()):
        with pytest.raises(NotFitted, match="call fit"):
            _ = model.item_factors


def test_progress_bar_shows_epochs_on_request_and_is_silent_otherwise(capsys):
    small().fit(DATA)
    assert capsys.readouterr().err == ""
    small().fit(DATA, progress=True)
    shown = capsys.readouterr().err
    assert "IALS" in shown
    assert "5/5" in shown


def test_compiling_is_announced(monkeypatch, caplog):
    from fairmf.backends.registry import get_backend

    monkeypatch.setattr(type(get_backend("cpu")), "compiles_now", lambda self: True)
    with caplog.at_level(logging.INFO, logger="fairmf"):
        small(epochs=1).fit(DATA)
    assert "compiling kernels" in caplog.text


HUGE_SETTINGS = ("regularization", "unobserved_weight", "fairness")


@pytest.mark.parametrize("size", [1e18, 1e20, 1e30, 1e38, 1e300])
@pytest.mark.parametrize("kind", ["weights", *HUGE_SETTINGS])
def test_numbers_beyond_the_precision_end_in_a_model_or_in_not_finite(kind, size):
    """Never in Numba's SystemError, whatever a kernel divides by zero."""
    data, settings, ended = DATA, {}, []
    if kind == "weights":
        rows = DATA.by_user
        weights = np.full(rows.nnz, min(size, 3e38), dtype=np.float32)
        data = Interactions(Rows(rows.indptr, rows.indices, weights), 30)
    else:
        settings = {kind: size}
    solvers = [{}, {"solver": "cholesky"}, {"solver": "subspace"}]
    makers = [*((make, more) for make in (FairALS, paper_als) for more in solvers), (FiADMM, {})]
    for make, more in makers:
        model = make(factors=4, epochs=2, **settings, **more)
        try:
            model.fit(data)
        except NotFinite as error:
            ended.append(str(error))
            assert model.history.verdict == "diverged"
        assert np.isfinite(model.user_factors).all()
        assert np.isfinite(model.item_factors).all()
    if kind in ("regularization", "unobserved_weight") and size < 1e30:
        assert ended or np.abs(model.user_factors @ model.item_factors.T).max() < 1e-6  # the minimum is at 0
    else:
        assert ended or size > 1e30
    assert all(("lower it (now" in message) == (kind != "weights") for message in ended)


@pytest.mark.parametrize("size", [1e18, 1e20, 1e30, 3e38])
def test_weights_beyond_the_precision_in_fold_in(size):
    model, rows = small().fit(DATA), DATA.by_user
    heavy = Interactions(Rows(rows.indptr, rows.indices, np.full(rows.nnz, size, dtype=np.float32)), 30)
    with contextlib.suppress(NotFinite):
        assert np.isfinite(model.fold_in(heavy)).all()


@pytest.mark.parametrize("model", [FairALS, IALS, FiADMM])
def test_a_fit_that_learned_nothing_says_so(model, caplog):
    model(factors=4, epochs=8, regularization=30.0).fit(DATA)
    assert "learned nothing, all its scores are almost 0: lower regularization (now 30)" in caplog.text
    caplog.clear()
    model(factors=4, epochs=8).fit(DATA)
    assert caplog.text == ""
