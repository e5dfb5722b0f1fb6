"""A report's content from what it is made of: a model and its users, an audit, or a curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fairmf.control import Curve
from fairmf.errors import InvalidData
from fairmf.metrics import Audit
from fairmf.metrics.audit.arguments import Names, read_titles
from fairmf.metrics.groups import GroupLabels
from fairmf.metrics.plan import check_resampling
from fairmf.models.iterative import IterativeModel
from fairmf.models.progress import progress_bar
from fairmf.reporting import asking, measuring, wording
from fairmf.reporting.comparison import Contender
from fairmf.reporting.content import Catalogue, Content, Position, Series
from fairmf.reporting.examples import described
from fairmf.splitting import HeldOut, Split


def of_model(
    model: IterativeModel,
    split: Split | HeldOut,
    *,
    fairness: Iterable[float] | None = None,
    chosen: float | None = None,
    at: int = 20,
    quality: str = "ndcg@100",
    names: Names | None = None,
    groups: GroupLabels | None = None,
    part: str = "test",
    examples: int = 6,
    bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int = 0,
    progress: bool | None = None,
    title: str = "Fair recommendations",
    compare: Sequence[Contender] = (),
    record: Mapping[str, Any] | None = None,
) -> Content:
    """The dial of a model, asked for held-out users; see `report` for the options."""
    fitted = asking.with_dial(model).fitted
    held_out, train = asking.read_users(split, part, fitted)
    K, labels = asking.read_lists(at, quality)
    asking.check_examples(examples)
    check_resampling("report", bootstrap, confidence, random_state)
    stops, picked = asking.read_stops(model, fairness, chosen)
    question = measuring.Question(
        held_out, K, labels, groups, train, examples, bootstrap, float(confidence), random_state
    )
    titles = read_titles(names, held_out.fold_in.n_items, held_out.fold_in.item_ids)
    with progress_bar("report", len(stops) - 1, progress) as advance:
        measured = measuring.measure(model, question, stops, picked, fairness is None, advance)
    place = next(k for k, p in enumerate(measured.positions) if p.fairness == picked)
    values = measured.positions[place].values
    share = wording.spoken_share(values, K)
    catalogue = Catalogue(titles, measured.last.items.groups, measured.last.items.popularity)
    return Content(
        title=title,
        subtitle=_who(type(model).__name__, measured.last, part if isinstance(split, Split) else ""),
        positions=measured.positions,
        chosen=place,
        metrics=_shown(values, labels, share, K),
        quality=labels[0],
        inequality=f"gini@{K}",
        share=share,
        confidence=float(confidence),
        at=K,
        n_users=held_out.n_users,
        n_scored=held_out.n_scored,
        catalogue=catalogue,
        examples=described(measured.example_rows, held_out, catalogue),
        series=_points(compare, labels[0], f"gini@{K}"),
        contenders=tuple(compare),
        history=fitted.history if len(fitted.history) else None,
        record=dict(record or {}),
    )


def of_audit(
    found: Audit,
    *,
    title: str = "Fair recommendations",
    compare: Sequence[Contender] = (),
    record: Mapping[str, Any] | None = None,
) -> Content:
    """The two sides of an audit."""
    labels = tuple(found.users)
    sides = measuring.both_sides(found)
    share = wording.spoken_share(sides[1].values, found.at)
    return Content(
        title=title,
        subtitle=_who(f"{found.before_name} and {found.after_name}", found, ""),
        positions=sides,
        chosen=1,
        metrics=_shown(sides[1].values, labels, share, found.at),
        quality=labels[0],
        inequality=f"gini@{found.at}",
        share=share,
        confidence=found.confidence,
        at=found.at,
        n_users=found.n_users,
        n_scored=found.n_scored,
        catalogue=Catalogue(found.items.names, found.items.groups, found.items.popularity),
        series=_points(compare, labels[0], f"gini@{found.at}"),
        contenders=tuple(compare),
        record=dict(record or {}),
    )


def of_curve(
    curve: Curve,
    *,
    title: str = "Quality against equal exposure",
    compare: Sequence[Contender] = (),
    record: Mapping[str, Any] | None = None,
) -> Content:
    """Measured points: the dial's (or the first way's) are the stops, all other ways are drawn beside them."""
    if not len(curve):
        raise InvalidData("The curve has no points to report.")
    ways = list(dict.fromkeys(row["way"] for row in curve))
    main = "dial" if "dial" in ways else ways[0]
    up, down = curve.quality, curve.inequality
    others = [
        Series(
            str(way), tuple((row[down], row[up], f"fairness {row['fairness']:g}") for row in curve if row["way"] == way)
        )
        for way in ways
        if way != main
    ]
    positions = _stops_of(curve, main)
    lowest = int(np.argmin([position.values[down] for position in positions]))
    return Content(
        title=title,
        subtitle=f"{len(curve):,} measured points",
        positions=positions,
        chosen=min(range(1, lowest + 1), key=lambda k: abs(k - lowest / 2), default=0),
        metrics=curve.metrics,
        quality=up,
        inequality=down,
        at=int(down.partition("@")[2]),
        series=(*others, *_points(compare, up, down)),
        contenders=tuple(compare),
        record=dict(record or {}),
    )


def _stops_of(curve: Curve, way: str) -> tuple[Position, ...]:
    """The rows of one way as stops, by rising fairness."""
    rows = sorted((row for row in curve if row["way"] == way), key=lambda row: row["fairness"])
    return tuple(
        Position(
            measuring.named(row["fairness"]),
            {metric: row[metric] for metric in curve.metrics},
            row["fairness"],
            past_minimum=bool(row.get("past_minimum", False)),
        )
        for row in rows
    )


def _shown(known: Mapping[str, float], labels: Sequence[str], share: str | None, at: int) -> tuple[str, ...]:
    """The metrics that have a card and a column: accuracy, then exposure."""
    wanted = (f"gini@{at}", f"coverage@{at}", share, f"tail_share@{at}", f"top1_share@{at}")
    return (*labels, *dict.fromkeys(metric for metric in wanted if metric in known and metric is not None))


def _points(compare: Sequence[Contender], quality: str, inequality: str) -> tuple[Series, ...]:
    """Compared models as points, where both axes were measured."""
    found = []
    for contender in compare:
        values = contender.evaluation.values
        point = (values.get(inequality, math.nan), values.get(quality, math.nan))
        if all(math.isfinite(x) for x in point):
            found.append(Series(contender.name, ((*point, contender.name),)))
    return tuple(found)


def _who(what: str, found: Audit, part: str) -> str:
    users = f"{found.n_users:,} {part} users" if part else f"{found.n_users:,} users"
    return f"{what}; lists of {found.at} for {users} ({found.n_scored:,} with held-out items), {found.n_items:,} items"
