"""iALS++ in FairALS and IALS: block steps are exact, the coupling included, and sweeps end where Cholesky does."""

from typing import Protocol, runtime_checkable

import numpy as np
import pytest
from conftest import BACKENDS, as_numpy, paper_als, random_item_weights, random_rows, slow_values
from naive.objective import dense, total

from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.errors import InvalidParameter, NotFinite
from fairmf.models import als_exact, als_subspace
from fairmf.models.als import IALS
from fairmf.models.objective import gradients, objective
from fairmf.models.problem import problem_for

SMALL = {w: Interactions(random_rows(60, 40, density=0.15, weighted=w), 40) for w in (False, True)}
D = 7


def posed(model, data, item_weights=None):
    problem = problem_for(data, model.lambda_f_for(data.n_users), model.get_params(), item_weights)
    generator = np.random.default_rng(3)
    U, V = (problem.backend.array(generator.normal(0, 0.4, size=(n, model.factors))) for n in data.shape)
    return problem, model.start(problem, U, V)


def fair(backend="reference", fairness=1.0, **settings):
    return paper_als(factors=D, fairness=fairness, backend=backend, solver="subspace", regularization=0.05, **settings)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("fairness", [0.0, 1.0, 1e4])
def test_a_block_of_all_users_is_moved_to_its_minimum_coupling_included(name, weighted, fairness, item_weights):
    """The last block of a sweep is the one that nothing has moved since: its gradient of the whole F is 0."""
    problem, state = posed(fair(name, fairness), SMALL[weighted], item_weights(40))
    small = 1e-9 if name == "reference" else 5e-4
    start = np.abs(gradients(problem, state.user_factors, state.item_factors)[0]).max()
    kept = state.user_factors.copy()
    after = als_subspace.users(problem, state, fairness, 3)
    found = np.abs(gradients(problem, after.user_factors, state.item_factors)[0])
    assert found[:, 6:].max() < small * start
    assert found[:, :6].max() > 10 * small * start
    np.testing.assert_array_equal(as_numpy(state.user_factors), as_numpy(kept))
    done = als_subspace.epoch(problem, state, fairness, 3)
    items = np.abs(gradients(problem, done.user_factors, done.item_factors)[1])
    assert items[:, 6:].max() < small * start


@pytest.mark.parametrize("fairness", [0.0, 1.0, 1e4])
def test_f_falls_with_every_block_by_its_definition(weighted, fairness, item_weights):
    """F by double loops after each block of a sweep, which no other check of the coupling knows about."""
    model = fair(fairness=fairness)
    weights = item_weights(40)
    problem, state = posed(model, SMALL[weighted], weights)
    C = dense(SMALL[weighted])
    values = []
    for _ in range(3):
        values.append(
            total(C, state.user_factors, state.item_factors, 0.05, 1.0, 0.1, problem.lambda_f, item_weights=weights)
        )
        state = als_subspace.epoch(problem, state, fairness, 2)
    assert np.diff(values).max() < 0
    assert state.objective.total < values[-1]


@pytest.mark.parametrize("block_size", [D, 50])
@pytest.mark.parametrize("fairness", [0.0, 2.0])
def test_one_block_is_the_exact_epoch(weighted, fairness, block_size, item_weights):
    problem, state = posed(fair(fairness=fairness), SMALL[weighted], item_weights(40))
    found, expected = (
        als_subspace.epoch(problem, state, fairness, block_size),
        als_exact.epoch(problem, state, fairness),
    )
    np.testing.assert_allclose(found.user_factors, expected.user_factors, atol=1e-9)
    np.testing.assert_allclose(found.item_factors, expected.item_factors, atol=1e-9)
    np.testing.assert_allclose(found.coupling, expected.coupling, atol=1e-9)


