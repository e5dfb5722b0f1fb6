"""Fairness weights per item: limit cases, independent solutions, what they do to exposure, and what is refused.

The oracles of the plain term (double loops, finite differences, zero gradients, naive epochs, thread bits) run with
weights too: see `item_weights` in conftest.
"""

import dataclasses

import numpy as np
import pytest
from conftest import paper_als, random_item_weights, random_problem, random_rows, slow_values
from naive.objective import dense, total

from fairmf import group_weights
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models import als_exact
from fairmf.models.als import IALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.problem import problem_for

N, M, D = 60, 40, 5
DATA = Interactions(random_rows(N, M, density=0.15, weighted=True), M)
NAMED = Interactions(random_rows(6, 4), 4, item_ids=Ids(["a", "b", "c", "d"]))
OWN = random_item_weights(M)
MODELS = {
    "fast": lambda **s: paper_als(factors=D, epochs=4, **s),
    "exact": lambda **s: paper_als(factors=D, epochs=4, solver="cholesky", **s),
    "subspace": lambda **s: paper_als(factors=D, epochs=4, solver="subspace", block_size=2, **s),
    "FiADMM": lambda **s: FiADMM(factors=D, epochs=8, rho=500.0, gamma=0.02, **s),
    "FiADMM by cg": lambda **s: FiADMM(factors=D, epochs=8, rho=500.0, gamma=0.02, solver="eigenbasis_cg", **s),
}


@pytest.fixture(params=MODELS)
def make(request):
    return MODELS[request.param]


def scores(model):
    return model.user_factors.astype(float) @ model.item_factors.T.astype(float)


def same(a, b, tolerance=2e-4):
    np.testing.assert_allclose(scores(a), scores(b), atol=tolerance * np.abs(scores(b)).max())


# -- limit cases -----------------------------------------------------------------------------------------------------


def test_weights_of_one_are_the_plain_model(make):
    same(make().fit(DATA, fairness_weights=np.ones(M)), make().fit(DATA))


def test_equal_weights_are_their_square_times_the_fairness(make):
    weighted, plain = make(fairness=2.0).fit(DATA, fairness_weights=np.full(M, 1.5)), make(fairness=4.5).fit(DATA)
    same(weighted, plain)
    assert np.abs(scores(weighted) - scores(make(fairness=2.0).fit(DATA))).max() > 0.01
    # The dial speaks of what was asked for, so 2 here is 4.5 there.
    np.testing.assert_allclose(weighted.fitted.merit @ weighted.fitted.merit,
                               2.25**2 * plain.fitted.merit @ plain.fitted.merit, rtol=1e-3)  # fmt: skip


@pytest.mark.parametrize("name", ["fast", "exact"])
def test_weights_of_zero_are_no_fairness_at_all(name):
    """`fit` refuses them, because they are not worth a fit; the steps take them as any others."""
    fair, plain = MODELS[name](fairness=3.0), IALS(factors=D, epochs=4, solver=MODELS[name]().solver)
    problems = (
        problem_for(DATA, fair.lambda_f_for(N), fair.get_params(), np.zeros(M)),
        problem_for(DATA, 0.0, plain.get_params()),
    )
    ends = []
    for model, problem in zip((fair, plain), problems, strict=True):
        state = model.start(problem, *model._initial_factors(problem, None))
        for _ in range(4):
            state = model.epoch(problem, state)
        ends.append(model.finish(problem, state))
        assert ends[-1].objective.fairness == 0
    products = [state.user_factors @ state.item_factors.T for state in ends]
    np.testing.assert_allclose(*products, atol=2e-4 * np.abs(products[1]).max())


@pytest.mark.parametrize("name", ["fast", "exact"])
def test_an_item_of_great_weight_has_no_average_score_left(name):
    merit = []
    for w in (1.0, 3e3):
        weights = np.ones(M)
        weights[7] = w
        model = MODELS[name]().fit(DATA, fairness_weights=weights)
        merit.append(scores(model).mean(axis=0))
    assert abs(merit[0][7]) > 0.02
    assert abs(merit[1][7]) < 2e-3 * abs(merit[0][7])
    assert np.abs(np.delete(merit[1], 7)).max() > 0.02


