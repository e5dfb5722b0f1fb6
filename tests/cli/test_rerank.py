"""`rerank` gives items the exposure it says: counted from the files it writes."""

from collections import Counter

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq

from fairmf import load_model


def exposure(table, n_items):
    counts = Counter(table.column("item").to_pylist())
    return np.array(sorted([*counts.values(), *[0] * (n_items - len(counts))]))


def plain_gini(values):
    ascending, m = np.sort(values), len(values)
    return sum((2 * r - m - 1) * value for r, value in enumerate(ascending, 1)) / (m * ascending.sum())


def test_fairrecs_lists_keep_the_promise(fairmf, made, tmp_path):
    done = fairmf("rerank", made / "model.fairmf", "-o", "lists.parquet", "--share", 0.7, "-n", 6, "--json")
    assert done.code == 0, done.err
    model, table = load_model(made / "model.fairmf"), pq.read_table(tmp_path / "lists.parquet")
    promised = int(0.7 * 6 * model.n_users / model.n_items)
    shown = exposure(table, model.n_items)
    assert done.json["certificate"]["guaranteed"] == promised
    assert done.json["certificate"]["smallest"] == shown.min() == done.json["after"]["least"]
    assert done.json["certificate"]["items_below"] == (shown < promised).sum()
    assert done.json["after"]["gini"] == plain_gini(shown) < done.json["before"]["gini"]
    rows = table.to_pylist()
    assert Counter(row["user"] for row in rows) == dict.fromkeys(model.fitted.user_ids.values.tolist(), 6)
    liked = model.fitted.interactions
    had = {u: set(liked.item_ids.values[liked.by_user.row(k)[0]].tolist()) for k, u in enumerate(liked.user_ids.values)}
    assert not any(row["item"] in had[row["user"]] for row in rows)
    assert (tmp_path / "lists.rerank.toml").exists()


def test_what_there_was_before_is_the_models_own_lists(fairmf, made):
    model = load_model(made / "model.fairmf")
    for fairness in (None, 3.0):
        flags = () if fairness is None else ("--fairness", fairness)
        done = fairmf("rerank", made / "model.fairmf", "-o", "l.csv", "-n", 5, *flags, "--json")
        turned = model if fairness is None else model.with_fairness(fairness)
        assert done.json["before"]["gini"] == plain_gini(exposure(turned.recommend_table(N=5), model.n_items))


def test_offsets_are_kept_in_a_model_whose_lists_are_those_written(fairmf, made, tmp_path):
    how = ("--method", "offsets", "--min-exposure", 0.4, "--iterations", 150, "-n", 6)
    done = fairmf("rerank", made / "model.fairmf", *how, "--save-model", "fair.fairmf", "-o", "lists.csv", "--json")
    assert done.code == 0, done.err
    model, before = load_model(tmp_path / "fair.fairmf"), load_model(made / "model.fairmf")
    assert model.fitted.item_offsets is not None
    written = pyarrow.csv.read_csv(tmp_path / "lists.csv")
    assert written.column("item").to_pylist() == model.recommend_table(N=6).column("item").to_pylist()
    shown = exposure(written, model.n_items)
    assert done.json["after"] == {
        "gini": plain_gini(shown), "coverage": (shown > 0).mean(), "least": shown.min(), "most": shown.max()
    }  # fmt: skip
    assert shown.min() > exposure(before.recommend_table(N=6), before.n_items).min()
    assert (tmp_path / "fair.rerank.toml").exists()


def test_offsets_are_checked_on_users_held_out_unless_told_not_to(fairmf, made):
    how = ("rerank", made / "model.fairmf", "--method", "offsets", "--min-exposure", 0.4, "--iterations", 30, "-n", 6)
    users = load_model(made / "model.fairmf").n_users
    checked = fairmf(*how, "-o", "a.csv", "--json")
    if users >= 250:
        assert checked.json["check"]["n_users"] == users // 5
    skipped = fairmf(*how, "-o", "b.csv", "--no-check", "--json")
    assert skipped.code == 0, skipped.err
    assert "check" not in skipped.json
    wrong = fairmf("rerank", made / "model.fairmf", "-o", "c.csv", "--no-check")
    assert wrong.code != 0
    assert "--check does not apply to fairrec" in wrong.err


def test_the_same_seed_gives_the_same_lists_and_a_table_for_people(fairmf, made, tmp_path):
    for name in ("a", "b"):
        done = fairmf("rerank", made / "model.fairmf", "-o", f"{name}.csv", "--seed", 4, "--order", "allocation")
        assert "Guaranteed exposure of every item" in done.out
        assert "Gini of exposure" in done.out
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    fairmf("rerank", made / "model.fairmf", "-o", "c.csv", "--seed", 5, "--order", "allocation")
    assert (tmp_path / "a.csv").read_bytes() != (tmp_path / "c.csv").read_bytes()
