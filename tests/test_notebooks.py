"""The notebooks have the blocks of their pages, run from the first cell to the last, and are small."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import notebooks  # noqa: E402
from ray_here import patiently  # noqa: E402


@pytest.mark.parametrize("name", notebooks.PAGES)
def test_a_notebook_is_its_page_with_outputs(name):
    assert notebooks.is_current(name), f"run python tools/notebooks.py {name}"
    path = notebooks.PLACE / f"{name}.ipynb"
    assert path.stat().st_size < 100_000
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert (stored["nbformat"], stored["nbformat_minor"]) == (4, 5)
    outputs = [output for cell in stored["cells"] for output in cell.get("outputs", [])]
    assert outputs, "it was stored without being run"
    assert not any("<script" in str(output) for output in outputs)


def test_cells_show_what_notebooks_show():
    outputs = notebooks.run("print('a')\nfrom fairmf import FairALS\nFairALS(factors=3)", {})
    assert outputs[0]["text"] == "a\n"
    assert outputs[1]["data"]["text/plain"] == "FairALS(factors=3)"
    assert "not fitted" in outputs[1]["data"]["text/html"]
    assert notebooks.run("x = 1", {}) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", notebooks.PAGES)
def test_a_notebook_runs(name):
    """Every cell runs again, and shows something where the stored one does."""
    again = patiently(lambda: notebooks.notebook(notebooks.PAGES[name]))
    stored = json.loads((notebooks.PLACE / f"{name}.ipynb").read_text(encoding="utf-8"))
    kinds = [[[o["output_type"] for o in c.get("outputs", [])] for c in made["cells"]] for made in (again, stored)]
    assert kinds[0] == kinds[1]
