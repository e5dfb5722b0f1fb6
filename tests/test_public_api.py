"""The front door: public names, lazy import, and the example of the README."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fairmf

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", fairmf.__all__)
def test_every_public_name_is_there(name):
    assert getattr(fairmf, name) is not None
    assert name in dir(fairmf)


def is_error(kind):
    return isinstance(kind, type) and issubclass(kind, BaseException)


@pytest.mark.parametrize("name", [name for name in fairmf.__all__ if callable(getattr(fairmf, name))])
def test_every_public_name_is_documented_with_an_example(name):
    """Errors are read where they are raised; all else has an example, and functions say what they take and return."""
    offered = getattr(fairmf, name)
    text = inspect.getdoc(offered) or ""
    assert text
    if not is_error(offered):
        assert ">>> " in text.partition("Examples\n--------\n")[2]
    if inspect.isfunction(offered):
        taken = inspect.signature(offered)
        assert not taken.parameters or "Parameters\n----------" in text
        assert taken.return_annotation in ("None", None) or "Returns\n-------" in text


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fairmf.nothing


def test_import_is_lazy():
    code = "import sys, fairmf; print([m for m in ('numba', 'pyarrow', 'scipy', 'rich') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_readme_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks, "the README has no Python example"
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_citation_names_this_version():
    declared = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert declared is not None
    assert fairmf.__version__ == declared.group(1)


def test_the_command_line_runs_as_a_module():
    command = [sys.executable, "-m", "fairmf", "--version"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().endswith(fairmf.__version__)
    )


@pytest.mark.slow
def test_a_stored_model_is_served_without_pyarrow(tmp_path):
    path = tmp_path / "model.fairmf"
    data = fairmf.synthetic(n_users=60, n_items=30, n_interactions=600)
    model = fairmf.FairALS(factors=4, epochs=2).fit(data, progress=False)
    model.save(path)
    items = [str(item) for item in data.item_ids.values[:3]]
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import fairmf\n"
        f"model = fairmf.load_model({str(path)!r})\n"
        f"print(model.recommend_for({items}, N=4)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(model.recommend_for(items, N=4)[0])
