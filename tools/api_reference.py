"""Write the pages of the Python reference: every name that `fairmf` exports, from its signature and docstring.

Sections of docstrings (Parameters, Returns, ...) become lists; the rest of a docstring is Markdown already.
There is a page for each folder of the package, and a first page that lists all names. docs/conf.py writes them when
the site is built.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import fairmf
from fairmf.params import describe_range

TITLES = {
    "data": "Data and splits",
    "models": "Models",
    "metrics": "Metrics",
    "control": "Fairness under control",
    "reports": "Reports",
    "leaderboards": "Leaderboards",
    "baselines": "Baselines",
    "distributed": "Clusters",
}
TOP = "# Python reference\n\nEverything that `import fairmf` offers.\n"
TREE = "\n```{toctree}\n:hidden:\n\n" + "\n".join(TITLES) + "\n```\n"
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", flags=re.MULTILINE)


def pages() -> dict[str, str]:
    """Return all pages by name: `index`, and one for each folder of the package."""
    found = {"index": TOP}
    for folder, title in TITLES.items():
        homes = (names for home, names in fairmf._HOMES.items() if home.partition(".")[0] == folder)
        things = {name: getattr(fairmf, name) for names in homes for name in names}
        shown: dict[int, str] = {}
        found[folder] = f"# {title}\n" + "".join(entry(name, thing, shown) for name, thing in things.items())
        rows = [f"| [`{name}`]({folder}.md#{name.lower()}) | {first_line(thing)} |" for name, thing in things.items()]
        found["index"] += f"\n## [{title}]({folder}.md)\n\n| name | what it is |\n|---|---|\n" + "\n".join(rows) + "\n"
    found["index"] += TREE
    return found


def first_line(thing: Any) -> str:
    """Return the first sentence of a docstring, fit for a cell of a table."""
    text = (inspect.getdoc(thing) or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("|", "or")


def entry(name: str, thing: Any, shown: dict[int, str]) -> str:
    """A function, or a class with its fields and methods. `shown` says under which class a method was described."""
    text = f"\n## {name}\n\n" + signature(name, thing) + docstring(thing)
    if not inspect.isclass(thing):
        return text
    if dataclasses.is_dataclass(thing):
        text += fields(thing)
    inherited: dict[str, list[str]] = {}
    for member, value in members(thing):
        first = shown.setdefault(id(value), name)
        if first != name:
            inherited.setdefault(first, []).append(f"[`{member}`](#{f'{first}.{member}'.lower().replace('.', '')})")
            continue
        called = f"{name}.{member}"
        text += f"\n### {called}\n\n"
        text += signature(called, value) + docstring(value) if callable(value) else docstring(value)
    also = [f"As in [{other}](#{other.lower()}): {', '.join(names)}.\n" for other, names in inherited.items()]
    return "\n".join([text, *also])


def members(thing: type) -> list[tuple[str, Any]]:
    """Public methods and properties in the order of their files, the class's own before inherited ones."""
    found: dict[str, Any] = {}
    for owner in thing.__mro__:
        if owner.__module__.startswith("fairmf"):
            for member, value in vars(owner).items():
                plain = getattr(value, "__func__", value)
                documented = isinstance(value, property) or inspect.isfunction(plain) or hasattr(value, "func")
                if not member.startswith("_") and documented and member not in found:
                    found[member] = plain
    return list(found.items())


def signature(name: str, thing: Any) -> str:
    """The call, as a block of Python; broken where it is long."""
    try:
        call = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    kept = [
        p.replace(annotation=_shown(p.annotation)) for p in call.parameters.values() if p.name not in ("self", "cls")
    ]
    text = str(call.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    line = name + text
    if len(line) > 100 and kept:
        line = f"{name}(\n    " + ",\n    ".join(_parameters(kept)) + ",\n)"
    return f"```python\n{line}\n```\n"


def _parameters(kept: list[inspect.Parameter]) -> list[str]:
    parts, starred = [], False
    for parameter in kept:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        starred |= parameter.kind is parameter.VAR_POSITIONAL
        parts.append(str(parameter))
    return parts


class _Annotation:
    """Prints as the source has it, without quotes."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(annotation: Any) -> Any:
    return _Annotation(annotation) if isinstance(annotation, str) else annotation


def docstring(thing: Any) -> str:
    """Return the docstring as Markdown; indented text outside of sections is shown as it is."""
    text = inspect.getdoc(thing) or ""
    first, *sections = SECTION.split(text)
    parts = [first.strip()]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        parts += [f"**{title}**", code(body) if title.startswith("Example") else entries(body)]
    return "\n" + "\n\n".join(part for part in parts if part) + "\n" if text else ""


def entries(body: str) -> str:
    """Turn a section into a list: lines without indentation name an entry, indented ones describe it."""
    found: list[list[str]] = []
    for line in body.strip("\n").splitlines():
        if line and not line.startswith(" "):
            found.append([line])
        elif found:
            found[-1].append(line.strip())
    if all(len(lines) == 1 for lines in found):  # plain sentences, as for most results
        return " ".join(lines[0] for lines in found)
    items = []
    for name, *text in found:
        kind = name.partition(" : ")[2]
        said = " ".join(text).strip()
        items.append(f"- `{name.partition(' : ')[0]}`" + (f" ({kind})" if kind else "") + (f": {said}" if said else ""))
    return "\n".join(items)


def code(body: str) -> str:
    """Show an example as a block of code."""
    return f"```pycon\n{body.strip()}\n```"


def fields(thing: type) -> str:
    """A table of a dataclass's fields: settings with meaning, range and default, others with their type."""
    rows = []
    for field in dataclasses.fields(thing):
        if "doc" in field.metadata:
            rows.append(f"| `{field.name}` | {field.metadata['doc']} {describe_range(field)} | `{field.default!r}` |")
        elif not field.name.startswith("_"):
            rows.append(f"| `{field.name}` | `{field.type}` | |")
    return (
        "\n| field | | default |\n|---|---|---|\n"
        + "\n".join(row.replace(" | None", " or None") for row in rows)
        + "\n"
    )
