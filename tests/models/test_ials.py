"""iALS: exact half-steps, and agreement with two other libraries where their losses coincide with ours."""

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from conftest import peer_library, random_rows

from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData
from fairmf.models.als import IALS
from fairmf.models.objective import objective
from fairmf.models.problem import problem_for

DATA = Interactions(random_rows(60, 40, density=0.15), 40)
WEIGHTED = Interactions(random_rows(60, 40, density=0.15, weighted=True), 40)


@pytest.mark.parametrize("data", [DATA, WEIGHTED], ids=["binary", "weighted"])
def test_objective_falls_every_epoch(data, backend):
    model = IALS(factors=6, epochs=12, backend=backend.name).fit(data)
    totals = np.array(model.history.column("objective.total"))
    assert (np.diff(totals) <= 1e-6 * totals[:-1]).all()
    assert totals[-1] < 0.9 * totals[0]


def test_cpu_and_reference_train_the_same_model():
    fits = [IALS(factors=6, epochs=5, regularization=0.05, backend=b).fit(WEIGHTED) for b in ("cpu", "reference")]
    np.testing.assert_allclose(*(m.user_factors @ m.item_factors.T for m in fits), atol=2e-3)


def test_stored_users_equal_their_own_fold_in():
    model = IALS(factors=6, epochs=3).fit(DATA)
    np.testing.assert_allclose(model.fold_in(DATA), model.user_factors, atol=1e-5)


def test_users_and_items_without_interactions_get_the_zero_vector():
    rows = random_rows(10, 8)
    padded = Interactions(rows, 9)  # item 8 does not occur, user 0 is empty
    model = IALS(factors=3, epochs=2).fit(padded)
    assert (model.item_factors[8] == 0).all()
    assert (model.user_factors[0] == 0).all()


def test_no_interactions_at_all():
    empty = Interactions(random_rows(3, 4).block(0, 1), 4)
    with pytest.raises(InvalidData, match="no interactions"):
        IALS().fit(empty)


def test_one_user_one_item():
    matrix = random_rows(2, 1)  # user 0 empty, user 1 has the one item
    model = IALS(factors=2, epochs=4).fit(Interactions(matrix, 1))
    assert np.isfinite(model.user_factors).all()
    assert model.recommend(0, N=3)[0].tolist() == [0]


@pytest.mark.parametrize(("data", "nu"), [(DATA, 0.7), (WEIGHTED, 0.0)], ids=["binary", "weighted"])
def test_half_steps_agree_with_irspack(data, nu):
    """irspack's "IALSPP" loss is ours: same alpha0, same frequency-scaled L2.

    (It scales L2 by the number of interactions where we take the sum of confidences: weights are tried with eta 0.)
    """
    ials = peer_library("irspack.recommenders.ials")
    alpha0, reg, d = 0.2, 0.01, 5
    solver = ials.str_to_solver_type("CHOLESKY")
    loss = ials.str_to_loss_type("IALSPP")
    trainer = ials.IALSTrainer(data.to_csr().tocsr(), d, alpha0, reg, nu, 0.1, solver, 3, 64, loss, 0, 1, 5, 7)
    core = trainer.core_trainer
    settings = {"regularization": reg, "regularization_exponent": nu, "unobserved_weight": alpha0, "backend": "cpu"}
    problem = problem_for(data, 0.0, settings)
    for _ in range(3):  # irspack: users, then items
        before_items = core.item.copy()
        core.step(trainer.solver_config)
        U = problem.backend.solve(problem.user_half_step(np.ascontiguousarray(before_items)))
        V = problem.backend.solve(problem.item_half_step(U))
        np.testing.assert_allclose(U, core.user, atol=2e-4 * np.abs(U).max())
        np.testing.assert_allclose(V, core.item, atol=2e-4 * np.abs(V).max())


def test_user_half_step_agrees_with_implicit():
    """implicit minimises sum c (p - s)^2 over all pairs, c = alpha where observed and 1 elsewhere, with plain L2.

    For binary data its system is ours with alpha0 = 1 and confidence alpha - 1, its right-hand side alpha/(alpha - 1)
    times ours, and so is its solution.
    """
    als = peer_library("implicit.cpu.als")
    alpha, reg, d = 5.0, 0.3, 4
    V = np.random.default_rng(0).normal(0, 0.5, size=(DATA.n_items, d)).astype(np.float32)
    with threadpoolctl.threadpool_limits(1, "blas"):  # implicit warns otherwise
        peer = als.AlternatingLeastSquares(factors=d, regularization=reg, alpha=alpha, use_cg=False, num_threads=1)
    peer.item_factors = V
    peer.user_factors = np.zeros((DATA.n_users, d), dtype=np.float32)
    csr = DATA.to_csr()
    expected = peer.recalculate_user(np.arange(DATA.n_users), sp.csr_matrix(csr))
    weights = np.full(DATA.nnz, alpha - 1, dtype=np.float32)
    ours = Interactions(DATA.by_user._replace(weights=weights), DATA.n_items)
    settings = {"regularization": reg, "regularization_exponent": 0.0, "unobserved_weight": 1.0, "backend": "cpu"}
    step = problem_for(ours, 0.0, settings).user_half_step(V)
    U = step.backend.solve(step)
    np.testing.assert_allclose(alpha / (alpha - 1) * U, expected, atol=2e-4)


def test_the_history_reports_the_objective_of_the_returned_factors():
    model = IALS(factors=4, epochs=3).fit(DATA)
    value = objective(problem_for(DATA, 0.0, model.fitted.settings), model.user_factors, model.item_factors)
    assert model.history.final["objective"] == pytest.approx(value.to_dict())