@pytest.mark.parametrize("name", BACKENDS)
def test_alternating_blocks_are_those_of_a_loop_over_users_and_items(name, weighted):
    """A block of every user, then the same block of every item, each by its own small system, in float64."""
    data = SMALL[weighted]
    problem, state = posed(fair(name, 0.0, unobserved_weight=0.1), data)
    C = dense(data)
    U, V = as_numpy(state.user_factors, float).copy(), as_numpy(state.item_factors, float).copy()
    U[C.sum(axis=1) == 0], V[C.sum(axis=0) == 0] = 0.0, 0.0

    def move(this, other, confidences, ridge, block):
        for i, c in enumerate(confidences):
            H = (other.T * c) @ other + 0.1 * other.T @ other + ridge[i] * np.eye(D)
            gradient = H @ this[i] - other.T @ c
            this[i, block] -= np.linalg.solve(H[block, block], gradient[block])

    for block in (slice(0, 3), slice(3, 6), slice(6, 7)):
        move(U, V, C, 0.05 * (C.sum(axis=1) + 0.1 * 40), block)
        move(V, U, C.T, 0.05 * (C.sum(axis=0) + 0.1 * 60), block)
    after = als_subspace.alternating_epoch(problem, state, 0.0, 3)
    tolerance = 1e-9 if name == "reference" else 2e-4
    np.testing.assert_allclose(as_numpy(after.user_factors), U, atol=tolerance)
    np.testing.assert_allclose(as_numpy(after.item_factors), V, atol=tolerance)
    by_sides = als_subspace.epoch(problem, state, 0.0, 3)
    assert np.abs(as_numpy(by_sides.item_factors) - V).max() > 100 * tolerance


