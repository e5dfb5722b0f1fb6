"""Measure what a report shows: a model at several levels of evenness (or fairness), an audit, or a curve.

At most three sets of lists (users x K integers each) are in memory at a time, never an array of users x items.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fairmf.control.calibrate import LEVELS
from fairmf.control.trade_off import Curve, level_of, place_of
from fairmf.data.groups import GroupLabels
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.audit import Names, audit, read_part, read_quality, read_titles
from fairmf.metrics.audit_result import Audit
from fairmf.metrics.bootstrap import Bootstrap
from fairmf.metrics.evaluate import GivenLists, Ranker, evaluate, ranked_by
from fairmf.metrics.plan import check_held_out
from fairmf.metrics.registry import parse_metric
from fairmf.metrics.sentences import spoken_share
from fairmf.models.base import IterativeModel
from fairmf.models.evenness import EvennessPath
from fairmf.models.fitted import Fitted
from fairmf.models.progress import progress_bar
from fairmf.params import check_count
from fairmf.reports.content import AS_SERVED, LISTED, Catalogue, Contender, Content, Position, Series, choose, described
from fairmf.reports.stops import (
    Stop,
    Stops,
    evenness_stops,
    expected_levels,
    fairness_stops,
    note_on,
    place_on,
    read_evenness,
    served_level,
    with_path,
)
from fairmf.types import Record, Settings

MOST_EXAMPLES = 12  # a limit that keeps all named items within the page

Lists = NDArray[np.int32]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of `report(model, split, path)`; see there."""

    evenness: Iterable[float] | None = None
    fairness: Iterable[float] | None = None
    chosen: float | None = None
    at: int = 20
    quality: str = "ndcg@100"
    names: Names | None = None
    groups: GroupLabels | None = None
    part: str = "test"
    examples: int = 6
    bootstrap: int = 200
    confidence: float = 0.95
    random_state: int = 0
    progress: bool | None = None
    title: str = "Fair recommendations"
    compare: Sequence[Contender] = ()
    record: Settings | None = None


class ModelKeywords(TypedDict, total=False):
    """The fields of `ModelOptions` as keywords of `report`."""

    evenness: Iterable[float] | None
    fairness: Iterable[float] | None
    chosen: float | None
    at: int
    quality: str
    names: Names | None
    groups: GroupLabels | None
    part: str
    examples: int
    bootstrap: int
    confidence: float
    random_state: int
    progress: bool | None
    title: str
    compare: Sequence[Contender]
    record: Settings | None


def of_model(model: IterativeModel, split: Split | HeldOut, options: ModelOptions) -> Content:
    """Measure a model at several levels, for held-out users."""
    fitted = with_dial(model).fitted
    held_out, train = read_users(split, options.part, fitted)
    K, labels = read_lists(options.at, options.quality)
    check_examples(options.examples)
    resamples = Bootstrap.checked("report", options.bootstrap, options.confidence, options.random_state)
    question = Question(held_out, K, labels, options.groups, train, options.examples, resamples)
    titles = read_titles(options.names, held_out.fold_in.n_items, held_out.fold_in.item_ids)
    turned, stops = model, None
    if options.fairness is not None:
        if options.evenness is not None:
            raise InvalidParameter("Give evenness or fairness, not both: a page has one slider.")
        stops = fairness_stops(fitted, options.fairness, options.chosen)
    values, picked = read_evenness(options.evenness, options.chosen) if stops is None else (None, None)
    steps = len(stops) if stops is not None else len(values or LEVELS) + expected_levels(model)
    with progress_bar("report", steps, options.progress) as advance:
        if stops is None:
            turned = with_path(model, split, held_out, (K, labels[0]), advance)
            stops = evenness_stops(turned.fitted, values, picked)
        measured = measure(turned, question, stops, advance)
    values_now = measured.positions[stops.chosen].values
    share = spoken_share(values_now, K)
    catalogue = Catalogue(titles, measured.last.items.groups, measured.last.items.popularity)
    series = _points(options.compare, labels[0], f"gini@{K}")
    return Content(
        title=options.title,
        subtitle=_who(_trained(model, stops.knob), measured.last, options.part if isinstance(split, Split) else ""),
        positions=measured.positions,
        chosen=stops.chosen,
        knob=stops.knob,
        note=_note(model, turned, split) if stops.knob == "evenness" else "",
        served=_served(model, turned.fitted.path, stops.knob),
        part=options.part if isinstance(split, Split) else "",
        metrics=_shown(values_now, labels, share, K),
        quality=labels[0],
        inequality=f"gini@{K}",
        share=share,
        confidence=resamples.confidence,
        at=K,
        n_users=held_out.n_users,
        n_scored=held_out.n_scored,
        catalogue=catalogue,
        examples=described(measured.example_rows, held_out, catalogue),
        series=(*_as_served(model, turned.fitted, question, stops), *series),
        contenders=tuple(options.compare),
        history=fitted.history if len(fitted.history) else None,
        record=dict(options.record or {}),
    )


