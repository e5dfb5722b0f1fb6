"""Find the fairness that meets a target such as "Gini at most .85" or "lose at most 2 % of nDCG": `fit_to_target`.

If no fairness meets the target, exposure offsets and FairRec are measured on the same users.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairmf.control.fit_offsets import fit_offsets
from fairmf.control.trade_off import Curve, Dial, Row, marked, rounded, validation_of
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidParameter
from fairmf.metrics.evaluate import Ranker, evaluate
from fairmf.models.base import IterativeModel
from fairmf.models.progress import progress_bar
from fairmf.params import check_number

GRID = (0.25, 0.5, 1.0)  # minimum exposures to try, as fractions of an equal share
USERS_AT_ONCE = 4096  # users ranked per iteration of learning offsets: enough for an estimate
CLOSE = 0.0005  # bisection ends when the metric at both ends differs by no more than this
MOST = 40  # evaluations of one search


def fit_to_target(
    model: IterativeModel,
    split: Split | HeldOut,
    *,
    max_gini: float | None = None,
    min_coverage: float | None = None,
    max_ndcg_loss: float | None = None,
    at: int = 20,
    alternatives: bool = True,
    progress: bool | None = None,
) -> Target:
    """Find the fairness at which the validation users' lists meet a target; train first if the model is not fitted.

    The search goes up from fairness 0, at most to the lowest Gini. Give exactly one of `max_gini`, `min_coverage` and
    `max_ndcg_loss`.

    Parameters
    ----------
    model
        A FairALS, IALS or FiADMM, fitted or not.
    split
        A Split, of which the validation users are used, or a HeldOut if the model is fitted.
    max_gini
        Highest Gini of exposure in lists of length `at`. The smallest fairness that meets it is taken.
    min_coverage
        Lowest share of the catalogue in lists of length `at`. The smallest fairness that meets it is taken.
    max_ndcg_loss
        Largest share of the nDCG@100 at fairness 0 that may be lost. The largest fairness that meets it is taken.
    at
        Length of the lists in which exposure is counted.
    alternatives
        Whether to measure offsets and FairRec if no fairness meets the target. This takes as long as learning offsets
        three times.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    Target
        The model, set to the fairness found. If `reached` is False, that is the fairness that comes nearest.

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
    if model._fitted is None:
        if not isinstance(split, Split):
            raise InvalidParameter("The model is not fitted: fit it first, or pass a whole Split.")
        model = model.fit(split.train, progress=progress)
    gini, ndcg = f"gini@{at}", "ndcg@100"
    with progress_bar("target", MOST, progress) as advance:
        dial = Dial(model, held_out, (ndcg, f"recall@{at}", gini, f"coverage@{at}"), advance)
        if name == "max_ndcg_loss":
            goal = Goal(ndcg, (1 - value) * dial(0.0)[ndcg], at_most=False)
            row = furthest(dial, goal, gini)
        else:
            goal = Goal(gini, value, at_most=True) if name == "max_gini" else Goal(f"coverage@{at}", value, False)
            row = nearest(dial, goal, gini)
    reached = goal.met_by(row)
    curve, others = Curve(tuple(marked(dial, gini)), dial.metrics), Curve((), dial.metrics)
    message = sentence(goal, row, dial, reached)
    if not reached and alternatives:
        with progress_bar("alternatives", 2 * len(GRID), progress) as advance:
            others = measure_alternatives(model, held_out, dial.metrics, at, advance)
        message += " " + advice(others, goal, f"recall@{at}")
    fitted = model.fitted
    stored = fitted.interactions is not None or fitted.user_sensitivity is not None
    # Without either, the vectors of stored users cannot be computed for another fairness. The model is returned as it
    # is, and the caller passes `fairness` with each request.
    turned = model.with_fairness(row["fairness"]) if stored else model
    return Target(turned, goal, reached, row["fairness"], message, curve, others)


