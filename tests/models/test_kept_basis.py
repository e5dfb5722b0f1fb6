"""Epochs in a basis that is only nearly the eigenbasis, as a backend to which eigenvectors are dear makes them.

Such a backend needs a device; this one is the reference with the same habit, so that the fit loop's part is
tested everywhere.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import paper_als

from fairmf import FairALS, threads
from fairmf.backends.contract import Diagonalised
from fairmf.backends.cpu.backend import CpuBackend
from fairmf.backends.reference import ReferenceBackend
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.models import als_cg
from fairmf.models import problem as problems
from fairmf.models.checkpoint import put_together, take_apart
from fairmf.models.objective import Objective, objective
from fairmf.models.problem import problem_for
from fairmf.params import settings_of

DATA = synthetic(60, 30, 700, random_state=4)


class Keeping(ReferenceBackend):
    """Keeps a guess where what is off the diagonal is small beside it, and counts how often."""

    slow_eigenvectors = True  # asks for a guess even where the users are not kept in two bases

    def __init__(self, nearly):
        self.nearly, self.kept = nearly, 0

    def diagonalise(self, matrix, ridge, guess):
        if guess is not None:
            turned = guess.T @ matrix @ guess
            values = np.diag(turned).copy()
            rest = turned - np.diag(values)
            root = 1 / np.sqrt(values + ridge)
            if np.abs(np.linalg.eigvalsh(rest * root[:, None] * root)).max() < self.nearly:
                self.kept += 1
                return Diagonalised(np.maximum(values, 0.0), guess, rest)
        return super().diagonalise(matrix, ridge, None)


def epochs(backend, fairness, count, monkeypatch, weights=None, keeps=True):
    """The states of a fit of `count` epochs, one step per row each."""
    monkeypatch.setattr(problems, "get_backend", lambda *_: backend)
    monkeypatch.setattr(als_cg, "FEW_ROWS", 100 if keeps else 0)
    monkeypatch.setattr(als_cg, "MANY_FACTORS", 1)
    model = paper_als(factors=8, fairness=fairness, regularization=0.02, cg_steps=1)
    problem = problem_for(DATA, model.lambda_f_for(DATA.n_users), settings_of(model), weights)
    generator = np.random.default_rng(0)
    state = model.start(problem, *(0.1 * generator.normal(size=(rows, 8)) for rows in DATA.shape))
    states = []
    for _ in range(count):
        state = model.epoch(problem, state)
        states.append(state)
    return problem, states


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("item_weights", [False, True])
@pytest.mark.parametrize("fairness", [0.0, 1.0])
def test_f_and_q_are_those_of_the_factors_whatever_the_basis(fairness, item_weights, keeps, monkeypatch):
    weights = 0.5 + np.random.default_rng(1).random(DATA.n_items) if item_weights else None
    backend = Keeping(nearly=0.3)
    problem, states = epochs(backend, fairness, 12, monkeypatch, weights, keeps)
    assert backend.kept >= 10
    for state in states:
        if keeps:
            np.testing.assert_allclose(state.unturned_users @ state.rotation, state.user_factors, atol=1e-12)
        else:
            assert state.unturned_users is None
        np.testing.assert_allclose(state.mean_user, state.user_factors.mean(axis=0), atol=1e-12)
        exact = objective(problem, state.user_factors, state.item_factors)
        assert state.objective.to_dict() == pytest.approx(exact.to_dict(), rel=1e-9)
    assert [s.objective.total for s in states] == sorted((s.objective.total for s in states), reverse=True)


@pytest.mark.parametrize("fairness", [0.0, 1.0])
@pytest.mark.slow
def test_they_end_where_exact_bases_end(fairness, monkeypatch):
    kept, exact = Keeping(nearly=0.3), Keeping(nearly=0.0)
    problem, ours = epochs(kept, fairness, 60, monkeypatch)
    _, theirs = epochs(exact, fairness, 60, monkeypatch)
    assert kept.kept > 78
    assert exact.kept == 0
    assert ours[-1].objective.total == pytest.approx(theirs[-1].objective.total, rel=1e-4)
    # q belongs to the users: with what is off the diagonal left out of C it would settle beside C t.
    state = ours[-1]
    wanted = fairness * problem.unobserved_weight * state.merit_gramian @ problem.backend.mean(state.user_factors)
    np.testing.assert_allclose(state.coupling, wanted, atol=2e-3 * max(np.abs(wanted).max(), 1e-12))


def test_users_in_two_bases_change_no_factors(monkeypatch):
    """They only save a product: the numbers are those of turning the users there and back."""
    _, ours = epochs(Keeping(nearly=0.3), 1.0, 8, monkeypatch)
    _, theirs = epochs(Keeping(nearly=0.3), 1.0, 8, monkeypatch, keeps=False)
    np.testing.assert_allclose(ours[-1].user_factors, theirs[-1].user_factors, atol=1e-10)
    np.testing.assert_allclose(ours[-1].item_factors, theirs[-1].item_factors, atol=1e-10)


def test_a_basis_is_kept_after_an_exact_epoch_too(monkeypatch):
    """An exact epoch leaves both sides in one basis; the next one must not take the users from an older one."""
    monkeypatch.setattr(problems, "get_backend", lambda *_: ReferenceBackend())
    monkeypatch.setattr(als_cg, "MANY_FACTORS", 1)
    model = paper_als(factors=8, fairness=1.0, regularization=0.02, cg_steps=1)
    problem = problem_for(DATA, model.lambda_f_for(DATA.n_users), settings_of(model))
    generator = np.random.default_rng(0)
    state = model.start(problem, *(0.1 * generator.normal(size=(rows, 8)) for rows in DATA.shape))
    for number in range(6):
        # With F already at 0, every epoch but the exact one looks like a rise.
        start = replace(state, objective=Objective(0.0, 0.0, 0.0, 0.0)) if number in (1, 4) else state
        state = model.epoch(problem, start)
        assert state.effort == (1 if number in (1, 4) else 0)
        np.testing.assert_allclose(state.unturned_users @ state.rotation, state.user_factors, atol=1e-12)
        exact = objective(problem, state.user_factors, state.item_factors)
        assert state.objective.total == pytest.approx(exact.total, rel=1e-9)


@pytest.mark.parametrize("fairness", [0.0, 1.0])
def test_the_cpu_backend_keeps_bases_and_ends_as_well(fairness, monkeypatch):
    """Its F is that of exact bases, and the same bits come out every time."""
    kept = []

    class Counting(CpuBackend):
        def diagonalise(self, matrix, ridge, guess):
            found = super().diagonalise(matrix, ridge, guess)
            kept.append(found.rest is not None)
            return found

    _, ours = epochs(Counting(), fairness, 40, monkeypatch)
    assert sum(kept) > 40
    _, theirs = epochs(CpuBackend(), fairness, 40, monkeypatch, keeps=False)
    assert ours[-1].objective.total == pytest.approx(theirs[-1].objective.total, rel=1e-4)
    _, again = epochs(Counting(), fairness, 40, monkeypatch)
    np.testing.assert_array_equal(again[-1].user_factors, ours[-1].user_factors)


@pytest.mark.parametrize(("fairness", "empty", "users_keep"), [(0.0, 5, True), (1.0, 0, True), (1.0, 5, False)])
def test_users_keep_no_basis_where_those_without_interactions_are_not_0(fairness, empty, users_keep, monkeypatch):
    """They are solved without what is off the diagonal, which would pull the mean user and q aside. Items may."""
    guesses, diagonalise = [], CpuBackend.diagonalise

    def noted(backend, matrix, ridge, guess):
        guesses.append(guess is not None)
        return diagonalise(backend, matrix, ridge, guess)

    monkeypatch.setattr(CpuBackend, "diagonalise", noted)
    rows = DATA.by_user
    indptr = np.append(rows.indptr, np.full(empty, rows.indptr[-1]))
    data = Interactions(Rows(indptr, rows.indices, rows.weights), DATA.n_items + empty)
    assert (data.by_user.sums() == 0).any() == (data.by_item.sums() == 0).any() == (empty > 0)
    FairALS(factors=128, epochs=1, cg_steps=1, fairness=fairness).fit(data)
    assert guesses[:2] == [users_keep, True]


@pytest.mark.parametrize("sides", [{"item_features"}, {"user_features"}, {"item_features", "user_features"}])
def test_sides_with_features_have_no_rows_without_interactions(sides, monkeypatch):
    """So none of their vectors is pulled by features alone, which a kept basis would not stand."""
    seen, epoch, rows = [], als_cg.epoch, DATA.by_user
    indptr = np.append(rows.indptr, np.full(5, rows.indptr[-1]))
    data = Interactions(Rows(indptr, rows.indices, rows.weights), DATA.n_items + 5)

    def noted(problem, *arguments):
        seen.append((problem.user_sums.min(), problem.item_sums.min()))
        return epoch(problem, *arguments)

    monkeypatch.setattr(als_cg, "epoch", noted)
    generator = np.random.default_rng(0)
    tables = {"user_features": generator.random((len(indptr) - 1, 2)), "item_features": generator.random((35, 2))}
    FairALS(factors=4, epochs=1).fit(data, **{side: tables[side].astype(np.float32) for side in sides})
    users, items = seen[0]
    assert (users > 0) == ("user_features" in sides)
    assert (items > 0) == ("item_features" in sides)


def test_a_state_of_an_older_checkpoint_goes_on_with_kept_bases():
    """It lacks what an epoch needs to keep the users' basis without a product; the data say that it pays."""
    model = paper_als(factors=128, fairness=1.0, regularization=0.02, cg_steps=1)
    problem = problem_for(DATA, model.lambda_f_for(DATA.n_users), settings_of(model))
    generator = np.random.default_rng(0)
    start = model.start(problem, *(generator.normal(size=(n, 128)).astype(np.float32) for n in DATA.shape))
    state = model.epoch(problem, start)
    numbers, arrays = take_apart(state, "state", problem.backend)
    assert numbers.pop("moves") in (True, False)
    assert "guesses" not in numbers
    assert len(arrays.pop("state.unturned_users")) == DATA.n_users
    assert len(arrays.pop("state.mean_user")) == 128
    older = put_together(start, "state", numbers, arrays, problem.backend)
    assert (older.guesses, older.moves, older.unturned_users, older.mean_user) == (True, False, None, None)
    found, expected = (model.epoch(problem, replace(s, moves=False)) for s in (older, state))
    scores = [state.user_factors @ state.item_factors.T for state in (found, expected)]
    np.testing.assert_allclose(*scores, atol=1e-4 * np.abs(scores[1]).max())