@pytest.mark.parametrize("fairness", [0.0, 1.0, 1e4])
def test_f_falls_with_alternating_blocks_and_ends_at_its_minimum_over_the_last(weighted, fairness, item_weights):
    weights = item_weights(40)
    problem, state = posed(fair(fairness=fairness), SMALL[weighted], weights)
    C = dense(SMALL[weighted])
    values = []
    for _ in range(3):
        values.append(
            total(C, state.user_factors, state.item_factors, 0.05, 1.0, 0.1, problem.lambda_f, item_weights=weights)
        )
        state = als_subspace.alternating_epoch(problem, state, fairness, 3)
    assert np.diff(values).max() < 0
    assert state.objective.total < values[-1]
    expected = objective(problem, state.user_factors, state.item_factors)
    assert state.objective.to_dict() == pytest.approx(expected.to_dict(), rel=1e-9)
    found = np.abs(gradients(problem, state.user_factors, state.item_factors)[1])
    assert found[:, 6:].max() < 1e-9 * max(1.0, np.abs(as_numpy(state.item_factors)).max())
    q = fairness * problem.unobserved_weight * state.merit_gramian @ problem.backend.mean(state.user_factors)
    np.testing.assert_allclose(state.coupling, q, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fairness", [0.0, 2.0])
def test_one_alternating_block_is_the_exact_epoch(weighted, fairness, item_weights):
    problem, state = posed(fair(fairness=fairness), SMALL[weighted], item_weights(40))
    found = als_subspace.alternating_epoch(problem, state, fairness, D)
    expected = als_exact.epoch(problem, state, fairness)
    np.testing.assert_allclose(found.user_factors, expected.user_factors, atol=1e-9)
    np.testing.assert_allclose(found.item_factors, expected.item_factors, atol=1e-9)


def test_a_model_trains_by_alternating_blocks():
    data = synthetic(300, 200, 5_000)
    settings = {"factors": 12, "epochs": 6, "block_size": 4, "unobserved_weight": 0.1}
    turns, sides = (IALS(**settings, solver=name).fit(data) for name in ("alternating_subspace", "subspace"))
    totals = [one.history.column("objective.total") for one in (turns, sides)]
    assert np.diff(totals[0]).max() <= 0
    assert totals[0][2] != pytest.approx(totals[1][2], rel=1e-3)  # another order, another way
    assert totals[0][-1] == pytest.approx(totals[1][-1], rel=0.05)


@pytest.mark.parametrize("fairness", [*slow_values(0.0, 1e4), 1.0])
def test_sweeps_over_the_users_end_at_the_exact_users(weighted, fairness, item_weights):
    data = Interactions(random_rows(20, 40, density=0.15, weighted=weighted), 40)
    problem, state = posed(fair(fairness=fairness), data, item_weights(40))
    expected = als_exact.users(problem, state, fairness)
    for _ in range(30):
        state = als_subspace.users(problem, state, fairness, 3)
    np.testing.assert_allclose(state.user_factors, expected.user_factors, atol=1e-7)
    np.testing.assert_allclose(state.coupling, expected.coupling, atol=1e-7 * (1 + np.abs(expected.coupling).max()))


def test_leaving_the_coupling_out_of_the_blocks_breaks_that(monkeypatch):
    problem, state = posed(fair(), SMALL[False])
    monkeypatch.setattr(als_subspace.np.linalg, "solve", lambda _, right: 0 * right)
    after = als_subspace.users(problem, state, 1.0, D)
    assert np.abs(after.user_factors - als_exact.users(problem, state, 1.0).user_factors).max() > 1e-3


@pytest.mark.parametrize("unobserved_weight", [0.003, *slow_values(0.1)])
@pytest.mark.parametrize("fairness", [*slow_values(0.0), 1.0, 1e4])
def test_trained_models_agree_with_the_exact_ones_and_f_never_rises(unobserved_weight, fairness):
    data = synthetic(800, 400, 20_000)
    settings = {"factors": 16, "fairness": fairness, "unobserved_weight": unobserved_weight, "epochs": 20}
    slow = paper_als(**settings, solver="cholesky").fit(data, objective_every=20)
    quick = paper_als(**settings, solver="subspace", block_size=8).fit(data)
    totals = np.array(quick.history.column("objective.total"))
    assert np.diff(totals).max() <= 2e-6 * totals[0]
    final = [m.history.final["objective"]["total"] for m in (quick, slow)]
    assert final[0] <= final[1] * 1.02  # not convex: either may end a little lower


def test_the_objective_at_hand_is_the_objective(weighted, item_weights):
    problem, state = posed(fair("cpu"), SMALL[weighted], item_weights(40))
    after = als_subspace.epoch(problem, state, 1.0, 3)
    expected = objective(problem, after.user_factors, after.item_factors)
    assert after.objective.to_dict() == pytest.approx(expected.to_dict(), rel=1e-4)


@pytest.mark.parametrize("fairness", [0.0, 1.0])
def test_stored_users_equal_their_own_fold_in_and_empty_ones_are_as_they_should_be(weighted, fairness):
    model = paper_als(factors=8, fairness=fairness, epochs=4, solver="subspace", block_size=3).fit(SMALL[weighted])
    scale = np.abs(model.user_factors).max()
    np.testing.assert_allclose(model.fold_in(SMALL[weighted]), model.user_factors, atol=1e-3 * scale)
    empty = model.user_factors[0]
    assert (empty == 0).all() if fairness == 0 else (empty != 0).any()


def test_ials_is_fair_als_without_fairness():
    settings = {"factors": D, "solver": "subspace", "block_size": 3}
    a, b = paper_als(**settings, fairness=0.0).fit(SMALL[False]), IALS(**settings).fit(SMALL[False])
    np.testing.assert_array_equal(a.user_factors, b.user_factors)


def test_an_item_without_interactions_is_zero():
    rows = random_rows(50, 30, density=0.2)
    data = Interactions(rows, 33)  # three items that nobody has
    model = paper_als(factors=4, solver="subspace", block_size=2, epochs=2).fit(data)
    np.testing.assert_array_equal(model.item_factors[30:], 0)


def test_a_backend_without_its_kernels_is_refused_before_the_first_epoch(monkeypatch):
    @runtime_checkable
    class Others(Protocol):
        def kernels_that_nobody_has(self): ...

    monkeypatch.setattr("fairmf.backends.solve.SubspaceKernels", Others)
    with pytest.raises(InvalidParameter, match="solver='subspace' does not support backend='cpu'"):
        IALS(solver="subspace").fit(SMALL[False])


@pytest.mark.parametrize("block_size", [0, -1, 2.5, "auto", None])
def test_bad_block_sizes(block_size):
    with pytest.raises(InvalidParameter, match=r"'block_size' parameter of IALS must be an integer >= 1\. Got"):
        IALS(solver="subspace", block_size=block_size).fit(SMALL[False])


def test_without_regularization_the_exact_solver_takes_over():
    settings = {"factors": 3, "regularization": 0.0, "epochs": 2}
    a, b = (IALS(**settings, solver=name).fit(SMALL[False]) for name in ("subspace", "cholesky"))
    np.testing.assert_array_equal(a.user_factors, b.user_factors)


def test_numbers_that_are_not_finite_are_found():
    rows = random_rows(20, 10, weighted=True)
    heavy = Interactions(rows._replace(weights=np.full(rows.nnz, 3e38, dtype=np.float32)), 10)
    with pytest.raises(NotFinite, match="raise regularization"):
        IALS(factors=4, solver="subspace", block_size=2, epochs=3).fit(heavy)


def test_a_random_weight_per_item_changes_the_answer():
    settings = {"factors": D, "solver": "subspace", "block_size": 3, "fairness": 5.0}
    plain = paper_als(**settings).fit(SMALL[False])
    weighted = paper_als(**settings).fit(SMALL[False], fairness_weights=random_item_weights(40))
    assert (
        np.abs(plain.user_factors @ plain.item_factors.T - weighted.user_factors @ weighted.item_factors.T).max() > 0.01
    )
