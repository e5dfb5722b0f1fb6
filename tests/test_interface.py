"""Every change of a public name, a parameter or a flag since the last release is named in the changelog."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import interface as tool  # noqa: E402

import fairmf  # noqa: E402


def test_the_changelog_names_every_change_since_the_last_release():
    missing = tool.not_named(tool.changes(tool.released(), tool.interface()), tool.newest_changes())
    assert not missing, "\n".join(["add to the newest part of CHANGELOG.md:", *missing])


def test_the_interface_has_functions_methods_and_flags():
    found = tool.interface()
    assert set(fairmf.__all__) - {"__version__"} <= set(found)
    assert found["evaluate"]["bootstrap"].startswith("* int = ")
    assert found["FairALS"]["factors"] == "int = 128"
    assert "N" in found["FairALS.recommend"]
    assert found["Interactions.n_users"] == {}
    assert found["fairmf fit"]["--output"] == "--output -o"
    assert not any(name.startswith("_") or "._" in name for name in found)


OLD = {"fit": {"data": "Data", "seed": "int = 0"}, "Model.save": {}, "fairmf fit": {"--out": "--out -o"}}


@pytest.mark.parametrize(
    ("new", "word"),
    [
        ({**OLD, "fit": {"data": "Data"}}, "seed"),
        ({**OLD, "fit": {"data": "Data", "seed": "int = 1"}}, "seed"),
        ({**OLD, "fit": {**OLD["fit"], "threads": "int"}}, "threads"),
        ({**OLD, "fit": {**OLD["fit"], "threads": "int"}}, "fit"),
        ({**OLD, "Model.load": {}}, "load"),
        ({**OLD, "Model.load": {}}, "Model"),
        ({name: value for name, value in OLD.items() if name != "Model.save"}, "save"),
        ({**OLD, "fairmf fit": {"--out": "--out"}}, "--out"),
        ({**OLD, "fairmf show": {}}, "show"),
    ],
)
def test_a_change_is_missed_until_its_name_is_written(new, word):
    found = tool.changes(OLD, new)
    assert len(found) == 1
    assert len(tool.not_named(found, f"Other words, {word}less and my-{word}er.")) == 1
    assert tool.not_named(found, f"* The `{word}` is another.") == []


def test_the_same_interface_has_no_changes():
    assert tool.changes(OLD, dict(OLD)) == {}


def test_only_the_newest_part_of_the_changelog_counts(tmp_path, monkeypatch):
    page = tmp_path / "CHANGELOG.md"
    page.write_text("# Changes\n\n## Unreleased\n* new\n\n## 0.1.0\n* old\n")
    monkeypatch.setattr(tool, "CHANGES", page)
    assert "new" in tool.newest_changes()
    assert "old" not in tool.newest_changes()
