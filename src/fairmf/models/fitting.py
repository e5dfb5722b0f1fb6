"""The one fit loop: epochs, history, callbacks, tolerance, progress, and a check that every number is finite.

A model supplies `start` and `epoch` (pure: a new state each time, so the last good one always survives) and says what
to report. Nothing here knows which model, solver or backend is at work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fairmf.backends import Factors
from fairmf.errors import NotFinite
from fairmf.models.history import History
from fairmf.models.objective import Objective, objective
from fairmf.models.problem import Problem
from fairmf.models.progress import progress_bar

log = logging.getLogger("fairmf")


@dataclass(frozen=True)
class State:
    """What an epoch turns into the next: at least the factors. Models add their own variables by subclassing."""

    user_factors: Factors
    item_factors: Factors


class Trainable(Protocol):
    """What the loop needs of a model."""

    epochs: int
    tolerance: float

    def epoch(self, problem: Problem, state: Any) -> Any:
        """One epoch; the given state is left as it is."""

    def objective(self, problem: Problem, state: Any) -> Objective:
        """F of a state."""

    def finish(self, problem: Problem, state: Any) -> Any:
        """What is still to be done when the epochs are over."""

    def report(self, problem: Problem, before: Any, after: Any, value: Objective | None) -> dict[str, Any]:
        """What this model adds to the epoch's record."""

    def remedy(self) -> str:
        """What a user can change when training diverges."""


class Callback(Protocol):
    """Called after every epoch; may evaluate the model so far, stop the fit, or choose the state that is kept."""

    def on_epoch(self, progress: EpochProgress) -> None:
        """See `EpochProgress` for what can be read and done."""


class EpochProgress:
    """One epoch as a callback sees it."""

    def __init__(self, epoch: int, record: dict[str, Any], state: Any, snapshot: Callable[[Any], Any]):
        self.epoch = epoch
        self.record = record
        self.state = state
        self._snapshot = snapshot
        self.stop_reason: str | None = None
        self.kept: Any = None

    @property
    def model(self) -> Any:
        """A fitted model with this epoch's factors."""
        return self._snapshot(self.state)

    def stop(self, reason: str) -> None:
        """End the fit after this epoch."""
        self.stop_reason = reason

    def keep(self, state: Any) -> None:
        """Let `fit` return the model of this state rather than of the last epoch."""
        self.kept = state


class Diverged(NotFinite):
    """Carries the last good state out of the loop."""

    def __init__(self, message: str, state: Any, history: History):
        super().__init__(message)
        self.state = state
        self.history = history


def run(
    model: Trainable,
    problem: Problem,
    state: Any,
    *,
    snapshot: Callable[[Any], Any],
    callbacks: Sequence[Callback] = (),
    objective_every: int = 1,
    progress: bool | None = None,
    settle: bool = True,
) -> tuple[Any, History]:
    """Run up to `model.epochs` epochs from `state`; return the state to keep and the history.

    `settle=False` leaves out what a model does when the epochs are over.
    """
    history = History()
    name = type(model).__name__
    kept, kept_epoch, last = None, 0, None
    if problem.backend.compiles_now():
        log.info(
            "compiling kernels for the %r backend: the first run takes some seconds longer",
            problem.backend.name,
        )
    # Overflow is not warned about on the way: whatever it leaves behind is found by the check after the epoch.
    with np.errstate(over="ignore", invalid="ignore"), progress_bar(name, model.epochs, progress) as advance:
        for epoch in range(1, model.epochs + 1):
            began = time.perf_counter()
            after = model.epoch(problem, state)
            seconds = time.perf_counter() - began
            value = _objective_if_due(model, problem, after, epoch, objective_every)
            _check_finite(model, problem, after, value, epoch, state, history)
            record: dict[str, Any] = {"epoch": epoch, "seconds": seconds}
            if value is not None:
                record["objective"] = value.to_dict()
            record |= model.report(problem, state, after, value)
            history.records.append(record)
            state = after
            seen = EpochProgress(epoch, record, state, snapshot)
            for callback in callbacks:
                callback.on_epoch(seen)
            if seen.kept is not None:
                kept, kept_epoch = seen.kept, epoch
            advance(f"F {value.total:.6g}" if value is not None else "")
            if seen.stop_reason is not None:
                history.verdict, history.reason = "stopped", seen.stop_reason
                break
            if value is not None:
                if last is not None and abs(last - value.total) <= model.tolerance * abs(last):
                    history.verdict, history.reason = (
                        "converged",
                        f"F changed by less than {model.tolerance:g}",
                    )
                    break
                last = value.total if model.tolerance > 0 else None
    if kept is None:
        kept, kept_epoch = state, len(history)
    history.kept_epoch = kept_epoch
    began = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        finished = model.finish(problem, kept) if settle else kept
    _check_finite(model, problem, finished, None, len(history) + 1, kept, history)
    history.final = {"seconds": time.perf_counter() - began}
    if objective_every > 0 or model.tolerance > 0:
        history.final["objective"] = objective(problem, finished.user_factors, finished.item_factors).to_dict()
    return finished, history


def _objective_if_due(model: Trainable, problem: Problem, state: Any, epoch: int, every: int) -> Objective | None:
    # A tolerance compares consecutive epochs, so it needs every one of them.
    due = model.tolerance > 0 or (every > 0 and (epoch % every == 0 or epoch == model.epochs))
    return model.objective(problem, state) if due else None


def _check_finite(
    model: Trainable,
    problem: Problem,
    after: Any,
    value: Objective | None,
    epoch: int,
    before: Any,
    history: History,
) -> None:
    wrong = next((name for name, part in vars(after).items() if not _is_finite(problem, part)), None)
    if wrong is None and value is not None and not np.isfinite(value.total):
        wrong = "the objective"
    if wrong is not None:
        history.verdict, history.reason, history.kept_epoch = "diverged", f"{wrong} is not finite", epoch - 1
        raise Diverged(
            f"{type(model).__name__}: {wrong} is not finite any more in epoch {epoch}. {model.remedy()} "
            "The model keeps the state before that epoch.",
            before,
            history,
        )


def _is_finite(problem: Problem, part: Any) -> bool:
    if getattr(part, "ndim", 0) == 2:
        return problem.backend.all_finite(part)
    if isinstance(part, (int, float, np.floating, np.ndarray)):
        return bool(np.isfinite(part).all())
    return True
