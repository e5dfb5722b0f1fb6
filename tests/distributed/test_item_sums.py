"""Test the shards' partial sums for items, and the items' step, against double loops and the reference backend."""

import numpy as np
import pytest
from conftest import random_item_weights, random_rows
from hypothesis import given
from hypothesis import strategies as st

from fairmf.backends.contract import Effort, HalfStep, RankOne
from fairmf.backends.registry import get_backend
from fairmf.data.csr import transpose
from fairmf.data.interactions import Interactions
from fairmf.distributed.backend import ShardedBackend
from fairmf.distributed.partial_sums import ByItem, ByUser
from fairmf.distributed.remote_arrays import ITEMS, Given, ShardedFactors, ShardedRows
from fairmf.distributed.shards import InMemoryShards
from fairmf.distributed.team import LocalTeam


def naive_sums(rows, U, V, target):
    """sum_i c_ij (target - v_j.u_i) u_i and sum_i c_ij (target - v_j.u_i)^2 of every item, entry by entry."""
    sums, squares = np.zeros(V.shape), np.zeros(len(V))
    for i in range(rows.count):
        columns, weights = rows.row(i)
        for e, j in enumerate(columns):
            miss = target - float(V[j].astype(float) @ U[i].astype(float))
            c = 1.0 if weights is None else float(weights[e])
            sums[j] += c * miss * U[i]
            squares[j] += c * miss**2
    return sums, squares


@given(st.integers(2, 40), st.integers(1, 30), st.integers(1, 11), st.booleans(), st.integers(0, 99))
def test_partial_sums_are_those_of_a_double_loop(n, m, d, weighted, seed):
    rows = random_rows(n, m, 0.4, weighted, seed)
    generator = np.random.default_rng(seed)
    U, V = (generator.normal(0, 0.5, size=(k, d)).astype(np.float32) for k in (n, m))
    residual, squares = naive_sums(rows, U, V, 1.0)
    product, curvature = naive_sums(rows, U, V, 0.0)
    for way in (ByUser(rows, m), ByItem(get_backend("cpu"), rows, m)):
        sums, loss = way.residual(U, V)
        np.testing.assert_allclose(sums, residual, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(loss, squares.sum(), rtol=1e-5)
        np.testing.assert_allclose(way.product(U, V), -product, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(way.curvature(U, V), curvature, rtol=2e-4, atol=2e-5)


def test_partial_sums_have_the_same_bits_for_any_number_of_threads():
    rows, backend = random_rows(400, 300, 0.2), get_backend("cpu")
    generator = np.random.default_rng(0)
    U, V = (generator.normal(0, 0.5, size=(k, 20)).astype(np.float32) for k in (400, 300))
    found = []
    for threads in (1, 2):
        with backend.threads(threads):
            way = ByUser(rows, 300)
            found.append((*way.residual(U, V), way.product(U, V), way.curvature(U, V)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def items_improved(rows, U, V, shards, backend, terms, effort):
    """The items' rows after conjugate gradient steps over shards, and their sums."""
    local = get_backend(backend)
    team = LocalTeam(InMemoryShards(Interactions(rows, len(V)), shards), backend, threads=1)
    sharded = ShardedBackend(team, local)
    users = ShardedFactors(team, U.shape[1], local.dtype, Given(local.array(U)))
    team.make(users)
    this = local.array(V).copy()
    sums = sharded.improve(HalfStep(sharded, ShardedRows(team, ITEMS), users, *terms), this, effort)
    return this, sums


CASES = [(1, 0.0, 1.3), (2, 0.0, 1.3), (3, 0.0, 1.0), (40, 1e-3, 1.0)]


@pytest.mark.parametrize(("steps", "tolerance", "relaxation"), CASES)
@pytest.mark.parametrize("pulled", [False, True], ids=["", "rank_one"])
@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_items_step_over_shards_is_that_of_one_machine(
    shards, name, pulled, steps, tolerance, relaxation, weighted
):
    n, m, d = 50, 24, 7
    rows = random_rows(n, m, 0.3, weighted, seed=3)
    rows = rows._replace(indices=np.where(rows.indices == 5, 6, rows.indices)[: rows.nnz])  # item 5 has no entries
    rows = Interactions.from_csr(rows.to_csr(np.ones(rows.nnz) if rows.weights is None else rows.weights, m),
                                 weights="values").by_user  # fmt: skip
    generator = np.random.default_rng(4)
    U, V = (generator.normal(0, 0.5, size=(k, d)) for k in (n, m))
    diagonal, ridge, shift = generator.random(d) + 0.1, generator.random(m) + 0.2, 0.1 * generator.random(d)
    rank_one = RankOne(generator.normal(size=d), random_item_weights(m)) if pulled else None
    expected = V.copy()
    terms, effort = (diagonal, ridge, shift, rank_one), Effort(steps, tolerance, relaxation)
    reference = get_backend("reference")
    sums = reference.improve(HalfStep(reference, transpose(rows, m), U, *terms), expected, effort)
    found, own = items_improved(rows, U, V, shards, name, terms, effort)
    loose = {"reference": 1e-9, "cpu": 2e-3 if tolerance else 2e-4}[name]
    np.testing.assert_allclose(found, expected, rtol=loose, atol=loose)
    np.testing.assert_allclose(own, sums, rtol=10 * loose)
