"""`report`: one HTML file that shows what a dial does, to be opened by people (docs/report.md)."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, overload

from fairmf.control.trade_off import Curve
from fairmf.data.groups import GroupLabels
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidParameter
from fairmf.io.atomic import replacing
from fairmf.metrics.audit import Names
from fairmf.metrics.audit_result import Audit
from fairmf.models.base import IterativeModel
from fairmf.reports import tables
from fairmf.reports.content import Contender, Content
from fairmf.reports.measure import of_audit, of_curve, of_model
from fairmf.reports.payload import to_json
from fairmf.text import whole
from fairmf.version import __version__

# A report as one HTML file: assets and content put together. Nothing in it is fetched from anywhere.
#
# The page's own policy allows only the scripts written here, by their hash, and no request: even a name that got past
# the escaping could run nothing and send nothing.


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
    groups = tables.group_table(content)
    models = tables.comparison(content.contenders)
    catalogue = len(content.catalogue) if content.catalogue is not None else 0
    parts: list[tuple[bool, str, str, dict[str, str]]] = [
        (True, "summary", "Summary", _summary(content)),
        (bool(models), "models", "Models", {"table": models}),
        (len(content.positions) > 1, "dial", "Dial", _dial(content)),
        (items, "spread", "Exposure", {"at": str(content.at)}),
        (bool(content.examples), "lists", "Lists", {}),
        (items, "items", "Items", {"table": tables.item_table(content), "total": f"{catalogue:,}"}),
        (bool(groups), "groups", "Groups", {"table": groups, "total": f"{len(content.after.groups):,}"}),
        (bool(content.history), "training", "Training", _training(content)),
        (bool(content.record), "record", "Record", {"list": tables.record_list(content.record)}),
    ]
    return [
        (name, label, Template(_asset("sections", f"{name}.html")).substitute(values))
        for wanted, name, label, values in parts
        if wanted
    ]


def _summary(content: Content) -> dict[str, str]:
    sentences = "".join(f"<p>{escape(text)}</p>" for text in content.summary())
    return {
        "headline": escape(content.headline(content.after)),
        "sentences": sentences,
        "figures": tables.figures(content),
    }


def _dial(content: Content) -> dict[str, str]:
    return {
        "last": str(len(content.positions) - 1),
        "chosen": str(content.chosen),
        "name": escape(content.after.name),
        "first": escape(content.before.name),
        "end": escape(content.positions[-1].name),
        "cards": tables.metric_cards(content),
        "table": tables.dial_table(content),
        "meanings": tables.meanings(content),
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
    return resources.files("fairmf.reports").joinpath("assets", *path).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


PathLike = str | os.PathLike[str]


@overload
def report(
    subject: Curve | Audit,
    path: PathLike,
    /,
    *,
    title: str = ...,
    compare: Sequence[Contender] = ...,
    record: Mapping[str, Any] | None = ...,
) -> Path: ...


@overload
def report(
    subject: IterativeModel,
    split: Split | HeldOut,
    path: PathLike,
    /,
    *,
    fairness: Iterable[float] | None = ...,
    chosen: float | None = ...,
    at: int = ...,
    quality: str = ...,
    names: Names | None = ...,
    groups: GroupLabels | None = ...,
    part: str = ...,
    examples: int = ...,
    bootstrap: int = ...,
    confidence: float = ...,
    random_state: int = ...,
    progress: bool | None = ...,
    title: str = ...,
    compare: Sequence[Contender] = ...,
    record: Mapping[str, Any] | None = ...,
) -> Path: ...


def report(subject: Any, *where: Any, **options: Any) -> Path:
    """Write one self-contained HTML page and return its path.

    Three calls:

    * `report(model, split, "report.html")` asks a fitted model at several stops of its dial. Options: `fairness` (the
      stops; by default up to eleven, until the Gini rises again), `chosen` (the stop that the summary speaks of; the
      fairness the model serves with, or 1 if that is 0), `at` (length of the lists whose exposure counts), `quality`
      (the accuracy metric), `names` (titles, one per item or by item id), `groups` (a label per item, or by item id),
      `part` ("test" or "validation" of a Split), `examples` (how many users' lists are shown; 0 for none),
      `bootstrap`, `confidence`, `random_state` (the intervals), `progress`.
    * `report(audit, "report.html")` shows the two sides of an audit.
    * `report(curve, "report.html")` shows a curve of `trade_off` or `fit_path`, without items.

    All take `title`, `compare` (models measured on the same users: a sequence of
    `fairmf.reports.content.Contender`) and `record` (a mapping that says how the numbers were made).
    """
    asked_of = isinstance(subject, (Curve, Audit))
    wanted = "report(curve_or_audit, path)" if asked_of else "report(model, split, path)"
    if len(where) != (1 if asked_of else 2) or not isinstance(where[-1], (str, os.PathLike)):
        raise InvalidParameter(
            f"The call is {wanted}. Got {len(where)} further arguments instead, or no path at the end."
        )
    path = Path(where[-1])
    if isinstance(subject, Curve):
        content = of_curve(subject, **options)
    elif isinstance(subject, Audit):
        content = of_audit(subject, **options)
    else:
        content = of_model(subject, where[0], **options)
    text = whole(page(content))
    with replacing(path) as file:
        file.write(text.encode())
    return path
