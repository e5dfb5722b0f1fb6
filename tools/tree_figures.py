"""Measure the tree for the table of docs/decisions/0017-tree.md, and print it as Markdown.

`--functions` names the functions with more than eight arguments as well, `--root` measures another checkout (the
modules that a command imports and the walks are then left out). Each measure is a function with its rule in one line.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fairmf

ROOT = Path(__file__).resolve().parents[1]
MOST_ARGUMENTS = 8
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COUNT_IMPORTED = """
import sys
from fairmf.cli.app import run
code = run(["recommend", sys.argv[1], "1", "--json"])
print(code, len([name for name in sys.modules if name.startswith("fairmf.")]))
"""


@dataclass(frozen=True)
class Source:
    """A file of the package, read once."""

    path: Path
    text: str
    nodes: list[ast.AST]

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.text.splitlines())


def read(root: Path = ROOT) -> list[Source]:
    """Read every Python file of the package."""
    package = root / "src" / "fairmf"
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    return [Source(path.relative_to(package), text, [*ast.walk(ast.parse(text))]) for path, text in texts.items()]


def long_functions(sources: list[Source]) -> list[str]:
    """Name the functions with more than eight arguments; self, cls and what `*` and `**` collect do not count.

    Kernels are left out: Numba takes arrays and numbers, not bundles.
    """
    found = []
    for source in sources:
        if source.path.stem.endswith("_kernels"):
            continue
        for node in source.nodes:
            if isinstance(node, FUNCTIONS):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                number = len([argument for argument in arguments if argument.arg not in ("self", "cls")])
                names = [ast.unparse(decorator) for decorator in node.decorator_list]
                is_kernel = any(name.startswith(("kernel", "intrinsic")) for name in names)
                if number > MOST_ARGUMENTS and not is_kernel:
                    found.append(f"{source.path}: {node.name} ({number})")
    return found


def uses_of_any(sources: list[Source]) -> int:
    """Count the name `Any` in the code, its imports included."""
    return sum(
        getattr(node, "id", "") == "Any" or (isinstance(node, ast.alias) and node.name == "Any")
        for source in sources
        for node in source.nodes
    )


def inner_imports(sources: list[Source]) -> int:
    """Count imports inside functions."""
    return sum(
        isinstance(node, (ast.Import, ast.ImportFrom))
        for source in sources
        for function in source.nodes
        if isinstance(function, FUNCTIONS)
        for node in ast.walk(function)
    )


def kinds_of_lines(source: Source) -> tuple[int, int, int]:
    """Count lines of code, of docstrings and with comments. A line with code and a comment is both."""
    docstrings: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code, comments = set(), set()
    layout = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings), len(docstrings), len(comments)


def importers(sources: list[Source]) -> dict[str, set[str]]:
    """Return, for every module, the other modules that import it; stand-ins of `lazy_module` are imports as well."""
    names = {"fairmf." + ".".join(s.path.with_suffix("").parts): s for s in sources if s.path.stem != "__init__"}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, source in names.items():
        for used in _imported(source.nodes):
            if used in found and used != name:
                found[used].add(name)
    return found


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("fairmf."):
            yield node.value


def imported_by_recommend() -> int:
    """Count the modules of fairmf that `fairmf recommend MODEL 1` imports, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.fairmf"
        fairmf.FairALS(factors=4, epochs=1).fit(fairmf.synthetic(60, 40, 600), progress=False).save(model)
        command = [sys.executable, "-c", COUNT_IMPORTED, str(model)]
        code, count = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-2:]
    if code != "0":
        raise SystemExit("fairmf recommend failed.")
    return int(count)


def walks(*options: str) -> list[str]:
    """Return the sizes of the walks of a fit and of a recommendation, by tools/walk.py."""
    command = [sys.executable, str(ROOT / "tools" / "walk.py"), "--brief", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.partition(": ")[2].partition(" (")[0] for line in printed.splitlines() if line]


def rows(root: Path) -> Iterator[tuple[str, object]]:
    """Yield the rows of the table."""
    sources = read(root)
    counts = [kinds_of_lines(source) for source in sources]
    code, docstrings, comments = (sum(column) for column in zip(*counts, strict=True))
    lengths = [source.lines for source in sources]
    yield "Python files", len(sources)
    yield "lines", f"{sum(lengths):,}"
    yield "lines of code, without docstrings, comments and empty lines", f"{code:,}"
    yield "lines of docstrings", f"{docstrings:,}"
    yield "comments per line of code", f"{comments / code:.1%}"
    yield "median length of a file", f"{statistics.median(lengths):g}"
    yield "longest file", max(lengths)
    yield "files with one importer", sum(len(found) == 1 for found in importers(sources).values())
    yield "file names in -ing", sum(source.path.stem.endswith("ing") for source in sources)
    yield "functions with more than 8 arguments, kernels aside", len(long_functions(sources))
    yield "uses of `Any`", uses_of_any(sources)
    yield "imports inside functions", inner_imports(sources)
    if root == ROOT:
        yield "modules of fairmf that `fairmf recommend` imports", imported_by_recommend()
        for text, options in (("", ()), (" (`--matrix --all`)", ("--matrix", "--all"))):
            for name, found in zip(("fit", "recommendation"), walks(*options), strict=True):
                yield f"walk of a {name}{text}", found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--functions", action="store_true", help="name the functions with more than 8 arguments")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to measure")
    chosen = parser.parse_args()
    print("| | now |\n|---|---|")
    for name, value in rows(chosen.root.resolve()):
        print(f"| {name} | {value} |")
    if chosen.functions:
        print("", *long_functions(read(chosen.root)), sep="\n")


if __name__ == "__main__":
    main()
