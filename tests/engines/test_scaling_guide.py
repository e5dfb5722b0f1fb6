"""docs/scaling.md: its examples run as they are written, and its figures are those of RESULTS.md."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("ray_cluster")
def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {}  # one namespace: later blocks go on from earlier ones
    for block in blocks:
        exec(compile(block, "scaling.md", "exec"), names)
    assert len(list((tmp_path / "lists").glob("part-*.parquet"))) == 2
    assert capsys.readouterr().out


def test_the_predictions_are_those_of_the_benchmark():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    section = re.search(r"<!-- ray_costs -->\n(.*?)<!-- end -->", results, flags=re.DOTALL)
    rows = [line for line in section[1].splitlines() if line.startswith("| 1")]
    assert len(rows) == 6
    for row in rows:
        assert row in PAGE
