"""Every figure that a page quotes is in a checked-in result file, and the tables of the paper are made from such files.

A comment `<!-- figures: FILE ... -->` in a page names the files of the text up to the next such comment. A figure is a
number with three decimals or more; settings and code do not count. It must be the rounded value of a number in these
files. Of stored runs of `fairmf reproduce` the rows count, not the single fits. `FILE.md#NAME` means one section of a
file that the benchmarks write, so that a figure is not found in the section of another benchmark.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md", "docs/reproduction.md", "docs/rivals.md", "docs/leaderboard.md", "docs/what-works.md",
    "docs/exposure.md", "docs/evenness.md", "docs/tuning.md",
)  # fmt: skip
SOURCES = re.compile(r"<!-- figures: (.*?) -->")
NOT_FIGURES = re.compile(
    r"```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->|"
    r"\b(gamma|rho|regularization|unobserved_weight|item_balance|user_balance|rate|share)( is|:)? [\d.]+( to [\d.]+)?",
    re.DOTALL,
)
FIGURE = re.compile(r"(?<![\w.,])\d?\.\d{3,6}(?![\w])")


def numbers(value):
    """All numbers of a JSON value, those in texts included."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [x for each in value for x in numbers(each)]
    if isinstance(value, str):
        return [float(x) for x in re.findall(r"(?<![\w.])\d*\.\d+", value)]
    return [float(value)] if isinstance(value, int | float) else []


def stored(pattern):
    pattern, _, section = pattern.partition("#")
    files = sorted(ROOT.glob(pattern))
    assert files, f"{pattern} names no file"
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        if section:
            (text,) = re.findall(rf"<!-- {section} -->\n(.*?)<!-- end -->", text, re.DOTALL)
        content = json.loads(text) if file.suffix == ".json" else text
        if isinstance(content, dict) and "pieces" in content:
            content = content["rows"]
        found += numbers(content)
    return found


def sections(text):
    """Each named set of files with the text it belongs to."""
    parts = SOURCES.split(text)
    assert not FIGURE.findall(NOT_FIGURES.sub(" ", parts[0])), "figures before the first comment that names their files"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def unknown(text, values):
    """The figures of a text that are none of these values, rounded alike."""
    missing = []
    for figure in FIGURE.findall(NOT_FIGURES.sub(" ", text)):
        digits = len(figure.split(".")[1])
        if not any(abs(abs(value) - float(figure)) <= 0.5 * 10**-digits + 1e-9 for value in values):
            missing.append(figure)
    return missing


@pytest.mark.skipif(not (ROOT / "src").exists(), reason="src/ is only in a checkout, and has figures of its own")
@pytest.mark.parametrize("page", PAGES)
def test_every_quoted_figure_is_in_a_stored_result(page):
    found = sections((ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} names no files for its figures"
    for files, text in found:
        tables = [
            x for table in re.findall(r"<!-- results: .*?<!-- end of results -->", text, re.S) for x in numbers(table)
        ]
        values = [x for pattern in files.split() for x in stored(pattern)]
        assert unknown(text, values + tables) == [], f"{page}: not in {files}"


def test_a_wrong_figure_is_found():
    values = [0.41234, -0.0067]
    text = "It has .4123, a gamma .0061, `x = 0.9999` and [a link](b.md#.1234), and loses .0067 or .007."
    assert unknown(text, values) == []
    assert unknown("It has .4124 and 0.413.", values) == [".4124", "0.413"]


def test_a_section_of_the_results_has_its_own_figures_alone():
    whole, section = stored("benchmarks/RESULTS.md"), stored("benchmarks/RESULTS.md#exposure")
    assert unknown("Recall@20 .3448", section) == []
    assert 0 < len(section) < len(whole)


def test_the_tables_of_the_reproduction_are_made_from_stored_results():
    from benchmarks import paper

    assert paper.names()
    assert paper.PAGE.read_text(encoding="utf-8") == paper.page(), "run: python -m benchmarks.paper --page"
