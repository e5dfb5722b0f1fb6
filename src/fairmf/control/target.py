"""Find the evenness that meets a target such as "Gini at most .85" or "lose at most 2 % of nDCG": `fit_to_target`.

The search runs along the model's path of evenness (`calibrate`, or a quick one). If no evenness meets the target,
FairRec and exposure offsets may; they are measured on the same users if asked for.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fairmf import html
from fairmf.control.calibrate import validation_of
from fairmf.control.fit_offsets import fit_offsets
from fairmf.control.quick_path import on_path
from fairmf.control.trade_off import EXPECTED, Curve, Meter, Row, level_of
from fairmf.data.popularity import gini as gini_of
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidParameter, MissingHistories
from fairmf.metrics.evaluate import Ranker, evaluate
from fairmf.models.base import IterativeModel
from fairmf.models.evenness import Level
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_number

GRID = (0.25, 0.5, 1.0)  # minimum exposures to try, as fractions of an equal share
USERS_AT_ONCE = 4096  # users ranked per iteration of learning offsets: enough for an estimate
FAIRREC_BEST = 0.5  # below this Gini FairRec keeps more accuracy than any evenness (docs/evenness.md, limits)
CLOSE = 0.0005  # bisection ends when the metric at both ends differs by no more than this
STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)  # values of evenness between which a bisection starts
WAYS = {"fairrec": ("fairrec",), "offsets": ("offsets",), "all": ("offsets", "fairrec")}
"""The words that `alternatives` takes, and the methods that each measures."""


def fit_to_target(
    model: IterativeModel,
    split: Split | HeldOut,
    *,
    max_gini: float | None = None,
    min_coverage: float | None = None,
    max_ndcg_loss: float | None = None,
    at: int = 20,
    alternatives: bool | str = False,
    progress: bool | None = None,
) -> Target:
    """Find the evenness at which the validation users' lists meet a target; train first if the model is not fitted.

    The search runs along the model's path of evenness; a model that was not calibrated gets one first, found on a
    sample of the same users in about a second. Give exactly one of `max_gini`, `min_coverage` and `max_ndcg_loss`.

    Parameters
    ----------
    model
        A FairALS, IALS or FiADMM, fitted or not.
    split
        A Split, of which the validation users are used, or a HeldOut if the model is fitted.
    max_gini
        Highest Gini of exposure in lists of length `at`. The smallest evenness that meets it is taken. Gini depends on
        the number of users: it is that of the validation users together.
    min_coverage
        Lowest share of the catalogue in lists of length `at`. The smallest evenness that meets it is taken.
    max_ndcg_loss
        Largest share of the nDCG@100 at evenness 0 that may be lost. The largest evenness that meets it is taken.
    at
        Length of the lists in which exposure is counted.
    alternatives
        What else to measure if no evenness meets the target: "fairrec", "offsets" (three trainings of exposure offsets,
        which takes minutes on large data), "all" or True for both, False for nothing.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Target
        The model, set to the evenness found, with its path. If `reached` is False, that is the evenness that comes
        nearest.

    Raises
    ------
    InvalidParameter
        If not exactly one target between 0 and 1 is given, or if the model is not fitted and `split` is no Split.

    Examples
    --------
    >>> from fairmf import FairALS, fit_to_target, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> fit_to_target(FairALS(factors=8, epochs=4), split, max_gini=0.6).reached
    True
    """
    held_out = validation_of(split)
    name, value = one_goal({"max_gini": max_gini, "min_coverage": min_coverage, "max_ndcg_loss": max_ndcg_loss})
    check_count("fit_to_target", "at", at)
    ways = asked_ways(alternatives)
    if not isinstance(model, IterativeModel):
        raise InvalidParameter(f"A {type(model).__name__} has no dial: use FairALS, IALS or FiADMM.")
    if model._fitted is None:
        if not isinstance(split, Split):
            raise InvalidParameter("The model is not fitted: fit it first, or pass a whole Split.")
        model = model.fit(split.train, progress=progress)
    gini, ndcg = f"gini@{at}", "ndcg@100"
    with progress_bar("target", EXPECTED + 12, progress) as advance:
        calibrated = on_path(model, held_out, at, ndcg, advance)
        measure = Meter(calibrated, held_out, (ndcg, f"recall@{at}", gini, f"coverage@{at}"), advance)
        if name == "max_ndcg_loss":
            goal = Goal(ndcg, (1 - value) * measure(0.0)[ndcg], at_most=False)
            row = furthest(measure, goal)
        else:
            goal = Goal(gini, value, at_most=True) if name == "max_gini" else Goal(f"coverage@{at}", value, False)
            row = nearest(measure, goal)
    reached, others = goal.met_by(row), Curve((), measure.metrics)
    message = sentence(goal, row, measure, reached)
    if not reached:
        message += room(goal, held_out.n_users, model.n_items, at)
        if ways:
            with progress_bar("alternatives", len(ways) * len(GRID), progress) as advance:
                others = measure_alternatives(model, held_out, measure.metrics, at, ways, advance)
            message += " " + advice(others, goal, f"recall@{at}")
        if "fairrec" not in ways:
            message += ' FairRec can make lists more even: alternatives="fairrec" measures it.'
    elif name == "max_gini" and value < FAIRREC_BEST and row["evenness"] > 0:
        message += (
            f" Below a Gini of {FAIRREC_BEST:g} FairRec keeps more accuracy, if all lists are made together: "
            "compare evaluate(model.with_fairrec(share), split)."
        )
    curve = Curve(tuple(measure.rows[key] for key in sorted(measure.rows)), measure.metrics)
    level = level_of(row)
    try:
        served = calibrated.with_evenness(level)
    except MissingHistories:  # its stored users cannot be turned; users that are folded in can
        served = calibrated
        message += f" This model holds no histories: pass evenness={row['evenness']:g} with each request."
    return Target(served, goal, reached, row["fairness"], message, curve, others, row["evenness"], level)


@dataclass(frozen=True)
class Goal:
    """A bound on one metric: at most, or at least, a value."""

    metric: str
    value: float
    at_most: bool

    def met_by(self, row: Row) -> bool:
        """Whether a row meets the bound."""
        found = float(row[self.metric])
        return found <= self.value if self.at_most else found >= self.value

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.at_most else '>='} {self.value:.4g}"


@dataclass(frozen=True)
class Target:
    """The result of `fit_to_target`.

    Attributes
    ----------
    model
        The model, set to the evenness found, with its path: serve it, or save it.
    goal
        The bound that was asked for.
    reached
        Whether the model meets it on the validation users.
    fairness
        The fairness of the level found (psi, for experts).
    message
        The result in one or two sentences.
    curve
        Every evenness that was measured.
    alternatives
        If no evenness meets the goal and they were asked for: the results of exposure offsets (way "offsets", with
        `min_exposure`) and FairRec (way "FairRec", with `share`), applied to the given model, on the same users.
    evenness
        The evenness found.
    level
        The level that it stands for on the path of `model`.

    Examples
    --------
    >>> from fairmf import FairALS, fit_to_target, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = fit_to_target(FairALS(factors=8, epochs=4), split, max_ndcg_loss=0.05)
    >>> found.reached, found.goal.metric
    (True, 'ndcg@100')
    """

    model: IterativeModel
    goal: Goal
    reached: bool
    fairness: float
    message: str
    curve: Curve
    alternatives: Curve
    evenness: float
    level: Level

    def __repr__(self) -> str:
        return f"Target({'reached' if self.reached else 'NOT reached'}: {self.message})"

    def _repr_html_(self) -> str:
        note = "reached" if self.reached else "not reached"
        told = {
            "goal": self.goal,
            "evenness": f"{self.evenness:g}",
            "measured": f"{len(self.curve)} values of evenness",
        }
        return html.title("Target", note) + html.paragraph(self.message) + html.facts(told)


def one_goal(goals: dict[str, float | None]) -> tuple[str, float]:
    """Return the name and value of the one target that was given."""
    given = {name: value for name, value in goals.items() if value is not None}
    if len(given) != 1:
        raise InvalidParameter(f"Give exactly one of {', '.join(goals)}. Got {', '.join(given) or 'none'} instead.")
    ((name, value),) = given.items()
    check_number("fit_to_target", name, value, low=0, high=1)
    return name, value


def asked_ways(alternatives: bool | str) -> tuple[str, ...]:
    """Return the methods that `alternatives` names; raise InvalidParameter for other words."""
    if isinstance(alternatives, bool):
        return WAYS["all"] if alternatives else ()
    if alternatives not in WAYS:
        names = ", ".join(repr(name) for name in WAYS)
        raise InvalidParameter(
            f"The 'alternatives' parameter of fit_to_target must be {names}, True or False. Got {alternatives!r} "
            "instead.", parameter="alternatives",
        )  # fmt: skip
    return WAYS[alternatives]


def nearest(measure: Callable[[float], Row], goal: Goal) -> Row:
    """Return the row of the smallest evenness that meets the goal; if none does, the row that comes nearest."""
    first, last = measure(0.0), measure(1.0)
    if goal.met_by(first):
        return first
    if goal.metric.startswith("gini") and not goal.met_by(last):
        return min((last, first), key=lambda row: row[goal.metric])  # Gini falls along the path: no need to look on
    for low, high in itertools.pairwise(STEPS):
        if goal.met_by(measure(high)):
            return between(measure, low, high, goal.met_by, goal.metric)
    sign = 1 if goal.at_most else -1
    return min((measure(step) for step in STEPS), key=lambda row: (sign * row[goal.metric], row["evenness"]))


def furthest(measure: Callable[[float], Row], goal: Goal) -> Row:
    """Return the row of the largest evenness up to which the goal, which is met at evenness 0, is met."""
    for low, high in itertools.pairwise(STEPS):
        if not goal.met_by(measure(high)):
            return between(measure, low, high, lambda row: not goal.met_by(row), goal.metric, inside=False)
    return measure(STEPS[-1])


def between(
    measure: Callable[[float], Row],
    low: float,
    high: float,
    met: Callable[[Row], bool],
    metric: str,
    inside: bool = True,
) -> Row:
    """Bisect (low, high] for the smallest evenness at which `met` is true, to three digits or CLOSE in the metric.

    Return its row, or with `inside=False` that of the largest evenness below it at which `met` was seen to be false.
    """
    while True:
        gap = abs(measure(high)[metric] - measure(low)[metric])
        middle = round((low + high) / 2, 3)
        if gap <= CLOSE or middle in (low, high):
            return measure(high if inside else low)
        if met(measure(middle)):
            high = middle
        else:
            low = middle


def sentence(goal: Goal, row: Row, measure: Meter, reached: bool) -> str:
    """Say whether the goal was reached, at which evenness, for how many users, and what changes there."""
    plain = measure(0.0)
    here = ", ".join(f"{name} {row[name]:.4f} ({row[name] - plain[name]:+.4f})" for name in measure.metrics)
    values = f"{here}, for the lists of {row['n_users']:,} users. In brackets: the change from evenness 0."
    if reached:
        return f"{goal} is reached at evenness {row['evenness']:g}: {values}"
    what = "the most even point is" if row["evenness"] == 1 else "nearest comes"
    return f"{goal} cannot be reached; {what} evenness {row['evenness']:g}: {values}"


def room(goal: Goal, n_users: int, n_items: int, at: int) -> str:
    """Say so if no lists of this length for so many users could meet the goal; return "" if some could."""
    slots = n_users * min(at, n_items)
    counts = np.full(n_items, slots // n_items)
    counts[: slots % n_items] += 1  # as even as lists can be
    best = float(gini_of(counts)) if goal.at_most else float((counts > 0).mean())
    if goal.met_by({goal.metric: best}):
        return ""
    word = "lowest" if goal.at_most else "highest"
    return (
        f" No method can: {n_users:,} lists have {slots:,} places for {n_items:,} items, so the {word} possible "
        f"{goal.metric} is {best:.4f}. Measure on more users."
    )


# -- alternatives to evenness -----------------------------------------------------------------------------------------


def measure_alternatives(
    model: IterativeModel,
    held_out: HeldOut,
    metrics: Sequence[str],
    at: int,
    ways: Sequence[str] = WAYS["all"],
    advance: Callable[[str], None] = lambda _: None,
) -> Curve:
    """Measure exposure offsets and FairRec for lists of length `at`, at every minimum exposure of GRID.

    Offsets are learned on the training users, or on the held-out users if the model has no histories. FairRec's lists
    have length `at`, so metrics of longer lists are None. If a list holds the whole catalogue, exposure is equal anyway
    and no offsets are learned.
    """
    rows: list[Row] = []
    cohort = held_out if model.fitted.interactions is None else None
    for floor in GRID if "offsets" in ways and at < model.n_items else ():
        began = time.perf_counter()
        made = fit_offsets(
            model, K=at, min_exposure=floor, cohort=cohort, users_at_once=USERS_AT_ONCE, check=False, progress=False
        ).model  # fmt: skip
        row = {"way": "offsets", "fairness": model.fitted.fairness, "min_exposure": floor}
        rows.append({**row, **_measured(made, held_out, metrics, metrics), "seconds": time.perf_counter() - began})
        advance(f"offsets {floor:g}")
    short = [name for name in metrics if int(name.split("@")[1]) <= at]
    # With fewer places than items, FairRec can guarantee nothing.
    possible = "fairrec" in ways and at * held_out.n_users >= model.n_items
    for share in GRID if possible else ():
        began = time.perf_counter()
        row = {"way": "FairRec", "fairness": model.fitted.fairness, "share": share}
        found = _measured(model.with_fairrec(share, K=at), held_out, short, metrics)
        rows.append({**row, **found, "seconds": time.perf_counter() - began})
        advance(f"FairRec {share:g}")
    return Curve(tuple(rows), tuple(metrics))


def _measured(model: Ranker, held_out: HeldOut, asked: Sequence[str], metrics: Sequence[str]) -> Row:
    found = evaluate(model, held_out, metrics=asked, bootstrap=0)
    values: Row = {name: found[name] if name in asked else None for name in metrics}
    return values | {"n_users": held_out.n_users}


def advice(alternatives: Curve, goal: Goal, quality: str) -> str:
    """Name the best row of offsets and of FairRec (see `best_of`); return "" if nothing was measured."""
    said = []
    for way, name in (("offsets", "min_exposure"), ("FairRec", "share")):
        rows = [row for row in alternatives if row["way"] == way]
        if not rows:
            continue
        best = best_of(rows, goal, quality)
        known = [metric for metric in (goal.metric, "ndcg@100", quality) if best[metric] is not None]
        values = ", ".join(f"{metric} {best[metric]:.4f}" for metric in dict.fromkeys(known))
        said.append(f"{way} with {name} {best[name]:g}: {values}")
    return f"Other methods, applied to the given model, for the same users: {'; '.join(said)}." if said else ""


def best_of(rows: Sequence[Row], goal: Goal, quality: str) -> Row:
    """Return the row with the best quality among those that meet the goal; if none does, the row nearest to it."""
    met = [row for row in rows if goal.met_by(row)]
    if met:
        return max(met, key=lambda row: row[quality])
    return min(rows, key=lambda row: row[goal.metric] if goal.at_most else -row[goal.metric])
