"""Sphinx: `make docs` builds every Markdown page of the repository into site/. Warnings are errors.

The source folder is the repository itself, so that links between files work in the site as they do where the files are
read as they are. Nothing is fetched, at building or at reading: the theme brings no fonts and no scripts of others.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

project = "fairmf"
html_title = "fairmf"
author = "the fairmf authors"
extensions = ["myst_parser"]
root_doc = "docs/index"
exclude_patterns = [".venv", "site", "tests", "src"]
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "SUPPORT.md",
    "CODE_OF_CONDUCT.md",
    "benchmarks/RESULTS.md",
    "docs/**.md",
]
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_search_scorer = str(ROOT / "docs" / "search_scorer.js")
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"


def setup(app):
    """Write the pages of the Python reference, which are not kept: they follow from the code."""
    import api_reference

    folder = ROOT / "docs" / "api"
    folder.mkdir(exist_ok=True)
    for name, text in api_reference.pages().items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    app.connect("build-finished", front_page)


def front_page(app, _error):
    """The site begins with the README."""
    page = '<!doctype html><title>fairmf</title><meta http-equiv="refresh" content="0; url=README.html">'
    Path(app.outdir, "index.html").write_text(page + '<a href="README.html">fairmf</a>', encoding="utf-8")