def _served(model: IterativeModel, path: EvennessPath | None, knob: str) -> str:
    """Say at which level the model answers if a request names none."""
    if knob != "evenness":
        return f"{knob} {model.fitted.fairness:g}"
    if model.fitted.item_offsets is not None:
        return "with exposure offsets"
    level = served_level(model.fitted)
    place = None if path is None else place_on(path, level)
    if place is None:
        return "a level beside this path" if any(level.on_items) else "without evenness"
    return f"evenness {place:g}"


def of_audit(
    found: Audit,
    *,
    title: str = "Fair recommendations",
    compare: Sequence[Contender] = (),
    record: Settings | None = None,
) -> Content:
    """Return the content of a report on an audit: its two sides."""
    labels = tuple(found.users)
    sides = both_sides(found)
    share = spoken_share(sides[1].values, found.at)
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
    record: Settings | None = None,
) -> Content:
    """Return the content of a report on a curve. The dial's points are stops; others are drawn beside them."""
    if not len(curve):
        raise InvalidData("The curve has no points to report.")
    ways = list(dict.fromkeys(row["way"] for row in curve))
    main = next((way for way in ("evenness", "dial") if way in ways), ways[0])
    up, down = curve.quality, curve.inequality
    others = [
        Series(str(way), tuple((row[down], row[up], words_of(row)) for row in curve if row["way"] == way))
        for way in ways
        if way != main
    ]
    positions = _stops_of(curve, main)
    lowest = int(np.argmin([position.values[down] for position in positions]))
    return Content(
        title=title,
        subtitle=f"{len(curve):,} measured points" + (f", lists of {curve.n_users:,} users" if curve.n_users else ""),
        positions=positions,
        # Halfway to the lowest Gini: a moderate level. Stop 0 only where no later stop has a lower Gini.
        chosen=min(range(1, lowest + 1), key=lambda k: abs(k - lowest / 2), default=0),
        metrics=curve.metrics,
        quality=up,
        inequality=down,
        knob=_knob(next(row for row in curve if row["way"] == main)),
        at=curve.at,
        n_users=curve.n_users,
        series=(*others, *_points(compare, up, down)),
        contenders=tuple(compare),
        record=dict(record or {}),
    )


def _stops_of(curve: Curve, way: str) -> tuple[Position, ...]:
    """Return the rows of one `way` as stops, sorted by evenness, or by (trained) fairness where they have none."""
    rows = sorted((row for row in curve if row["way"] == way), key=lambda row: place_of(row)[0])
    return tuple(
        Position(
            words_of(row),
            {metric: row[metric] for metric in curve.metrics},
            row.get("fairness", row.get("trained_fairness")),
            past_minimum=bool(row.get("past_minimum", False)),
            evenness=row.get("evenness"),
            level=None if row.get("evenness") is None else level_of(row),
        )
        for row in rows
    )


def words_of(row: Record) -> str:
    """Return the name of a row of a curve: its evenness, its fairness, or the fairness it was trained with."""
    return f"{_knob(row)} {place_of(row)[0]:g}"


def _knob(row: Record) -> str:
    return place_of(row)[1].replace("_", " ")


