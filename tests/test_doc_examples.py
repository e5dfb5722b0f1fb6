"""The Python examples of docs/ann.md, docs/fairrec.md and docs/rivals.md run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("name", ["ann.md", "fairrec.md", "rivals.md"])
def test_examples_run(name, tmp_path, monkeypatch):
    if name == "ann.md":
        pytest.importorskip("faiss", reason='needs the ann extra: pip install "fairmf[ann]"')
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})
