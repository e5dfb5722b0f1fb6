"""`fairmf leaderboard`: a table of 80 columns, JSON, files that a later run continues, and clear errors."""

import json

import pytest

pytest.importorskip("optuna", reason='needs the tune extra: pip install "fairmf[tune]"')
SMALL = ("--factors", "4", "--budget", "2", "--evenness", "0.5")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "own"
    place.mkdir()
    ours = [(user, [(7 * user + 3 * k) % 50 for k in range(14)]) for user in range(60)]
    for name, part in (("train", slice(0, 10)), ("test", slice(10, 14))):
        lines = (" ".join(map(str, [user, *items[part]])) for user, items in ours)
        (place / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return place


def test_it_prints_a_table_and_writes_results(fairmf, folder, tmp_path):
    done = fairmf("leaderboard", folder, *SMALL, "-o", "out")
    assert done.code == 0, done.err
    assert "own: 60 users tested" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert "…" not in done.out
    for name in ("Popularity", "IALS", "FairALS"):
        assert f" {name}" in done.out
    assert "Recall is hits / |T|; settings by nDCG@20 on validation data, 2 trials for each model" in done.err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    again = fairmf("leaderboard", folder, *SMALL, "-o", "out", "--json").json
    assert again["rows"] == results["rows"]
    assert (again["board"]["name"], again["board"]["seed"]) == ("own", 0)
    assert (tmp_path / "out" / "leaderboard.toml").exists()


def test_published_rows_are_shown_beside_ours(fairmf, folder):
    done = fairmf("leaderboard", "gowalla", "--from", folder, "--models", "ials", *SMALL[:-1], "none")
    assert done.code == 0, done.err
    assert "LightGCN" in done.out
    assert ".1830" in done.out
    assert "as published, not measured here" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("gowala", 1, "There is no leaderboard 'gowala'"),
        ("gowalla --from absent", 1, "absent does not exist"),
        ("amazon-book", 5, "train.txt and test.txt"),
        ("{folder} --factors few", 1, "--factors takes numbers"),
        ("{folder} --budget soon", 1, "number of trials such as 24"),
        ("{folder} --models bpr", 1, "no model 'bpr'"),
        ("{folder} --evenness 2", 1, "evenness"),
        ("{folder} -o {folder}/train.txt", 4, "cannot be written"),
    ],
)
def test_errors_are_one_clear_line(fairmf, folder, monkeypatch, tmp_path, arguments, code, told):
    monkeypatch.delenv("FAIRMF_DATA", raising=False)
    monkeypatch.setenv("FAIRMF_DATA_CACHE", str(tmp_path / "cache"))
    done = fairmf("leaderboard", *arguments.format(folder=folder).split())
    assert done.code == code, done.err
    assert told in done.err
    assert "Traceback" not in done.err
