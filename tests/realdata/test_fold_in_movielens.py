"""Fold-in on MovieLens-1M: training users are their own fold-in, by conjugate gradients as by Cholesky."""

import numpy as np
import pytest
from conftest import load_real_split

from fairmf.backends import solve
from fairmf.models.als import FairALS
from fairmf.models.problem import problem_for

pytestmark = [pytest.mark.slow, pytest.mark.realdata]


@pytest.mark.parametrize("unobserved_weight", [0.1, 0.003])
def test_training_users_come_out_as_they_are_stored(unobserved_weight):
    train, _ = load_real_split("ml-1m-split.npz")
    model = FairALS(factors=64, unobserved_weight=unobserved_weight, fairness=1.0).fit(train)
    stored = model.user_factors
    size = np.abs(stored).max()
    step = problem_for(train, 0.0, model.fitted.settings).user_half_step(model.item_factors)
    assert solve.pcg_pays(step)
    np.testing.assert_allclose(model.fold_in(train), stored, atol=1e-3 * size)
    np.testing.assert_allclose(model.fold_in(train, method="cohort"), stored, atol=1e-3 * size)
    for user in (0, 777, 4033):  # alone, by Cholesky
        np.testing.assert_allclose(model.fold_in_user(train.by_user.row(user)[0]), stored[user], atol=1e-3 * size)
