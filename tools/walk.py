"""Print the functions that a fit and a recommendation pass through, hop by hop, as Markdown for docs/architecture.md.

Each function is listed once, below the first function that called it. Not counted are lambdas, comprehensions, methods
that Python generates or calls by itself (`__init__`, ...) and properties that only return an expression: a reader need
not look them up. `--all` counts methods and properties too; `--matrix` gives a SciPy matrix instead of Interactions.
"""

from __future__ import annotations

import argparse
import ast
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
import scipy.sparse as sp

import fairmf

PACKAGE = Path(fairmf.__file__).resolve().parent


@dataclass
class Hop:
    """A function, and those that it was the first to call."""

    file: str
    name: str
    calls: list[Hop] = field(default_factory=list)

    def all(self) -> Iterator[Hop]:
        """Yield this hop and all below it."""
        yield self
        for hop in self.calls:
            yield from hop.all()


def walk(action: Callable[[], object], *, everything: bool = False) -> Hop:
    """Call `action` and return the functions of fairmf that it passes through, below an empty first hop."""
    action()  # imports, compilation and caches are no part of the walk
    root = Hop("", "")
    known: dict[tuple[str, str], Hop] = {}
    stack = [root]  # for each frame of Python: its own hop, or the nearest above that counts

    def follow(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and len(stack) > 1:
            stack.pop()
        if event != "call":
            return
        code, hop = frame.f_code, stack[-1]
        if counts(code, everything):
            key = Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname
            if key not in known:
                known[key] = Hop(*key)
                hop.calls.append(known[key])
            hop = known[key]
        stack.append(hop)

    sys.setprofile(follow)
    try:
        action()
    finally:
        sys.setprofile(None)
    return root


def counts(code: CodeType, everything: bool) -> bool:
    """Return whether a function is a hop of its own."""
    path = Path(code.co_filename)
    if PACKAGE not in path.parents or code.co_name.startswith("<"):
        return False
    short = (code.co_name.startswith("__") and code.co_name.endswith("__")) or code.co_firstlineno in short_lines(path)
    return everything or not short


@functools.cache
def short_lines(path: Path) -> frozenset[int]:
    """Return the first lines of the properties of a file whose body is one expression."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and any("property" in ast.unparse(d) for d in node.decorator_list):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if len(body) == 1:
                found.add(node.decorator_list[0].lineno)
    return frozenset(found)


def markdown(hops: list[Hop], depth: int = 0) -> Iterator[str]:
    """Yield nested list items. Functions that call nothing new share an item with their neighbours in the same file."""
    start = 0
    while start < len(hops):
        stop = start + 1
        while stop < len(hops) and hops[stop].file == hops[start].file and not hops[stop - 1].calls:
            stop += 1
        group = hops[start:stop]
        yield f"{'  ' * depth}- {group[0].file}: {', '.join(f'`{hop.name}`' for hop in group)}\n"
        yield from markdown(group[-1].calls, depth + 1)
        start = stop


def size(root: Hop) -> str:
    """Return the number of files and functions, in all and by folder."""
    hops = list(root.all())[1:]
    folders = Counter(hop.file.partition("/")[0] for hop in hops)
    parts = ", ".join(f"{folder} {count}" for folder, count in folders.most_common())
    return f"{len({hop.file for hop in hops})} files, {len(hops)} functions ({parts})"


def main() -> None:
    """Print both walks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also count special methods and short properties")
    parser.add_argument("--matrix", action="store_true", help="give a SciPy matrix instead of Interactions")
    parser.add_argument("--brief", action="store_true", help="print the numbers only")
    chosen = parser.parse_args()
    matrix = sp.random_array((300, 120), density=0.1, format="csr", rng=np.random.default_rng(0))
    matrix.data[:] = 1
    data = matrix if chosen.matrix else fairmf.Interactions.from_csr(matrix)
    model = fairmf.FairALS(factors=16, epochs=3)
    users = np.arange(10)
    histories = matrix[:10] if chosen.matrix else None
    actions: dict[str, Callable[[], object]] = {
        "A fit": lambda: model.fit(data, progress=False),
        "A recommendation": lambda: model.recommend(users, histories, N=5),
    }
    for name, action in actions.items():
        found = walk(action, everything=chosen.all)
        print(f"{name}: {size(found)}\n")
        if not chosen.brief:
            print("".join(markdown(found.calls)))


if __name__ == "__main__":
    main()
