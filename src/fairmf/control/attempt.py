"""One trial of tuning: fit with the drawn settings, measure on the validation users, stop early where told to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fairmf.control.search_space import DIAL, Space
from fairmf.metrics import evaluate
from fairmf.metrics.groups import GroupLabels
from fairmf.models.iterative import IterativeModel
from fairmf.splitting import HeldOut, Split


def chosen(drawn: Mapping[str, Any], space: Space) -> tuple[dict[str, Any], float | None]:
    """The model's settings and the dial (None: not searched) that were drawn."""
    values = {name: part.value(drawn[name]) for name, part in space.items()}
    dial = values.pop(DIAL, None)
    return values, dial


@dataclasses.dataclass(frozen=True, eq=False)
class Attempt:
    """Everything one trial needs. `prune_every=0` never prunes."""

    model: IterativeModel
    split: Split
    held_out: HeldOut
    labels: list[str]
    targets: tuple[str, ...]
    space: Space
    groups: GroupLabels | None
    prune_every: int

    def run(self, trial: Any) -> tuple[dict[str, float], bool]:
        """The metrics, and whether the fit was pruned: then only what it was judged by."""
        settings, dial = chosen(trial.params, self.space)
        model = dataclasses.replace(self.model, **settings)
        watch = Pruning(trial, self, dial, model.epochs)
        callbacks = [watch] if self.prune_every else []
        model.fit(self.split.train, callbacks=callbacks, objective_every=0, progress=False)
        return (watch.seen, True) if watch.pruned else (self.values(model, self.labels, dial), False)

    def values(self, model: Any, labels: Sequence[str], dial: float | None) -> dict[str, float]:
        """The metrics of a fitted model on the validation users."""
        options: dict[str, Any] = {} if dial is None else {"fairness": dial}
        train, groups = self.split.train, self.groups
        measured = evaluate(model, self.held_out, metrics=labels, groups=groups, train=train, bootstrap=0, **options)
        return {label: float(measured[label]) for label in labels}


class Pruning:
    """A callback of the fit: tells Optuna how the metric stands, and stops the fit when Optuna says so."""

    def __init__(self, trial: Any, attempt: Attempt, dial: float | None, epochs: int):
        self.trial, self.attempt, self.dial, self.epochs = trial, attempt, dial, epochs
        self.pruned = False
        self.seen: dict[str, float] = {}

    def on_epoch(self, progress: Any) -> None:
        """Called by the fit loop after every epoch; after the last one there is nothing left to save."""
        if progress.epoch % self.attempt.prune_every or progress.epoch >= self.epochs:
            return
        self.seen = self.attempt.values(progress.model, self.attempt.targets, self.dial)
        self.trial.report(self.seen[self.attempt.targets[0]], progress.epoch)
        if self.trial.should_prune():
            self.pruned = True
            progress.stop("unpromising against the trials before it")
