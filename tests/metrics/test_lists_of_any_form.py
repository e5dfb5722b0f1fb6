"""`evaluate_lists` on every form of lists, test and train: the numbers of `evaluate`, and clear errors."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from fairmf import FairALS, Interactions, evaluate, evaluate_lists, split_by_user, synthetic
from fairmf.data.ids import Ids
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.list_case import ListOptions

AT = (3, 10)


def named(data):
    """The same interactions with short ids that are not positions."""
    users = [f"u{k}" for k in data.user_ids.values.tolist()]
    return Interactions(data.by_user, data.n_items, Ids(users), Ids([f"i{k}" for k in range(data.n_items)]))


@pytest.fixture(scope="module")
def case():
    split = split_by_user(synthetic(160, 60, 3000, random_state=1), heldout=30, protocol="seeded")
    train = named(split.train)
    test = HeldOut(named(split.test.fold_in), named(split.test.targets))
    model = FairALS(factors=6, epochs=3, random_state=0).fit(train, progress=False)
    positions = np.concatenate([np.array(items) for _, items in model.rank(test.fold_in, 10)])
    groups = {item: int(item[1:]) % 3 for item in train.item_ids.values}
    expected = evaluate(model, test, at=AT, metrics="all", train=train, groups=groups, bootstrap=20)
    return positions, test, train, groups, expected


def long_rows(positions, test):
    users, items = test.fold_in.user_ids.values, test.fold_in.item_ids.values
    rows = [(users[u], items[j], r) for u, row in enumerate(positions) for r, j in enumerate(row, 1) if j >= 0]
    order = np.random.default_rng(0).permutation(len(rows))  # tables need not be sorted
    return [rows[k] for k in order]


def pairs(data):
    rows = data.by_user
    users = np.repeat(np.arange(rows.count), np.diff(rows.indptr))
    return pd.DataFrame({"user": data.user_ids.values[users], "item": data.item_ids.values[rows.indices]})


def same(found, expected):
    assert found.values == pytest.approx(expected.values, rel=1e-12, nan_ok=True)
    for label, ends in expected.intervals.items():
        assert found.intervals[label] == pytest.approx(ends, rel=1e-12, nan_ok=True), label
    assert (found.n_users, found.n_scored) == (expected.n_users, expected.n_scored)


@pytest.mark.parametrize(
    "form",
    ["positions", "ids", "named rows", "pandas", "polars", "arrow", "score", "lists", "mapping", "parquet", "jsonl",
     "csv", "feather"],
)  # fmt: skip
def test_every_form_gives_the_numbers_of_evaluate(case, tmp_path, form):
    positions, test, train, groups, expected = case
    rows = long_rows(positions, test)
    frame = pd.DataFrame(rows, columns=["user", "item", "rank"])
    users, items = test.fold_in.user_ids.values, test.fold_in.item_ids.values
    mapping = {users[u]: [items[j] for j in row if j >= 0] for u, row in enumerate(positions)}
    table = pa.table({"user": list(mapping), "items": list(mapping.values())})
    more = {}
    if form == "positions":
        lists = positions
    elif form == "ids":
        lists = test.fold_in.item_ids.named(positions)
    elif form == "named rows":
        lists, more = test.fold_in.item_ids.named(positions)[::-1], {"users": users[::-1]}
    elif form == "pandas":
        lists = frame
    elif form == "polars":
        lists, more = pl.from_pandas(frame).rename({"item": "sku"}), {"columns": {"item": "sku"}}
    elif form == "arrow":
        lists = pa.Table.from_pandas(frame)
    elif form == "score":
        lists = pd.DataFrame({"USER_ID": frame.user, "item_id": frame.item, "score": -1.5 * frame["rank"]})
    elif form == "lists":
        lists = table
    elif form == "mapping":
        lists = mapping
    else:
        lists = tmp_path / f"lists.{form}"
        if form == "parquet":
            pq.write_table(pa.Table.from_pandas(frame), lists)
        elif form == "csv":
            frame.to_csv(lists, index=False)
        elif form == "feather":
            frame.to_feather(lists)
        else:
            lists.write_text("".join(pd.Series(r).to_json() + "\n" for r in table.to_pylist()))
    how = {"train": train, "groups": groups, "at": AT, "metrics": "all", "bootstrap": 20}
    same(evaluate_lists(lists, test, **how, **more), expected)


def test_what_fairmf_writes(case, tmp_path):
    train = case[2]
    model = FairALS(factors=6, epochs=3, random_state=0).fit(train, progress=False)
    model.recommend_to_parquet(tmp_path / "lists.parquet", N=10)
    nothing = Interactions.from_csr(
        sp.csr_array(train.shape), user_ids=train.user_ids, item_ids=train.item_ids, allow_empty=True
    )
    held_out = HeldOut(train, nothing, known_users=True)
    expected = evaluate(model, held_out, at=AT, metrics=["gini", "gini_dcg", "coverage"], bootstrap=0)
    for lists in (tmp_path / "lists.parquet", model.recommend_table(N=10)):
        found = evaluate_lists(lists, held_out, at=AT, metrics=["gini", "gini_dcg", "coverage"], bootstrap=0)
        same(found, expected)


@pytest.mark.parametrize("form", ["pandas", "polars", "path", "interactions"])
def test_test_and_train_of_any_form(case, tmp_path, form):
    positions, test, train, groups, expected = case
    frame = pd.DataFrame(long_rows(positions, test), columns=["user", "item", "rank"])
    past = pd.concat([pairs(train), pairs(test.fold_in)])
    tables = [pairs(test.targets), past]
    if form == "polars":
        tables = [pl.from_pandas(t) for t in tables]
    if form == "path":
        for k, t in enumerate(tables):
            t.to_parquet(tmp_path / f"{k}.parquet")
        tables = [str(tmp_path / f"{k}.parquet") for k in range(2)]
    if form == "interactions":
        tables = [test.targets, Interactions.from_frame(past)]
    how = {"items": train.item_ids, "groups": groups, "at": AT, "metrics": "all", "bootstrap": 0}
    found = evaluate_lists(frame, tables[0], train=tables[1], **how)
    assert (found.n_users, found.n_scored) == (expected.n_users, expected.n_scored)
    # Here train holds the test users' histories as well, so popularity differs; what depends on it is left out.
    of_train = ("popularity", "tail", "merit", "novelty", "aplt", "aclt")
    for label, value in expected.values.items():
        if not any(word in label for word in of_train):
            assert found[label] == pytest.approx(value, rel=1e-12, nan_ok=True), label
    direct = evaluate(
        _Given(positions, test.fold_in.n_items), test, at=AT, metrics=["popularity_lift", "novelty"], bootstrap=0,
        train=Interactions.from_csr(_joined(train, test), item_ids=train.item_ids),
    )  # fmt: skip
    for label, value in direct.values.items():
        assert found[label] == pytest.approx(value, rel=1e-12), label


class _Given:
    def __init__(self, lists, n_items):
        self.lists, self.n_items = lists, n_items

    def rank(self, history, N, *, known_users=False):
        yield 0, self.lists[:, :N]


def _joined(train, test):
    return sp.csr_array(sp.vstack([train.to_csr(), test.fold_in.to_csr()]))


SMALL = {"ann": ["tea", "rum"], "bob": ["gin"], "eve": ["rum"]}
TEST = pa.table({"user": ["ann", "bob", "ann"], "item": ["rum", "tea", "rum"]})
ITEMS = ["tea", "rum", "gin", "ale"]


def test_users_with_a_list_alone_count_in_exposure_and_repeated_test_rows_once():
    found = evaluate_lists(SMALL, TEST, items=ITEMS, at=2, bootstrap=0)
    assert (found.n_users, found.n_scored) == (3, 2)
    assert found["recall@2"] == 0.5
    assert found.exposure[2].tolist() == [1, 2, 1, 0]


def test_a_test_pair_that_is_in_the_training_data_is_a_target_and_not_history():
    train = pa.table({"user": ["ann", "ann", "bob"], "item": ["rum", "gin", "rum"]})
    lists = {"ann": ["rum", "tea"], "bob": ["tea", "gin"]}
    found = evaluate_lists(
        lists, TEST, train=train, items=ITEMS, metrics=["recall@2", "popularity_lift@2"], bootstrap=0
    )
    assert found["recall@2"] == 1
    # Popularity is rum 2, gin 1. Means of lists: ann (2 + 0)/2, bob (0 + 1)/2; of histories: ann gin 1, bob rum 2.
    assert found["popularity_lift@2"] == pytest.approx((0.75 - 1.5) / 1.5)


def test_items_outside_the_catalogue():
    with pytest.raises(InvalidData, match=r"Lists: 1 of 3 items are not in the catalogue of 2 items, such as 'gin'"):
        evaluate_lists(SMALL, TEST, at=2)
    assert evaluate_lists(SMALL, TEST, items="union", at=2, bootstrap=0)["coverage@2"] == 1
    with pytest.raises(InvalidData, match="Test: 1 of 2 items are not in the catalogue"):
        evaluate_lists({"ann": ["tea"], "bob": []}, TEST, items=["tea"], at=2)
    with pytest.raises(InvalidData, match=r"such as 7, 8.*ids of type int; the catalogue has str"):
        evaluate_lists({"ann": [7, 8], "bob": [7]}, TEST, at=2)
    with pytest.raises(InvalidParameter, match="'items'"):
        ListOptions(items="everything")


def test_users_without_a_list():
    lists = {"ann": ["tea", "rum"]}
    with pytest.raises(InvalidData, match=r"1 users with test items have no list: 'bob'.*missing='zero'"):
        evaluate_lists(lists, TEST, at=2)
    zero = evaluate_lists(lists, TEST, at=2, missing="zero", bootstrap=0)
    assert (zero.n_users, zero["recall@2"]) == (2, 0.5)
    dropped = evaluate_lists(lists, TEST, at=2, missing="drop", bootstrap=0)
    assert (dropped.n_users, dropped["recall@2"]) == (1, 1)
    with pytest.raises(InvalidParameter, match="'missing'"):
        evaluate_lists(lists, TEST, at=2, missing="ignore")


def test_users_outside_of_a_held_out_set(case):
    positions, test, _, _, expected = case
    frame = pd.DataFrame(long_rows(positions, test), columns=["user", "item", "rank"])
    more = pd.concat([frame, pd.DataFrame({"user": ["zoe"], "item": ["i3"], "rank": [1]})])
    with pytest.warns(UserWarning, match=r"1 users who are not in the held-out data are left out: 'zoe'"):
        found = evaluate_lists(more, test, at=AT, metrics=["gini", "ndcg"], bootstrap=0)
    assert found["gini@10"] == pytest.approx(expected["gini@10"])
    with pytest.raises(InvalidData, match="None of the 1 users with lists"):
        evaluate_lists({"zoe": ["i3"]}, test)
    user = test.fold_in.user_ids.values[int(np.flatnonzero(np.diff(test.targets.by_user.indptr))[0])]
    fewer = frame[frame.user != user]
    with pytest.raises(InvalidData, match="1 users with test items have no list"):
        evaluate_lists(fewer, test, at=AT)
    zero, dropped = (
        evaluate_lists(fewer, test, at=AT, missing=how, metrics=["recall"], bootstrap=0) for how in ("zero", "drop")
    )
    assert zero["recall@10"] * zero.n_scored == pytest.approx(dropped["recall@10"] * dropped.n_scored)
    assert (zero.n_scored, dropped.n_scored) == (expected.n_scored, expected.n_scored - 1)


def test_ranks_scores_and_duplicates():
    def table(**columns):
        return pa.table({"user": ["ann"] * 3, "item": ["tea", "rum", "gin"], **columns})

    test = pa.table({"user": ["ann"], "item": ["rum"]})

    def mrr(lists, **options):
        return evaluate_lists(lists, test, items=ITEMS, metrics=["mrr@3"], bootstrap=0, **options)["mrr@3"]

    assert mrr(table()) == 1 / 2  # the order of the rows
    assert mrr(table(rank=[3, 1, 2])) == 1
    assert mrr(table(score=[0.1, 0.1, 0.2])) == pytest.approx(1 / 3)  # of equal scores the earlier row first
    assert mrr(table(score=[9.0, 1.0, 5.0], rank=[2, 1, 3])) == 1  # rank before score
    with pytest.warns(UserWarning, match=r"1 users have gaps in their ranks, the first is that of 'ann'"):
        assert mrr(table(rank=[1, 5, 9])) == 1 / 2
    with pytest.raises(InvalidData, match=r"1 items have the rank of another.*rank 2 of user 'ann'"):
        mrr(table(rank=[1, 2, 2]))
    with pytest.raises(InvalidData, match="'score' of lists has 1 empty or infinite"):
        mrr(table(score=[1.0, None, 2.0]))
    with pytest.raises(InvalidData, match="must hold numbers"):
        mrr(table(rank=["a", "b", "c"]))
    with pytest.raises(InvalidData, match=r"same item twice in 1 places, the first is item 'tea' of user 'ann'"):
        mrr({"ann": ["tea", "rum", "tea"]})
    with pytest.raises(InvalidData, match="several rows with lists of user 'ann'"):
        mrr(pa.table({"user": ["ann", "ann"], "item": [["tea"], ["rum"]]}))
    with pytest.raises(InvalidData, match="no column of items; there are user, thing"):
        mrr(pa.table({"user": ["ann"], "thing": ["tea"]}))
    with pytest.raises(InvalidData, match="rows without user"):
        mrr(pa.table({"user": ["ann", None], "item": ["tea", "rum"]}))
    with pytest.raises(InvalidData, match="Cannot tell the format"):
        mrr(__file__)
    with pytest.raises(InvalidData, match="not a list of items"):
        mrr({"ann": "tea"})
    with pytest.raises(InvalidData, match="no role 'time'"):
        mrr(table(), columns={"time": "t"})


def test_kinds_of_ids():
    test = pd.DataFrame({"user": [("a", 1), ("b", 2)], "item": [7, 8]})
    lists = pd.DataFrame({"user": [("b", 2), ("a", 1)], "item": pd.Categorical([8, 8]), "score": [0.5, 0.25]})
    found = evaluate_lists(lists, test, metrics=["recall@1"], bootstrap=0)
    assert found["recall@1"] == 0.5
    tuples = pd.DataFrame({"user": [1, 2], "item": [("x", 1), ("x", 2)]})
    assert evaluate_lists(tuples, tuples, metrics=["recall@1"], bootstrap=0)["recall@1"] == 1
    numbers = {np.int64(1): np.array([5, 6]), 2: [np.int32(6)]}
    test = pl.DataFrame({"user_id": [1, 2], "item_id": [6, 6]})
    assert evaluate_lists(numbers, test, items=[5, 6], metrics=["recall@1"], bootstrap=0)["recall@1"] == 0.5


def test_arrays_need_users_where_the_test_data_are_a_table():
    test = pa.table({"user": [5, 6], "item": [1, 2]})
    with pytest.raises(InvalidData, match=r"2 lists and 0 users; name the users of the rows with users="):
        evaluate_lists(np.array([[1], [2]]), test, at=1)
    found = evaluate_lists(np.array([[1], [-1]]), test, users=[6, 5], at=1, bootstrap=0)
    assert found["recall@1"] == 0
    assert found.exposure[1].tolist() == [1, 0]
    data = Interactions.from_frame(test)
    assert evaluate_lists(np.array([[0], [1]]), data, at=1, bootstrap=0)["recall@1"] == 1  # positions
    assert evaluate_lists(np.array([[1], [2]]), data, at=1, by="id", bootstrap=0)["recall@1"] == 1
    with pytest.raises(InvalidData, match="names a user twice"):
        evaluate_lists(np.array([[1], [2]]), test, users=[5, 5], at=1)


def test_metrics_that_lack_an_input_are_named():
    for metric, message in (
        ("ild@2", "features="), ("jme_gi@2", "user_groups="), ("awrf@2", "groups="), ("novelty@2", "train="),
        ("popularity_lift@2", "train=.*histories"), ("jme_gg@2", "user_groups=.*and.*groups="),
    ):  # fmt: skip
        with pytest.raises(InvalidParameter, match=f"'{metric}' needs .*{message}"):
            evaluate_lists(SMALL, TEST, items=ITEMS, metrics=[metric])
    merit = {"tea": 2.0, "rum": 1.0}
    by_id = evaluate_lists(SMALL, TEST, items=ITEMS, metrics=["merit_distance@2"], merit=merit, bootstrap=0)
    assert by_id["merit_distance@2"] == pytest.approx(((2 / 3 - 1 / 4) + (1 / 2 - 1 / 3) + 1 / 4) / 2)
