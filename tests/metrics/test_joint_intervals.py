"""Intervals of metrics that are not functions of exposure, against resamples that are evaluated one by one; envy."""

import numpy as np
import pytest
from naive import fair_metrics as fair
from ranked_lists import held_out_of, matrix, random_case

from fairmf.data.split import HeldOut
from fairmf.metrics.bootstrap import draw_weights, interval
from fairmf.metrics.evaluate import evaluate_lists
from fairmf.metrics.registry import parse_metric
from fairmf.metrics.user_metrics import ENVIED

NAMES = (
    "popularity_lift", "jme_ai", "jme_ag", "jme_gi", "jme_gg", "jme_ig", "ee_loss", "user_gini", "worst25_utility",
    "awrf", "ild", "aplt", "map", "recall_all",
)  # fmt: skip
LABELS = [f"{name}@4" for name in NAMES]


def test_intervals_are_those_of_resampled_users():
    lists, targets, train = random_case(11, n_users=14, n_items=16)
    random = np.random.default_rng(0)
    histories = [{j for j in range(16) if random.random() < 0.3} - wanted for wanted in targets]
    codes, labels, features = random.integers(0, 3, 16), random.integers(0, 6, 14), random.random((16, 3))
    options = {"train": matrix(train, 16), "groups": codes, "features": features, "metrics": LABELS}

    def measured(rows, **more):
        held_out = HeldOut(matrix([histories[i] for i in rows], 16), matrix([targets[i] for i in rows], 16))
        return evaluate_lists(lists[rows], held_out, user_groups=labels[rows], **options, **more)

    found = measured(np.arange(14), bootstrap=25, random_state=3, confidence=0.8)
    # Some resamples hold no user of one of the small groups, which is then left out.
    drawn = np.concatenate(list(draw_weights(14, 25, 16, 3)), axis=1).astype(int)
    resamples = [measured(np.repeat(np.arange(14), weights), bootstrap=0) for weights in drawn.T]
    for label in LABELS:
        wanted = parse_metric(label)
        replicates = np.array([resample[label] for resample in resamples])
        shift = {} if wanted.is_mean else {"centre": found[label], "lowest": wanted.lowest, "highest": wanted.highest}
        assert found.intervals[label] == pytest.approx(interval(replicates, 0.8, **shift)), label


def test_envy_of_many_users_is_that_of_a_sample():
    n = ENVIED + 50
    lists, targets, _ = random_case(5, n_users=n, n_items=20)
    found = evaluate_lists(lists, held_out_of(targets, 20), metrics=["envy@6"], bootstrap=0)
    chosen = np.sort(np.random.default_rng(0).choice(n, ENVIED, replace=False))
    for u in range(n):
        if not targets[u]:
            assert np.isnan(found.per_user["envy@6"][u])
            continue
        ideal = fair.dcg(sorted(targets[u]), targets[u], 6)
        own = fair.dcg(lists[u].tolist(), targets[u], 6)
        more = [max(0, fair.dcg(lists[v].tolist(), targets[u], 6) - own) / ideal for v in chosen if v != u]
        assert found.per_user["envy@6"][u] == pytest.approx(np.mean(more), abs=1e-12)
