"""Runs the commands of a page, in order, in an empty folder, and puts what they print into the page.

    python tools/run_page.py docs/quickstart.md

Commands stand in blocks marked `sh`; a block marked `text` right after one holds what its commands print. Only that
text is written anew. A test runs the page in the same way and compares (`differences`).
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```(?:\n+```text\n(?P<output>.*?)```)?", flags=re.DOTALL)
WIDTH = "88"
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")
SECONDS = re.compile(r"\b\d[\d.]* s\b")
# Another processor may round differently, which moves a figure a little; a page that is out of date moves it further.
CLOSE = 0.05


class Step(NamedTuple):
    """The commands of one block, what the page says they print (None if nothing), and what they print."""

    commands: str
    expected: str | None
    printed: str
    code: int


def run(page: Path, folder: Path) -> list[Step]:
    """Run every block of the page in the folder; stops at the first that fails."""
    steps: list[Step] = []
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1", "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"
    }  # fmt: skip
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        done = subprocess.run(
            ["bash", "-e", "-c", block["commands"]], cwd=folder, env=environment, text=True, encoding="utf-8",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        steps.append(Step(block["commands"], block["output"], tidy(done.stdout), done.returncode))
        if done.returncode:
            break
    return steps


def tidy(text: str) -> str:
    """Without blanks at the ends of lines, which nobody sees, and without notes that only a first run prints."""
    lines = (line.rstrip() for line in text.splitlines() if not line.startswith("compiling kernels"))
    return "".join(f"{line}\n" for line in lines)


def differences(step: Step) -> list[str]:
    """Return the places where the page differs from what was printed. Seconds are free; figures may differ by CLOSE."""
    if step.expected is None:
        return []
    found = []
    lines = itertools.zip_longest(step.expected.splitlines(), step.printed.splitlines(), fillvalue="")
    for said, printed in lines:
        said, printed = SECONDS.sub("# s", said), SECONDS.sub("# s", printed)
        same_words = _words(said) == _words(printed)
        if not same_words or not all(map(_close, NUMBER.findall(said), NUMBER.findall(printed))):
            found.append(f"page:    {said}\nprinted: {printed}")
    return found


def _words(line: str) -> list[str]:
    return NUMBER.sub("#", line).split()


def _close(one: str, other: str) -> bool:
    a, b = (float(text.replace(",", "")) for text in (one, other))
    return abs(a - b) <= 0.01 + CLOSE * max(abs(a), abs(b))


def rewritten(page: Path, steps: list[Step]) -> str:
    """The page with what was printed."""
    printed = iter(steps)

    def replaced(block: re.Match[str]) -> str:
        step = next(printed)
        if block["output"] is None:
            return block[0]
        return f"```sh\n{block['commands']}```\n\n```text\n{step.printed}```"

    return BLOCK.sub(replaced, page.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    """Run the page and write it anew."""
    page = Path(arguments[0])
    with tempfile.TemporaryDirectory() as folder:
        steps = run(page, Path(folder))
    if steps[-1].code:
        sys.stderr.write(f"{steps[-1].commands}\n{steps[-1].printed}\n")
        return 1
    page.write_text(rewritten(page, steps), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
