"""Epochs in a basis that is only nearly the eigenbasis, as a backend to which eigenvectors are dear makes them.

Such a backend needs a device; this one is the reference with the same habit, so that the fit loop's part is
tested everywhere.
"""

import numpy as np
import pytest
from conftest import paper_als

from fairmf.backends.contract import Diagonalised
from fairmf.backends.reference import ReferenceBackend
from fairmf.data.synthetic import synthetic
from fairmf.models import problem as problems
from fairmf.models.objective import objective
from fairmf.models.problem import problem_for
from fairmf.params import settings_of

DATA = synthetic(60, 30, 700, random_state=4)


class Keeping(ReferenceBackend):
    """Keeps a guess where what is off the diagonal is small beside it, and counts how often."""

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
        return super().diagonalise(matrix, ridge, guess)


def epochs(backend, fairness, count, monkeypatch, weights=None):
    """The states of a fit of `count` epochs, one step per row each."""
    monkeypatch.setattr(problems, "get_backend", lambda *_: backend)
    model = paper_als(factors=8, fairness=fairness, regularization=0.02, cg_steps=1)
    problem = problem_for(DATA, model.lambda_f_for(DATA.n_users), settings_of(model), weights)
    generator = np.random.default_rng(0)
    state = model.start(problem, *(0.1 * generator.normal(size=(rows, 8)) for rows in DATA.shape))
    states = []
    for _ in range(count):
        state = model.epoch(problem, state)
        states.append(state)
    return problem, states


@pytest.mark.parametrize("item_weights", [False, True])
@pytest.mark.parametrize("fairness", [0.0, 1.0])
def test_f_and_q_are_those_of_the_factors_whatever_the_basis(fairness, item_weights, monkeypatch):
    weights = 0.5 + np.random.default_rng(1).random(DATA.n_items) if item_weights else None
    backend = Keeping(nearly=0.3)
    problem, states = epochs(backend, fairness, 12, monkeypatch, weights)
    assert backend.kept >= 10
    for state in states:
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
