"""Measure what a report shows: a model at several values of fairness, an audit, or a curve.

At most two sets of lists (users x K integers each) are in memory at a time, never an array of users x items.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairmf.control.trade_off import Curve, rounded
from fairmf.data.groups import GroupLabels
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.audit import Names, audit, read_part, read_quality, read_titles
from fairmf.metrics.audit_result import Audit
from fairmf.metrics.bootstrap import Bootstrap
from fairmf.metrics.evaluate import Ranker, ranked_by
from fairmf.metrics.plan import check_held_out
from fairmf.metrics.registry import parse_metric
from fairmf.metrics.sentences import spoken_share
from fairmf.models.base import IterativeModel
from fairmf.models.fitted import Fitted, check_fairness
from fairmf.models.progress import progress_bar
from fairmf.params import check_count
from fairmf.reports.content import LISTED, Catalogue, Contender, Content, Position, Series, choose, described
from fairmf.types import Record, Settings

MOST_STOPS, MOST_EXAMPLES = 25, 12  # limits that keep all named items within the page
STEPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Default stops of the dial, as multiples of the trained fairness. The list ends early when the Gini rises again."""

Lists = NDArray[np.int32]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of `report(model, split, path)`; see there."""

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


def of_model(model: IterativeModel, split: Split | HeldOut, options: ModelOptions) -> Content:
    """Measure a model at several values of fairness, for held-out users."""
    fitted = with_dial(model).fitted
    held_out, train = read_users(split, options.part, fitted)
    K, labels = read_lists(options.at, options.quality)
    check_examples(options.examples)
    resamples = Bootstrap.checked("report", options.bootstrap, options.confidence, options.random_state)
    stops, picked = read_stops(model, options.fairness, options.chosen)
    question = Question(held_out, K, labels, options.groups, train, options.examples, resamples)
    titles = read_titles(options.names, held_out.fold_in.n_items, held_out.fold_in.item_ids)
    with progress_bar("report", len(stops) - 1, options.progress) as advance:
        measured = measure(model, question, stops, picked, options.fairness is None, advance)
    # The chosen stop was measured for sure: the list of stops never ends before it.
    place = next(k for k, p in enumerate(measured.positions) if p.fairness == picked)
    values = measured.positions[place].values
    share = spoken_share(values, K)
    catalogue = Catalogue(titles, measured.last.items.groups, measured.last.items.popularity)
    return Content(
        title=options.title,
        subtitle=_who(type(model).__name__, measured.last, options.part if isinstance(split, Split) else ""),
        positions=measured.positions,
        chosen=place,
        metrics=_shown(values, labels, share, K),
        quality=labels[0],
        inequality=f"gini@{K}",
        share=share,
        confidence=resamples.confidence,
        at=K,
        n_users=held_out.n_users,
        n_scored=held_out.n_scored,
        catalogue=catalogue,
        examples=described(measured.example_rows, held_out, catalogue),
        series=_points(options.compare, labels[0], f"gini@{K}"),
        contenders=tuple(options.compare),
        history=fitted.history if len(fitted.history) else None,
        record=dict(options.record or {}),
    )


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
        Series(str(way), tuple((row[down], row[up], place_of(row)[1]) for row in curve if row["way"] == way))
        for way in ways
        if way != main
    ]
    positions = _stops_of(curve, main)
    lowest = int(np.argmin([position.values[down] for position in positions]))
    return Content(
        title=title,
        subtitle=f"{len(curve):,} measured points" + (f", lists of {curve.n_users:,} users" if curve.n_users else ""),
        positions=positions,
        # Halfway to the lowest Gini: a moderate fairness. Stop 0 only where no later stop has a lower Gini.
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
    """Return the rows of one `way` as stops, sorted by evenness, or by fairness where they have none."""
    rows = sorted((row for row in curve if row["way"] == way), key=lambda row: place_of(row)[0])
    return tuple(
        Position(
            place_of(row)[1],
            {metric: row[metric] for metric in curve.metrics},
            row["fairness"],
            past_minimum=bool(row.get("past_minimum", False)),
        )
        for row in rows
    )


def place_of(row: Record) -> tuple[float, str]:
    """Return where a row lies on its curve, as a number and in words: its evenness, else its fairness."""
    if row.get("evenness") is not None:
        return row["evenness"], f"evenness {row['evenness']:g}"
    return row["fairness"], named(row["fairness"])


def _shown(known: Mapping[str, float], labels: Sequence[str], share: str | None, at: int) -> tuple[str, ...]:
    """Return the metrics that the page shows: accuracy first, then exposure."""
    wanted = (f"gini@{at}", f"coverage@{at}", share, f"tail_share@{at}", f"top1_share@{at}")
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


def _who(what: str, found: Audit, part: str) -> str:
    users = f"{found.n_users:,} {part} users" if part else f"{found.n_users:,} users"
    return f"{what}; lists of {found.at} for {users} ({found.n_scored:,} with held-out items), {found.n_items:,} items"


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

    def compare(self, before: Lists, after: Lists) -> Audit:
        """Compare two sets of lists."""
        return audit(
            before, after, self.held_out, at=self.at, quality=self.quality, groups=self.groups, train=self.train,
            bootstrap=self.resamples.count, confidence=self.resamples.confidence,
            random_state=self.resamples.random_state,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The stops, the rows of the example users, and the last comparison, for facts that all stops share."""

    positions: tuple[Position, ...]
    example_rows: NDArray[np.int64]
    last: Audit


