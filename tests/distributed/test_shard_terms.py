"""Test features of users and dislikes over shards against the same fit in one process."""

import numpy as np
import pytest
import scipy.sparse as sp
from in_process import InProcess, objective_of, scores_of

from fairmf import IALS, FairALS, Interactions, synthetic

SETTINGS = {"factors": 5, "fairness": 0.5, "regularization": 0.03, "epochs": 5}
FEATURES = {
    "users": {"user_features": sp.random(90, 7, 0.4, format="csr", random_state=1)},
    "both": {
        "user_features": sp.random(90, 7, 0.4, format="csr", random_state=1),
        "item_features": sp.random(50, 9, 0.3, format="csr", random_state=2),
    },
    "none": {},
}


def interactions(dislikes):
    """90 users, of whom every ninth has no interaction; every fifth entry may be a dislike."""
    made = synthetic(n_users=90, n_items=50, n_interactions=1500).to_csr().astype(np.float32)
    made.data[:] = 1 + np.arange(made.nnz) % 3
    if dislikes:
        made.data[::5] *= -1
    made = made.tolil()
    made[::9] = 0
    return Interactions.from_csr(made.tocsr(), weights="values")


@pytest.mark.parametrize(("features", "dislikes"), [("users", False), ("both", True), ("none", True), ("users", True)])
def test_shards_agree_with_one_process(features, dislikes):
    data, given = interactions(dislikes), FEATURES[features]
    assert (data.n_dislikes > 0) == dislikes
    local = FairALS(**SETTINGS).fit(data, progress=False, **given)
    cluster = InProcess(shards=3, gather_users=True)
    model = FairALS(**SETTINGS, engine="ray").fit(data, cluster=cluster, progress=False, **given)
    for k, (one, other) in enumerate(zip(model.history.records, local.history.records, strict=True)):
        assert one["objective"] == pytest.approx(other["objective"], rel=2e-4), k
    assert objective_of(model) == pytest.approx(objective_of(local), rel=1e-5)
    np.testing.assert_allclose(scores_of(model), scores_of(local), atol=2e-3)
    plain = FairALS(**SETTINGS).fit(data.liked(), progress=False)
    assert np.abs(scores_of(model) - scores_of(plain)).max() > 0.02  # what is tested makes a difference
    if "user_features" in given:
        side, expected = model.fitted.user_features, local.fitted.user_features
        np.testing.assert_array_equal(side.counted, expected.counted)
        np.testing.assert_allclose(
            side.predicted() @ model.item_factors.T, expected.predicted() @ local.item_factors.T, atol=3e-3
        )
        new = np.flatnonzero(~side.counted)
        assert len(new) == 10
        assert np.abs(model.user_factors[new]).max() > 0
    np.testing.assert_array_equal(model.fitted.popularity, local.fitted.popularity)
    np.testing.assert_array_equal(model.fitted.item_dial.counts, local.fitted.item_dial.counts)


def test_the_number_of_shards_makes_no_difference():
    data, given = interactions(True), FEATURES["both"]
    models = [IALS(factors=4, epochs=4, engine="ray").fit(data, cluster=InProcess(shards=k, gather_users=True), **given)
              for k in (1, 4)]  # fmt: skip
    assert objective_of(models[0]) == pytest.approx(objective_of(models[1]), rel=1e-5)
    np.testing.assert_allclose(scores_of(models[0]), scores_of(models[1]), atol=1e-3)


@pytest.mark.parametrize("before_the_end", [10, 20])
def test_a_worker_that_is_lost_gets_its_features_and_dislikes_back(before_the_end):
    """Lost near the end, its users are solved anew: what follows could hardly make up for a term that they lack."""
    data, given = interactions(True), FEATURES["users"]
    settings = SETTINGS | {"epochs": 12}
    first = InProcess(shards=2, gather_users=True)
    whole = FairALS(**settings, engine="ray").fit(data, cluster=first, **given)
    cluster = InProcess(shards=2, gather_users=True, loses={first.teams[0].exchanges - before_the_end: 1})
    model = FairALS(**settings, engine="ray").fit(data, cluster=cluster, **given)
    assert cluster.teams[0].replaced == 1
    assert objective_of(model) == pytest.approx(objective_of(whole), rel=1e-3)
