"""A report as one HTML file: assets and content put together. Nothing in it is fetched from anywhere.

The page's own policy allows only the scripts written here, by their hash, and no request: even a name that got past
the escaping could run nothing and send nothing.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib import resources
from string import Template

from fairmf.reporting import static_tables, wording
from fairmf.reporting.content import Content
from fairmf.reporting.payload import to_json
from fairmf.version import __version__

SCRIPTS = (
    "start",
    "format",
    "theme",
    "charts",
    "dial",
    "spread",
    "gains",
    "lists",
    "items",
    "groups",
    "training",
    "go",
)
STYLES = ("base", "tables", "parts", "print")


def page(content: Content) -> str:
    """The whole file as text."""
    library, program = _asset("echarts", "echarts.common.min.js"), _program()
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in (library, program))
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    sections = _sections(content)
    links = "".join(f'<a href="#{name}">{escape(label)}</a>' for name, label, _ in sections)
    return Template(_asset("page.html")).substitute(
        policy=policy,
        version=escape(__version__),
        title=escape(content.title),
        subtitle=escape(content.subtitle),
        style="\n".join(_asset("styles", f"{name}.css") for name in STYLES),
        links=links,
        sections="\n".join(text for _, _, text in sections),
        data=to_json(content),
        library=library,
        program=program,
    )


def _sections(content: Content) -> list[tuple[str, str, str]]:
    """(anchor, what the menu calls it, HTML) of every section that has something to show."""
    items = content.catalogue is not None and content.before.exposure is not None
    groups = static_tables.group_table(content)
    models = static_tables.comparison(content.contenders)
    catalogue = len(content.catalogue) if content.catalogue is not None else 0
    parts: list[tuple[bool, str, str, dict[str, str]]] = [
        (True, "summary", "Summary", _summary(content)),
        (bool(models), "models", "Models", {"table": models}),
        (len(content.positions) > 1, "dial", "Dial", _dial(content)),
        (items, "spread", "Exposure", {"at": str(content.at)}),
        (bool(content.examples), "lists", "Lists", {}),
        (items, "items", "Items", {"table": static_tables.item_table(content), "total": f"{catalogue:,}"}),
        (bool(groups), "groups", "Groups", {"table": groups, "total": f"{len(content.after.groups):,}"}),
        (bool(content.history), "training", "Training", _training(content)),
        (bool(content.record), "record", "Record", {"list": static_tables.record_list(content.record)}),
    ]
    return [
        (name, label, Template(_asset("sections", f"{name}.html")).substitute(values))
        for wanted, name, label, values in parts
        if wanted
    ]


def _summary(content: Content) -> dict[str, str]:
    sentences = "".join(f"<p>{escape(text)}</p>" for text in wording.summary(content))
    return {
        "headline": escape(wording.headline(content, content.after)),
        "sentences": sentences,
        "figures": static_tables.figures(content),
    }


def _dial(content: Content) -> dict[str, str]:
    return {
        "last": str(len(content.positions) - 1),
        "chosen": str(content.chosen),
        "name": escape(content.after.name),
        "first": escape(content.before.name),
        "end": escape(content.positions[-1].name),
        "cards": static_tables.metric_cards(content),
        "table": static_tables.dial_table(content),
        "meanings": static_tables.meanings(content),
    }


def _training(content: Content) -> dict[str, str]:
    history = content.history
    if history is None:
        return {}
    ends = {
        "converged": "ended because the tolerance was met",
        "stopped": "was stopped by a callback",
        "diverged": "diverged: a number was not finite any more",
        "interrupted": "was interrupted",
        "ceiling": "ran all the epochs it was given",
    }
    told = f"{len(history):,} epochs in {history.seconds:.1f} seconds. Training {ends.get(history.verdict, 'ended')}."
    return {"told": escape(told)}


def _program() -> str:
    """Our scripts in one function of their own, so that they leave nothing behind in the page's scope."""
    body = "\n".join(_asset("scripts", f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}\n}})();'


@cache
def _asset(*path: str) -> str:
    return resources.files("fairmf.reporting").joinpath("assets", *path).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