def test_bases_are_kept_only_where_that_pays():
    for settings, kept in (
        ({"factors": 128}, True), ({"factors": 127}, False), ({"factors": 128, "cg_steps": 2}, False),
        ({"factors": 128, "solver": "cholesky"}, False),
    ):  # fmt: skip
        model = paper_als(regularization=0.02, **({"cg_steps": 1} | settings))
        problem = problem_for(DATA, 0.0, settings_of(model))
        start = (np.zeros((n, model.factors), dtype=np.float32) for n in DATA.shape)
        assert model.start(problem, *start).guesses == kept


def test_fits_that_keep_bases_have_the_same_bits_for_any_number_of_threads(monkeypatch):
    kept, diagonalise, data = [], CpuBackend.diagonalise, synthetic(1500, 900, 40_000, random_state=2)

    def counted(*arguments):
        found = diagonalise(*arguments)
        kept.append(found.rest is not None)
        return found

    monkeypatch.setattr(CpuBackend, "diagonalise", counted)
    monkeypatch.setattr(threads, "WORTH_WAKING", 1e3)  # so that also small work is shared
    fits = [FairALS(factors=128, epochs=12, fairness=1.0, num_threads=count).fit(data) for count in (1, 2, 4)]
    assert sum(kept) > 12
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.user_factors, fits[0].user_factors)
        np.testing.assert_array_equal(fit.item_factors, fits[0].item_factors)
