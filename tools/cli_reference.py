"""Write docs/cli.md, the reference of the `fairmf` command, from its help texts: `python tools/cli_reference.py`.

`--check` writes nothing and fails if the page is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import typer.main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
UNLISTED = ("help", "install_completion", "show_completion")
TOP = """# Command line

<!-- Made by tools/cli_reference.py from the command's own help; change that, then run it again. -->

"""


def reference() -> str:
    """Return the whole page."""
    from fairmf.cli.app import app
    from fairmf.cli.errors import EXIT_CODES

    shared: dict[str, list[Any]] = {}
    text = TOP + _command(typer.main.get_command(app), "fairmf", shared)
    for panel, options in shared.items():
        text += f"\n## {panel}\n" + _options(options)
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return text + "\n## Exit codes\n\n| code | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _command(command: Any, path: str, shared: dict[str, list[Any]]) -> str:
    """Describe a verb and its sub-verbs. Flags in a named panel belong to several verbs: they go to `shared`."""
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    options = [p for p in shown if p.param_type_name == "option" and p.name not in UNLISTED]
    panels = {p.rich_help_panel: [q for q in options if q.rich_help_panel == p.rich_help_panel] for p in options}
    own = panels.pop(None, [])
    for panel, flags in panels.items():
        shared.setdefault(panel, flags)
    arguments = [p for p in shown if p.param_type_name == "argument"]
    children = _children(command)
    usage = " ".join([path, "[options]", *map(_argument_name, arguments), *(["COMMAND ..."] if children else [])])
    text = "" if path == "fairmf" else f"## {path}\n\n"
    text += _prose(command.help or "") + f"\n```\n{usage}\n```\n" + _arguments(arguments) + _options(own)
    if panels:
        also = ", ".join(f"[{panel.lower()}](#{_anchor(panel)})" for panel in panels)
        text += f"\nFlags that other commands have too: {also}.\n"
    if children:
        rows = [f"| [`{name}`](#{_anchor(f'{path} {name}')}) | {_short(child)} |" for name, child in children.items()]
        text += "\n| command | |\n|---|---|\n" + "\n".join(rows) + "\n"
    return text + "".join(f"\n{_command(child, f'{path} {name}', shared)}" for name, child in children.items())


def _children(command: Any) -> dict[str, Any]:
    """Return the verbs of a group, one by one, because verbs are loaded on demand."""
    if not hasattr(command, "list_commands"):
        return {}
    with command.context_class(command) as context:
        found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: child for name, child in found.items() if not child.hidden}


# Use only what every Typer since 0.16 has: the page must not depend on the installed version.
def _value_name(parameter: Any) -> str:
    return (parameter.metavar or parameter.name).upper()


def _argument_name(argument: Any) -> str:
    name = _value_name(argument) + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _arguments(arguments: list[Any]) -> str:
    if not arguments:
        return ""
    rows = [f"| `{_argument_name(p)}` | {_cell(getattr(p, 'help', '') or '')} |" for p in arguments]
    return "\n| argument | |\n|---|---|\n" + "\n".join(rows) + "\n"


def _options(options: list[Any]) -> str:
    rows = []
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag else f" `{_value_name(option)}`"
        rows.append(f"| {names}{value} | {_cell(option.help or '')} | {_default(option)} |")
    return "\n| option | | default |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else ""


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return _cell(option.show_default)
    value = None if callable(option.default) else option.default
    if value is None or value is False or option.multiple:
        return ""
    return f"`{'yes' if value is True else getattr(value, 'value', value)}`"


def _prose(text: str) -> str:
    """Turn help into Markdown: remove rich's markup, and make a code block of what follows "Examples:"."""
    plain = _without_marks(text).replace("\b", "").strip()
    prose, _, examples = plain.partition("Examples:")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    block = "\n```\n" + "\n".join(lines) + "\n```\n" if lines else ""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", prose.strip())]
    return "\n\n".join(paragraphs) + "\n" + block


def _short(command: Any) -> str:
    return _cell(_prose(command.short_help or command.help or "").splitlines()[0])


def _cell(text: str) -> str:
    return " ".join(_without_marks(text).split()).replace("|", "\\|")


def _without_marks(text: str) -> str:
    return re.sub(r"\[/?(?:dim|bold|italic|cyan|green|red|yellow)?\]", "", text).replace("\\[", "[")


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title.lower())


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it."""
    made = reference()
    if arguments == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != made:
            sys.stderr.write("docs/cli.md is out of date; run: python tools/cli_reference.py\n")
            return 1
        return 0
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
