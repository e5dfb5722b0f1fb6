"""`fairmf evaluate --lists`: the numbers of the model that made the lists, and what is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairmf import Split, evaluate, load_model

FLAGS = ("--at", "5,20", "--bootstrap", 20, "--json")


@pytest.fixture
def lists(made, tmp_path):
    model, test = load_model(made / "model.fairmf"), Split.load(made / "split").test
    items = np.concatenate([np.array(block) for _, block in model.rank(test.fold_in, 20)])
    users, slots = np.nonzero(items >= 0)
    table = pa.table(
        {
            "user": pa.array(test.fold_in.user_ids.values[users].tolist()),
            "item": pa.array(test.fold_in.item_ids.values[items[users, slots]].tolist()),
            "rank": pa.array(slots + 1),
        }
    )
    pq.write_table(table, tmp_path / "lists.parquet")
    return tmp_path / "lists.parquet"


def write_pairs(data, path):
    users = np.repeat(np.arange(data.n_users), np.diff(data.by_user.indptr))
    columns = (data.user_ids.values[users].tolist(), data.item_ids.values[data.by_user.indices].tolist())
    pq.write_table(pa.table(dict(zip(("user", "item"), columns, strict=True))), path)


def test_lists_of_a_file_have_the_numbers_of_their_model(fairmf, made, lists):
    expected = fairmf("evaluate", made / "model.fairmf", made / "split", *FLAGS, "--no-record").json
    found = fairmf("evaluate", "--lists", lists, made / "split", *FLAGS).json
    assert found["values"] == pytest.approx(expected["values"], rel=1e-12)
    assert (found["n_users"], found["lists"]) == (expected["n_users"], str(lists))
    for label, ends in expected["intervals"].items():
        assert found["intervals"][label] == pytest.approx(ends, rel=1e-9), label
    again = fairmf("evaluate", "--config", lists.with_name("lists.evaluate.toml"), "--json").json
    assert again["values"] == found["values"]
    shown = fairmf("evaluate", "--lists", lists, made / "split", "--at", 5, "--no-record").out
    assert "Lists of lists.parquet" in " ".join(shown.split())


def test_lists_against_a_file_of_test_pairs(fairmf, made, lists, tmp_path):
    split = Split.load(made / "split")
    write_pairs(split.test.targets, tmp_path / "test.parquet")
    write_pairs(split.train, tmp_path / "train.parquet")
    (tmp_path / "items.txt").write_text("\n".join(map(str, split.train.item_ids.values.tolist())))
    expected = fairmf("evaluate", made / "model.fairmf", made / "split", *FLAGS, "--no-record").json["values"]
    more = ("--train", tmp_path / "train.parquet", "--items", tmp_path / "items.txt")
    found = fairmf("evaluate", "--lists", lists, tmp_path / "test.parquet", *more, *FLAGS).json["values"]
    # Histories of test users are not in a file of pairs: no popularity lift.
    expected = {label: value for label, value in expected.items() if not label.startswith("popularity_lift")}
    for label, value in expected.items():
        assert found[label] == pytest.approx(value, rel=1e-12), label
    smaller = fairmf("evaluate", "--lists", lists, tmp_path / "test.parquet", *FLAGS).json["values"]
    assert smaller["ndcg@5"] == pytest.approx(expected["ndcg@5"])
    assert "popularity@5" not in smaller


def test_groups_of_a_catalogue(fairmf, made, lists, tmp_path):
    model, split = load_model(made / "model.fairmf"), Split.load(made / "split")
    names = split.train.item_ids.values.tolist()
    rows = "".join(f"{item},{k % 3}\n" for k, item in enumerate(names))
    (tmp_path / "items.csv").write_text("item,seller\n" + rows)
    groups = [str(k % 3) for k in range(len(names))]
    how = {"at": (5, 20), "metrics": "all", "train": split.train, "groups": groups, "bootstrap": 0}
    expected = evaluate(model, split.test, **how).values
    flags = ("--catalogue", tmp_path / "items.csv", "--at", "5,20", "--bootstrap", 0, "--json", "--no-record")
    flags = (*flags, "--metrics", "all")
    for arguments in ((made / "model.fairmf",), ("--lists", lists)):
        found = fairmf("evaluate", *arguments, made / "split", *flags).json["values"]
        assert found == pytest.approx(expected, rel=1e-12)
    assert {"awrf@5", "jme_ag@5", "group_gini@20"} <= set(expected)
    refused = fairmf("evaluate", "--lists", lists, lists, "--catalogue", tmp_path / "items.csv")
    assert "--catalogue needs a split" in refused.err
    (tmp_path / "items.csv").write_text("item,title\n" + rows)
    refused = fairmf("evaluate", made / "model.fairmf", made / "split", "--catalogue", tmp_path / "items.csv")
    assert "no column of groups" in " ".join(refused.err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MODEL"], "Missing argument SPLIT"),
        ([], "Missing argument MODEL"),
        (["--lists", "LISTS"], "With --lists, give one argument"),
        (["--lists", "LISTS", "MODEL", "SPLIT"], "With --lists, give one argument"),
        (["--lists", "LISTS", "SPLIT", "--evenness", "0.3"], "made already"),
        (["--lists", "LISTS", "SPLIT", "--items", "x.txt"], "a split has its own items"),
        (["MODEL", "SPLIT", "--train", "x.parquet"], "needs --lists"),
        (["--lists", "none.parquet", "SPLIT"], "no file"),
    ],
)
def test_what_is_refused(fairmf, made, lists, arguments, message):
    names = {"MODEL": made / "model.fairmf", "SPLIT": made / "split", "LISTS": lists}
    done = fairmf("evaluate", *(names.get(a, a) for a in arguments))
    assert done.code != 0
    assert message in " ".join(done.err.split())


def test_users_without_a_list(fairmf, made, lists):
    table = pq.read_table(lists)
    test = Split.load(made / "split").test
    user = test.targets.user_ids.values.tolist()[int(np.flatnonzero(np.diff(test.targets.by_user.indptr))[0])]
    pq.write_table(table.filter(pa.array([u != user for u in table["user"].to_pylist()])), lists)
    done = fairmf("evaluate", "--lists", lists, made / "split", *FLAGS)
    assert done.code != 0
    assert "1 users with test items have no list" in " ".join(done.err.split())
    assert fairmf("evaluate", "--lists", lists, made / "split", "--missing", "zero", *FLAGS).code == 0
