"""Test metrics of cold items against loops, and their place in `evaluate`."""

import numpy as np
import pandas as pd
import pytest

from fairmf import IALS, evaluate, evaluate_lists, split_by_item, synthetic


@pytest.fixture(scope="module")
def split():
    return split_by_item(synthetic(n_users=80, n_items=60, n_interactions=1500), cold_share=0.2)


def test_metrics_are_those_of_loops(split):
    K, lists = 5, np.random.default_rng(0).permuted(np.tile(np.arange(60), (80, 1)), axis=1)[:, :7]
    lists[3, 2:] = -1
    found = evaluate_lists(lists, split.test, train=split.train, at=K, bootstrap=0)
    popularity = np.bincount(split.train.by_user.indices, minlength=60)
    shown = [item for row in lists for item in row[:K] if item >= 0]
    share = sum(popularity[item] == 0 for item in shown) / len(shown)
    recalls = []
    for i in range(80):
        wanted = {j for j in split.test.targets.by_user.row(i)[0].tolist() if popularity[j] == 0}
        if wanted:
            recalls.append(len(wanted & set(lists[i, :K].tolist())) / min(K, len(wanted)))
    assert found[f"cold_share@{K}"] == pytest.approx(share)
    assert found[f"cold_lift@{K}"] == pytest.approx(share / np.mean(popularity == 0))
    assert found[f"cold_recall@{K}"] == pytest.approx(np.mean(recalls))
    assert 0 < found[f"cold_recall@{K}"] < 1


def test_features_bring_cold_items_into_lists(split):
    """Items of one group of tastes: the feature says which, so that cold items can be found."""
    data = split.train
    items = pd.DataFrame({"item_id": data.item_ids.values, "code": [f"c{j % 5}" for j in range(60)]})
    settings = {"factors": 8, "epochs": 5, "regularization": 0.01}
    plain = IALS(**settings).fit(data, progress=False)
    known = IALS(**settings).fit(data, item_features=items, progress=False)
    before, after = (evaluate(m, split.test, train=data, at=10, bootstrap=0) for m in (plain, known))
    assert before["cold_share@10"] < 0.05
    assert after["cold_share@10"] > before["cold_share@10"] + 0.05


def test_without_cold_targets_there_are_no_cold_metrics(split):
    warm = evaluate_lists(np.zeros((80, 1), dtype=int), split.test, at=1, bootstrap=0)
    assert "cold_share@1" not in warm