@dataclass(frozen=True)
class Goal:
    """A bound on one metric: at most, or at least, a value."""

    metric: str
    value: float
    at_most: bool

    def met_by(self, row: Row) -> bool:
        """Whether a row meets the bound."""
        found: float = row[self.metric]
        return found <= self.value if self.at_most else found >= self.value

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.at_most else '>='} {self.value:.4g}"


@dataclass(frozen=True)
class Target:
    """The result of `fit_to_target`.

    Attributes
    ----------
    model
        The model, set to the fairness found.
    goal
        The bound that was asked for.
    reached
        Whether the model meets it on the validation users.
    fairness
        The fairness found.
    message
        The result in one or two sentences.
    curve
        Every fairness that was measured.
    alternatives
        If no fairness meets the goal: the results of exposure offsets (way "offsets", with `min_exposure`) and FairRec
        (way "FairRec", with `share`), applied to the given model, on the same users. Otherwise empty.

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

    def __repr__(self) -> str:
        return f"Target({'reached' if self.reached else 'NOT reached'}: {self.message})"


def one_goal(goals: dict[str, float | None]) -> tuple[str, float]:
    """Return the name and value of the one target that was given."""
    given = {name: value for name, value in goals.items() if value is not None}
    if len(given) != 1:
        raise InvalidParameter(f"Give exactly one of {', '.join(goals)}. Got {', '.join(given) or 'none'} instead.")
    ((name, value),) = given.items()
    check_number("fit_to_target", name, value, low=0, high=1)
    return name, value


def nearest(dial: Dial, goal: Goal, gini: str) -> Row:
    """Return the row of the smallest fairness that meets the goal; if none does, the row that comes nearest."""
    below, last = 0.0, dial(0.0)
    for psi in dial.first_steps():
        row = dial(psi)
        if row[gini] > last[gini]:  # the lowest Gini lies between the last three values: look there
            around_minimum(dial, psi, gini)
            break
        if goal.met_by(row):
            return between(dial, below, psi, goal.met_by, goal.metric)
        below, last = psi, row
    # Past the lowest Gini everything gets worse, so only the rows up to there are candidates.
    end = min(dial.rows, key=lambda psi: (dial.rows[psi][gini], psi))
    useful = [dial.rows[psi] for psi in sorted(dial.rows) if psi <= end]
    met = [k for k, row in enumerate(useful) if goal.met_by(row)]
    if met:
        low, high = useful[max(met[0] - 1, 0)]["fairness"], useful[met[0]]["fairness"]
        return between(dial, low, high, goal.met_by, goal.metric)
    sign = 1 if goal.at_most else -1
    return min(useful, key=lambda row: (sign * row[goal.metric], row["fairness"]))


def furthest(dial: Dial, goal: Goal, gini: str) -> Row:
    """Return the row of the largest fairness up to the lowest Gini that still meets the goal."""
    last = dial(0.0)
    for psi in dial.first_steps()[1:]:
        row = dial(psi)
        if not goal.met_by(row):
            # The first fairness that misses the goal; the answer is the largest measured one below it.
            found = between(dial, last["fairness"], psi, lambda r: not goal.met_by(r), goal.metric)
            kept = [r for r in dial.rows.values() if goal.met_by(r) and r["fairness"] < found["fairness"]]
            return max(kept, key=lambda r: r["fairness"])
        if row[gini] > last[gini]:
            around_minimum(dial, psi, gini)
            break
        last = row
    return min((r for r in dial.rows.values() if goal.met_by(r)), key=lambda r: (r[gini], r["fairness"]))


def between(dial: Dial, low: float, high: float, met: Callable[[Row], bool], metric: str) -> Row:
    """Return the row of the smallest fairness in (low, high] for which `met` is true, by bisection."""
    while len(dial.rows) < MOST:
        gap = abs(dial(high)[metric] - dial(low)[metric])
        middle = rounded((low + high) / 2)
        if gap <= CLOSE or middle in (low, high):
            break
        if met(dial(middle)):
            high = middle
        else:
            low = middle
    return dial(high)


def around_minimum(dial: Dial, high: float, gini: str) -> None:
    """Approach the lowest Gini below `high`: measure in the wider gap beside the best value so far, up to six times."""
    for _ in range(6):
        positions = sorted(psi for psi in dial.rows if psi <= high)
        best = min(range(len(positions)), key=lambda k: dial.rows[positions[k]][gini])
        left, right = positions[max(best - 1, 0)], positions[min(best + 1, len(positions) - 1)]
        wider = (
            (positions[best], right) if right - positions[best] >= positions[best] - left else (left, positions[best])
        )
        middle = rounded(sum(wider) / 2)
        if middle in dial.rows:
            return
        dial(middle)


def sentence(goal: Goal, row: Row, dial: Dial, reached: bool) -> str:
    """Say whether the goal was reached, at which fairness, and what changes there."""
    plain = dial(0.0)
    here = ", ".join(f"{name} {row[name]:.4f} ({row[name] - plain[name]:+.4f})" for name in dial.metrics)
    values = f"{here}. In brackets: the change from fairness 0."
    if reached:
        return f"{goal} is reached at fairness {row['fairness']:g}: {values}"
    return (
        f"{goal} cannot be reached by any fairness of this model. Fairness {row['fairness']:g} comes nearest: {values}"
    )


# -- alternatives to fairness -----------------------------------------------------------------------------------------


def measure_alternatives(
    model: IterativeModel,
    held_out: HeldOut,
    metrics: Sequence[str],
    at: int,
    advance: Callable[[str], None] = lambda _: None,
) -> Curve:
    """Measure exposure offsets and FairRec for lists of length `at`, at every minimum exposure of GRID.

    Offsets are learned on the training users, or on the held-out users if the model has no histories. FairRec's lists
    have length `at`, so metrics of longer lists are None. If a list holds the whole catalogue, exposure is equal anyway
    and no offsets are learned.
    """
    rows: list[Row] = []
    cohort = held_out if model.fitted.interactions is None else None
    for floor in GRID if at < model.n_items else ():
        began = time.perf_counter()
        made = fit_offsets(
            model, K=at, min_exposure=floor, cohort=cohort, users_at_once=USERS_AT_ONCE, check=False, progress=False
        ).model  # fmt: skip
        row = {"way": "offsets", "fairness": model.fitted.fairness, "min_exposure": floor}
        rows.append({**row, **_measured(made, held_out, metrics, metrics), "seconds": time.perf_counter() - began})
        advance(f"offsets {floor:g}")
    short = [name for name in metrics if int(name.split("@")[1]) <= at]
    # With fewer places than items, FairRec can guarantee nothing.
    for share in GRID if at * held_out.n_users >= model.n_items else ():
        began = time.perf_counter()
        row = {"way": "FairRec", "fairness": model.fitted.fairness, "share": share}
        found = _measured(model.with_fairrec(share, K=at), held_out, short, metrics)
        rows.append({**row, **found, "seconds": time.perf_counter() - began})
        advance(f"FairRec {share:g}")
    return Curve(tuple(rows), tuple(metrics))


def _measured(model: Ranker, held_out: HeldOut, asked: Sequence[str], metrics: Sequence[str]) -> Row:
    found = evaluate(model, held_out, metrics=asked, bootstrap=0)
    return {name: found[name] if name in asked else None for name in metrics}


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
    fairness = alternatives.rows[0]["fairness"] if said else 0.0
    return f"Other methods, applied to the model at fairness {fairness:g}: {'; '.join(said)}." if said else ""


def best_of(rows: Sequence[Row], goal: Goal, quality: str) -> Row:
    """Return the row with the best quality among those that meet the goal; if none does, the row nearest to it."""
    met = [row for row in rows if goal.met_by(row)]
    if met:
        return max(met, key=lambda row: row[quality])
    return min(rows, key=lambda row: row[goal.metric] if goal.at_most else -row[goal.metric])
