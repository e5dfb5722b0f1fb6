"""Exposure offsets on MovieLens-1M's public split: what they leave of Recall@20 at the Gini@20 asked for."""

import numpy as np
import pytest
from conftest import load_real_split

from fairmf.control.fit_offsets import fit_offsets
from fairmf.data.split import HeldOut
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import FairALS

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


@pytest.mark.parametrize(
    ("learned_on", "balance", "floor", "recall", "gini"),
    [("training", 0.25, 0.36, 0.285, 0.70), ("cohort", 0.0, 0.17, 0.32, 0.75)],
)
def test_recall_at_that_inequality(learned_on, balance, floor, recall, gini):
    train, parts = load_real_split("ml-1m-split.npz")
    held_out = HeldOut(*parts["validation"])  # none of its users is in the training data
    settings = {"factors": 64, "regularization": 0.01, "unobserved_weight": 0.1, "fairness": 1.0}
    model = FairALS(**settings, item_balance=balance, user_balance=balance).fit(train, progress=False)
    made = fit_offsets(
        model, K=20, min_exposure=floor, cohort=held_out if learned_on == "cohort" else None, progress=False
    )
    found = evaluate(made.model, held_out, metrics=("recall@20", "gini@20"), bootstrap=0)
    assert found["recall@20"] >= recall
    assert found["gini@20"] <= gini
    # What is missing is little more than that a floor lies between two whole numbers of users.
    users = len(model.user_factors) if learned_on == "training" else held_out.fold_in.n_users
    uniform = 20 * users / model.n_items
    rounded = floor - np.floor(floor * uniform) / uniform
    assert made.violations["missing_exposure"] < 0.03 * floor + rounded