def _shown(known: Mapping[str, float], labels: Sequence[str], share: str | None, at: int) -> tuple[str, ...]:
    """Return the metrics that the page shows: accuracy first, then exposure."""
    exposure = ("gini", "coverage", share, "tail_share", "top1_share", "cold_share")
    wanted = (name if name is None or "@" in name else f"{name}@{at}" for name in exposure)
    return (*labels, *dict.fromkeys(metric for metric in wanted if metric in known and metric is not None))


def _points(compare: Sequence[Contender], quality: str, inequality: str) -> tuple[Series, ...]:
    """Return the compared models as points, if both axes were measured."""
    found = []
    for contender in compare:
        values = contender.evaluation.values
        point = (values.get(inequality, math.nan), values.get(quality, math.nan))
        if all(math.isfinite(x) for x in point):
            found.append(Series(contender.name, ((*point, contender.name),)))
    return tuple(found)


def _note(model: IterativeModel, turned: IterativeModel, split: Split | HeldOut) -> str:
    path, calibrated = turned.fitted.path, model.fitted.path is not None
    if path is None:
        return ""
    whose = "validation " if isinstance(split, Split) and split.validation.n_users else "of these "
    return note_on(path, calibrated, "" if calibrated else whose)


def _trained(model: IterativeModel, knob: str) -> str:
    """Name the model and the fairness it was trained with, unless the page uses that word for the slider."""
    name = type(model).__name__
    known = knob == "evenness" and hasattr(model, "fairness") and model.fitted.trained_fairness > 0
    return f"{name} trained with fairness {model.fitted.trained_fairness:g}" if known else name


def _who(what: str, found: Audit, part: str) -> str:
    users = f"{found.n_users:,} {part} users" if part else f"{found.n_users:,} users"
    # Where all have held-out items, a second number would only be read twice.
    scored = "" if found.n_scored == found.n_users else f" ({found.n_scored:,} with held-out items)"
    return f"{what}; lists of {found.at} for {users}{scored}, {found.n_items:,} items"


