"""Test a fit with features and dislikes on workers of a real Ray cluster against the same fit in one process."""

import numpy as np
import pytest
import scipy.sparse as sp
from in_process import objective_of

from fairmf import FairALS, Interactions, synthetic
from fairmf.distributed.cluster import RayCluster

SETTINGS = {"factors": 6, "fairness": 0.5, "regularization": 0.03, "item_balance": 0.3, "epochs": 6}


@pytest.fixture(scope="module")
def data():
    """80 items, of which every tenth has lost its users."""
    made = synthetic(n_users=120, n_items=80, n_interactions=2500).to_csr().tolil()
    made[:, ::10] = 0
    return Interactions.from_csr(made.tocsr())


@pytest.fixture(scope="module")
def features():
    return sp.random(80, 12, 0.3, format="csr", random_state=2)


def assert_same_model(model, local):
    assert objective_of(model) == pytest.approx(objective_of(local), rel=1e-5)
    scores, expected = (m.user_factors @ m.item_factors.T for m in (model, local))
    np.testing.assert_allclose(scores, expected, atol=2e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_item_features_agree_with_one_process(data, features):
    cluster = RayCluster(shards=2, gather_users=True)
    model = FairALS(**SETTINGS, engine="ray").fit(data, item_features=features, cluster=cluster)
    local = FairALS(**SETTINGS).fit(data, item_features=features)
    assert_same_model(model, local)
    cold = np.arange(0, 80, 10)
    assert not model.fitted.item_features.counted[cold].any()
    assert np.abs(model.item_factors[cold]).max() > 0
    np.testing.assert_allclose(
        model.fitted.item_features.predicted()[cold], model.item_factors[cold], rtol=1e-5, atol=1e-7
    )


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_user_features_and_dislikes_agree_with_one_process():
    made = synthetic(n_users=120, n_items=80, n_interactions=2500).to_csr().astype(np.float32)
    made.data[::6] = -1.5
    data, users = Interactions.from_csr(made, weights="values"), sp.random(120, 9, 0.3, format="csr", random_state=3)
    cluster = RayCluster(shards=2, gather_users=True)
    model = FairALS(**SETTINGS, engine="ray").fit(data, user_features=users, cluster=cluster)
    local = FairALS(**SETTINGS).fit(data, user_features=users)
    assert_same_model(model, local)
