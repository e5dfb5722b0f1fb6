"""The recipe for conda asks for what the wheel asks for, and the archive of the sources has all that its tests need."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
RECIPE = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")


def bounds(requirements):
    """Return names and bounds, without blanks, markers and comments."""
    return {re.sub(r"\s*[;#].*|\s", "", requirement) for requirement in requirements}


def test_the_recipe_has_the_dependencies_of_the_wheel():
    wheel = re.search(r"^dependencies = \[\n(.*?)^\]", PROJECT, flags=re.DOTALL | re.MULTILINE)[1]
    python = re.search(r'^requires-python = "(.*)"', PROJECT, flags=re.MULTILINE)[1]
    run = re.search(r"^  run:\n(.*?)^\S", RECIPE, flags=re.DOTALL | re.MULTILINE)[1]
    wanted = bounds(re.findall(r'"(.*)"', wheel)) | {f"python{python}"}
    assert bounds(re.findall(r"- (.*)", run)) == wanted


def test_the_recipe_finds_the_version():
    place, pattern = re.search(r'load_file="(.*?)", regex_pattern=\'(.*?)\'', RECIPE).groups()
    import fairmf

    path = ROOT / "src" / "fairmf" / "version.py"
    assert (ROOT / "conda" / place).resolve() == path
    text = Path(fairmf.__file__).with_name("version.py").read_text(encoding="utf-8")
    assert re.search(pattern, text)[1] == fairmf.__version__


def test_files_of_the_recipe_and_the_archive_exist():
    included = re.search(r"^include = \[(.*?)^\]", PROJECT, flags=re.DOTALL | re.MULTILINE)[1]
    names = re.findall(r'"/(.*?)"', included)
    assert "tests" in names
    installed_alone = not (ROOT / "src").exists()  # `make dist` takes it away
    assert [name for name in names if not (ROOT / name).exists()] == ["src"] * installed_alone
