"""The examples of the guides run as they are written."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


NEEDS = {
    "report.md": ("matplotlib", "report"),
    "serving.md": ("faiss", "ann"),
}


GUIDES = ["audit.md", "choosing-fairness.md", "exposure.md", "report.md", "serving.md", "tuning.md"]


@pytest.mark.parametrize("guide", GUIDES)
def test_the_examples_of_a_guide_run(guide, tmp_path, monkeypatch):
    if guide in NEEDS:
        package, extra = NEEDS[guide]
        pytest.importorskip(package, reason=f'needs the {extra} extra: pip install "fairmf[{extra}]"')
    run_examples(guide, tmp_path, monkeypatch)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("guide", ["cluster.md", "scaling.md"])
def test_the_examples_of_a_guide_run_on_a_cluster(guide, tmp_path, monkeypatch):
    run_examples(guide, tmp_path, monkeypatch)


def run_examples(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks, f"{guide} has no Python example"
    names = {}  # one namespace: later blocks go on from earlier ones
    for block in blocks:
        exec(compile(block, guide, "exec"), names)
