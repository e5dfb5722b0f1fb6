"""`fairmf calibrate` finds the library's path, says what it costs, and stores it in the model's file."""

import csv
import shutil

import numpy as np
import pytest

from fairmf import IALS, Level, Split, calibrate, evaluate, load_model
from fairmf.cli import errors as failures
from fairmf.cli.calibrate import cost_table

QUICK = ("--bootstrap", 20, "--at", 10, "--quality", "ndcg@20")


@pytest.fixture
def model(made, tmp_path):
    return shutil.copy(made / "model.fairmf", tmp_path / "m.fairmf")


def test_the_path_is_the_librarys_and_is_stored_in_the_model_itself(fairmf, made, model):
    before, mine = load_model(model), load_model(model)
    expected = calibrate(mine, Split.load(made / "split"), at=10, quality="ndcg@20", bootstrap=20, progress=False)
    done = fairmf("calibrate", model, made / "split", *QUICK, "--json")
    assert done.code == 0, done.err
    after = load_model(model)
    assert after.fitted.path == expected.path == mine.fitted.path
    assert len(expected.path.knots) > 2
    np.testing.assert_array_equal(after.user_factors, before.user_factors)
    assert after.fitted.interactions.fingerprint() == before.fitted.interactions.fingerprint()
    assert (done.json["output"], done.json["shown_on"]) == (str(model), "test")
    assert done.json["path"] == expected.path.to_dict()


def test_rows_are_what_evaluate_measures_on_test_users(fairmf, made, model, tmp_path):
    done = fairmf("calibrate", model, made / "split", *QUICK, "--json", "--table", "costs.csv")
    split, fitted = Split.load(made / "split"), load_model(model)
    assert done.json["users"] == split.test.n_users
    assert done.json["validation_users"] == split.validation.n_users
    assert [row["evenness"] for row in done.json["rows"]] == pytest.approx([k / 10 for k in range(11)])
    row = done.json["rows"][3]
    level = Level(row["fairness"], row["flatten"], row["discount"])
    found = evaluate(fitted, split.test, metrics=["ndcg@10", "gini@10"], bootstrap=0, evenness=level)
    assert row["values"]["gini@10"] == found["gini@10"] == evaluate(
        fitted, split.test, metrics=["gini@10"], bootstrap=0, evenness=0.3
    )["gini@10"]  # fmt: skip
    assert row["values"]["ndcg@10"] == found["ndcg@10"]
    assert all(low <= row["values"][name] <= high for name, (low, high) in row["intervals"].items())
    with (tmp_path / "costs.csv").open() as file:
        table = list(csv.DictReader(file))
    assert float(table[3]["gini@10"]) == pytest.approx(found["gini@10"])
    assert float(table[3]["flatten"]) == pytest.approx(level.flatten)


def test_levels_are_tried_on_as_many_users_as_asked(fairmf, made, model):
    split, found = Split.load(made / "split"), {}
    for users in (3, None):
        how = {"at": 10, "quality": "ndcg@20", "users": users, "bootstrap": 0, "progress": False}
        found[users] = calibrate(load_model(model), split, **how)
    done = fairmf("calibrate", model, made / "split", *QUICK, "--users", 3, "--json")
    assert done.json["levels_measured"] == found[3].points
    assert done.json["path"] == found[3].path.to_dict() != found[None].path.to_dict()


def test_people_read_what_each_evenness_costs_and_for_how_many_users(fairmf, made, model):
    done = fairmf("calibrate", model, made / "split", *QUICK)
    split = Split.load(made / "split")
    for word in ("evenness", "ndcg@20", "ndcg@10", "gini@10", "coverage@10", "±"):
        assert word in done.out
    said = " ".join(done.out.split())
    assert f"Measured on {split.test.n_users} test users" in said
    assert f"calibrated on {split.validation.n_users} validation users" in said
    assert "--evenness 0.3" in done.err
    plain = fairmf("calibrate", model, made / "split", *QUICK, "--bootstrap", 0)
    assert "±" not in plain.out


