"""Write one HTML page that shows what evenness changes and what it costs: `report` (docs/report.md).

The templates (jinja2, assets/) escape every value. In addition, the page's content security policy allows only our own
scripts, by their hash, and no requests. So even a name that was not escaped could run nothing and send nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import jinja2
from markupsafe import Markup

from fairmf.control.trade_off import Curve
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidParameter
from fairmf.io.atomic import replacing
from fairmf.metrics import sentences
from fairmf.metrics.audit_result import Audit
from fairmf.metrics.registry import parse_metric
from fairmf.models.base import IterativeModel
from fairmf.models.fitted import History
from fairmf.params import takes_keywords
from fairmf.reports import tables
from fairmf.reports.content import Contender, Content
from fairmf.reports.measure import ModelKeywords, ModelOptions, of_audit, of_curve, of_model
from fairmf.reports.payload import to_json
from fairmf.text import whole
from fairmf.types import Settings
from fairmf.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

# `start` reads the data that all others use, and `go` calls them, so these two come first and last.
SCRIPTS = (
    "start", "format", "theme", "charts", "dial", "spread", "gains", "lists", "items", "groups", "training", "go",
)  # fmt: skip
STYLES = ("base", "tables", "parts", "print")
ENDS = {
    "converged": "ended because the tolerance was met",
    "stopped": "was stopped by a callback",
    "diverged": "diverged: a number was no longer finite",
    "interrupted": "was interrupted",
    "ceiling": "ran all the epochs it was given",
}
"""Sentences on how training ended, by the verdict of its history."""

PathLike = str | os.PathLike[str]


@overload
def report(
    subject: Curve | Audit,
    path: PathLike,
    /,
    *,
    title: str = ...,
    compare: Sequence[Contender] = ...,
    record: Settings | None = ...,
) -> Path: ...


@overload
def report(
    subject: IterativeModel,
    split: Split | HeldOut,
    path: PathLike,
    /,
    **options: Unpack[ModelKeywords],
) -> Path: ...


@takes_keywords(ModelKeywords, of=ModelOptions)
def report(subject: Curve | Audit | IterativeModel, *where: Any, **options: Any) -> Path:
    """Write a self-contained HTML page that shows what evenness changes and what it costs, and return its path.

    There are three calls. `report(model, split, path)` measures a fitted model at several values of evenness, the stops
    of a slider, along the path of `calibrate`; a model that was not calibrated gets a quick path on the validation
    users, and stays as it is. `report(audit, path)` shows the two sides of an audit. `report(curve, path)` shows a
    curve of `trade_off` or `fit_path`, without items. Parameters after `path` are passed by name; those before `title`
    are for models only.

    Parameters
    ----------
    subject
        A fitted FairALS, IALS or FiADMM, an Audit, or a Curve.
    split
        The users to measure on (models only): a Split or a HeldOut.
    path
        The HTML file to write.
    evenness
        Values of evenness to show, from 0 to 1; by default eleven.
    fairness
        Instead of evenness: values of the users' dial (psi), for experts.
    chosen
        The evenness that the summary describes. With `fairness`: the value of fairness that it describes. By default
        the one the model serves with, or 0.3.
    at
        Length of the lists in which exposure is counted.
    quality
        The accuracy metric that stands for quality.
    names
        Titles, one per item or by item id.
    groups
        A label per item, or by item id.
    part
        "test" or "validation" of a Split.
    examples
        Number of example users whose lists are shown; 0 for none.
    bootstrap, confidence, random_state
        Number of resamples of the users, confidence and seed of the intervals.
    progress
        Whether to show a progress bar; None shows it in a terminal.
    title
        The page's title.
    compare
        Models measured on the same users: a sequence of `fairmf.reports.content.Contender`.
    record
        Facts to show on how the numbers were made, by name.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    InvalidParameter
        If the call is none of the three, the model has no dial, or evenness and fairness are both given.
    InvalidData
        If there are no users or points to report on.
    CannotWrite
        If the file cannot be written; an older report stays as it is.

    Examples
    --------
    >>> import os, tempfile
    >>> from fairmf import FairALS, report, split_by_user, synthetic, trade_off
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> curve = trade_off(FairALS(factors=8, epochs=4).fit(split.train), split, points=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(curve, os.path.join(folder, "report.html")).name
    'report.html'
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
        content = of_model(subject, where[0], ModelOptions(**options))
    text = whole(page(content))
    with replacing(path) as file:
        file.write(text.encode())
    return path


def page(content: Content) -> str:
    """Return the HTML of the page."""
    # The browser hashes all that is between the tags: the template must not add even a line break there.
    library, program = _asset("echarts", "echarts.common.min.js"), _program()
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in (library, program))
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    shown = {
        "costs": tables.cost_table(content),
        "models": tables.model_table(content.contenders),
        "items": tables.item_table(content),
        "groups": tables.group_table(content),
        "cold": tables.cold_table(content),
    }
    # `Markup` is not escaped. It is our own files, and the data, which `to_json` makes safe inside a <script>.
    return _templates().get_template("page.html").render(
        content=content,
        sections=_sections(content, shown),
        tables={**shown, "dial": tables.dial_table(content), "levels": tables.level_table(content)},
        training="" if content.history is None else _training(content.history),
        record={str(name): _written(value) for name, value in content.record.items()},
        version=__version__,
        policy=Markup(policy),
        style=Markup("\n".join(_asset("styles", f"{name}.css") for name in STYLES)),
        data=Markup(to_json(content)),
        library=Markup(library),
        program=Markup(program),
    )  # fmt: skip


def _sections(content: Content, shown: Mapping[str, tables.PageTable | None]) -> dict[str, str]:
    """Return the sections that are not empty: the name of the template and anchor, and the label in the menu."""
    items = content.catalogue is not None and content.before.exposure is not None
    parts = (
        ("summary", "Summary", True),
        ("dial", content.knob.capitalize() or "Both sides", len(content.positions) > 1),
        ("models", "Models", shown["models"]),
        ("costs", "Costs", shown["costs"]),
        ("spread", "Exposure", items),
        ("cold", "New items", shown["cold"]),
        ("lists", "Lists", content.examples),
        ("items", "Items", items),
        ("groups", "Groups", shown["groups"]),
        ("training", "Training", content.history),
        ("record", "Record", content.record),
    )
    return {name: label for name, label, wanted in parts if wanted}


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fairmf.reports", "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # a misspelt name is an error, not an empty text
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "VERDICTS": sentences.VERDICTS,
        "arrow": sentences.arrow,
        "better": sentences.better,
        "meaning": lambda metric: parse_metric(metric).meaning,
        "title": sentences.title,
        "written": sentences.written,
        "shown_change": sentences.shown_change,
    }
    return made


def _training(history: History) -> str:
    ended = ENDS.get(history.verdict, "ended")
    return f"{len(history):,} epochs in {history.seconds:.1f} seconds. Training {ended}."


def _written(value: object) -> tuple[bool, str]:
    """Return whether a value of the record is nested, and its text."""
    if isinstance(value, (Mapping, list, tuple)):
        return True, json.dumps(value, indent=1, default=str, ensure_ascii=False)
    return False, str(value)


def _program() -> str:
    """Wrap our scripts in one function, so that they define no global names."""
    body = "\n".join(_asset("scripts", f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}\n}})();'


@cache
def _asset(*path: str) -> str:
    return resources.files("fairmf.reports").joinpath("assets", *path).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
