"""Files that version 0.1.0 wrote (tests/saved, one of each kind) load, and answer as they did."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fairmf import FairALS, Split, load_model, synthetic
from fairmf.cli.app import run
from fairmf.errors import InvalidParameter
from fairmf.params import settings_of

SAVED = Path(__file__).resolve().parents[1] / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text(encoding="utf-8"))
SIZES = {"n_users": 60, "n_items": 40, "n_interactions": 700, "random_state": 3}

OLD = {"fairness": 1.0, "item_balance": 0.0, "user_balance": 0.0}
"""What FairALS did by default in version 0.1.0, which had no balances."""


def answers_alike(model, users, expected):
    ids, scores = model.recommend(users, N=5)
    assert ids.tolist() == expected[0]
    np.testing.assert_allclose(scores, np.array(expected[1], dtype=float), rtol=1e-4)


@pytest.mark.parametrize("name", ["fair_als", "ials", "fiadmm", "popularity", "text_ids"])
def test_models(name):
    model = load_model(SAVED / f"{name}.fairmf")
    answers_alike(model, model.fitted.user_ids.values[:4], EXPECTED[name])


@pytest.mark.parametrize("name", ["fair_als", "ials", "fiadmm", "text_ids"])
def test_models_have_the_settings_they_were_written_with(name):
    # These files do not name the settings that came later, whose defaults are others now.
    model = load_model(SAVED / f"{name}.fairmf")
    for settings in (vars(model), model.fitted.settings):
        assert (settings["item_balance"], settings["user_balance"]) == (0.0, 0.0)
        assert settings.get("settings", "given") == "given"
        assert settings.get("fairness", 1.0) == 1.0
    assert model.fitted.weighting is None or model.fitted.weighting.how == "log"


def test_an_old_model_folds_its_users_in_without_balances():
    model = load_model(SAVED / "text_ids.fairmf")
    np.testing.assert_allclose(model.fold_in(model.fitted.interactions), model.user_factors, atol=1e-4)
    again = FairALS(**settings_of(model)).fit(model.fitted.interactions)
    found, expected = (x.user_factors @ x.item_factors.T for x in (again, model))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_an_old_model_that_is_saved_again_is_the_same(tmp_path):
    model = load_model(SAVED / "text_ids.fairmf")
    model.save(tmp_path / "again.fairmf")
    again = load_model(tmp_path / "again.fairmf")
    assert again.fitted.settings == model.fitted.settings
    answers_alike(again, again.fitted.user_ids.values[:4], EXPECTED["text_ids"])


def test_a_model_without_histories():
    model, whole = load_model(SAVED / "no_histories.fairmf"), load_model(SAVED / "text_ids.fairmf")
    assert model.fitted.interactions is None
    np.testing.assert_array_equal(model.user_factors, whole.user_factors)


def test_a_split():
    split = Split.load(SAVED / "split")
    parts = split.train, split.test.fold_in, split.test.targets
    assert [part.fingerprint() for part in parts] == EXPECTED["split"]


def test_checkpoints_are_gone_on_from(tmp_path):
    shutil.copytree(SAVED / "checkpoints", tmp_path / "checkpoints")
    model = FairALS(**OLD, factors=4, epochs=5).fit(synthetic(**SIZES), checkpoint=tmp_path / "checkpoints")
    assert [record["seconds"] for record in model.history.records[:2]] == EXPECTED["seconds"]
    found = (model.user_factors @ model.item_factors.T)[:3, :5]
    np.testing.assert_allclose(found, EXPECTED["checkpoints"], rtol=1e-3, atol=1e-4)


def test_checkpoints_without_balances_are_not_gone_on_from_with_them(tmp_path):
    shutil.copytree(SAVED / "checkpoints", tmp_path / "checkpoints")
    model = FairALS(factors=4, epochs=5, fairness=1.0)
    with pytest.raises(InvalidParameter) as caught:
        model.fit(synthetic(**SIZES), checkpoint=tmp_path / "checkpoints")
    said = str(caught.value)
    assert "item_balance is 0.0 there and 0.25 here; user_balance is 0.0 there and 0.25 here." in said
    assert "fairness" not in said
    assert "data differ" not in said


def test_an_index():
    pytest.importorskip("faiss", reason='needs the ann extra: pip install "fairmf[ann]"')
    from fairmf.ranking.ann import AnnIndex

    index, model = AnnIndex.load(SAVED / "index.ann"), load_model(SAVED / "ials.fairmf")
    assert index.search(model.user_factors[:3], 5)[0].tolist() == EXPECTED["index"]


def test_a_run_record(tmp_path, monkeypatch):
    for name in ("events.csv", "run.fit.toml"):
        shutil.copy(SAVED / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["fit", "--config", "run.fit.toml", "-o", "again.fairmf"]) == 0
    model = load_model("again.fairmf")
    answers_alike(model, ["u1", "u2"], EXPECTED["record"])
    assert {name: getattr(model, name) for name in OLD} == OLD


@pytest.mark.parametrize("named", ["FairALS", "ials"])
def test_a_run_record_of_another_name_or_model(tmp_path, monkeypatch, named):
    for name in ("events.csv", "run.fit.toml"):
        shutil.copy(SAVED / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    record = Path("run.fit.toml").read_text().replace('"fair-als"', f'"{named}"')
    Path("run.fit.toml").write_text(record if named == "FairALS" else record.replace("fairness = 1.0\n", "", 1))
    assert run(["fit", "--config", "run.fit.toml", "-o", "again.fairmf"]) == 0
    model = load_model("again.fairmf")
    assert type(model).__name__ == {"FairALS": "FairALS", "ials": "IALS"}[named]
    assert (model.item_balance, model.user_balance, model.settings) == (0.0, 0.0, "given")


def test_flags_override_what_a_run_record_lacks(tmp_path, monkeypatch):
    for name in ("events.csv", "run.fit.toml"):
        shutil.copy(SAVED / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["fit", "--config", "run.fit.toml", "-o", "again.fairmf", "--item-balance", "0.5"]) == 0
    assert (load_model("again.fairmf").item_balance, load_model("again.fairmf").user_balance) == (0.5, 0.0)


def test_a_configuration_that_is_no_record_has_the_defaults_of_today(tmp_path, monkeypatch):
    shutil.copy(SAVED / "events.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text('model = "fair-als"\nfactors = 3\nepochs = 1\nsettings = "given"\n')
    assert run(["fit", "events.csv", "--config", "own.toml", "-o", "own.fairmf"]) == 0
    model = load_model("own.fairmf")
    assert (model.fairness, model.item_balance, model.user_balance) == (0.0, 0.25, 0.25)
