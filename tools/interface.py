"""List every public name with its signature and every flag of the command line, and compare with the last release.

    python tools/interface.py            # what has changed since the last release, and what CHANGELOG.md does not name
    python tools/interface.py --release  # store the present interface as that of the release (docs/releasing.md)

A test fails as long as the newest part of CHANGELOG.md names neither a function that has changed nor its parameter.
What is public, and how long it stays: docs/stability.md.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).parent))

RELEASED = ROOT / "tests" / "saved" / "interface.json"
CHANGES = ROOT / "CHANGELOG.md"
Interface = dict[str, dict[str, str]]
"""Of every name: its parameters and what each looks like. `fairmf fit` has its flags, an attribute has none."""


def interface() -> Interface:
    """Return the interface of the code as it is."""
    import fairmf

    found: Interface = {}
    for name in sorted(set(fairmf.__all__) - {"__version__"}):
        value = getattr(fairmf, name)
        found[name] = _parameters(value)
        if inspect.isclass(value):
            found |= {f"{name}.{member}": _parameters(thing) for member, thing in sorted(_members(value))}
    return found | dict(_flags())


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods, properties and fields that fairmf's own classes give to this one."""
    seen = set()
    for owner in thing.__mro__:
        if owner.__module__.startswith("fairmf"):
            for member in vars(owner):
                if not member.startswith("_") and member not in seen:
                    seen.add(member)
                    yield member, inspect.getattr_static(thing, member)


def _parameters(thing: Any) -> dict[str, str]:
    """Return each parameter with its type and default; a property, a constant and an error have none."""
    plain = getattr(thing, "__func__", thing)
    if not callable(plain) or (inspect.isclass(plain) and issubclass(plain, Exception)):
        return {}
    try:
        signature = inspect.signature(plain)
    except (TypeError, ValueError):
        return {}
    shown = {p.name: _text(p) for p in signature.parameters.values()}
    return {name: text for name, text in shown.items() if name not in ("self", "cls")}


def _text(parameter: inspect.Parameter) -> str:
    """Return type and default, after `*` where the parameter is passed by name only."""
    text = re.sub(r" at 0x[0-9a-f]+", "", str(parameter)).replace("'", "")
    text = re.sub(r"\b(fairmf|numpy|typing|collections\.abc)(\.\w+)*\.", "", text)  # modules move, names stay
    text = text.removeprefix(parameter.name).lstrip(": ")
    text = re.sub(r"^ForwardRef\((.*)\)$", r"\1", text)  # fields of a NamedTuple, before Python 3.14
    return f"* {text}" if parameter.kind is parameter.KEYWORD_ONLY else text


def _flags() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every verb of the command line with its arguments and flags."""
    import typer.main
    from cli_reference import _children

    from fairmf.cli.app import app

    waiting = [("fairmf", typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop(0)
        options = [p for p in command.params if p.name not in ("help", "install_completion", "show_completion")]
        flags = {max(p.opts, key=len): " ".join(sorted([*p.opts, *p.secondary_opts])) for p in options}
        yield path, flags
        waiting += [(f"{path} {name}", child) for name, child in _children(command).items()]


def changes(old: Interface, new: Interface) -> dict[str, list[str]]:
    """Return what has changed: a sentence for each, with the words of which the changelog has to hold one."""
    found: dict[str, list[str]] = {}
    for name in sorted({*old, *new}):
        words = name.replace(".", " ").split()
        words = words[-1:] if words[0] == "fairmf" else words
        if name not in old or name not in new:
            found[f"{name} is {'new' if name in new else 'gone'}"] = words
            continue
        for parameter in {**old[name], **new[name]}:
            was, now = old[name].get(parameter), new[name].get(parameter)
            if was != now:
                what = "new" if was is None else "gone" if now is None else f"no longer {was!r}, but {now!r}"
                found[f"{parameter} of {name} is {what}"] = [parameter, words[-1]]
    return found


def not_named(found: dict[str, list[str]], text: str) -> list[str]:
    """Return the changes that a text does not name."""
    return [sentence for sentence, words in found.items() if not any(_named(word, text) for word in words)]


def _named(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def newest_changes() -> str:
    """Return the newest part of CHANGELOG.md, below its first heading with two #."""
    _, _, rest = CHANGES.read_text(encoding="utf-8").partition("\n## ")
    return rest.partition("\n## ")[0]


def released() -> Interface:
    """Return the interface of the last release."""
    stored: Interface = json.loads(RELEASED.read_text(encoding="utf-8"))["names"]
    return stored


def main() -> int:
    """Compare, or store the interface of a release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", action="store_true")
    now = interface()
    if parser.parse_args().release:
        import fairmf

        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(now[name])}" for name in sorted(now))  # one line a name
        text = f'{{\n "version": "{fairmf.__version__}",\n "names": {{\n{lines}\n }}\n}}\n'
        RELEASED.write_text(text, encoding="utf-8")
        return 0
    found = changes(released(), now)
    missing = not_named(found, newest_changes())
    print("\n".join(found) or "nothing has changed since the last release")
    print("\n".join(["", "CHANGELOG.md does not name:", *missing]) if missing else "")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
