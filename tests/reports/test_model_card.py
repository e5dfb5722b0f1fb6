"""The model card says what the model and its records say, and its front matter is YAML."""

import json
import re
import shutil

import pytest

from fairmf import FairALS, Interactions, synthetic
from fairmf.errors import BrokenFile, InvalidData
from fairmf.reports.model_card import model_card


@pytest.fixture(scope="module")
def model():
    return FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)


def fit_record(**result):
    facts = {"users": 60, "items": 40, "interactions": 600, "fingerprint": "ab" * 32}
    return {
        "fairmf_record": 1, "verb": "fit", "started": "2030-01-02T03:04:05+00:00",
        "settings": {"data": "/secret/place/films.csv"},
        "data": {"train": facts}, "result": {"users": 60, "items": 40, "fit_seconds": 1.25, "epochs": 2, **result},
        "versions": {"fairmf": "9.9"},
    }  # fmt: skip


def evaluation(**metrics):
    return {
        "fairmf_record": 1, "verb": "evaluate", "started": "now", "settings": {"part": "test"},
        "metrics": metrics, "result": {"n_users": 12, "part": "test", "evenness": 0.3}, "versions": {},
    }  # fmt: skip


def front_matter(card):
    """The YAML of a card, read without a YAML library: keys, and the metrics with their values."""
    lines = card.split("---\n")[1].splitlines()
    types = [json.loads(line.split(": ", 1)[1]) for line in lines if line.startswith("    - type:")]
    values = [float(line.split(": ", 1)[1]) for line in lines if line.startswith("      value:")]
    return [line.split(":")[0] for line in lines if re.match(r"[a-z]", line)], dict(zip(types, values, strict=True))


def test_a_card_has_what_records_say(model):
    card = model_card(
        model, [fit_record(), evaluation(**{"ndcg@20": 0.123456789, "gini@20": 0.75, "mrr@20": 0.5})],
        name="films", license="apache-2.0",
    )  # fmt: skip
    keys, metrics = front_matter(card)
    assert keys == ["library_name", "license", "tags", "model-index"]
    assert metrics == {"ndcg@20": 0.123457, "gini@20": 0.75}
    facts = "60 users/600 interactions/films.csv/`abababababababab`/1.2 seconds/12 test users, at evenness 0.3"
    facts += "/| ndcg@20 | 0.1235 |/load_model('films.fairmf')/not calibrated/fairmf 9.9"
    for said in facts.split("/"):
        assert said in card, said
    assert "/secret/place" not in card
    for setting, value in model.fitted.settings.items():
        assert value is None or f"| {setting} | {value} |" in card


def test_a_card_warns_of_histories(model, tmp_path):
    assert "holds the histories" in model_card(model)
    model.save(tmp_path / "m.fairmf", interactions=False)
    assert "holds the histories" not in model_card(FairALS.load(tmp_path / "m.fairmf"))


def test_the_example_of_a_card_runs(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = FairALS(factors=4, epochs=2).fit(
        Interactions.from_csr(synthetic(60, 40, 600).to_csr(), item_ids=[f"it'em {k}" for k in range(40)]),
        progress=False,
    )
    named.save("films.fairmf")
    found = {}
    exec(re.search("```python\n(.*?)```", model_card(named, name="films"), re.DOTALL)[1], found)
    assert found["ids"].tolist() == named.recommend_for(["it'em 0", "it'em 1"], N=10, evenness=0.3)[0].tolist()


def test_names_cannot_break_the_front_matter(model):
    card = model_card(model, [evaluation(**{"ndcg@20": 0.5})], name='x\n---\nlicense: "mit"', dataset="a|b`<script>")
    assert card.count("\n---\n") == 1
    assert "<script>" not in card.split("---\n")[2]


def test_records_of_others_are_refused(model, tmp_path):
    with pytest.raises(InvalidData, match="belongs to another model"):
        model_card(model, [fit_record(users=61)])
    (tmp_path / "x.toml").write_text("a = 1\n")
    with pytest.raises(BrokenFile, match="not a run record"):
        model_card(model, [tmp_path / "x.toml"])
    with pytest.raises(BrokenFile, match="cannot be read"):
        model_card(model, [tmp_path / "none.toml"])


def test_the_verb_finds_the_records_beside_the_model(fairmf, made, tmp_path):
    alone = tmp_path / "alone"  # other tests leave records of evaluations beside the model in `made`
    alone.mkdir()
    for name in ("model.fairmf", "model.fit.toml"):
        shutil.copy(made / name, alone / name)
    done = fairmf("card", alone / "model.fairmf")
    assert done.code == 0, done.err
    assert "120 users, 57 items" in done.out
    assert "No evaluation was given" in done.out
    ran = fairmf(
        "evaluate", made / "model.fairmf", made / "split", "--record", "ev.toml", "--at", "10", "--bootstrap", 0
    )
    assert ran.code == 0, ran.err
    done = fairmf("card", made / "model.fairmf", "-o", "README.md", "--from", "ev.toml", "--json")
    assert done.code == 0, done.err
    assert (tmp_path / "README.md").read_text() == done.json["card"]
    assert "| ndcg@10 |" in done.json["card"]
    assert fairmf("card", made / "model.fairmf", "-o", "card.txt").code != 0