def test_another_file_leaves_the_model_as_it_was(fairmf, made, model, tmp_path):
    before = (tmp_path / "m.fairmf").read_bytes()
    done = fairmf("calibrate", model, made / "split", *QUICK, "-o", "new/c.fairmf")
    assert done.code == 0, done.err
    assert (tmp_path / "m.fairmf").read_bytes() == before
    assert load_model(tmp_path / "new" / "c.fairmf").fitted.path is not None
    assert (tmp_path / "new" / "c.calibrate.toml").exists()


def test_a_record_repeats_it(fairmf, made, model, tmp_path):
    assert fairmf("calibrate", model, made / "split", *QUICK, "--min-quality", 0.8, "-o", "a.fairmf").code == 0
    done = fairmf("calibrate", "--config", "a.calibrate.toml", "-o", "b.fairmf")
    assert done.code == 0, done.err
    paths = [load_model(tmp_path / name).fitted.path for name in ("a.fairmf", "b.fairmf")]
    assert paths[0] == paths[1]
    best = paths[0].knots[0].quality
    assert all(knot.quality > 0.6 * best for knot in paths[0].knots)  # the grid's 0.8 may shift on all users


def test_a_model_without_histories_stays_without(fairmf, made, tmp_path):
    load_model(made / "model.fairmf").save(tmp_path / "private.fairmf", interactions=False)
    assert fairmf("calibrate", "private.fairmf", made / "split", *QUICK).code == 0
    after = load_model(tmp_path / "private.fairmf").fitted
    assert after.path is not None
    assert after.interactions is None


def test_interrupted_it_leaves_the_old_model(fairmf, made, model, tmp_path, monkeypatch):
    def impatient(*_, **__):
        raise KeyboardInterrupt

    before = (tmp_path / "m.fairmf").read_bytes()
    monkeypatch.setattr("fairmf.control.calibrate.refined_chain", impatient)
    assert fairmf("calibrate", model, made / "split", *QUICK).code == failures.INTERRUPTED
    assert (tmp_path / "m.fairmf").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m.fairmf"]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--quality", "gini@20"), 1, "quality must be an accuracy"),
        (("--quality", "magic"), 1, "magic"),
        (("--min-quality", 2), 1, "min_quality"),
        (("--at", 0), 2, "--at"),
        (("--users", 0), 2, "--users"),
        (("--table", "costs.xls"), 1, "costs.xls"),
        (("-o", "."), 4, "it is a folder"),
    ],
)
def test_one_clear_line_and_the_model_stays(fairmf, made, model, tmp_path, flags, code, words):
    before = (tmp_path / "m.fairmf").read_bytes()
    done = fairmf("calibrate", model, made / "split", *flags)
    assert done.code == code, done.err
    assert words in done.err.splitlines()[0]
    assert len(done.err.splitlines()) == 2
    assert (tmp_path / "m.fairmf").read_bytes() == before


def test_offsets_hold_for_one_level_so_such_a_model_is_refused(fairmf, made):
    how = ("--method", "offsets", "--min-exposure", 0.3, "--iterations", 20, "--save-model", "off.fairmf")
    assert fairmf("rerank", made / "model.fairmf", *how).code == 0
    done = fairmf("calibrate", "off.fairmf", made / "split")
    assert done.code == 1
    assert "exposure offsets" in done.err
    assert "rerank" in done.err.splitlines()[1]


def test_one_column_stands_for_quality_and_ndcg_where_they_are_the_same(made):
    split = Split.load(made / "split")
    fitted = IALS(factors=4, epochs=2).fit(split.train, progress=False)
    found = calibrate(fitted, split.validation, at=10, quality="ndcg@10", bootstrap=0, progress=False)
    assert [column.header for column in cost_table(found).columns] == [
        "evenness", "ndcg@10 ↑", "gini@10 ↓", "coverage@10 ↑"
    ]  # fmt: skip