def test_permuting_items_permutes_the_answer(make):
    generator = np.random.default_rng(0)
    start = generator.normal(0, 0.3, (N, D)), generator.normal(0, 0.3, (M, D))
    order = generator.permutation(M)
    shuffled = Interactions.from_csr(DATA.to_csr()[:, order], weights="values")
    straight = make().fit(DATA, init=start, fairness_weights=OWN)
    permuted = make().fit(shuffled, init=(start[0], start[1][order]), fairness_weights=OWN[order])
    np.testing.assert_allclose(scores(permuted), scores(straight)[:, order], atol=3e-4 * np.abs(scores(straight)).max())


# -- independent solutions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fairness", [0.5, 20.0])
def test_the_exact_users_solve_one_dense_system_of_all_users(fairness):
    """H_i u_i + (lambda_f / n) sum_j w_j^2 v_j v_j' t = b_i for all i at once, by loops."""
    model = paper_als(factors=D, fairness=fairness, backend="reference", solver="cholesky")
    problem = problem_for(DATA, model.lambda_f_for(N), model.get_params(), OWN)
    generator = np.random.default_rng(1)
    U, V = generator.normal(0, 0.4, (N, D)), generator.normal(0, 0.4, (M, D))
    found = als_exact.users(problem, model.start(problem, U, V), fairness).user_factors
    C, alpha0, lambda_f = dense(DATA), 0.1, fairness * 0.1 * N
    pull = sum((OWN[j] ** 2) * np.outer(V[j], V[j]) for j in range(M))
    system, right = np.kron(np.ones((N, N)), lambda_f / N**2 * pull), np.zeros(N * D)
    for i in range(N):
        part = slice(i * D, (i + 1) * D)
        ridge = 0.005 * (C[i].sum() + alpha0 * M)
        system[part, part] += sum((C[i, j] + alpha0) * np.outer(V[j], V[j]) for j in range(M)) + ridge * np.eye(D)
        right[part] = C[i] @ V
    np.testing.assert_allclose(found, np.linalg.solve(system, right).reshape(N, D), atol=1e-9)


@pytest.mark.parametrize("model", [paper_als(factors=D, fairness=1.5), IALS(factors=D), FiADMM(factors=D, epochs=20)])
def test_the_merit_direction_and_the_dial_know_the_weights(model):
    model = dataclasses.replace(model, backend="reference").fit(DATA, fairness_weights=OWN)
    U, V, C = model.user_factors, model.item_factors, dense(DATA)
    merit = 0.1 * sum(OWN[j] ** 2 * (V[j] @ U.mean(axis=0)) * V[j] for j in range(M))
    np.testing.assert_allclose(model.fitted.merit, merit, atol=2e-4 * np.abs(merit).max())
    for psi in (0.0, 3.0):
        i = 5
        matrix = (V.T * (C[i] + 0.1)) @ V + 0.005 * (C[i].sum() + 0.1 * M) * np.eye(D)
        expected = np.linalg.solve(matrix, V.T @ C[i] - psi * model.fitted.merit)
        np.testing.assert_allclose(model.with_fairness(psi).user_factors[i], expected, atol=1e-8)
    np.testing.assert_array_equal(model.with_fairness(3.0).fitted.fairness_weights, OWN)


@pytest.mark.parametrize("unobserved_weight", [0.003, *slow_values(0.1)])
@pytest.mark.parametrize("fairness", [1.0, 1e4, *slow_values(0.1, 10.0, 100.0, 1e6)])
def test_the_fast_solver_gives_the_answer_of_the_exact_one_and_never_lets_f_rise(unobserved_weight, fairness):
    data, weights = synthetic(400, 200, 8_000), random_item_weights(200)
    settings = {"factors": 16, "fairness": fairness, "unobserved_weight": unobserved_weight, "epochs": 20}
    slow = paper_als(**settings, solver="cholesky").fit(data, objective_every=20, fairness_weights=weights)
    quick = paper_als(**settings).fit(data, fairness_weights=weights)
    totals = np.array(quick.history.column("objective.total"))
    assert np.diff(totals).max() <= 2e-6 * totals[0]
    final = [m.history.final["objective"]["total"] for m in (quick, slow)]
    assert final[0] <= final[1] * 1.0005


