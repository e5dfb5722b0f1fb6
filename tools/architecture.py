"""Write the tree of docs/architecture.md from the first line of every module; `--check` only compares."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- tree: written by tools/architecture.py -->\n", "<!-- end of tree -->\n"
FOLDERS = (
    "", "io", "data", "backends", "backends/cpu", "backends/cuda", "ranking", "distributed", "models", "stores",
    "metrics", "control", "baselines", "reports", "reproduce", "reproduce/kinds", "leaderboards", "serve", "cli",
)  # fmt: skip


def tree() -> Iterator[str]:
    """Yield the lines of the tree: a heading and a table for each folder, in the order of imports."""
    package = ROOT / "src" / "fairmf"
    found = {str(path.parent.relative_to(package)).removeprefix(".") for path in package.rglob("*.py")}
    if found != set(FOLDERS):
        raise SystemExit(f"FOLDERS in {Path(__file__).name} must name these folders as well: {found ^ set(FOLDERS)}")
    for folder in FOLDERS:
        yield f"### {folder + '/' if folder else 'fairmf/'}\n\n"
        yield f"{first_line(package / folder / '__init__.py')}\n\n"
        yield "| file | what it does |\n|---|---|\n"
        for path in sorted((package / folder).glob("*.py")):
            if path.name != "__init__.py":
                yield f"| `{path.name}` | {first_line(path)} |\n"
        yield "\n"


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not text:
        raise SystemExit(f"{path.name} has no docstring.")
    return text.splitlines()[0].replace("|", "\\|")


def written(page: str) -> str:
    """Return the page with the tree as it is now."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "".join(tree()) + END + rest.split(END)[1]


def main() -> int:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text(encoding="utf-8")
    now = written(page)
    if parser.parse_args().check:
        if now != page:
            print("docs/architecture.md is out of date: run python tools/architecture.py", file=sys.stderr)
        return int(now != page)
    PAGE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
