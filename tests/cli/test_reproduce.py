"""`reproduce`: lists, says what it will take, runs, goes on, and says which package is missing."""

import importlib.util
import json

import pytest

from fairmf.cli import errors
from fairmf.data.split import Split
from fairmf.reproduce import estimate
from fairmf.reproduce.data import SOURCES, load_data
from fairmf.reproduce.spec import experiments

SMALL = ("--seeds", 1, "--epochs", 2)


@pytest.fixture(autouse=True)
def _needs_matplotlib():
    pytest.importorskip("matplotlib", reason='needs the report extra: pip install "fairmf[report]"')


@pytest.mark.slow
def test_the_list_has_every_table_and_figure_with_data_and_time(fairmf, monkeypatch):
    monkeypatch.setattr(estimate, "LARGE", 2 * estimate.SMALL)  # measured more quickly, once for all tests
    done = fairmf("reproduce", "--list")
    assert done.code == 0, done.err
    for name, one in experiments().items():
        line = next(line for line in done.out.splitlines() if f" {name} " in line)
        assert one.data in line
        assert sum(line.count(unit) for unit in (" s ", " min ", " hours ", " days ")) == 2
    assert "…" not in done.out  # 80 columns hold it
    listed = fairmf("reproduce", "--list", "--json").json["experiments"]
    assert {one["name"]: one["kind"] for one in listed} == {name: one.kind for name, one in experiments().items()}
    assert all(one["seconds"] > one["seconds_on_ml_1m"] >= 0 for one in listed)


def test_it_says_what_it_will_take_runs_and_does_nothing_twice(fairmf, made, tmp_path):
    how = ("reproduce", "figure2-ml20m", "--data", made / "split", "-o", "out", *SMALL)
    said = fairmf(*how, "--dry-run", "--json")
    assert said.code == 0, said.err
    assert (said.json["pieces"], said.json["left"]) == (7, 7)
    assert said.json["estimated_seconds"] > 0
    assert "7 pieces (0 done, 7 left), about" in said.err
    assert "GB of memory" in said.err
    assert not (tmp_path / "out").exists()
    done = fairmf(*how)
    assert done.code == 0, done.err
    assert "FiADMM, fairness 10" in done.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    wanted = {
        "results.json",
        "table.md",
        "table.csv",
        "exposure-20.svg",
        "exposure-100.svg",
        "coverage.svg",
        "pieces",
        "reproduce.toml",
    }
    assert names == wanted
    results = (tmp_path / "out" / "results.json").read_bytes()
    again = fairmf(*how, "--json")
    assert (again.json["computed"], again.json["left"]) == (0, 0)
    assert again.json["rows"] == json.loads(results)["rows"]
    assert (tmp_path / "out" / "results.json").read_bytes() == results


def test_all_takes_every_experiment_of_one_of_the_papers_data_sets(fairmf, made, tmp_path, monkeypatch):
    how = ("reproduce", "--all", "--data", made / "split", "--without", "vae", *SMALL, "--dry-run", "--json")
    said = fairmf(*how, "-o", "out")
    assert said.code == 0, said.err
    names = [name for name, one in experiments().items() if one.data == "ml-20m"]
    assert [one["experiment"] for one in said.json["experiments"]] == names
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    without = fairmf(*(word for word in how if word not in ("--without", "vae")), "-o", "out")
    assert without.code == 0, without.err
    assert "PyTorch is not installed: Mult-VAE, RecVAE are left out" in " ".join(without.err.split())
    assert without.json["experiments"] == said.json["experiments"]
    wrong = fairmf("reproduce", "--all", "figure2-ml20m")
    assert wrong.code == 1
    assert "--all reproduces all tables and figures; it takes no name" in wrong.err


@pytest.mark.slow
@pytest.mark.usefixtures("empty_plots")
def test_all_writes_a_folder_each_and_a_second_run_computes_nothing(fairmf, made, tmp_path):
    how = ("reproduce", "--all", "--data", made / "split", "--without", "vae", *SMALL, "--json")
    done = fairmf(*how)
    assert done.code == 0, done.err
    folder = tmp_path / "all-split"
    for one in done.json["experiments"]:
        stored = json.loads((folder / one["experiment"] / "results.json").read_text())
        assert stored["rows"] == one["rows"]
    assert (folder / "reproduce.toml").exists()
    again = fairmf(*how)
    assert sum(one["computed"] for one in again.json["experiments"]) == 0


@pytest.mark.usefixtures("empty_plots")
def test_stored_results_are_shown_again_without_data(fairmf, made, tmp_path):
    first = fairmf("reproduce", "figure4-time", "--data", made / "split", "-o", "first", *SMALL, "--json")
    assert first.code == 0, first.err
    shown = fairmf("reproduce", "--rebuild", "first/results.json", "-o", "again", "--json")
    assert shown.code == 0, shown.err
    assert (tmp_path / "again" / "table.md").read_text() == (tmp_path / "first" / "table.md").read_text()
    assert shown.json["rows"] == first.json["rows"]
    refused = fairmf("reproduce", "figure4-time", "--rebuild", "first")
    assert refused.code == 1
    assert "takes no name" in refused.err
    absent = fairmf("reproduce", "--rebuild", "absent.json", "-o", "again")
    assert absent.code != 0
    assert "cannot be read" in absent.err