@pytest.mark.parametrize("fairness", [1.0, *slow_values(0.1, 10.0, 100.0)])
def test_one_or_two_steps_a_row_are_enough_where_they_are_for_the_plain_term(fairness):
    data, weights = synthetic(2_000, 1_000, 80_000), random_item_weights(1_000)
    settings = {"factors": 16, "fairness": fairness, "epochs": 16}
    slow = paper_als(**settings, solver="cholesky").fit(data, objective_every=16, fairness_weights=weights)
    quick = paper_als(**settings).fit(data, fairness_weights=weights)
    assert np.diff(quick.history.column("objective.total")).max() < 0
    assert max(quick.history.column("effort")) == 0  # never done again with more steps
    assert quick.history.final["objective"]["total"] <= slow.history.final["objective"]["total"] * 1.002


@pytest.mark.slow
def test_each_method_stays_at_the_minimum_the_other_has_found():
    """There are several minima, so each starts where the other ended. F is counted by double loops."""
    data, own = Interactions(random_rows(40, 25, density=0.2), 25), random_item_weights(25)
    settings = {"factors": 3, "fairness": 2.0, "regularization": 0.05}

    def value(model):
        factors = (x.astype(float) for x in (model.user_factors, model.item_factors))
        return total(dense(data), *factors, 0.05, 1.0, 0.1, 2.0 * 0.1 * 40, item_weights=own)

    one, two = paper_als(**settings, epochs=100), FiADMM(**settings, epochs=400)
    for first, second in ((one, two), (two, one)):
        found = value(first.fit(data, fairness_weights=own, objective_every=0))
        again = dataclasses.replace(second, epochs=50).fit(data, init=first, fairness_weights=own, objective_every=0)
        assert value(again) == pytest.approx(found, rel=1e-4)
        other = dataclasses.replace(second, epochs=50).fit(data, init=first, objective_every=0)
        assert value(other) > 1.01 * found  # without the weights it is no minimum


def test_what_all_items_share_stays_in_the_shared_matrix():
    """Weights of 1 and more: the rank-one terms are only what is beyond the least weight."""
    weights = 1 + np.random.default_rng(0).random(20)
    problem, plain = (random_problem(fairness_weights=w) for w in (weights, None))
    U = problem.backend.array(np.random.default_rng(1).normal(size=(30, D)))
    s = np.linspace(-1, 1, D)
    step = problem.item_half_step(U, mean_user=s)
    least = weights.min() ** 2
    np.testing.assert_allclose(step.shared, 0.15 * U.T @ U + problem.lambda_f * least * np.outer(s, s))
    np.testing.assert_allclose(step.rank_one.weights, problem.lambda_f * (weights**2 - least))
    assert plain.item_half_step(U, mean_user=s).rank_one is None
    assert problem.item_half_step(U).rank_one is None
    equal = random_problem(fairness_weights=np.full(20, 2.0)).item_half_step(U, mean_user=s)
    assert equal.rank_one is None
    assert np.abs(equal.backend.solve(equal) - plain.backend.solve(plain.item_half_step(U, mean_user=s))).max() > 1e-3


# -- what they do ----------------------------------------------------------------------------------------------------


def shares(model, data, group, **options):
    """The group's share of all slots of every user's first 20."""
    lists = np.concatenate([items for _, items in model.rank(data, 20, known_users=True, **options)])
    return group[lists[lists >= 0]].mean()


@pytest.mark.parametrize("kind", ["popular fifth", *slow_values("any half")])
def test_the_more_a_group_weighs_the_less_it_is_shown(kind):
    data = synthetic(600, 300, 15_000)
    popularity = data.by_item.sums()
    group = (
        np.random.default_rng(0).random(300) < 0.5 if kind == "any half" else popularity > np.quantile(popularity, 0.8)
    )
    trained, dialled = [], []
    for w in (0.0, 0.5, 1.0, 2.0):
        weights = group_weights(data, group, {True: w})
        trained.append(
            shares(paper_als(factors=16, epochs=6, fairness=1.0).fit(data, fairness_weights=weights), data, group)
        )
        plain = IALS(factors=16, epochs=6).fit(data, fairness_weights=weights)
        dialled.append(shares(plain, data, group, fairness=2.0))
    assert (np.diff(trained) < -0.02).all()
    assert (np.diff(dialled) < -0.001).all()  # less: these items were not trained to be told apart by group


