"""The pages build into a site that needs no network and whose links all lead somewhere; references follow the code."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

NEEDED = 'needs the docs group: pip install --group docs (or "make docs")'


def copied(folder):
    """What the site is made of."""
    for name in ("docs", "tools", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.py[co]"))
    for name in (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "SUPPORT.md",
        "CODE_OF_CONDUCT.md",
        "CITATION.cff",
        "LICENSE",
    ):
        shutil.copy(ROOT / name, folder / name)
    return folder


def build(folder):
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-b", "html", "-c", "docs", ".", "site"]
    return subprocess.run([sys.executable, "-m", "sphinx", *options], cwd=folder, capture_output=True, text=True)


def check_search(site):
    """Search in a browser, as a reader would: the guide comes first."""
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from browsing import a_browser

    with a_browser() as browser:
        page = browser.new_page()
        for word, first in {"evenness": "evenness", "dial": "evenness", "install": "installing"}.items():
            page.goto(f"{(site / 'search.html').as_uri()}?q={word}")
            page.wait_for_selector("#search-results ul.search li a", timeout=20_000)
            page.wait_for_function("!document.querySelector('#search-results h2').innerText.includes('ing')")
            found = [a.get_attribute("href") for a in page.query_selector_all("#search-results ul.search li > a")]
            assert f"docs/{first}.html" in found[0], (word, found[:5])
            behind = [n for n, link in enumerate(found) if "decisions" in link or "CHANGELOG" in link]
            guides = [n for n, link in enumerate(found) if "docs/recommending" in link or "docs/quickstart" in link]
            assert not behind or not guides or max(guides) < min(behind), (word, found)


@pytest.mark.slow
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path):
    pytest.importorskip("furo", reason=NEEDED)
    folder = copied(tmp_path)
    done = build(folder)
    assert done.returncode == 0, done.stderr
    pages = [*(folder / "site").rglob("*.html")]
    assert {"README.html", "serving.html", "index.html", "RESULTS.html"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]*)", text)
        assert fetched == [], f"{page.name} fetches {fetched}"
    for style in (folder / "site" / "_static").rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style
    check_search(folder / "site")
    start = (folder / "site" / "index.html").read_text()
    assert (folder / "site" / re.search(r"url=([\w.]+)", start)[1]).exists()


@pytest.mark.slow
def test_broken_links_anchors_and_lost_pages_are_errors(tmp_path):
    pytest.importorskip("furo", reason=NEEDED)
    folder = copied(tmp_path)
    with (folder / "docs" / "ann.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](metrics.md#nowhere) [b](absent.md) [c](../src/absent.py)\n")
    (folder / "docs" / "lost.md").write_text("# Lost\n")
    done = build(folder)
    assert done.returncode != 0
    for word in ("'nowhere'", "'absent.md'", "'../src/absent.py'", "lost.md"):
        assert word in done.stderr


def test_the_reference_of_the_command_line_is_up_to_date():
    import cli_reference

    assert cli_reference.PAGE.read_text(encoding="utf-8") == cli_reference.reference(), (
        "docs/cli.md is out of date; run: python tools/cli_reference.py"
    )


def test_the_figures_of_what_works_are_the_stored_ones():
    from benchmarks import fronts_page

    assert fronts_page.PAGE.read_text(encoding="utf-8") == fronts_page.page(), "run: python -m benchmarks.fronts_page"
    assert fronts_page.summary() in fronts_page.SUMMARY.read_text(encoding="utf-8"), (
        "run: python -m benchmarks.fronts_page"
    )


def test_the_figures_of_the_leaderboard_are_the_stored_ones():
    from benchmarks import leaderboards

    assert leaderboards.names()
    assert leaderboards.PAGE.read_text(encoding="utf-8") == leaderboards.page(), (
        "run: python -m benchmarks.leaderboards --page"
    )


def test_every_figure_in_the_text_of_the_leaderboard_is_in_a_stored_result():
    from benchmarks import leaderboards

    text = leaderboards.PAGE.read_text(encoding="utf-8")
    prose = text[: text.index(leaderboards.BEGIN)] + text[text.index(leaderboards.END) :]
    quoted = set(re.findall(r"(?<![\d.])\.(\d{4})(?!\d)", prose))
    assert quoted
    stored = set()
    for name in leaderboards.names():
        result = leaderboards.load(name)
        rows = [*result["rows"], *result["published"]]
        stored |= {f"{value:.4f}"[2:] for row in rows for value in row["values"].values()}
        stored |= {f"{row['validation']:.4f}"[2:] for row in result["rows"] if "validation" in row}
    grid = json.loads((leaderboards.STORED / "gowalla-grid.json").read_text(encoding="utf-8"))
    stored |= {f"{one['validation']:.4f}"[2:] for one in grid["tries"]}
    assert quoted <= stored


def test_the_python_reference_names_everything_with_settings_and_methods():
    import api_reference

    import fairmf

    pages = api_reference.pages()
    page = "".join(pages.values())
    for name in set(fairmf.__all__) - {"__version__"}:
        assert page.count(f"\n## {name}\n") == 1
        assert f"[`{name}`](" in pages["index"]
    assert max(map(len, pages.values())) < 0.4 * len(page)
    assert "### FairALS.recommend\n" in pages["models"]
    assert "### Interactions.n_users\n" in pages["data"]
    row = r"^\| `fairness` \| How strongly items' average scores.* a number >= 0 \| `1\.0` \|$"
    assert re.search(row, page, flags=re.MULTILINE)
    assert "(self" not in page
