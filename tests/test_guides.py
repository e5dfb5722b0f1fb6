"""The examples of the guides run as they are written, and print what the page says."""

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest
from conftest import slow_values

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))

import run_page  # noqa: E402

NEEDS = {
    "integrations.md": ("duckdb", None),
    "report.md": ("matplotlib", "report"),
    "serving.md": ("faiss", "ann"),
}


@pytest.mark.parametrize(
    "guide",
    [
        "choosing-evenness.md",
        "features.md",
        "metrics.md",
        "ratings.md",
        *slow_values(
            "audit.md",
            "evenness.md",
            "integrations.md",
            "launch-day.md",
            "exposure.md",
            "report.md",
            "serving.md",
            "ten-minutes.md",
            "tuning.md",
            "vector-stores.md",
        ),
    ],
)
def test_the_examples_of_a_guide_run(guide, tmp_path, monkeypatch):
    if guide in NEEDS:
        package, extra = NEEDS[guide]
        what = f"needs {package}: pip install {package}"
        pytest.importorskip(
            package, reason=f'needs the {extra} extra: pip install "fairmf[{extra}]"' if extra else what
        )
    run_examples(guide, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("guide", ["cluster-and-gpu.md", "cluster.md", "scaling.md"])
def test_the_examples_of_a_guide_run_on_a_cluster(guide, tmp_path, monkeypatch):
    run_examples(guide, tmp_path, monkeypatch)


def run_examples(guide, tmp_path, monkeypatch):
    """Run every Python block; a `text` block right after one holds what it prints."""
    monkeypatch.chdir(tmp_path)
    page = (DOCS / guide).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", page, flags=re.DOTALL)
    assert blocks, f"{guide} has no Python example"
    names = {}  # one namespace: later blocks go on from earlier ones
    for block, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, guide, "exec"), names)
        step = run_page.Step(block, expected or None, run_page.tidy(printed.getvalue()), 0)
        assert run_page.differences(step) == [], block
