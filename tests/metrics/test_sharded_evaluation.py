"""Measuring shard by shard gives the numbers of `evaluate` on the whole."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic
from fairmf.distributed.parquet_shards import ParquetShards
from fairmf.distributed.shards import InMemoryShards
from fairmf.distributed.task_pool import InProcess
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.evaluate import evaluate
from fairmf.metrics.registry import METRICS, known_names
from fairmf.metrics.shard_evaluate import evaluate_shards
from fairmf.models.als import IALS, FairALS


def write(path, pairs):
    pq.write_table(pa.table({"user": [f"u{u}" for u, _ in pairs], "item": [i for _, i in pairs]}), path)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Training users, and others: what the model may see of them, what it should find. Some have no targets."""
    folder = tmp_path_factory.mktemp("split")
    rng = np.random.default_rng(3)
    train = [(int(u), int(40 * rng.random() ** 2)) for u in rng.integers(0, 80, 900)]
    pairs = sorted({(int(u), int(40 * rng.random() ** 2)) for u in rng.integers(100, 160, 700)})
    held = [pair for pair in pairs if rng.random() < 0.3 and pair[0] % 7]
    seen = [pair for pair in pairs if pair not in set(held)]
    return {
        name: write(folder / f"{name}.parquet", p) for name, p in (("train", train), ("seen", seen), ("held", held))
    }


def source(path, shards=3, **options):
    return ParquetShards.read(path, shards=shards, tasks=InProcess(), **options)


@pytest.fixture(scope="module")
def train(files):
    return Interactions.from_parquet(files["train"])


@pytest.fixture(scope="module")
def model(train):
    return FairALS(factors=5, epochs=3, fairness=1.0).fit(train)


@pytest.fixture(scope="module")
def held_out(files, train):
    """Row by row with Python's dictionaries."""
    seen, held = ({}, {})
    for name, into in (("seen", seen), ("held", held)):
        for row in pq.read_table(files[name]).to_pylist():
            if row["item"] in train.item_ids:
                into.setdefault(row["user"], set()).add(train.item_ids.position(row["item"]))
    users = list(seen)

    def matrix(of):
        import scipy.sparse as sp

        entries = [(i, j) for i, user in enumerate(users) for j in of.get(user, ())]
        rows, columns = np.array(entries).T
        whole = sp.coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(users), train.n_items))
        return Interactions.from_csr(whole, user_ids=users, item_ids=train.item_ids)

    return HeldOut(matrix(seen), matrix(held))


def same(found, expected):
    assert list(found.values) == list(expected.values)
    for label, value in expected.values.items():
        assert found.values[label] == pytest.approx(value, rel=1e-12, nan_ok=True), label
    assert (found.n_users, found.n_scored) == (expected.n_users, expected.n_scored)
    for K, exposure in expected.exposure.items():
        np.testing.assert_array_equal(found.exposure[K], exposure)
    assert found.group_names == expected.group_names
    for K, exposure in expected.group_exposure.items():
        np.testing.assert_array_equal(found.group_exposure[K], exposure)


@pytest.mark.parametrize("shards", [1, 3, 150])
def test_every_metric_is_that_of_the_whole(files, model, train, held_out, shards):
    ids = model.fitted.item_ids
    history, targets = source(files["seen"], shards, items=ids), source(files["held"], shards, items=ids)
    groups = [f"provider {j % 4}" for j in range(train.n_items)]
    options = {"at": (3, 10), "groups": groups}
    found = evaluate_shards(
        model, history, targets, train=source(files["train"]), metrics="all", tasks=InProcess(), **options, fairness=2.0
    )
    together = [name for name, metric in METRICS.items() if "lists" in metric.needs.split()]
    apart = [name for name in known_names(["train", "merit", *options]) if name not in together]
    assert "ee_loss" in apart
    same(found, evaluate(model, held_out, train=train, metrics=apart, bootstrap=0, **options, fairness=2.0))
    with pytest.raises(InvalidParameter, match="'jme_ai@5' needs all lists in one process"):
        evaluate_shards(model, history, targets, metrics=["jme_ai@5"], tasks=InProcess())
    assert found.n_scored < found.n_users
    same(
        evaluate_shards(model, history, targets, at=5, metrics=["ndcg", "gini@7"], tasks=InProcess()),
        evaluate(model, held_out, at=5, metrics=["ndcg", "gini@7"], bootstrap=0),
    )


