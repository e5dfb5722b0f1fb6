"""Files that version 0.1.0 wrote (tests/saved, one of each kind) load, and answer as they did."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fairmf import FairALS, Split, load_model, synthetic
from fairmf.cli.app import run

SAVED = Path(__file__).resolve().parents[1] / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text(encoding="utf-8"))
SIZES = {"n_users": 60, "n_items": 40, "n_interactions": 700, "random_state": 3}


def answers_alike(model, users, expected):
    ids, scores = model.recommend(users, N=5)
    assert ids.tolist() == expected[0]
    np.testing.assert_allclose(scores, np.array(expected[1], dtype=float), rtol=1e-4)


@pytest.mark.parametrize("name", ["fair_als", "ials", "fiadmm", "popularity", "text_ids"])
def test_models(name):
    model = load_model(SAVED / f"{name}.fairmf")
    answers_alike(model, model.fitted.user_ids.values[:4], EXPECTED[name])


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
    model = FairALS(factors=4, epochs=5).fit(synthetic(**SIZES), checkpoint=tmp_path / "checkpoints")
    assert [record["seconds"] for record in model.history.records[:2]] == EXPECTED["seconds"]
    found = (model.user_factors @ model.item_factors.T)[:3, :5]
    np.testing.assert_allclose(found, EXPECTED["checkpoints"], rtol=1e-3, atol=1e-4)


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
    answers_alike(load_model("again.fairmf"), ["u1", "u2"], EXPECTED["record"])
