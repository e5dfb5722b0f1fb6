"""The figures of docs/scaling.md are those of RESULTS.md; tests/test_guides.py runs its examples."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_the_predictions_are_those_of_the_benchmark():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    section = re.search(r"<!-- ray_costs -->\n(.*?)<!-- end -->", results, flags=re.DOTALL)
    rows = [line for line in section[1].splitlines() if line.startswith("| 1")]
    assert len(rows) == 6
    for row in rows:
        assert row in PAGE
