"""The examples of the guides run as they are written."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("guide", ["audit.md", "exposure.md", "report.md", "tuning.md"])
def test_the_examples_of_a_guide_run(guide, tmp_path, monkeypatch):
    if guide == "report.md":
        pytest.importorskip("matplotlib", reason='needs the report extra: pip install "fairmf[report]"')
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks, f"{guide} has no Python example"
    names = {}  # one namespace: later blocks go on from earlier ones
    for block in blocks:
        exec(compile(block, guide, "exec"), names)
