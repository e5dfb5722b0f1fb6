"""`report`: one HTML file that shows what a dial does, to be opened by people (docs/report.md)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from fairmf.control import Curve
from fairmf.errors import InvalidParameter
from fairmf.files.atomic import replacing
from fairmf.metrics import Audit
from fairmf.metrics.audit.arguments import Names
from fairmf.metrics.groups import GroupLabels
from fairmf.models.iterative import IterativeModel
from fairmf.reporting.building import of_audit, of_curve, of_model
from fairmf.reporting.comparison import Contender
from fairmf.reporting.page import page
from fairmf.splitting import HeldOut, Split
from fairmf.text import whole

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
    `fairmf.reporting.comparison.Contender`) and `record` (a mapping that says how the numbers were made).
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
