"""The worked example of docs/metrics.md: every metric by hand, as the page writes it, beside the library."""

import json
import math
import re
from pathlib import Path

import pytest

from fairmf.errors import InvalidData
from fairmf.metrics.joint_metrics import generalised_lorenz, lorenz_dominates
from fairmf.metrics.registry import METRICS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.partition("## Worked example\n")[2].partition("## Other libraries\n")[0]
ROWS = re.findall(r"^\| `([a-z0-9_]+@\d+)` \| (.+) \| (\d\.\d{4}) \|$", EXAMPLE, flags=re.MULTILINE)
q, t, w = 0.15, 0.15 * 0.85, 1 / math.log2(3)
LETTERS = {"q": q, "t": t, "w": w, "h": (q + t) / 3, "s": 1 / (1 + w)}
FUNCTIONS = {"log": math.log, "log2": math.log2, "sqrt": math.sqrt, "abs": abs}


@pytest.fixture(scope="module")
def found():
    names = {}
    for code in re.findall(r"```python\n(.*?)```", EXAMPLE, flags=re.DOTALL):
        exec(compile(code, "docs/metrics.md", "exec"), names)
    return names["found"].values | names["among"].values


def test_every_metric_has_a_row():
    assert {label.partition("@")[0] for label, *_ in ROWS} == {*METRICS, "group_gini"}


@pytest.mark.parametrize(("label", "by_hand", "value"), ROWS, ids=[row[0] for row in ROWS])
def test_by_hand(found, label, by_hand, value):
    assert set(re.findall(r"[a-z]\w*", by_hand)) <= {*LETTERS, *FUNCTIONS}
    expected = eval(by_hand, {"__builtins__": {}}, {**LETTERS, **FUNCTIONS})  # the page is our own
    assert found[label] == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert f"{expected:.4f}" == value


def test_the_worst_quarter_of_four():
    assert generalised_lorenz([2.0, 0.5, 1.0, 1.0])[1] == pytest.approx(0.5 / 4)


def test_lorenz_dominance():
    assert lorenz_dominates([1, 2], [0, 3])  # the same sum, more for the worst-off
    assert lorenz_dominates([1, 3], [1, 2])
    assert not lorenz_dominates([1, 2], [1, 2])
    assert not lorenz_dominates([2, 2], [1, 9])  # more for the worst-off, less together: neither dominates
    assert not lorenz_dominates([1, 9], [2, 2])
    with pytest.raises(InvalidData, match="1 and 2 utilities"):
        lorenz_dominates([1, float("nan")], [1, 2])


def test_tables_define_every_metric():
    defined = set(re.findall(r"`([a-z0-9_]+)`", " ".join(re.findall(r"^\| (`[^|]+) \|", PAGE, flags=re.MULTILINE))))
    assert set(METRICS) <= defined


def test_the_page_quotes_the_comparison_with_peers():
    text = PAGE.partition("## Other libraries\n")[2].partition("## Early stopping\n")[0]
    stored = json.loads((ROOT / "benchmarks" / "metric_peers.json").read_text(encoding="utf-8"))
    names = {"irspack": "irspack", "lenskit": "LensKit", "rectools": "RecTools", "ranx": "ranx"}
    for package, name in names.items():
        assert f"{name} {stored['versions'][package]}" in " ".join(text.split())
    rows = [row for rows in stored["rows"].values() for row in rows]
    assert all(row["apart"] <= 1e-9 for row in rows if not row["note"])
    cells = " ".join(re.findall(r"^\| (`[^|]+) \|", text, flags=re.MULTILINE))
    assert {row["ours"] for row in rows} - {"holm"} == set(re.findall(r"`(\w+)`", cells))
    default = next(row for row in rows if row["theirs"] == "NDCG (default weight)")
    assert f"{default['their_value']:.6f} instead of {default['our_value']:.6f}".replace("0.", ".") in text
    single = max(row["apart"] for row in rows if "single precision" in row["note"])
    assert f"up to {single:.1e} apart" in text
