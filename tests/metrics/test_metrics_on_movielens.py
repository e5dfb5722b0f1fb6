"""Popularity on MovieLens-1M, scored by fairmf and by the double loops."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from naive import fair_metrics as fair
from naive import metrics as naive

from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.metrics.compare import compare
from fairmf.metrics.evaluate import evaluate, evaluate_lists

DATA = Path(os.environ.get("FAIRMF_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data"))
FILE = DATA / "ml-1m-split.npz"

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not FILE.exists(), reason=f"needs {FILE.name} (set FAIRMF_DATA to its folder)"),
]


class Popular:
    """Everybody gets the most popular items that are not in the history, ties by index."""

    def __init__(self, train):
        self.n_items = train.n_items
        popularity = np.bincount(train.by_user.indices, minlength=train.n_items)
        self.order = np.argsort(-popularity, kind="stable")

    def rank(self, history, N, *, known_users=False):
        for first in range(0, history.n_users, 300):
            rows = history.by_user.block(first, min(first + 300, history.n_users))
            lists = [self.order[~np.isin(self.order, rows.row(i)[0])][:N] for i in range(rows.count)]
            yield first, np.array(lists, dtype=np.int32)


@pytest.fixture(scope="module")
def split():
    arrays = np.load(FILE)

    def matrix(name):
        rows = Rows(arrays[f"{name}_indptr"], arrays[f"{name}_indices"], None)
        return Interactions(rows, int(arrays[f"{name}_shape"][1]))

    parts = [HeldOut(matrix(f"{part}_tr"), matrix(f"{part}_te")) for part in ("validation", "test")]
    return Split(matrix("train"), *parts)


def test_popularity_agrees_with_the_double_loops(split):
    model, part = Popular(split.train), split.test
    result = evaluate(model, part, at=(20, 50, 100), metrics="all", train=split.train, bootstrap=100)
    lists = np.concatenate([items for _, items in model.rank(part.fold_in, 100)]).tolist()
    targets = [set(part.targets.by_user.row(i)[0].tolist()) for i in range(part.n_users)]
    popularity = np.bincount(split.train.by_user.indices, minlength=split.train.n_items).tolist()
    for K in (20, 100):
        for name, value in naive.accuracy(lists, targets, K).items():
            assert result[f"{name}@{K}"] == pytest.approx(value), name
    # Pairs of all items are too many for the double-loop Gini, so the sorted formula of docs/metrics.md, item by item.
    o = sorted(naive.exposure(lists, split.train.n_items, 20))
    m = len(o)
    assert result["gini@20"] == pytest.approx(sum((2 * r - m - 1) * x for r, x in enumerate(o, 1)) / (m * sum(o)))
    assert result["coverage@20"] == sum(x > 0 for x in o) / m
    shown = naive.exposure(lists, m, 50)
    expected = sum(x * p for x, p in zip(shown, popularity, strict=True)) / sum(shown)
    assert result["popularity@50"] == pytest.approx(expected)
    histories = [part.fold_in.by_user.row(i)[0].tolist() for i in range(part.n_users)]
    more = fair.more_accuracy(lists, targets, 20, m) | fair.expected_exposure(lists, targets, m, 20)
    more |= fair.of_popularity(lists, histories, 20, popularity, split.train.n_users)
    for name, value in more.items():
        assert result[f"{name}@20"] == pytest.approx(value, rel=1e-9), name
    low, high = result.intervals["ndcg@100"]
    assert low < result["ndcg@100"] < high


def test_lists_in_a_table_are_measured_and_compared_as_models_are(split):
    model, part = Popular(split.train), split.test
    random = np.random.default_rng(0)
    lists = np.concatenate([items for _, items in model.rank(part.fold_in, 20)])
    users, slots = np.indices(lists.shape)
    popular = pa.table({"user": users.ravel(), "item": lists.ravel(), "score": -slots.ravel()})
    popular = popular.take(random.permutation(popular.num_rows))
    expected = evaluate(model, part, at=20, metrics="all", train=split.train, bootstrap=0)
    found = evaluate_lists(popular, part, train=split.train, at=20, metrics="all", bootstrap=0)
    assert found.values == pytest.approx(expected.values, rel=1e-12)
    # The ten best items in another order: at 10 the same exposure and recall.
    turned = lists.copy()
    turned[:, :10] = lists[:, :10][:, random.permutation(10)]
    told = compare(
        {"popular": popular, "turned": turned}, part, metrics=["gini@10", "recall@10", "gini@5"], resamples=200
    )
    gini, recall, top = told.tests
    assert (gini.difference, recall.difference) == (0, 0)
    assert gini.p_holm == recall.p_holm == 1
    assert top.n_users == 1000


def test_the_split_on_disk_has_the_documented_sizes(split):
    assert split.train.shape == (4034, 3468)
    assert split.train.nnz == 388_246
    assert split.validation.n_users == split.test.n_users == 1000
