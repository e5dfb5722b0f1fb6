"""Test metrics of cold items against loops, and their place in `evaluate`."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fairmf import (
    EASE,
    IALS,
    EarlyStopping,
    HeldOut,
    Interactions,
    Popularity,
    compare,
    evaluate,
    evaluate_lists,
    evaluate_shards,
    split_by_item,
    synthetic,
)
from fairmf.cli.progress import _Watched
from fairmf.distributed.shards import InMemoryShards
from fairmf.distributed.task_pool import InProcess
from fairmf.errors import InvalidData, InvalidParameter

AMONG = ["recall_among_cold", "recall_among_warm"]


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


@pytest.fixture(scope="module")
def model(split):
    numbers = np.random.default_rng(1).normal(size=(60, 6))  # all different, so that no two items tie
    return IALS(factors=8, epochs=3).fit(split.train, item_features=numbers, progress=False)


def loops(model, split, K, cold):
    """Rank the cold (or the warm) items alone for every user, and look for held-out ones in the first K."""
    popularity = np.bincount(split.train.by_user.indices, minlength=60)
    recalls = []
    for i in range(80):
        had = set(split.train.by_user.row(i)[0].tolist())
        wanted = {j for j in split.test.targets.by_user.row(i)[0].tolist() if (popularity[j] == 0) == cold}
        if wanted:
            scores = {j: float(model.user_factors[i] @ model.item_factors[j]) for j in range(60)
                      if j not in had and (popularity[j] == 0) == cold}  # fmt: skip
            by = scores if had else popularity  # a user without history gets popular items
            best = sorted(scores, key=lambda j: -by[j])[:K]
            recalls.append(len(wanted & set(best)) / min(K, len(wanted)))
    return recalls


@pytest.mark.parametrize("K", [3, 5, 100])
def test_recall_among_cold_and_warm_items_is_that_of_loops(split, model, K):
    found = evaluate(model, split.test, train=split.train, at=K, metrics=[*AMONG, "cold_recall", "recall"])
    for name, cold in zip(AMONG, (True, False), strict=True):
        expected = loops(model, split, K, cold)
        each = found.per_user[f"{name}@{K}"]
        np.testing.assert_allclose(each[np.isfinite(each)], expected)
        assert found[f"{name}@{K}"] == pytest.approx(np.mean(expected))
        low, high = found.intervals[f"{name}@{K}"]
        assert low <= found[f"{name}@{K}"] <= high
    if K < 12:  # among fewer items, more of the cold ones are found
        assert found[f"recall_among_cold@{K}"] > found[f"cold_recall@{K}"]
    else:  # every item has a place
        assert found[f"recall_among_cold@{K}"] == found[f"recall_among_warm@{K}"] == 1


def test_a_split_by_item_gives_them_by_default(split, model):
    found = evaluate(model, split.test, train=split.train, at=5, bootstrap=0)
    popularity = np.bincount(split.train.by_user.indices, minlength=60)
    assert {"recall@5", "recall_among_cold@5", "cold_recall@5", "cold_share@5", "cold_lift@5"} <= found.values.keys()
    assert (found.n_cold, found.n_items) == (int((popularity == 0).sum()), 60) == (24, 60)
    assert found.to_dict()["n_cold"] == 24
    assert evaluate(model, split.test, at=5, bootstrap=0).n_cold is None
    assert "recall_among_warm@5" in evaluate(model, split.test, train=split.train, at=5, metrics="all", bootstrap=0)
    stopping = EarlyStopping(split.test, "recall_among_cold@5", train=split.train)
    watched = _Watched(model, lambda *_: None)  # as the command line passes it
    assert stopping._score(watched) == found["recall_among_cold@5"]


def test_levels_and_candidates_are_kept_in_the_second_ranking(split, model):
    cold = np.flatnonzero(np.bincount(split.train.by_user.indices, minlength=60) == 0)
    names = ["recall_among_cold", "cold_recall", "cold_share"]
    options = {"train": split.train, "at": 3, "metrics": names, "bootstrap": 0}
    alone = evaluate(model, split.test, items=cold, **options)
    assert alone["recall_among_cold@3"] == alone["cold_recall@3"]
    assert alone["cold_share@3"] == 1
    some = evaluate(model, split.test, items=np.delete(cold, [0, 1]), **options)
    assert some["recall_among_cold@3"] == some["cold_recall@3"]
    assert some.exposure[3][cold[:2]].sum() == 0
    even = evaluate(model, split.test, evenness=1.0, **options)
    assert even.values == evaluate(model.with_evenness(1.0), split.test, **options).values
    with pytest.raises(InvalidData, match="60"):
        next(iter(model.rank(split.train, 3, known_users=True, items=[60])))


def test_shards_and_comparisons_have_them_too(split, model):
    parts = [InMemoryShards(part, 3) for part in (split.train, split.test.targets)]
    options = {"at": 5, "metrics": [*AMONG, "cold_recall", "cold_share", "recall"]}
    found = evaluate_shards(model, *parts, train=parts[0], tasks=InProcess(), **options)
    whole = evaluate(model, HeldOut(split.train, split.test.targets), train=split.train, bootstrap=0, **options)
    assert found.n_cold == 24
    for label, value in whole.values.items():
        assert found[label] == pytest.approx(value, rel=1e-12), label
    both = {"features": model, "popular": Popularity().fit(split.train)}
    tested = compare(both, split.test, train=split.train, metrics=["recall_among_cold@5"], resamples=50)
    known = evaluate(model, split.test, train=split.train, at=5, metrics=["recall_among_cold"], bootstrap=0)
    assert tested.values["recall_among_cold@5"]["features"] == known["recall_among_cold@5"]


def test_lists_and_models_that_rank_all_items_say_so(split):
    lists = np.tile(np.arange(5), (80, 1))
    with pytest.raises(InvalidParameter, match="needs a model that can rank some of the items alone"):
        evaluate_lists(lists, split.test, train=split.train, metrics=["recall_among_cold@5"])
    found = evaluate(EASE().fit(split.train), split.test, train=split.train, at=5, bootstrap=0)
    assert "cold_recall@5" in found
    assert "recall_among_cold@5" not in found


def test_items_with_features_count_even_where_none_is_held_out(split, model):
    targets, popularity = split.test.targets.to_csr(), np.bincount(split.train.by_user.indices, minlength=60)
    warm = sp.csr_array(targets.multiply(popularity > 0))
    warm.eliminate_zeros()
    ids = {"user_ids": split.train.user_ids.values, "item_ids": split.train.item_ids.values}
    held_out = HeldOut(split.train, Interactions.from_csr(warm, **ids), True)
    found = evaluate(model, held_out, train=split.train, at=5, bootstrap=0)
    assert "cold_share@5" in found
    assert "cold_recall@5" not in found
    plain = IALS(factors=4, epochs=1).fit(split.train, progress=False)
    assert "cold_share@5" not in evaluate(plain, held_out, train=split.train, at=5, bootstrap=0)


def test_without_cold_targets_there_are_no_cold_metrics(split):
    warm = evaluate_lists(np.zeros((80, 1), dtype=int), split.test, at=1, bootstrap=0)
    assert "cold_share@1" not in warm