# -- the stops of the dial, each compared with the first one for the same users ---------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Question:
    """The arguments of the comparison at every stop."""

    held_out: HeldOut
    at: int
    quality: tuple[str, ...]
    groups: GroupLabels | None
    train: Interactions | None
    examples: int
    resamples: Bootstrap

    @property
    def longest(self) -> int:
        """Length of the lists that are needed."""
        cutoffs = [parse_metric(label).K for label in self.quality]
        # The page shows LISTED places of the examples, even if exposure is counted in fewer.
        return min(max(self.at, LISTED, *cutoffs), self.held_out.fold_in.n_items)

    def compare(self, model: Ranker, before: Lists, after: Lists) -> Audit:
        """Compare two sets of lists of the model."""
        first, second = (GivenLists(lists, self.held_out, model) for lists in (before, after))
        return audit(
            first, second, self.held_out, at=self.at, quality=self.quality, groups=self.groups, train=self.train,
            bootstrap=self.resamples.count, confidence=self.resamples.confidence,
            random_state=self.resamples.random_state,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The stops, the rows of the example users, and the last comparison, for facts that all stops share."""

    positions: tuple[Position, ...]
    example_rows: NDArray[np.int64]
    last: Audit


def measure(model: Ranker, question: Question, stops: Stops, advance: Callable[[str], None]) -> Measured:
    """Measure the model at the stops, in rising order. All are compared with the first."""
    # The lists of the first and of the chosen stop are kept: the examples are chosen by how they differ.
    first = lists_at(model, question, stops.stops[0])
    chosen = first if stops.chosen == 0 else lists_at(model, question, stops.picked)
    rows = choose(first, chosen, question.held_out, question.examples)
    positions: list[Position] = []
    for stop in stops.stops[1:]:
        # Not kept: at most three sets of lists are in memory.
        now = chosen if stop is stops.picked else lists_at(model, question, stop)
        found = question.compare(model, first, now)
        # An audit has both sides, so the first comparison also gives the values of the first stop.
        if not positions:
            positions.append(_placed(_first(found, "", first[rows, :LISTED]), stops.knob, stops.stops[0]))
        positions.append(_placed(_next(found, "", now[rows, :LISTED]), stops.knob, stop))
        advance(stop.name)
    return Measured(tuple(_marked(positions, f"gini@{question.at}")), rows, found)


def lists_at(model: Ranker, question: Question, stop: Stop) -> Lists:
    """Return the lists of all users at one stop."""
    blocks = ranked_by(model, question.held_out, question.longest, stop.options)
    return np.concatenate([np.array(items, dtype=np.int32) for _, items in blocks])


def _placed(position: Position, knob: str, stop: Stop) -> Position:
    psi = stop.level.fairness if stop.level is not None else stop.value
    evenness = stop.value if knob == "evenness" else None
    return dataclasses.replace(position, name=stop.name, fairness=psi, evenness=evenness, level=stop.level)


def _as_served(model: IterativeModel, turned: Fitted, question: Question, stops: Stops) -> tuple[Series, ...]:
    """Return the model at the level it serves with now as a point of the chart, unless it is one of the stops."""
    if turned.path is None or stops.knob != "evenness":
        return ()
    place = place_on(turned.path, served_level(model.fitted))
    if model.fitted.item_offsets is None and place in [stop.value for stop in stops.stops]:
        return ()
    quality, inequality = question.quality[0], f"gini@{question.at}"
    found = evaluate(model, question.held_out, metrics=[quality, inequality], bootstrap=0)
    return (Series(AS_SERVED, ((found[inequality], found[quality], AS_SERVED),)),)


def both_sides(found: Audit) -> tuple[Position, ...]:
    """Return the two sides of an audit as stops."""
    return _first(found, found.before_name, None), _next(found, found.after_name, None)


def _first(found: Audit, name: str, lists: Lists | None) -> Position:
    values = {label: change.before for label, change in found.metrics.items()}
    ends = {label: change.before_ends for label, change in found.metrics.items() if change.before_ends is not None}
    return Position(name, values, exposure=found.items.before, lists=lists, intervals=ends)


def _next(found: Audit, name: str, lists: Lists | None) -> Position:
    values = {label: change.after for label, change in found.metrics.items()}
    ends = {label: change.after_ends for label, change in found.metrics.items() if change.after_ends is not None}
    return Position(
        name, values, changes=found.metrics, users=found.users, groups=found.groups, exposure=found.items.after,
        lists=lists, intervals=ends,
    )  # fmt: skip


def _marked(positions: Sequence[Position], gini: str) -> list[Position]:
    """Mark the stops beyond the lowest Gini."""
    end = int(np.argmin([position.values[gini] for position in positions]))
    return [dataclasses.replace(position, past_minimum=k > end) for k, position in enumerate(positions)]


# -- arguments, checked before anything is ranked ---------------------------------------------------------------------


def with_dial(model: object) -> IterativeModel:
    """Return the model if its fairness can be changed; otherwise raise InvalidParameter."""
    if not isinstance(model, IterativeModel):
        raise InvalidParameter(
            f"A {type(model).__name__} has no dial: use FairALS, IALS or FiADMM, or compare two rankings with audit()."
        )
    return model


def read_users(split: Split | HeldOut, part: str, fitted: Fitted) -> tuple[HeldOut, Interactions | None]:
    """Return the users to report on, and the training data for the popularity of items, if any."""
    if part not in ("validation", "test"):
        raise InvalidParameter(f"The 'part' parameter of report must be 'validation' or 'test'. Got {part!r} instead.")
    # A HeldOut alone has no training data, but the model may have kept its own.
    held_out, train = read_part(split, part, None if isinstance(split, Split) else fitted.interactions)
    check_held_out(held_out)
    if not held_out.n_users:
        raise InvalidData("There are no held-out users to report on.")
    return held_out, train


def read_lists(at: int, quality: str) -> tuple[int, tuple[str, ...]]:
    """Return the length of lists and the accuracy metrics; the first metric is the axis of the chart."""
    K = check_count("report", "at", at, 1)
    return K, tuple(dict.fromkeys([*read_quality([quality], K), f"ndcg@{K}", f"recall@{K}"]))


def check_examples(examples: int) -> None:
    """Raise InvalidParameter for more example users than a page can hold."""
    check_count("report", "examples", examples, 0, MOST_EXAMPLES)