def test_a_record_repeats_the_run(fairmf, made, tmp_path):
    done = fairmf("reproduce", "figure2-ml20m", "--data", made / "split", "-o", "out", *SMALL, "-q")
    assert done.code == 0, done.err
    assert done.err == ""
    again = fairmf("reproduce", "--config", "out/reproduce.toml", "--json")
    assert again.code == 0, again.err
    assert (again.json["computed"], again.json["output"]) == (0, "out")


@pytest.mark.usefixtures("empty_plots")
def test_a_split_stands_for_the_data_set_it_was_made_of(fairmf, made, tmp_path):
    how = ("reproduce", "figure5-ml20m", "--data", "ml-1m", "--from", made / "split", *SMALL)
    done = fairmf(*how, "--json")
    assert done.code == 0, done.err
    assert done.json["data"] == "ml-1m"
    assert done.json["output"] == "figure5-ml20m-ml-1m"
    results = json.loads((tmp_path / "figure5-ml20m-ml-1m" / "results.json").read_text())
    assert {piece["settings"]["unobserved_weight"] for piece in results["pieces"]} == {0.1}
    assert {piece["settings"]["factors"] for piece in results["pieces"]} == {64}


@pytest.mark.usefixtures("empty_plots")
def test_without_pytorch_it_says_what_to_do_before_anything_is_read(fairmf, made, monkeypatch):
    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else plain(name, *a))
    how = ("reproduce", "table1-ml20m", "--data", made / "split", "-o", "out", *SMALL)
    done = fairmf(*how)
    assert done.code == errors.MISSING_PACKAGE
    assert "Mult-VAE, RecVAE of table1-ml20m need PyTorch" in done.err
    assert "--without vae" in done.err
    less = fairmf(*how, "--without", "vae", "--json")
    assert less.code == 0, less.err
    assert [row["series"] for row in less.json["rows"]] == [
        "Popularity", "FiADMM", "FiADMM, automatic", "iALS", "FairALS, fairness 0", "FairALS"
    ]  # fmt: skip


def test_without_matplotlib_there_are_numbers_and_a_warning(fairmf, made, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = fairmf("reproduce", "figure2-ml20m", "--data", made / "split", "-o", "out", *SMALL)
    assert done.code == 0, done.err
    assert "There are no plots" in done.err


def test_named_data_are_divided_as_the_paper_does(cache, tmp_path):
    """MovieLens-1M in small: the public protocol, with the data set's filters and number of held-out users."""
    from small_files import files_of

    archive = next(iter(files_of("ml-1m").values()))
    (tmp_path / "ml-1m.zip").write_bytes(archive)
    import dataclasses

    from fairmf import load_dataset, split_by_user

    events = load_dataset("ml-1m", from_path=tmp_path / "ml-1m.zip")
    source = dataclasses.replace(SOURCES["ml-1m"], heldout=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "ml-1m", source)
        found = load_data("ml-1m", from_path=tmp_path / "ml-1m.zip")
    expected = split_by_user(events, 1)
    assert found.split.train.fingerprint() == expected.train.fingerprint()
    assert found.split.test.targets.fingerprint() == expected.test.targets.fingerprint()
    assert found.name == found.shown == "ml-1m"


def test_made_up_data_have_the_shape_and_the_gini_they_say(monkeypatch):
    import dataclasses

    import numpy as np

    source = SOURCES["synthetic-ml20m"]
    assert (source.made_up["n_users"], source.made_up["n_items"]) == (136_677, 20_108)
    assert source.made_up["popularity_gini"] == 0.9
    small = {**source.made_up, "n_users": 1366, "n_items": 402, "n_interactions": 20_000}
    monkeypatch.setitem(SOURCES, "synthetic-ml20m", dataclasses.replace(source, heldout=50, made_up=small))
    split = load_data("synthetic-ml20m").split
    counts = np.sort(split.train.by_item.sums())
    ranks = np.arange(1, len(counts) + 1)
    gini = ((2 * ranks - len(counts) - 1) * counts).sum() / (len(counts) * counts.sum())
    assert gini == pytest.approx(0.9, abs=0.03)
    assert split.test.n_users == 50


def test_data_have_a_fingerprint_of_every_part(made, tmp_path):
    import dataclasses

    first = load_data(str(made / "split"))
    assert load_data(str(made / "split")).fingerprint == first.fingerprint
    split = Split.load(made / "split")
    dataclasses.replace(split, test=split.validation, validation=split.test).save(tmp_path / "other")
    assert load_data(str(tmp_path / "other")).fingerprint != first.fingerprint
