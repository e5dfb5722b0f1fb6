"""Fairness weights in updates and cohorts: the systems that training solves, written out."""

import numpy as np
import scipy.sparse as sp
from conftest import paper_als

from fairmf.data.interactions import Interactions


def ones(shape, generator, density):
    return sp.csr_array(sp.random(*shape, density, random_state=generator, data_rvs=np.ones))


def test_items_keep_their_fairness_weights_and_new_ones_have_weight_1():
    """With every item solved anew from the users as they are, F's gradient in V is zero, weights and all."""
    generator = np.random.default_rng(3)
    matrix = ones((60, 20), generator, 0.3)
    weights = generator.uniform(0, 3, 20)
    settings = {"factors": 5, "fairness": 2.0, "unobserved_weight": 0.2, "backend": "reference", "epochs": 3}
    model = paper_als(**settings).fit(Interactions.from_csr(matrix), fairness_weights=weights)
    U, lambda_f = model.user_factors, 2.0 * 0.2 * 60
    t = U.mean(axis=0)
    added = ones((2, 60), generator, 0.3)
    given = sp.vstack([matrix.T.tocsr()[[3, 7]], added]).tocsr()
    model.partial_fit_items([3, 7, 20, 21], given)
    np.testing.assert_allclose(model.fitted.fairness_weights, [*weights, 1.0, 1.0])
    dense_rows = given.toarray()
    for row, j, w in ((0, 3, weights[3]), (1, 7, weights[7]), (2, 20, 1.0), (3, 21, 1.0)):
        c = dense_rows[row]
        H = (U.T * c) @ U + 0.2 * U.T @ U + lambda_f * w**2 * np.outer(t, t)
        H += settings.get("regularization", 0.005) * (c.sum() + 0.2 * 60) * np.eye(5)
        np.testing.assert_allclose(model.item_factors[j], np.linalg.solve(H, U.T @ c), atol=1e-7)
    V, w = model.item_factors, model.fitted.fairness_weights
    # q1 follows V: what it was, less what the two replaced items gave, more what all four give now.
    np.testing.assert_allclose(model.fitted.merit, 0.2 * (V.T * w**2) @ (V @ model.fitted.mean_user), rtol=2e-3)


def test_a_cohort_is_folded_in_with_the_weights_of_training():
    generator = np.random.default_rng(4)
    matrix = ones((50, 12), generator, 0.4)
    weights = generator.uniform(0, 3, 12)
    settings = {"factors": 4, "fairness": 2.0, "unobserved_weight": 0.2, "backend": "reference", "epochs": 3}
    model = paper_als(**settings).fit(Interactions.from_csr(matrix), fairness_weights=weights)
    U, V = model.fold_in(matrix, method="cohort"), model.item_factors
    t, dense_rows = U.mean(axis=0), matrix.toarray()
    q = 2.0 * 0.2 * (V.T * weights**2) @ V @ t
    for i in range(50):
        c = dense_rows[i]
        H = (V.T * c) @ V + 0.2 * V.T @ V + 0.005 * (c.sum() + 0.2 * 12) * np.eye(4)
        np.testing.assert_allclose(H @ U[i], V.T @ c - q, atol=1e-8)
