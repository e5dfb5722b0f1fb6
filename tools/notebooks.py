"""Write the notebooks of docs/notebooks from the guides: `python tools/notebooks.py [NAME ...]`.

A notebook has the prose and the Python blocks of its page, and what the blocks show when they run, from first to
last, in one namespace. `--check` runs nothing and fails if a notebook no longer has the blocks of its page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "notebooks"
PAGES = {
    "quick-start": "ten-minutes.md",
    "from-implicit": "from-implicit.md",
    "choosing-evenness": "choosing-evenness.md",
    "groups-and-audit": "audit.md",
    "cluster-and-gpu": "cluster-and-gpu.md",
    "cold-items": "launch-day.md",
}
"""The notebooks, and the page that each is made from."""
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n.*?```)?", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


def parts(page: str) -> list[tuple[str, str]]:
    """Return the cells of a page in order: ("markdown" or "code", source)."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found, start = [], 0
    for block in BLOCK.finditer(text):
        found += [("markdown", text[start : block.start()].strip()), ("code", block[1].strip())]
        start = block.end()
    found.append(("markdown", text[start:].strip()))
    # A notebook lies in a folder of its own: links and pictures are one level up.
    return [(kind, LINK.sub(r"](../\1)", source) if kind == "markdown" else source) for kind, source in found if source]


def run(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a block and return its outputs: what it prints, and the value of its last expression as HTML and as text."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "notebook", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs


def notebook(page: str) -> dict[str, Any]:
    """Run a page in an empty folder and return it as a notebook, in the format of Jupyter (nbformat 4.5)."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, (kind, source) in enumerate(parts(page)):
                cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
                if kind == "code":
                    cell |= {"execution_count": None, "outputs": run(source, names)}
                cells.append(cell)
        finally:
            os.chdir(before)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def is_current(name: str) -> bool:
    """Return whether a stored notebook has the cells of its page."""
    stored = json.loads((PLACE / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [(cell["cell_type"], cell["source"]) for cell in stored["cells"]] == parts(PAGES[name])


def main(arguments: list[str]) -> int:
    """Write the named notebooks, by default all; or check them."""
    if arguments == ["--check"]:
        old = [name for name in PAGES if not is_current(name)]
        sys.stderr.write("".join(f"{name} is out of date: run python tools/notebooks.py {name}\n" for name in old))
        return len(old)
    for name in arguments or PAGES:
        text = json.dumps(notebook(PAGES[name]), indent=1, ensure_ascii=False)
        (PLACE / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