def measure(
    model: Ranker,
    question: Question,
    stops: Sequence[float],
    chosen: float,
    open_end: bool,
    advance: Callable[[str], None],
) -> Measured:
    """Measure the model at the stops, in rising order. All are compared with the first.

    With `open_end`, end after the first stop above `chosen` whose Gini is higher than that of the stop before.
    """
    # The lists of the first and of the chosen stop are kept: the examples are chosen by how they differ.
    lists = {psi: lists_at(model, question, psi) for psi in (stops[0], chosen)}
    first = lists[stops[0]]
    rows = choose(first, lists[chosen], question.held_out, question.examples)
    positions: list[Position] = []
    gini = f"gini@{question.at}"
    for psi in stops[1:]:
        # Not kept: at most two sets of lists are in memory.
        now = lists[psi] if psi == chosen else lists_at(model, question, psi)
        found = question.compare(first, now)
        # An audit has both sides, so the first comparison also gives the values of the first stop.
        if not positions:
            positions.append(_first(found, named(stops[0]), stops[0], first[rows, :LISTED]))
        positions.append(_next(found, named(psi), psi, now[rows, :LISTED]))
        advance(named(psi))
        if open_end and psi > chosen and positions[-1].values[gini] > positions[-2].values[gini]:
            break
    return Measured(tuple(_marked(positions, gini)), rows, found)


def lists_at(model: Ranker, question: Question, psi: float) -> Lists:
    """Return the lists of all users at one stop."""
    blocks = ranked_by(model, question.held_out, question.longest, {"fairness": psi})
    return np.concatenate([np.array(items, dtype=np.int32) for _, items in blocks])


def named(psi: float) -> str:
    """Return the name of a stop."""
    return f"fairness {psi:g}"


def both_sides(found: Audit) -> tuple[Position, ...]:
    """Return the two sides of an audit as stops."""
    return _first(found, found.before_name, None, None), _next(found, found.after_name, None, None)


def _first(found: Audit, name: str, psi: float | None, lists: Lists | None) -> Position:
    values = {label: change.before for label, change in found.metrics.items()}
    return Position(name, values, psi, exposure=found.items.before, lists=lists)


def _next(found: Audit, name: str, psi: float | None, lists: Lists | None) -> Position:
    values = {label: change.after for label, change in found.metrics.items()}
    return Position(name, values, psi, found.metrics, found.users, found.groups, found.items.after, lists)


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
    return K, tuple(dict.fromkeys([*read_quality([quality], K), f"recall@{K}"]))


def check_examples(examples: int) -> None:
    """Raise InvalidParameter for more example users than a page can hold."""
    check_count("report", "examples", examples, 0, MOST_EXAMPLES)


def read_stops(
    model: IterativeModel, fairness: Iterable[float] | None, chosen: float | None
) -> tuple[list[float], float]:
    """Return the stops in rising order, at least two, and the stop that the summary describes."""
    fitted = model.fitted
    picked = check_fairness(chosen) if chosen is not None else (fitted.fairness or 1.0)
    if fairness is None:
        unit = fitted.trained_fairness or 1.0
        # The trained fairness is a natural unit of the dial: the steps lie closer below it than above.
        stops = {rounded(step * unit) for step in STEPS} | {picked}
    else:
        stops = {check_fairness(psi) for psi in fairness}
        if not stops:
            raise InvalidParameter("fairness holds no values: leave it out to have them chosen.")
        if chosen is None and picked not in stops:
            picked = max(stops)
        stops.add(picked)
    if picked == 0 or len(stops) == 1:
        stops.add(0.0)  # a baseline to compare with
    if len(stops) == 1:
        raise InvalidParameter("A report compares stops of the dial: give at least one fairness above 0.")
    if len(stops) > MOST_STOPS:
        raise InvalidParameter(f"A report has at most {MOST_STOPS} stops. Got {len(stops)} instead.")
    return sorted(stops), picked
