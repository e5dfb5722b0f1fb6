"""What the verbs do, held against the library and against counting by hand."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import write_events

from fairmf import (
    Interactions,
    Split,
    evaluate,
    load_model,
    read_csv,
    split_by_interaction,
    split_by_time,
    split_by_user,
)


def fingerprints(split):
    parts = (split.train, split.validation.fold_in, split.validation.targets, split.test.fold_in, split.test.targets)
    return [part.fingerprint() for part in parts]


def test_inspect_counts_what_is_there(fairmf, tmp_path):
    rows = write_events(tmp_path / "events.csv")
    rows += rows[:5]
    text = "\n".join(",".join(map(str, row)) for row in [("user_id", "item_id", "rating", "timestamp"), *rows])
    (tmp_path / "events.csv").write_text(text)
    found = fairmf("inspect", "events.csv", "--json").json
    counts = {}
    for _, item, *_ in set(rows):
        counts[item] = counts.get(item, 0) + 1
    ordered = sorted(counts.values())
    m, total = len(ordered), sum(ordered)
    gini = sum((2 * r - m - 1) * o for r, o in enumerate(ordered, start=1)) / (m * total)
    assert found["rows"] == len(rows)
    assert found["interactions"] == len({(u, i) for u, i, *_ in rows})
    assert found["repeated_rows"] == 5
    assert found["users"] == len({u for u, *_ in rows})
    assert found["popularity_gini"] == pytest.approx(gini)
    assert found["bottom_half_share"] == pytest.approx(sum(ordered[: m // 2]) / total)
    assert found["top_10_percent_share"] == pytest.approx(sum(ordered[-round(m / 10) :]) / total)
    assert found["per_item"]["most"] == ordered[-1]
    assert found["times"] == {"first": min(t for *_, t in rows), "last": max(t for *_, t in rows), "unit": "s"}
    names = {"user": "user_id", "item": "item_id", "time": "timestamp"}
    assert found["read_as"] == {"kind": "csv", **names, "guessed": dict.fromkeys(names, "by its name")}
    assert any("repeat" in warning for warning in found["warnings"])


def test_inspect_never_takes_ratings_for_items_and_shows_its_guess_first(fairmf, tmp_path):
    rows = "".join(f'"{k % 40}";"{k % 60:09}X";"{k % 11}"\n' for k in range(400))
    (tmp_path / "BX.csv").write_text('"User-ID";"ISBN";"Book-Rating"\n' + rows)
    done = fairmf("inspect", "BX.csv", "--json")
    assert done.json["items"] == 60
    assert "semicolons, with header: user=User-ID (by its name), item=ISBN (by its name)" in done.err
    damaged = (tmp_path / "BX.csv").read_text() + '"1";"2'
    (tmp_path / "BX.csv").write_text(damaged)
    done = fairmf("inspect", "BX.csv", "--item", "ISBN")
    assert "user=User-ID (by its name), item=ISBN\n" in done.err  # said although nothing could be counted
    assert "A quote opened in line 402" in done.err


def test_inspect_keeps_ids_with_colons_whole(fairmf, tmp_path):
    rows = [(f"u:{k % 30}", f"i:{k % 40}:x", k % 5) for k in range(300)]
    (tmp_path / "a.dat").write_text("".join("::".join(map(str, row)) + "\n" for row in rows))
    found = fairmf("inspect", "a.dat", "--json").json
    assert (found["users"], found["items"]) == (30, 40)


def test_inspect_warns_of_likely_mistakes(fairmf, tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n" + "".join(f"{k},1\n" for k in range(25)))
    warnings = " ".join(fairmf("inspect", "a.csv", "--json").json["warnings"])
    assert "every row has a different user" in warnings
    assert "right columns" in warnings
    done = fairmf("inspect", "a.csv", "--user", "item", "--item", "user", "--json")
    assert "swapped" in " ".join(done.json["warnings"])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), lambda events: split_by_user(events, heldout=15)),
        (("--heldout", 20, "--min-user", 8), lambda events: split_by_user(events, heldout=20, min_user=8)),
        (
            ("--protocol", "seeded", "--seed", 4, "--share", 0.4, "--heldout", 9),
            lambda events: split_by_user(events, heldout=9, protocol="seeded", random_state=4, target_share=0.4),
        ),
        (
            ("--by", "interaction", "--seed", 3, "--share", 0.1, "--min-user", 0),
            lambda events: split_by_interaction(events, random_state=3, target_share=0.1),
        ),
        (("--by", "time", "--min-user", 0), lambda events: split_by_time(events)),
        (
            ("--by", "time", "--min-user", 0, "--test-from", 1609459200, "--validation-from", 1601510400),
            lambda events: split_by_time(events, test_from=1609459200, validation_from=1601510400),
        ),
        (
            (
                "--by",
                "time",
                "--min-user",
                0,
                "--test-from",
                "2021-01-01",
                "--validation-from",
                "2020-10-01T02:00+02:00",
            ),
            lambda events: split_by_time(events, test_from=1609459200, validation_from=1601510400),
        ),
    ],
)
def test_split_is_the_librarys(fairmf, made, flags, expected):
    events = read_csv(made / "events.csv", user="user_id", item="item_id", time="timestamp")
    done = fairmf("split", made / "events.csv", "-o", "s", *flags, "--json")
    assert done.code == 0, done.err
    assert fingerprints(Split.load("s")) == fingerprints(expected(events))
    assert done.json["parts"] == expected(events).summary()


def test_split_says_who_was_dropped_and_why(fairmf, tmp_path):
    """Items 90 to 92 have one user each; user 500 has only these, user 501 only two items, one of them its own."""
    rows = [(u, i) for u in range(40) for i in range(12) if (u + i) % 2]
    rows += [(500, 90), (500, 91), (500, 92), (501, 3), (501, 5), (501, 70), (502, 70)]
    (tmp_path / "e.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in rows))
    done = fairmf("split", "e.csv", "-o", "s", "--min-item", 2, "--min-user", 4)
    assert "dropped 3 items with fewer than 2 users (--min-item 2)" in done.err
    assert "dropped 1 users who have no other items than those" in done.err
    assert "dropped 2 users with fewer than 4 items (--min-user 4)" in done.err
    assert "dropped 1 items that only those users have" in done.err
    assert "no training user" not in done.err
    found = fairmf("split", "e.csv", "-o", "s", "--min-user", 0, "--json", "--protocol", "seeded").json
    assert found["dropped"].pop("untrained_items") == 16 - Split.load("s").train.n_items
    assert not any(found["dropped"].values())
    assert (
        "dropped 0 users and 0 items" in fairmf("split", "e.csv", "-o", "s", "--min-user", 0, "--by", "interaction").err
    )


def test_recommend_prints_and_writes_titles(fairmf, made, tmp_path):
    lines = [f'{item};"The ""{item}""; part [bold]1";x' for item in range(100, 155)]  # some items have no title
    (tmp_path / "books.csv").write_text("ISBN;Book-Title;Year\n" + "\n".join(lines))
    where = ("recommend", made / "model.fairmf", "--catalogue", "books.csv", "--top", 15)
    first, second = Split.load(made / "split").train.user_ids.values[:2].tolist()
    shown = fairmf(*where, first)
    plain = fairmf("recommend", made / "model.fairmf", first, "--top", 15, "--json").json["lists"][0]
    titles = [f'The "{item}"; part [bold]1' if item < 155 else str(item) for item in plain["items"]]
    for title in titles:
        assert title in shown.out
    assert fairmf(*where, first, "--json").json["lists"] == [{**plain, "titles": titles}]
    for ending in ("csv", "parquet", "jsonl"):
        assert fairmf(*where, first, second, "-o", f"l.{ending}").code == 0
    assert json.loads((tmp_path / "l.jsonl").read_text().splitlines()[0])["titles"] == titles
    assert pq.read_table("l.parquet").column("title").to_pylist()[:15] == titles
    with (tmp_path / "l.csv").open(newline="") as file:
        assert [row["title"] for row in csv.DictReader(file)][:15] == titles


def test_a_split_keeps_weights_where_it_can(fairmf, tmp_path):
    rows = [(u, i, 1 + (u * i) % 7) for u in range(30) for i in range(12) if (u + i) % 3] * 2
    (tmp_path / "plays.csv").write_text("user,item,plays\n" + "".join(f"{u},{i},{p}\n" for u, i, p in rows))
    how = ("--protocol", "seeded", "--heldout", 4)
    for weight, total in (("plays", lambda u, i: 2 * (1 + (u * i) % 7)), ("sum", lambda u, i: 2)):
        done = fairmf("split", "plays.csv", "-o", "s", *how, "--weight", weight, "--reweight", "log")
        assert done.code == 0, done.err
        found = Split.load("s")
        for part in (found.train, found.validation.fold_in, found.test.fold_in):
            entries = part.to_csr().tocoo()
            assert entries.nnz > 0
            for row, column, value in zip(entries.row, entries.col, entries.data, strict=True):
                user, item = part.user_ids.values[row], part.item_ids.values[column]
                assert value == pytest.approx(np.log2(1 + total(user, item)))
    assert (
        fairmf("split", "plays.csv", "-o", "t", "--by", "interaction", "--weight", "plays", "--reweight", "log").code
        == 0
    )
    found = Split.load("t")
    assert found.validation.fold_in is found.train
    assert not found.train.is_binary


def test_fit_is_the_librarys(fairmf, made):
    from fairmf import FiADMM

    train = Split.load(made / "split").train
    flags = (
        "--model",
        "fiadmm",
        "--epochs",
        3,
        "--factors",
        5,
        "--rho",
        "200",
        "--gamma",
        "auto",
        "--lambda-f",
        "none",
    )
    done = fairmf("fit", made / "split", "-o", "m.fairmf", *flags, "--json")
    assert done.code == 0, done.err
    model = FiADMM(epochs=3, factors=5, rho=200.0, gamma="auto", lambda_f=None).fit(train)
    found = load_model("m.fairmf")
    assert np.array_equal(found.item_factors, model.item_factors)
    assert done.json["objective"]["total"] == model.history.final["objective"]["total"]
    assert done.json["epochs"] == 3


def test_fit_reads_a_file_as_it_is_told(fairmf, made):
    flags = ("--weight", "rating", "--reweight", "log", "--factors", 3, "--epochs", 1)
    plain = ("--item-balance", 0, "--user-balance", 0)  # else the stored histories are balanced
    assert fairmf("fit", made / "events.csv", "-o", "m.fairmf", *flags, *plain).code == 0
    columns = {"user": "user_id", "item": "item_id"}
    expected = Interactions.from_csv(made / "events.csv", **columns, weights="rating").reweighted("log")
    assert load_model("m.fairmf").fitted.provenance["data_fingerprint"] == expected.fingerprint()
    fairmf("fit", made / "events.csv", "-o", "m.fairmf", "--rating-above", 3.5, "--factors", 3, "--epochs", 1)
    expected = Interactions.from_csv(made / "events.csv", **columns, rating="rating", rating_above=3.5)
    assert load_model("m.fairmf").fitted.provenance["data_fingerprint"] == expected.fingerprint()


@pytest.mark.parametrize("how", ["log", "bm25"])
def test_recommend_weights_new_users_as_the_model_was_trained(fairmf, made, how):
    flags = ("--weight", "rating", "--reweight", how, "--factors", 3, "--epochs", 1)
    assert fairmf("fit", made / "events.csv", "-o", "m.fairmf", *flags).code == 0
    new = ("recommend", "m.fairmf", "--new-users", made / "events.csv", "--weight", "rating", "-o")
    assert fairmf(*new, "a.csv").code == 0
    assert fairmf(*new, "b.csv", "--reweight", how).code == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()
    # The same users by name: their stored histories are weighted already.
    model = load_model("m.fairmf")
    users = model.fitted.user_ids.values
    known = model.recommend(users, N=10, recalculate_user=True)[0]
    rows = [line.split(",")[:2] for line in Path("a.csv").read_text().splitlines()[1:]]
    assert rows == [[str(u), str(i)] for u, items in zip(users, known, strict=True) for i in items if i != -1]
    other = "bm25" if how == "log" else "log"
    done = fairmf(*new, "c.csv", "--reweight", other)
    assert done.code != 0
    assert f"weighted by {how}" in done.err
    assert "drop --reweight" in done.err


@pytest.mark.parametrize("balance", [0, 0.25])
def test_reweight_is_used_where_the_model_does_not_say_how(fairmf, made, balance):
    fit = ("fit", made / "events.csv", "-o", "m.fairmf", "--weight", "rating", "--factors", 3, "--epochs", 1)
    assert fairmf(*fit, "--item-balance", balance, "--user-balance", balance).code == 0
    new = ("recommend", "m.fairmf", "--new-users", made / "events.csv", "--weight", "rating")
    done = fairmf(*new, "-o", "a.csv", "--reweight", "log")
    assert done.code == 0
    assert "does not say how its data were weighted" in done.err
    assert fairmf(*new, "-o", "b.csv").code == 0
    assert Path("a.csv").read_text() != Path("b.csv").read_text()


def test_a_weighted_split_is_remembered(fairmf, made):
    split = ("split", made / "events.csv", "-o", "s", "--by", "interaction", "--weight", "rating", "--reweight", "log")
    assert fairmf(*split).code == 0
    assert fairmf("fit", "s", "-o", "m.fairmf", "--factors", 3, "--epochs", 1).code == 0
    assert load_model("m.fairmf").fitted.weighting.inner.how == "log"  # inside the balance
    assert fairmf("evaluate", "m.fairmf", "s").code == 0


def test_fit_stops_early_and_goes_on_from_checkpoints(fairmf, made, tmp_path):
    flags = ("--factors", 4, "--epochs", 60, "--early-stopping", "ndcg@10", "--patience", 2)
    done = fairmf("fit", made / "split", "-o", "m.fairmf", *flags, "--json")
    assert done.json["verdict"] == "stopped"
    assert done.json["epochs"] < 60
    short = ("--factors", 4, "--epochs", 3, "--checkpoint", "kept")
    assert fairmf("fit", made / "split", "-o", "a.fairmf", *short).code == 0
    assert list((tmp_path / "kept").iterdir())
    assert fairmf("fit", made / "split", "-o", "b.fairmf", *short).code == 0
    assert np.array_equal(load_model("a.fairmf").item_factors, load_model("b.fairmf").item_factors)


def test_popularity_and_files_without_histories(fairmf, made):
    assert fairmf("fit", made / "split", "-o", "p.fairmf", "--model", "popularity").code == 0
    assert type(load_model("p.fairmf")).__name__ == "Popularity"
    fairmf("fit", made / "split", "-o", "m.fairmf", "--factors", 2, "--no-histories")
    assert load_model("m.fairmf").fitted.interactions is None


@pytest.mark.parametrize("fairness", [None, 3.0])
def test_evaluate_is_the_librarys(fairmf, made, fairness):
    model, split = load_model(made / "model.fairmf"), Split.load(made / "split")
    options = {} if fairness is None else {"fairness": fairness}
    expected = evaluate(model, split.validation, at=(5, 20), train=split.train, bootstrap=50, **options)
    flags = ("--part", "validation", "--at", "5,20", "--bootstrap", 50)
    flags += () if fairness is None else ("--fairness", fairness)
    done = fairmf("evaluate", made / "model.fairmf", made / "split", *flags, "--record", "r.toml", "--json")
    assert {name: done.json[name] for name in ("values", "intervals", "n_users")} == {
        name: expected.to_dict()[name] for name in ("values", "intervals", "n_users")
    }
    table = fairmf("evaluate", made / "model.fairmf", made / "split", *flags, "--no-record").out
    assert f"{expected['ndcg@20']:.4f}" in table


def lists(model, users, N=4, **options):
    ids, _ = model.recommend(users, N=N, **options)
    return {u: [int(i) for i in row if i != -1] for u, row in zip(users, ids, strict=True)}


def read_back(path):
    if path.suffix == ".jsonl":
        return {e["user"]: e["items"] for e in map(json.loads, path.read_text().splitlines())}
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            rows = [(int(r["user"]), int(r["item"]), int(r["rank"])) for r in csv.DictReader(file)]
    else:
        table = pq.read_table(path)
        rows = list(zip(*(table.column(name).to_pylist() for name in ("user", "item", "rank")), strict=True))
    found = {}
    for user, item, rank in rows:
        assert rank == len(found.setdefault(user, [])) + 1
        found[user].append(item)
    return found


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_recommend_for_everybody(fairmf, made, tmp_path, ending):
    flags = ("-n", 4, "--fairness", 2, "--batch-size", 32)
    done = fairmf("recommend", made / "model.fairmf", "-o", f"lists.{ending}", *flags, "--json")
    assert done.code == 0, done.err
    model = load_model(made / "model.fairmf")
    expected = lists(model, model.fitted.user_ids.values.tolist(), fairness=2.0)
    assert read_back(tmp_path / f"lists.{ending}") == expected
    assert done.json["rows"] == sum(map(len, expected.values()))


def test_recommend_for_some(fairmf, made, tmp_path):
    model = load_model(made / "model.fairmf")
    some = model.fitted.user_ids.values.tolist()[3:6]
    expected = lists(model, some)
    done = fairmf("recommend", made / "model.fairmf", *some, "-n", 4, "--json")
    assert {e["user"]: e["items"] for e in done.json["lists"]} == expected
    shown = fairmf("recommend", made / "model.fairmf", *some, "-n", 4).out
    assert all(str(item) in shown for item in expected[some[0]])
    (tmp_path / "users.txt").write_text("\n".join(map(str, some)) + "\n\n")
    (tmp_path / "users.csv").write_text("name,user_id\n" + "".join(f"x,{u}\n" for u in some))
    for flags in (("--users-from", "users.txt"), ("--users-from", "users.csv", "--user", "user_id")):
        fairmf("recommend", made / "model.fairmf", *flags, "-n", 4, "-o", "l.jsonl")
        assert read_back(tmp_path / "l.jsonl") == expected


def test_recommend_with_filters(fairmf, made, tmp_path):
    model = load_model(made / "model.fairmf")
    some = model.fitted.user_ids.values.tolist()[:2]
    items = model.fitted.item_ids.values.tolist()
    (tmp_path / "only.txt").write_text("\n".join(map(str, items[:30])))
    (tmp_path / "not.txt").write_text("\n".join(map(str, items[:5])))
    flags = ("--only", "only.txt", "--without", "not.txt", "--repeat", "-n", 4)
    done = fairmf("recommend", made / "model.fairmf", *some, *flags, "--json")
    expected = lists(model, some, items=items[:30], filter_items=items[:5], filter_already_liked_items=False)
    assert {e["user"]: e["items"] for e in done.json["lists"]} == expected


def test_recommend_for_new_users(fairmf, made, tmp_path):
    model = load_model(made / "model.fairmf")
    items = model.fitted.item_ids.values.tolist()
    (tmp_path / "new.csv").write_text(f"who,item\nAnn,{items[0]}\nAnn,{items[1]}\nBob,{items[2]}\nBob,987654\n")
    done = fairmf("recommend", made / "model.fairmf", "--new-users", "new.csv", "--user", "who", "-n", 4, "--json")
    assert done.code == 0, done.err
    assert "1 of 4 events are dropped" in done.err
    vectors = [model.fold_in_user(items[:2]), model.fold_in_user(items[2:3])]
    for entry, vector, had in zip(done.json["lists"], vectors, ({0, 1}, {2}), strict=True):
        scores = model.item_factors @ vector
        best = [k for k in np.argsort(-scores, kind="stable") if k not in had][:4]
        assert entry["items"] == [items[k] for k in best]
    assert [entry["user"] for entry in done.json["lists"]] == ["Ann", "Bob"]


def test_doctor_finds_what_is_there(fairmf):
    done = fairmf("doctor", "--json")
    assert done.code == 0, done.err
    assert done.json["kernels"]["works"] is True
    assert "own threads" in done.json["threads"]["layer"]
    assert Path(done.json["threads"]["cache"]).is_dir()
    assert done.json["versions"]["numpy"] == np.__version__
    for entry in done.json["extras"].values():
        assert entry["ready"] == all(version for version in entry["packages"].values())
        assert entry["ready"] or "pip install" in entry["install"]
    assert "kernels" in fairmf("doctor").out


def test_doctor_says_when_the_kernels_do_not_run(fairmf, monkeypatch):
    def broken(*_, **__):
        raise OSError("no cache")

    monkeypatch.setattr("fairmf.models.als.FairALS.fit", broken)
    done = fairmf("doctor")
    assert done.code == 1
    assert "no cache" in done.err


def test_events_can_be_made_up(fairmf, tmp_path):
    size = ("--users", 100, "--items", 40, "--interactions", 900, "--seed", 2)
    for name in ("a.csv", "b.parquet"):
        assert fairmf("datasets", "make", "-o", name, *size).code == 0
    a, b = (fairmf("inspect", name, "--json").json for name in ("a.csv", "b.parquet"))
    assert a["interactions"] == b["interactions"] == 900
    assert a["popularity_gini"] == b["popularity_gini"]
    assert (tmp_path / "a.datasets-make.toml").exists()


@pytest.mark.parametrize(("given", "kind"), [("IALS", "IALS"), ("FairALS", "FairALS"), ("popularity", "Popularity")])
def test_models_go_by_their_flag_names_and_by_their_class_names(fairmf, tmp_path, given, kind):
    write_events(tmp_path / "events.csv")
    settings = () if kind == "Popularity" else ("--factors", 2, "--epochs", 1)
    fairmf("fit", "events.csv", "-o", "m.fairmf", "--model", given, *settings)
    assert type(load_model(tmp_path / "m.fairmf")).__name__ == kind


def test_unknown_users_get_popular_items_if_asked(fairmf, made, tmp_path):
    model = load_model(made / "model.fairmf")
    known = model.fitted.user_ids.values[:2].tolist()
    asked = (made / "model.fairmf", known[0], 987_654, known[1], "-n", 4)
    assert "987654" in fairmf("recommend", *asked).err
    done = fairmf("recommend", *asked, "--unknown", "popular", "--json")
    assert done.code == 0, done.err
    assert done.json["unknown_users"] == 1
    lists = {entry["user"]: entry for entry in done.json["lists"]}
    assert list(lists) == [*known, 987_654]
    best = model.fitted.item_ids.values[np.argsort(-model.fitted.popularity, kind="stable")[:4]].tolist()
    assert (lists[987_654]["items"], lists[987_654]["scores"]) == (best, [None] * 4)
    for user in known:
        assert lists[user]["items"] == model.recommend(user, N=4)[0].tolist()
    done = fairmf("recommend", made / "model.fairmf", 987_654, "--unknown", "popular", "-o", "l.csv", "-n", 4)
    assert done.code == 0, done.err
    assert [line.split(",")[1] for line in (tmp_path / "l.csv").read_text().split()[1:]] == list(map(str, best))