def test_popularity_counts_users_where_training_is_weighted(files, model, train, held_out):
    ids = model.fitted.item_ids
    weighted = source(files["train"], weights="sum")
    assert not weighted.is_binary
    found = evaluate_shards(
        model, source(files["seen"], items=ids), source(files["held"], items=ids), train=weighted, at=5,
        metrics=["popularity", "tail_share"], tasks=InProcess(),
    )  # fmt: skip
    expected = evaluate(model, held_out, train=train, at=5, metrics=["popularity", "tail_share"], bootstrap=0)
    same(found, expected)


def test_training_users_with_targets_they_have_had_already(files, model, train):
    """Such targets are left out, as no list can hold them."""
    ids, everything = model.fitted.item_ids, source(files["train"])
    found = evaluate_shards(model, everything, source(files["train"], items=ids), at=5, tasks=InProcess())
    assert found.n_users == train.n_users
    assert found.n_scored == 0
    assert np.isnan(found["ndcg@5"])
    assert found.exposure[5].sum() == 5 * train.n_users


class TestBadInput:
    def test_other_items(self, files, model):
        with pytest.raises(InvalidData, match="history"):
            evaluate_shards(model, source(files["seen"]), source(files["held"]), tasks=InProcess())

    def test_other_numbers_of_shards(self, files, model):
        ids = model.fitted.item_ids
        history, targets = source(files["seen"], 2, items=ids), source(files["held"], 3, items=ids)
        with pytest.raises(InvalidData, match="history has 2 shards and targets 3"):
            evaluate_shards(model, history, targets, tasks=InProcess())

    def test_nobody_in_both(self, files, model):
        ids = model.fitted.item_ids
        with pytest.raises(InvalidData, match="No user of the targets is in the history"):
            evaluate_shards(model, source(files["train"]), source(files["held"], items=ids), tasks=InProcess())

    def test_arguments(self, files, model):
        ids = model.fitted.item_ids
        pair = source(files["seen"], items=ids), source(files["held"], items=ids)
        with pytest.raises(InvalidParameter, match="Unknown metric 'nonsense'"):
            evaluate_shards(model, *pair, metrics=["nonsense"], tasks=InProcess())
        with pytest.raises(InvalidParameter, match="'fairness' parameter must be a number >= 0"):
            evaluate_shards(model, *pair, fairness="much", tasks=InProcess())

    def test_no_given_item(self, files, tmp_path, model):
        odd = write(tmp_path / "odd.parquet", [(1, 10**6), (2, 10**6 + 1)])
        with pytest.raises(InvalidData, match=r"none of the 2 rows is about one of the .* given items"):
            source(odd, items=model.fitted.item_ids)


def test_interactions_in_memory_are_cut_at_the_same_users():
    """Each part alone would be cut by its own number of interactions; then targets of some users would be lost."""
    data = synthetic(90, 40, 1200)
    split = split_by_user(data, heldout=30, protocol="seeded")
    model = IALS(factors=4, epochs=2).fit(split.train, progress=False)
    history, targets = (InMemoryShards(part, 3) for part in (split.test.fold_in, split.test.targets))
    assert not np.array_equal(history.bounds, targets.bounds)
    found = evaluate_shards(model, history, targets, at=10, tasks=InProcess())
    whole = evaluate(model, split.test, at=10, bootstrap=0)
    assert found.n_scored == whole.n_scored
    assert found["ndcg@10"] == pytest.approx(whole["ndcg@10"], rel=1e-12)
    others = InMemoryShards(split.validation.targets, 3)
    with pytest.raises(InvalidData, match="the same users"):
        evaluate_shards(model, history, others, at=10, tasks=InProcess())