# -- how they are given ----------------------------------------------------------------------------------------------


def test_arrays_mappings_and_groups_say_the_same():
    by_group = group_weights(NAMED, {"a": "x", "b": "y", "c": "x", "d": "z"}, {"x": 2, "z": 0})
    assert by_group.tolist() == [2.0, 1.0, 2.0, 0.0]
    assert group_weights(NAMED.to_csr(), ["x", "y", "x", "z"], {"x": 2, "z": 0}).tolist() == by_group.tolist()
    given = [by_group, by_group.tolist(), {"d": 0, "a": 2, "c": np.float32(2)}]
    fits = [paper_als(factors=2, epochs=2).fit(NAMED, fairness_weights=w) for w in given]
    for model in fits:
        np.testing.assert_array_equal(model.fitted.fairness_weights, by_group)
        np.testing.assert_array_equal(model.user_factors, fits[0].user_factors)
    assert paper_als(factors=2, epochs=1).fit(NAMED).fitted.fairness_weights is None


def test_the_model_keeps_its_own_copy():
    weights = OWN.copy()
    model = paper_als(factors=2, epochs=1).fit(DATA, fairness_weights=weights)
    weights[:] = 7
    np.testing.assert_array_equal(model.fitted.fairness_weights, OWN)


EACH = "fairness_weights must be 4 numbers from 0 to 1e+06, one per item."


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, 3], f"{EACH} Got shape (3,) instead."),
        (np.ones((4, 1)), f"{EACH} Got shape (4, 1) instead."),
        (2.0, f"{EACH} Got shape () instead."),
        ([1, 2, -0.5, 1], f"{EACH} Got -0.5 at position 2 instead."),
        ([1, np.nan, 1, 1], f"{EACH} Got nan at position 1 instead."),
        ([1, 1, 1, np.inf], f"{EACH} Got inf at position 3 instead."),
        ([1e7, 1, 1, 1], f"{EACH} Got 10000000.0 at position 0 instead."),
        (["1", "2", "3", "4"], f"{EACH} Got "),
        ([True, False, True, True], f"{EACH} Got "),
        ([[1], [2, 3], [4], [5]], f"{EACH} Got "),
        (np.zeros(4), "fairness_weights are all 0"),
        ({"a": -1}, "1 numbers from 0 to 1e+06, one per item named. Got -1.0 at position 0"),
        ({"a": [1, 2]}, "one per item named. Got shape (1, 2)"),
        (dict.fromkeys("abcd", 0), "fairness_weights are all 0"),
    ],
)
def test_bad_weights(weights, message):
    for model in (paper_als(factors=2), IALS(factors=2), FiADMM(factors=2)):
        with pytest.raises(InvalidParameter) as error:
            model.fit(NAMED, fairness_weights=weights)
        assert message in str(error.value)


def test_items_that_are_not_there():
    with pytest.raises(InvalidData, match=r"1 of 2 fairness_weights items are unknown, the first is 'e'"):
        paper_als(factors=2).fit(NAMED, fairness_weights={"a": 1, "e": 2})
    with pytest.raises(InvalidData, match="the items have no ids: pass an array"):
        paper_als(factors=2).fit(DATA, fairness_weights={0: 2})


@pytest.mark.parametrize(
    ("groups", "weights", "message"),
    [
        (["x", "y", "x"], {"x": 1}, "groups holds 3 labels, but there are 4 items"),
        ({"a": "x"}, {"x": 1}, "groups lacks 3 items, the first is 'b'"),
        (["x", "y", "x", "y"], {"x": 1, "q": 2}, "1 of 2 groups with a weight have no item, the first is 'q'"),
        (["x", "y", "x", "y"], {"x": 0, "y": 0}, "all 0"),
        (["x", "y", "x", "y"], {"x": -1}, "one per group named. Got -1.0"),
        (["x", "y", "x", "y"], [1, 2], "weights must be a mapping from group to number. Got list instead"),
    ],
)
def test_bad_groups(groups, weights, message):
    with pytest.raises((InvalidData, InvalidParameter)) as error:
        group_weights(NAMED, groups, weights)
    assert message in str(error.value)
