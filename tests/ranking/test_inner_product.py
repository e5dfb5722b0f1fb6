"""The reduction of the largest inner product to the nearest neighbour, by its definition."""

import numpy as np
import pytest

from fairmf.ranking.ann import reduce_items, reduce_users


@pytest.mark.parametrize("with_offsets", [False, True])
def test_nearest_in_the_reduced_space_is_largest_inner_product(with_offsets):
    random = np.random.default_rng(0)
    items = random.normal(size=(60, 5)).astype(np.float32) * random.gamma(1, 2, size=(60, 1)).astype(np.float32)
    users = random.normal(size=(40, 5)).astype(np.float32)
    offsets = random.normal(0, 3, size=60).astype(np.float32) if with_offsets else None
    x, radius = reduce_items(items, offsets)
    y, scale = reduce_users(users, radius, with_offsets)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), radius, rtol=1e-6)
    for i in range(40):
        scores = [float(users[i] @ items[j]) + (float(offsets[j]) if with_offsets else 0.0) for j in range(60)]
        distances = [float(((y[i].astype(float) - x[j]) ** 2).sum()) for j in range(60)]
        assert np.argmin(distances) == np.argmax(scores)
        np.testing.assert_allclose(y[i] @ x.T / scale[i], scores, rtol=1e-4, atol=1e-4)


def test_users_end_near_the_sphere_and_scaling_is_exact():
    users = np.random.default_rng(1).normal(size=(50, 4)) * np.logspace(-9, 9, 50)[:, None]
    y, scale = reduce_users(users, 3.0, with_offsets=False)
    norms = np.linalg.norm(y.astype(float), axis=1)
    assert norms.min() >= 3 / 1.42
    assert norms.max() <= 3 * 1.42
    assert np.array_equal(np.log2(scale), np.round(np.log2(scale)))
    np.testing.assert_array_equal(y[:, :4] / scale[:, None], users.astype(np.float32))


def test_zero_vectors_stay_zero():
    assert reduce_items(np.zeros((3, 2), np.float32), None)[0].tolist() == [[0, 0, 0]] * 3
    assert reduce_users(np.zeros((1, 2)), 1.0, with_offsets=False)[0].tolist() == [[0, 0, 0]]
    assert reduce_users(np.ones((1, 2)), 0.0, with_offsets=False)[0].tolist() == [[1, 1, 0]]
