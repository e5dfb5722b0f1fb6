"""The examples of the guides run as they are written."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


NEEDS = {
    "report.md": ("matplotlib", "report"),
    "serving.md": ("faiss", "ann"),
    "cluster.md": ("ray", "ray"),
    "scaling.md": ("ray", "ray"),
}


GUIDES = ["audit.md", "cluster.md", "exposure.md", "report.md", "scaling.md", "serving.md", "tuning.md"]


@pytest.mark.parametrize("guide", GUIDES)
def test_the_examples_of_a_guide_run(guide, tmp_path, monkeypatch, request):
    if guide in NEEDS:
        package, extra = NEEDS[guide]
        pytest.importorskip(package, reason=f'needs the {extra} extra: pip install "fairmf[{extra}]"')
        if extra == "ray":
            request.getfixturevalue("ray_cluster")  # the one that tests have running, or will
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks, f"{guide} has no Python example"
    names = {}  # one namespace: later blocks go on from earlier ones
    for block in blocks:
        exec(compile(block, guide, "exec"), names)
