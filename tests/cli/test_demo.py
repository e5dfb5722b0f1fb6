"""`fairmf demo`, as a user runs it (on smaller data)."""

import contextlib
import io
import json
import os
import subprocess
import sys

import pytest
from running import Done

from fairmf.cli.app import run as run_command_line
from fairmf.cli.demo import DEFAULT, EVEN, PLAIN, story
from fairmf.version import __version__

MODELS = [
    "Popularity", "fiADMM fairness 0.5", "fiADMM fairness 3", "FairALS fairness 0.5", "FairALS fairness 3", "iALS",
    "FairALS", "FairALS evenness 0.3",
]  # fmt: skip


ENVIRONMENT = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}


def process(*arguments, cwd):
    command = [sys.executable, "-c", "from fairmf.cli import main; main()", *arguments]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    small = ("--users", "600", "--items", "250", "--interactions", "18000", "--factors", "8")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(folder)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        code = run_command_line(["demo", *small])
    return Done(code, out.getvalue(), err.getvalue()), folder


@pytest.mark.slow
def test_it_shows_a_table_of_all_models(run):
    done, folder = run
    assert done.code == 0, done.err
    for name in MODELS:
        assert name in done.out
    for heading in ("Recall", "nDCG", "Gini", "Coverage", "@20", "@50", "@100"):
        assert heading in done.out
    # Nothing is broken into two lines at 80 columns, but the closing sentences and the report's path.
    table_end = done.out.index("From iALS to")
    assert max(map(len, done.out[:table_end].splitlines())) <= 80
    assert any(line.endswith(str(folder / "fairmf-demo" / "report.html")) for line in done.out.splitlines())
    starts = ("Data ", "      ", "Split ", "The first run compiles")
    assert all(line.startswith(starts) for line in done.out[: done.out.index("model")].splitlines()[:3])


def test_its_last_lines_compare_ials_the_default_and_evenness(run):
    done, folder = run
    found = json.loads((folder / "fairmf-demo" / "results.json").read_text(encoding="utf-8"))
    values = {m["name"]: m["values"] for m in found["models"]}
    end = done.out[done.out.index("report.html") :]
    assert "Accuracy and evenness for 100 test users" in end
    told = " ".join(end.split())
    assert "calibrated on 100 validation users" in told
    for name in ("iALS", "FairALS", "FairALS evenness 0.3"):
        row = next(line for line in end.splitlines() if line.startswith(f"│ {name} "))
        printed = [f"{values[name][metric]:.3f}" for metric in ("ndcg@20", "gini@20")]
        assert row.split("│")[2:4] == [f" {number:>9} " for number in printed]
        assert all(number in told for number in printed)
    # Evenness is along a path on which Gini falls, here as everywhere.
    assert values["FairALS evenness 0.3"]["gini@20"] < values["FairALS"]["gini@20"]
    assert values["FairALS evenness 0.3"]["coverage@20"] > values["iALS"]["coverage@20"]


def test_the_closing_sentence_follows_the_numbers():
    def sentence(default, even):
        values = ((0.5, 0.9), default, even)
        compared = {
            name: {"ndcg@20": quality, "gini@20": gini}
            for name, (quality, gini) in zip((PLAIN, DEFAULT, EVEN), values, strict=True)
        }
        return story(compared, 70)

    first, second = sentence((0.6, 0.8), (0.4, 0.7)).split("; ")
    assert "a higher nDCG@20 (0.600 instead of 0.500) and a lower Gini@20 (0.800 instead of 0.900)" in first
    assert "a lower nDCG@20 (0.400 instead of 0.500) and a lower Gini@20 (0.700 instead of 0.900)" in second
    first, second = sentence((0.5001, 0.9), (0.55, 0.95)).split("; ")
    assert "the same nDCG@20 (0.500) and the same Gini@20 (0.900)" in first
    assert "a higher nDCG@20 (0.550 instead of 0.500) and a higher Gini@20 (0.950 instead of 0.900)" in second


def test_it_writes_a_report_and_its_numbers(run):
    _, folder = run
    page = (folder / "fairmf-demo" / "report.html").read_text(encoding="utf-8")
    found = json.loads((folder / "fairmf-demo" / "results.json").read_text(encoding="utf-8"))
    assert [m["name"] for m in found["models"]] == MODELS
    for model in found["models"]:
        assert f"{model['values']['ndcg@100']:.3f}" in page
    for section in ("summary", "models", "dial", "spread", "lists", "items", "groups", "training", "record"):
        assert f'<section id="{section}"' in page


def test_fairness_spreads_exposure_and_costs_some_quality(run):
    _, folder = run
    found = json.loads((folder / "fairmf-demo" / "results.json").read_text(encoding="utf-8"))
    values = {m["name"]: m["values"] for m in found["models"]}
    for model in ("fiADMM", "FairALS"):
        names = ["Popularity", "iALS", f"{model} fairness 0.5", f"{model} fairness 3"]
        gini = [values[name]["gini@20"] for name in names]
        assert gini == sorted(gini, reverse=True)
        assert values["iALS"]["ndcg@100"] > values[names[-1]]["ndcg@100"]
    assert values["iALS"]["ndcg@100"] > values["Popularity"]["ndcg@100"] + 0.1


def test_a_problem_is_one_line_and_exit_code_one(fairmf):
    done = fairmf("demo", "--users", "100", "--items", "50", "--interactions", "99999")
    assert done.code == 1
    assert done.err.startswith("Error: ")
    lines = done.err.strip().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("hint: ")


def test_wrong_usage_is_exit_code_two(fairmf, tmp_path):
    assert fairmf("demo", "--users", "none").code == 2
    assert process("dmeo", cwd=tmp_path).returncode == 2


def test_help_and_version(fairmf):
    assert "demo" in fairmf("--help").out
    assert "Examples" in fairmf("demo", "--help").out
    assert fairmf("--version").out == f"fairmf {__version__}\n"
