"""The page of the Python reference: every name that `fairmf` exports, from its signature and docstring.

Docstrings are Markdown, so they stand on the page as they are. Made when the site is built, see docs/conf.py.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import fairmf
from fairmf.params import describe_range

TITLES = {
    "interactions": "Data",
    "interactions.datasets": "Benchmark data sets",
    "splitting": "Splits",
    "models": "Models",
    "metrics": "Metrics",
    "control": "Fairness under control",
    "reporting": "Reports",
}
TOP = "# Python reference\n\nEverything that `import fairmf` offers.\n"


def page() -> str:
    """The whole page."""
    parts = [TOP]
    for home, names in fairmf._HOMES.items():
        parts.append(f"\n## {TITLES.get(home, home)}\n")
        parts += [entry(name, getattr(fairmf, name)) for name in names]
    return "".join(parts)


def entry(name: str, thing: Any) -> str:
    """A function, or a class with its fields and methods."""
    text = f"\n### {name}\n\n" + signature(name, thing) + docstring(thing)
    if not inspect.isclass(thing):
        return text
    if dataclasses.is_dataclass(thing):
        text += fields(thing)
    for member, value in members(thing):
        called = f"{name}.{member}"
        text += f"\n#### {called}\n\n"
        text += signature(called, value) + docstring(value) if callable(value) else docstring(value)
    return text


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
    """The docstring as Markdown; what is indented in it is shown as it is."""
    text = inspect.getdoc(thing) or ""
    return f"\n{text}\n" if text else ""


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
