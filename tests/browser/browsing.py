"""A real browser for tests: Debian's chromium, driven by Playwright, that notes every error and every request."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

AXE = Path(__file__).with_name("axe-core") / "axe.min.js"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--no-first-run", "--no-default-browser-check",
]  # fmt: skip


def chromium_path():
    """Where the browser is; a skip that says what to install, or a failure where a browser is required."""
    names = (os.environ.get("FAIRMF_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        _missing("needs chromium (apt-get install chromium), or its path in FAIRMF_CHROMIUM")
    return found


def _missing(told):
    if os.environ.get("FAIRMF_BROWSER_REQUIRED"):
        pytest.fail(told)
    pytest.skip(told)


@contextlib.contextmanager
def a_browser():
    """The browser; everybody who opens a page closes it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("needs Playwright's Python package: pip install --group browser")
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page in a window of its own; `problems` are console errors, exceptions and requests beyond the file."""

    def __init__(self, browser, path, width=1200, height=900, **options):
        # Without smooth scrolling: what is measured stays where it is.
        still = {"reduced_motion": "reduce"} | options
        self.context = browser.new_context(viewport={"width": width, "height": height}, **still)
        self.page = self.context.new_page()
        self.problems = []
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._note_request)
        self.page.on("dialog", self._note_dialog)
        self.page.goto(path.resolve().as_uri())

    def _note_request(self, request):
        if request.resource_type != "document" or not request.url.startswith("file://"):
            self.problems.append(f"request: {request.url[:200]}")

    def _note_dialog(self, dialog):
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def text(self, selector):
        """What an element says."""
        return self.page.locator(selector).first.inner_text()

    def drawn(self, chart):
        """A chart's picture as markup: it changes when what is drawn changes."""
        return self.page.locator(f"#chart-{chart} svg").inner_html()

    def to_stop(self, wanted):
        """Turn the dial by the keyboard to a stop (its place on the slider)."""
        self.page.focus("#slider")
        self.page.keyboard.press("Home")
        for _ in range(wanted):
            self.page.keyboard.press("ArrowRight")

    def violations(self):
        """What axe-core finds, as (rule, elements)."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        wanted = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"
        found = self.page.evaluate(f"axe.run(document, {wanted}).then(r => r.violations)")
        return [(v["id"], [node["html"][:120] for node in v["nodes"]]) for v in found]

    def close(self):
        self.context.close()
