"""--config and run records: flags win, unknown keys are errors, a record replays to the same bits."""

import json
import shutil

import numpy as np
import pytest

from fairmf import Split, load_model, read_csv
from fairmf.reports.run_record import RunRecord, parse_toml


def record(path):
    return parse_toml(path.read_text(encoding="utf-8"))


def test_a_fits_record_says_everything(fairmf, made, tmp_path):
    assert fairmf("fit", made / "split", "-o", "m.fairmf", "--factors", 6, "--seed", 7).code == 0
    found = record(tmp_path / "m.fit.toml")
    settings = found["settings"]
    assert found["verb"] == "fit"
    assert settings["factors"] == 6
    assert settings["random_state"] == 7
    assert settings["epochs"] == 16  # the default, too
    assert settings["model"] == "fair-als"
    train = load_model(tmp_path / "m.fairmf").fitted.interactions
    assert found["data"]["train"]["fingerprint"] == train.given_fingerprint()
    assert found["data"]["train"]["fingerprint"] == Split.load(made / "split").train.fingerprint()
    assert found["data"]["train"]["interactions"] == train.nnz
    assert {"fairmf", "python", "numpy", "numba"} <= set(found["versions"])
    assert {"read", "fit", "write", "total"} <= set(found["timings"])
    assert found["metrics"]["objective"]["total"] > 0


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_record_replays_to_the_same_bits(fairmf, made, tmp_path, ending):
    how = ("--factors", 6, "--fairness", 2.5, "--reweight", "log", "--weight", "rating", "--seed", "none")
    first = fairmf("fit", made / "events.csv", "-o", "a.fairmf", "--record", f"run.{ending}", *how)
    assert first.code == 0, first.err
    again = fairmf("fit", "--config", f"run.{ending}", "-o", "b.fairmf")
    assert again.code == 0, again.err
    a, b = load_model(tmp_path / "a.fairmf"), load_model(tmp_path / "b.fairmf")
    for name in ("user_factors", "item_factors"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    assert a.fitted.interactions.fingerprint() == b.fitted.interactions.fingerprint()
    assert a.fitted.settings == b.fitted.settings
    one, two = record(tmp_path / "b.fit.toml")["settings"], a.get_params()
    assert one["random_state"] == two["random_state"] > 0  # "none" was drawn, and the draw is on record


def test_every_kind_of_run_replays(fairmf, made, tmp_path):
    assert fairmf("split", made / "events.csv", "-o", "s", "--by", "interaction", "--share", 0.3, "--seed", 5).code == 0
    before = {f.name for f in (tmp_path / "s").iterdir()}  # names hold fingerprints
    assert fairmf("split", "--config", "s/split.toml", "-o", "t").code == 0
    assert {f.name for f in (tmp_path / "t").iterdir()} == before
    fairmf("fit", "s", "-o", "m.fairmf", "--factors", 4)
    values = fairmf("evaluate", "m.fairmf", "s", "--at", "5,10", "--fairness", 2, "--json").json["values"]
    assert "ndcg@5" in values
    assert fairmf("evaluate", "--config", "m.evaluate.toml", "--json").json["values"] == values
    users = load_model("m.fairmf").fitted.user_ids.values.tolist()[:3]
    assert fairmf("recommend", "m.fairmf", *users, "-n", 3, "-o", "a.csv", "--fairness", 2).code == 0
    assert fairmf("recommend", "--config", "a.recommend.toml", "-o", "b.csv").code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 10


def test_flags_win_over_the_file_and_the_verbs_table_over_the_top(fairmf, made, tmp_path):
    (tmp_path / "run.toml").write_text(
        'epochs = 2\nfactors = 5\n[fit]\nfactors = 6\nmodel = "ials"\n[split]\nheldout = 9\n'
    )
    fairmf("fit", made / "split", "-o", "m.fairmf", "--config", "run.toml")
    model = load_model(tmp_path / "m.fairmf")
    assert (type(model).__name__, model.factors, model.epochs) == ("IALS", 6, 2)
    fairmf("fit", made / "split", "-o", "m.fairmf", "--config", "run.toml", "--factors", 7)
    assert load_model(tmp_path / "m.fairmf").factors == 7


def test_arguments_flags_and_lists_may_stand_in_the_file(fairmf, made, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({
        "model": str(made / "model.fairmf"), "data": str(made / "split"), "at": [5, 7], "part": "validation",
        "metrics": ["ndcg", "gini@5"], "fairness": None,
    }))  # fmt: skip
    found = fairmf("evaluate", "--config", "run.json", "--json").json
    assert set(found["values"]) == {"ndcg@5", "ndcg@7", "gini@5"}
    assert found["part"] == "validation"
    (tmp_path / "run.toml").write_text("no-histories = true\nseed = 3\nfactors = 2\n")
    assert fairmf("fit", made / "split", "-o", "m.fairmf", "--config", "run.toml").code == 0
    assert load_model(tmp_path / "m.fairmf").fitted.interactions is None
    assert load_model(tmp_path / "m.fairmf").random_state == 3


def test_where_records_go(fairmf, made, tmp_path):
    fairmf("inspect", made / "events.csv")
    assert not list(tmp_path.iterdir())
    fairmf("inspect", made / "events.csv", "--record", "deep/seen.toml")
    assert record(tmp_path / "deep" / "seen.toml")["metrics"]["rows"] == 2500
    fairmf("fit", made / "split", "-o", "m.fairmf", "--no-record", "--factors", 2)
    assert not list(tmp_path.glob("*.toml"))


def test_a_record_nobody_asked_for_is_no_reason_to_fail(fairmf, made, tmp_path):
    shutil.copy(made / "model.fairmf", tmp_path / "m.fairmf")
    (tmp_path / "m.evaluate.toml").mkdir()
    done = fairmf("evaluate", "m.fairmf", made / "split", "--json")
    assert done.code == 0
    assert done.json["record"] is None
    assert "warning: the run record was not written" in done.err
    assert fairmf("evaluate", "m.fairmf", made / "split", "--record", "m.evaluate.toml").code == 4


def test_a_password_is_in_no_record(fairmf, made, tmp_path, monkeypatch):
    import contextlib
    import sqlite3

    with contextlib.closing(sqlite3.connect("shop.db")) as database, database:
        database.execute("CREATE TABLE events (user INTEGER, item INTEGER)")
        database.executemany("INSERT INTO events VALUES (?, ?)", [(k % 7, k % 5) for k in range(70)])
    asked = ("--query", "SELECT user, item FROM events")
    done = fairmf("inspect", "sqlite:///shop.db", *asked, "--json", "--record", "r.toml")
    assert done.code == 0, done.err
    assert done.json["interactions"] == 35
    assert record(tmp_path / "r.toml")["settings"]["data"] == "sqlite:///shop.db"
    server = "postgresql://me:secret@127.0.0.1:1/db"
    done = fairmf("inspect", server, *asked, "--debug")
    assert done.code in (1, 3)
    assert "secret" not in done.out + done.err
    events = read_csv(made / "events.csv", user="user_id", item="item_id")
    monkeypatch.setattr("fairmf.data.read_sql.read_sql", lambda query, url, **columns: events)
    done = fairmf("inspect", server, *asked, "--record", "r.json", "--json")
    assert done.code == 0, done.err
    assert "secret" not in done.out + done.err + (tmp_path / "r.json").read_text()
    assert "127.0.0.1" in (tmp_path / "r.json").read_text()


def test_toml_says_what_was_put_in(tmp_path):
    table = {
        "text": 'a "quoted" \\ line\nand \x7f é \u2028', "n": -3, "x": 1e-7, "big": 1e22, "yes": True,
        "list": [1, 2.5, "x"], "rows": [{"a": 1}, {"a": 2}], "odd key.": 1, "inner": {"a": 1, "deeper": {"b": "c"}},
    }  # fmt: skip
    RunRecord("fit", "now", table | {"half a character": "\ud800"}).write(tmp_path / "r.toml")
    found = parse_toml((tmp_path / "r.toml").read_text(encoding="utf-8"))
    assert found["settings"] == table | {"half a character": "\ufffd"}


def test_a_record_leaves_out_what_toml_cannot_say(tmp_path):
    run = RunRecord("fit", "now", {"a": None, "b": float("nan"), "c": np.float32(0.5), "d": (1, None)})
    assert run.to_dict()["settings"] == {"c": 0.5, "d": [1]}
    run.write(tmp_path / "r.toml")
    assert parse_toml((tmp_path / "r.toml").read_text(encoding="utf-8")) == run.to_dict()
