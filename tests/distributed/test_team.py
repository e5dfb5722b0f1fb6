"""Test that a team retries a single exchange when workers are lost, and repeats a larger action as a whole."""

import numpy as np
import pytest
from conftest import random_rows

from fairmf.backends.random_start import Stream
from fairmf.backends.registry import get_backend
from fairmf.data.interactions import Interactions
from fairmf.distributed.backend import ShardedBackend
from fairmf.distributed.remote_arrays import UserCount
from fairmf.distributed.shards import InMemoryShards
from fairmf.distributed.team import LocalTeam
from fairmf.errors import ClusterFailed

N, D = 30, 4


@pytest.fixture
def sharded():
    team = LocalTeam(InMemoryShards(Interactions(random_rows(N, 12), 12), 3), threads=1)
    backend = ShardedBackend(team, get_backend("cpu"))
    U = backend.empty(UserCount(N), D)
    backend.draw_normal(Stream((1, 2), 0), None, 0.5, U)
    yield backend, U
    team.close()


def test_reductions_retry_where_a_worker_is_lost(sharded):
    backend, U = sharded
    mean, values = backend.mean(U), backend.host(U)
    for question in (backend.mean, backend.gramian, backend.all_finite, backend.host):
        backend.team.lose(1)
        question(U)
        assert len(backend.team.workers) == 3
    np.testing.assert_array_equal(backend.mean(U), mean)
    np.testing.assert_array_equal(backend.host(U), values)


def test_an_action_is_repeated_as_a_whole(sharded):
    backend, U = sharded
    expected, attempts = 2 * backend.host(U), []

    def double():
        """Twice U, in new factors that nobody could make again by themselves."""
        attempts.append(len(attempts))
        twice = backend.empty(*U.shape)
        backend.multiply(U, 2 * np.eye(D), twice)
        backend.mean(twice)
        if len(attempts) == 1:
            backend.team.lose(2)
        return backend.host(twice)

    np.testing.assert_allclose(backend.team.again(double), expected, rtol=1e-6)
    assert attempts == [0, 1]


def test_it_gives_up_where_workers_are_lost_all_the_time(sharded):
    backend, U = sharded

    def hopeless():
        backend.team.lose(0)
        return backend.mean(U)

    with pytest.raises(ClusterFailed, match="lost 10 times in a row"):
        backend.team.again(hopeless)
    backend.team._replace_lost()
