"""Hold the trials of a search, its Pareto front, the best model with its path of evenness, and what that gains."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from fairmf import html
from fairmf.control.calibrate import calibrate
from fairmf.control.search_space import DIAL, EVENNESS
from fairmf.control.trade_off import Curve, front_positions, trade_off
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidParameter
from fairmf.lazy import cached_property, lazy_module
from fairmf.metrics.registry import parse_metric
from fairmf.models.base import IterativeModel
from fairmf.models.evenness import Level
from fairmf.types import Record

if TYPE_CHECKING:
    import optuna
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")


@dataclasses.dataclass(frozen=True)
class Trial:
    """One set of settings that was tried.

    `state` is "complete", "pruned" (stopped early as unpromising) or "failed" (diverged). `dial` is the fairness used
    after training (None: the trained one), `evenness` the evenness of the lists, by the rule for models that are not
    calibrated (None: not searched). `metrics` are measured on the validation users; for a pruned trial, after
    its last evaluated epoch.
    """

    number: int
    state: str
    settings: Record
    dial: float | None
    metrics: dict[str, float]
    seconds: float
    evenness: float | None = None

    @property
    def served(self) -> Record:
        """Return the dial or the evenness of its lists by name, for tables; nothing if neither was searched."""
        both = {DIAL: self.dial, EVENNESS: self.evenness}
        return {name: value for name, value in both.items() if value is not None}

    def build(self, model: IterativeModel) -> IterativeModel:
        """Return the given model with these settings, not fitted."""
        return with_settings(model, self.settings)


def with_settings(model: IterativeModel, settings: Record) -> IterativeModel:
    """Return the model with other settings, not fitted. Settings are not chosen from the data again."""
    fixed: Record = {"settings": "given"} if hasattr(model, "settings") else {}
    return dataclasses.replace(model, **fixed, **settings)


@dataclasses.dataclass(frozen=True, eq=False)
class TuningResult:
    """The result of `tune`.

    Attributes
    ----------
    model
        The model whose settings were searched.
    train
        The training data, for `best_model`.
    objectives
        Full names of the metrics that were optimised.
    trials
        Every finished trial, in order.
    study
        The Optuna study.
    held_out
        The users that settings were compared on: paths of evenness are found and measured on them.
    features
        The features that models were fitted with, by their names in `fit`.

    Examples
    --------
    >>> from fairmf import IALS, split_by_user, synthetic, tune
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = tune(IALS(factors=8, epochs=2), split, trials=2, space={"regularization": (0.001, 0.1)})
    >>> 0.001 <= found.best(max_gini=1.0).settings["regularization"] <= 0.1
    True
    """

    model: IterativeModel
    train: Interactions
    objectives: tuple[str, ...]
    trials: tuple[Trial, ...]
    study: optuna.Study
    held_out: HeldOut | None = None
    features: Record = dataclasses.field(default_factory=dict, repr=False)
    _models: dict[tuple[tuple[str, object], ...], IterativeModel] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def complete(self) -> list[Trial]:
        """The trials that ran to their end."""
        return [trial for trial in self.trials if trial.state == "complete"]

    def best(self, **constraints: float) -> Trial:
        """Return the complete trial that is best in the first objective among those that meet the constraints.

        The name of a constraint is `max_` or `min_` and a metric that was measured: max_gini=0.85, min_recall=0.3. If
        the metric was measured at several cut-offs, name one: {"max_gini@20": 0.85}.
        """
        tried = self.complete
        if not tried:
            raise InvalidParameter(f"None of the {len(self.trials):,} trials ran to its end: there is no best one.")
        first = self.objectives[0]
        for name, bound in constraints.items():
            label, lower = self._read(name)
            met = [t for t in tried if (t.metrics[label] <= bound if lower else t.metrics[label] >= bound)]
            if not met:
                nearest = (min if lower else max)(t.metrics[label] for t in tried)
                raise InvalidParameter(
                    f"No trial meets {name}={bound:g} together with the constraints before it: the nearest has "
                    f"{label} = {nearest:.4g}. Run more trials, or widen the space."
                )
            tried = met
        sign = -1 if parse_metric(first).lower_is_better else 1
        return max(tried, key=lambda t: (sign * t.metrics[first], -t.number))

    def best_model(self, **constraints: float) -> IterativeModel:
        """Train the model of the best trial again, calibrate it, and return it. The same seed gives the same model.

        It has a path of evenness: `recommend(users, evenness=0.3)`, `save`, `fit_to_target` work along it. If the
        dial or the evenness was searched, the model serves as in the trial by default.
        """
        trial = self.best(**constraints)
        settings = tuple(sorted(trial.settings.items()))
        if settings not in self._models:  # one model is kept, so that front() need not train it again
            model = trial.build(self.model).fit(self.train, progress=False, **self.features)
            self._models.clear()
            self._models[settings] = self._calibrated(model)
        model = copy.copy(self._models[settings])
        if trial.evenness is not None:
            return model.with_evenness(Level(None, trial.evenness, trial.evenness))
        return model if trial.dial is None else model.with_fairness(trial.dial)

    def _calibrated(self, model: IterativeModel) -> IterativeModel:
        if self.held_out is not None:
            quality, at = self._axes()
            calibrate(model, self.held_out, at=at, quality=quality, bootstrap=0, progress=False)
        return model

    def _axes(self) -> tuple[str, int]:
        """Return the accuracy that was optimised or measured first, and the length of the lists whose Gini counts."""
        labels = [*self.objectives, *(self.complete[0].metrics if self.complete else ())]
        wanted = [parse_metric(label) for label in labels]
        quality = next((one.label for one in wanted if one.is_accuracy), "ndcg@100")
        return quality, next((one.K for one in wanted if one.label.startswith("gini@")), 20)

    def front(self, **constraints: float) -> Curve:
        """Return what `best_model(**constraints)` reaches along its path of evenness, on the users of the search.

        Compare it with `default`. The users also chose the settings and the path: see `trade_off(best_model(),
        split.test)` for others.

        Parameters
        ----------
        **constraints
            As in `best`.

        Returns
        -------
        Curve
            One row for each evenness of 0, 0.1, ..., 1, of way "tuned".
        """
        return self._along(self.best_model(**constraints), "tuned")

    @cached_property
    def default(self) -> Curve:
        """The curve of the given model along its path of evenness, with its own settings (way "default")."""
        return self._along(
            self._calibrated(copy.copy(self.model).fit(self.train, progress=False, **self.features)), "default"
        )

    def _along(self, model: IterativeModel, way: str) -> Curve:
        if self.held_out is None:
            raise InvalidParameter("This result does not hold the users of the search: use trade_off(model, split).")
        quality, at = self._axes()
        metrics = list(dict.fromkeys((quality, f"recall@{at}", f"gini@{at}", f"coverage@{at}")))
        found = trade_off(model, self.held_out, points=11, metrics=metrics, progress=False)
        return Curve(tuple({**row, "way": way} for row in found), found.metrics)

    def summary(self, **constraints: float) -> str:
        """Say in a table what the best model gains over the given one at the same Gini, and for how many users."""
        tuned, plain = self.front(**constraints), self.default
        quality, gini = tuned.quality, tuned.inequality
        lines = [f"{gini:>10}  {quality + ' tuned':>16}  {'default':>10}"]
        ends = [sorted(curve.column(gini)) for curve in (tuned, plain)]
        for level in np.linspace(max(end[-1] for end in ends), min(end[0] for end in ends), 6):
            values = [best_within(curve, float(level)) for curve in (tuned, plain)]
            cells = ["-" if value is None else f"{value:.4f}" for value in values]
            lines.append(f"{'<= ' + format(level, '.3f'):>10}  {cells[0]:>16}  {cells[1]:>10}")
        return "\n".join([*lines, f"Gini and {quality} of the lists of {tuned.n_users:,} users ('-': not reached)."])

    def pareto_front(self) -> list[Trial]:
        """Return the complete trials that no other beats in all objectives, best in the first objective first."""
        tried = self.complete
        points = [[trial.metrics[label] for label in self.objectives] for trial in tried]
        lower = [parse_metric(label).lower_is_better for label in self.objectives]
        return [tried[i] for i in front_positions(points, lower)]

    def dialled_front(self, split: Split | HeldOut, *, points: int = 12, progress: bool | None = None) -> Curve:
        """Train every model on the front again, measure it at `points` values of evenness, and return the joint front.

        A trial is one point, but its model gives a whole curve without further training. The column `trial` says which
        trial a row belongs to. The objectives must include an accuracy metric and a Gini.
        """
        seen: set[tuple[tuple[str, object], ...]] = set()
        rows: list[Record] = []
        for trial in self.pareto_front():
            # Trials that differ only in what lists are made with have the same model.
            settings = tuple(sorted(trial.settings.items()))
            if settings in seen:
                continue
            seen.add(settings)
            model = trial.build(self.model).fit(self.train, progress=False, settle=False, **self.features)
            found = trade_off(model, split, points=points, metrics=self.objectives, progress=progress)
            rows += [{**row, "trial": trial.number} for row in found]
        return Curve(tuple(rows), self.objectives).front()

    def table(self) -> pa.Table:
        """Return an Arrow table with one row per trial: state, settings, metrics, seconds."""
        names = list(dict.fromkeys(name for t in self.trials for name in t.settings))
        labels = list(dict.fromkeys(label for t in self.trials for label in t.metrics))
        columns: dict[str, list[object]] = {
            "number": [t.number for t in self.trials],
            "state": [t.state for t in self.trials],
            **{name: [t.settings.get(name) for t in self.trials] for name in names},
        }
        for name in (DIAL, EVENNESS):
            if any(name in t.served for t in self.trials):
                columns[name] = [t.served.get(name) for t in self.trials]
        columns |= {label: [t.metrics.get(label) for t in self.trials] for label in labels}
        on_front = {t.number for t in self.pareto_front()}
        columns["on_front"] = [t.number in on_front for t in self.trials]
        columns["seconds"] = [t.seconds for t in self.trials]
        return pa.table(columns)

    def _read(self, constraint: str) -> tuple[str, bool]:
        direction, _, metric = constraint.partition("_")
        measured = list(self.complete[0].metrics)
        found = [label for label in measured if metric in (label, label.partition("@")[0])]
        if direction not in ("max", "min") or not found:
            raise InvalidParameter(
                f"A constraint is max_ or min_ and a metric that was measured ({', '.join(measured)}). "
                f"Got {constraint!r} instead."
            )
        if len(found) > 1:
            raise InvalidParameter(f"{constraint!r} could mean {' or '.join(found)}: name one, with its cut-off.")
        return found[0], direction == "max"

    def __repr__(self) -> str:
        count = {state: sum(t.state == state for t in self.trials) for state in ("complete", "pruned", "failed")}
        words = ", ".join(f"{number:,} {state}" for state, number in count.items() if number)
        return f"TuningResult({type(self.model).__name__}, {' and '.join(self.objectives)}: {words or 'no trials'})"

    def _repr_html_(self) -> str:
        """Return the best trials, by the first objective."""
        first = self.objectives[0]
        sign = 1 if parse_metric(first).lower_is_better else -1
        best = sorted(self.complete, key=lambda trial: sign * trial.metrics[first])
        names = list(dict.fromkeys(name for trial in best for name in trial.settings))
        rows = [
            [t.number, *(t.metrics[label] for label in self.objectives), *(t.settings.get(name, "") for name in names)]
            for t in best
        ]
        head = ["trial", *self.objectives, *names]
        return html.title(repr(self).partition("(")[0], repr(self).partition("(")[2][:-1]) + html.table(head, rows, 10)


def best_within(curve: Curve, gini: float) -> float | None:
    """Return the best quality along a curve at this Gini or below, between its points; None if it does not reach it."""
    rows = sorted(curve, key=lambda row: row[curve.inequality])
    ginis = np.array([row[curve.inequality] for row in rows])
    values = np.array([row[curve.quality] for row in rows])
    if gini < ginis[0]:
        return None
    below = values[ginis <= gini]
    return max(float(np.interp(gini, ginis, values)), float(below.max()))
