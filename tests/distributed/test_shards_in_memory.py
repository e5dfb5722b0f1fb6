"""Test that shards in memory hold every user once, in order, with all interactions."""

import numpy as np
import pytest
from conftest import random_rows
from hypothesis import example, given
from hypothesis import strategies as st

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.distributed.remote_arrays import levels, total
from fairmf.distributed.shards import InMemoryShards, ShardSource


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 5))
@example(35, 33, False, 0)
def test_shards_together_are_the_interactions(n, shards, weighted, seed):
    data = Interactions(random_rows(n, 7, 0.3, weighted, seed), 7, Ids([f"u{i}" for i in range(n)]))
    source = InMemoryShards(data, min(shards, n))
    parts = [source.load(number) for number in range(source.shards)]
    np.testing.assert_array_equal(np.concatenate([part.users for part in parts]), np.arange(n))
    assert all(len(part.users) for part in parts), "a shard is empty"
    for part in parts:
        for row, user in enumerate(part.users):
            for own, whole in zip(part.rows.row(row), data.by_user.row(user), strict=True):
                np.testing.assert_array_equal(own, whole)
        assert part.user_ids.values.tolist() == [f"u{i}" for i in part.users]
    np.testing.assert_allclose(source.popularity, data.by_item.sums(), rtol=1e-6)


def test_shards_have_about_equally_many_interactions():
    counts = np.sort(np.random.default_rng(0).pareto(1.5, 5000) * 20).astype(int) % 900 + 1
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    rows = random_rows(5, 5)._replace(indptr=indptr, indices=np.zeros(indptr[-1], np.int32), weights=None)
    source = InMemoryShards(Interactions(rows, 1), 6)
    sizes = [source.load(k).rows.nnz + 8 * len(source.load(k).users) for k in range(6)]
    assert max(sizes) / min(sizes) < 1.2


def test_it_is_a_source_and_interactions_are_not():
    data = Interactions(random_rows(5, 4), 4)
    assert isinstance(InMemoryShards(data, 2), ShardSource)
    assert not isinstance(data, ShardSource)
    assert InMemoryShards(data, 2).fingerprint() == data.fingerprint()


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 8, 13, 256])
def test_the_tree_adds_every_part_once_and_ends_in_the_first(shards):
    sums = [{k} for k in range(shards)]
    for level in levels(shards):
        assert len({s for pair in level for s in pair}) == 2 * len(level), "a shard is busy twice in a level"
        for into, other in level:
            assert not sums[into] & sums[other]
            sums[into] |= sums[other]
    assert sums[0] == set(range(shards))
    assert len(levels(shards)) == int(np.ceil(np.log2(shards)))
    assert total(list(range(shards))) == shards * (shards - 1) // 2
