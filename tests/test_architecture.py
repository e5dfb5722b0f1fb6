"""docs/architecture.md lists every module in its own words, and the tree keeps the goals of decision 17."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import tree_figures  # noqa: E402 - after its folder is on the path
import walk  # noqa: E402

from fairmf import FairALS, Interactions, synthetic  # noqa: E402

pytestmark = pytest.mark.skipif(not (ROOT / "src").exists(), reason="src/ is only in a checkout")


def test_the_tree_on_the_page_is_the_tree():
    command = [sys.executable, "tools/architecture.py", "--check"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
def test_the_tree_keeps_its_goals():
    sources = tree_figures.read()
    too_long = [str(source.path) for source in sources if source.lines > 450]
    assert not too_long
    assert len(tree_figures.long_functions(sources)) <= 10
    assert tree_figures.uses_of_any(sources) <= 400
    assert tree_figures.inner_imports(sources) <= 60


@pytest.mark.skipif(sys.version_info < (3, 11), reason="functions have no qualified names yet")
def test_a_plain_fit_passes_through_no_function_of_features_or_dislikes():
    """A newcomer who debugs a fit walks through what it needs, and no more files and functions than are recorded."""
    data, model = synthetic(60, 40, 600), FairALS(factors=4, epochs=2)
    hops = [*walk.walk(lambda: model.fit(data, progress=False)).all()][1:]
    files, names = {hop.file for hop in hops}, {hop.name for hop in hops}
    assert {"models/fit_loop.py", "models/als_cg.py"} <= files
    assert not [file for file in files if "feature" in file]
    assert not [name for name in names if name.startswith("Dislikes") or name in ("liked", "like_counts", "disliked")]
    assert len(files) <= 22
    assert len(hops) <= 89


@pytest.mark.skipif(sys.version_info < (3, 11), reason="functions have no qualified names yet")
def test_a_recommendation_passes_through_no_more_than_is_recorded():
    data = Interactions(synthetic(60, 40, 600).by_user, 40)  # without ids, as tools/walk.py has them
    # A first model compiles the kernels, which is a walk of its own; the second has nothing cached.
    first, model = (FairALS(factors=4, epochs=2).fit(data, progress=False) for _ in range(2))
    first.recommend(np.arange(10), N=5)
    hops = [*walk.walk(lambda: model.recommend(np.arange(10), N=5)).all()][1:]
    assert "FactorModel.recommend" in {hop.name for hop in hops}
    assert len({hop.file for hop in hops}) <= 15
    assert len(hops) <= 51


def test_the_walks_on_the_page_name_functions_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ *- (\S+\.py): (`.*`)$", page.partition("### A fit\n")[2], flags=re.MULTILINE)
    assert len(lines) > 100
    for file, names in lines:
        text = (ROOT / "src" / "fairmf" / file).read_text(encoding="utf-8")
        for name in names.split(", "):
            assert re.search(rf"def {name.strip('`').rpartition('.')[2]}\b", text), (file, name)


def test_figures_are_counted_by_their_rules(tmp_path):
    package = tmp_path / "src" / "fairmf"
    package.mkdir(parents=True)
    letters = ", ".join("abcdefghi")
    text = (
        '"""A module.\n\nTwo lines."""\n'
        "from typing import Any\n\n\n"
        "class A:\n"
        f"    def long(self, {letters}):  # nine of them\n"
        "        import os  # late\n\n"
        f"    def short(self, {letters[:-3]}, *rest: Any, **more):\n"
        '        return "Any"\n\n\n'
        f"@kernel(fastmath=True)\ndef many({letters}): ...\n"
    )
    (package / "first.py").write_text(text)
    (package / "second.py").write_text("from fairmf import first\nfrom fairmf.first import A\n")
    (package / "third_kernels.py").write_text(f"import fairmf.second\ndef many({letters}): ...\n")
    sources = tree_figures.read(tmp_path)
    assert tree_figures.long_functions(sources) == ["first.py: long (9)"]
    assert tree_figures.uses_of_any(sources) == 2
    assert tree_figures.inner_imports(sources) == 1
    assert tree_figures.kinds_of_lines(sources[0]) == (8, 3, 2)
    found = tree_figures.importers(sources)
    assert found["fairmf.first"] == {"fairmf.second"}
    assert found["fairmf.second"] == {"fairmf.third_kernels"}
    assert found["fairmf.third_kernels"] == set()
