"""The commands of docs/quickstart.md run, in order, in an empty folder, and print what the page says."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import run_page  # noqa: E402

PAGE = ROOT / "docs" / "quickstart.md"


# Another processor may round differently, and so order two items or choose an evenness differently: a few lines.
# A command that prints something else changes more.
MOST_DIFFERENT = 0.2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="the page's commands are for a shell, and there is no bash")
def test_the_page_does_what_it_says(tmp_path):
    steps = run_page.run(PAGE, tmp_path)
    assert steps[-1].code == 0, f"{steps[-1].commands}\n{steps[-1].printed}"
    verbs = [line.split()[1] for step in steps for line in step.commands.splitlines() if line.startswith("fairmf ")]
    wanted = ["inspect", "split", "fit", "calibrate", "recommend", "audit", "report", "target"]
    assert [verb for verb in dict.fromkeys(verbs) if verb in wanted] == wanted
    for step in steps:
        different = run_page.differences(step)
        lines = len((step.expected or "").splitlines())
        assert len(different) <= MOST_DIFFERENT * lines, "\n".join(
            ["out of date, run: python tools/run_page.py docs/quickstart.md", step.commands, *different]
        )
    for made in ("events.csv", "split", "model.fairmf", "lists.csv", "report.html", "even.fairmf"):
        assert (tmp_path / made).exists()


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        ("Gini 0.700 of 12 items", "Gini 0.710 of 12 items", True),
        ("Gini 0.700", "Gini 0.800", False),
        ("12 items", "14 items", False),
        ("12 items", "12 users", False),
        ("fit in 3.6 s", "fit in 9.1 s", True),
        ("one line", "one line\nand another", False),
        ("1,000 users", "2,000 users", False),
    ],
)
def test_what_counts_as_a_difference(said, printed, same):
    step = run_page.Step("fairmf", said, run_page.tidy(printed), 0)
    assert (run_page.differences(step) == []) == same


def test_only_the_output_is_written_anew(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n```sh\necho one\n```\n\n```text\nold\n```\n\nText.\n\n```sh\nexit 0\n```\n\n```python\n1\n```\n"
    )
    steps = run_page.run(page, tmp_path)
    assert run_page.rewritten(page, steps) == page.read_text().replace("old", "one")
    page.write_text("```sh\nfalse\n```\n\n```sh\necho no\n```\n")
    assert [step.code for step in run_page.run(page, tmp_path)] == [1]
