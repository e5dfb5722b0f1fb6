"""The snippets for people who come from other libraries run, where the library is installed, and compare well."""

import re
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "from-other-libraries.md"
BLOCK = re.compile(r"```python(?: needs=(\w+))?\n(.*?)```", re.DOTALL)
BLOCKS = {needs or "": code for needs, code in BLOCK.findall(PAGE.read_text(encoding="utf-8"))}
NDCG = re.compile(r"nDCG@20 ([\d.]+), Gini@20 ([\d.]+)")


def ndcg(text):
    return float(NDCG.search(text)[1])


@pytest.fixture(scope="module")
def begun():
    found = {}
    exec(compile(BLOCKS[""], str(PAGE), "exec"), found)
    return found


def test_every_section_has_a_snippet():
    assert list(BLOCKS) == ["", "pyspark", "lightfm", "lenskit", "recbole"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("library", [name for name in BLOCKS if name])
def test_the_snippet_runs_and_finds_as_much(library, begun, tmp_path, monkeypatch, capfd):
    pytest.importorskip(library, reason=f"needs another library: pip install {library}")
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[library], str(PAGE), "exec"), dict(begun))
    said = [line for line in capfd.readouterr().out.splitlines() if NDCG.search(line)]
    with capfd.disabled():
        sys.stdout.write("\n".join(["", f"FairALS          {begun['ours']}", *said, ""]))
    assert ndcg(begun["ours"]) > 0.95 * ndcg(said[0])  # what the library itself found
