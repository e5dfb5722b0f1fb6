"""The one fit loop: epochs, history, callbacks, tolerance, progress, checkpoints, and a check that all is finite.

A model supplies `start` and `epoch` (pure: a new state each time, so the last good one always survives) and says what
to report. Nothing here knows which model, solver or backend is at work. Where the loop stands is one immutable value,
`Reached`, so that it can be stored, resumed, and survive a Ctrl-C at any moment.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairmf.backends.contract import Factors
from fairmf.errors import NotFinite
from fairmf.models.fitted import History
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


@runtime_checkable
class ResumableCallback(Protocol):
    """A callback that remembers something from epoch to epoch, and so has to be told when a fit is resumed.

    A callback without these two methods is taken to have no memory of its own.
    """

    def state_dict(self) -> dict[str, Any]:
        """Its memory, in plain values (numbers, texts, lists, tuples, dictionaries)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


@dataclass(frozen=True)
class Reached:
    """Where a fit stands after an epoch: all that the next epoch, or a fit resumed from a file, needs."""

    epoch: int
    state: Any
    records: tuple[dict[str, Any], ...] = ()
    kept: Any = None
    kept_epoch: int = 0
    last_total: float | None = None
    """F of this epoch, where a tolerance is to be held against the next."""
    verdict: str | None = None
    """Why no further epoch follows ("stopped", "converged"); None while they go on."""
    reason: str = ""
    callbacks: tuple[dict[str, Any] | None, ...] = ()
    """What each callback remembered then (None: nothing)."""

    def history(self) -> History:
        """The history up to here."""
        kept_epoch = self.epoch if self.kept is None else self.kept_epoch
        return History(list(self.records), self.verdict or "ceiling", self.reason, kept_epoch)


class Checkpoints(Protocol):
    """Where a fit's stand is stored."""

    def resume(self, start: Any) -> Reached | None:
        """The stand to go on from, None for a fresh start. `start` is the state before the first epoch."""

    def after_epoch(self, reached: Reached, *, last: bool) -> None:
        """Store the stand if it is time to, and always if it is the last."""


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
    checkpoints: Checkpoints | None = None,
) -> tuple[Any, History]:
    """Run up to `model.epochs` epochs from `state`, or from a checkpoint; return the state to keep and the history.

    Ctrl-C ends the epochs: the last complete one is stored, finished and returned. A second Ctrl-C is not caught.
    `settle=False` leaves out what a model does when the epochs are over.
    """
    if problem.backend.compiles_now():
        log.info(
            "compiling kernels for the %r backend: the first run takes some seconds longer",
            problem.backend.name,
            extra={"kind": "compiling"},
        )
    reached = problem.attempt(lambda: _first(state, callbacks, checkpoints))
    problem.anchor(reached.state, reached.kept)
    interrupted = False
    try:
        # Overflow is not warned about on the way: whatever it leaves behind is found by the check after the epoch.
        with (
            np.errstate(over="ignore", invalid="ignore"),
            progress_bar(type(model).__name__, model.epochs, progress) as advance,
        ):
            for _ in range(reached.epoch):
                advance("resumed")
            while reached.verdict is None and reached.epoch < model.epochs:
                # One assignment: whenever Ctrl-C comes, `reached` is one whole epoch or the one before.
                reached, note = _next(model, problem, reached, snapshot, callbacks, objective_every)
                if checkpoints is not None:
                    over = reached.verdict is not None or reached.epoch == model.epochs
                    _store(problem, checkpoints, reached, over)
                advance(note)
    except KeyboardInterrupt:
        if reached.epoch == 0:
            raise
        interrupted = True
        log.warning(
            "interrupted: the model keeps epoch %d, the last complete one", reached.epoch, extra={"kind": "interrupted"}
        )
        if checkpoints is not None:
            _store(problem, checkpoints, reached, True)
    history = reached.history()
    if interrupted and reached.verdict is None:
        history.verdict, history.reason = "interrupted", "Ctrl-C"
    kept = reached.state if reached.kept is None else reached.kept
    return _finished(model, problem, kept, history, objective_every, settle), history


def _store(problem: Problem, checkpoints: Checkpoints, reached: Reached, last: bool) -> None:
    problem.attempt(lambda: checkpoints.after_epoch(reached, last=last))


def _first(state: Any, callbacks: Sequence[Callback], checkpoints: Checkpoints | None) -> Reached:
    resumed = checkpoints.resume(state) if checkpoints is not None else None
    if resumed is None:
        return Reached(0, state)
    for callback, memory in zip(callbacks, resumed.callbacks, strict=True):
        if memory is not None and isinstance(callback, ResumableCallback):
            callback.load_state_dict(memory)
    return resumed


def _next(
    model: Trainable,
    problem: Problem,
    reached: Reached,
    snapshot: Callable[[Any], Any],
    callbacks: Sequence[Callback],
    objective_every: int,
) -> tuple[Reached, str]:
    """One epoch, what is recorded of it, and whether it is the last; with a note for the progress bar."""
    epoch = reached.epoch + 1
    began = time.perf_counter()
    with _diverging(model, epoch, reached.state, reached.history()):
        after = problem.attempt(lambda: model.epoch(problem, reached.state))
    seconds = time.perf_counter() - began
    problem.anchor(after)
    value = problem.attempt(lambda: _objective_if_due(model, problem, after, epoch, objective_every))
    _check_finite(model, problem, after, value, epoch, reached.state, reached.history())
    record: dict[str, Any] = {"epoch": epoch, "seconds": seconds, **problem.report()}
    if value is not None:
        record["objective"] = value.to_dict()
    record |= problem.attempt(lambda: model.report(problem, reached.state, after, value))
    seen = EpochProgress(epoch, record, after, snapshot)
    for callback in callbacks:
        callback.on_epoch(seen)
    memories = tuple(_memory(callback) for callback in callbacks)
    following = replace(reached, epoch=epoch, state=after, records=(*reached.records, record), callbacks=memories)
    if seen.kept is not None:
        following = replace(following, kept=seen.kept, kept_epoch=epoch)
    last, total = reached.last_total, None if value is None else value.total
    if seen.stop_reason is not None:
        following = replace(following, verdict="stopped", reason=seen.stop_reason)
    elif last is not None and total is not None and abs(last - total) <= model.tolerance * abs(last):
        following = replace(following, verdict="converged", reason=f"F changed by less than {model.tolerance:g}")
    following = replace(following, last_total=total if model.tolerance > 0 else None)
    return following, ("" if total is None else f"F {total:.6g}") + problem.note(record)


def _memory(callback: Callback) -> dict[str, Any] | None:
    # A copy: the callback goes on with its own.
    return copy.deepcopy(callback.state_dict()) if isinstance(callback, ResumableCallback) else None


def _finished(
    model: Trainable, problem: Problem, kept: Any, history: History, objective_every: int, settle: bool
) -> Any:
    """The kept state after the model's last half-step."""
    began = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"), _diverging(model, len(history) + 1, kept, history):
        finished = problem.attempt(lambda: model.finish(problem, kept)) if settle else kept
    problem.anchor(finished)
    _check_finite(model, problem, finished, None, len(history) + 1, kept, history)
    history.final = {"seconds": time.perf_counter() - began}
    if objective_every > 0 or model.tolerance > 0:
        factors = finished.user_factors, finished.item_factors
        history.final["objective"] = problem.attempt(lambda: objective(problem, *factors)).to_dict()
    return finished


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
        raise _diverged(model, f"{wrong} is not finite", epoch, before, history)


def _diverged(model: Trainable, reason: str, epoch: int, before: Any, history: History) -> Diverged:
    history.verdict, history.reason, history.kept_epoch = "diverged", reason, epoch - 1
    return Diverged(
        f"{type(model).__name__}: {reason} any more in epoch {epoch}. {model.remedy()} "
        "The model keeps the state before that epoch.",
        before,
        history,
    )


@contextlib.contextmanager
def _diverging(model: Trainable, epoch: int, before: Any, history: History) -> Iterator[None]:
    """Turn a backend's NotFinite into Diverged, which carries the last good state."""
    try:
        yield
    except NotFinite as error:
        raise _diverged(model, "a step is not finite", epoch, before, history) from error


def _is_finite(problem: Problem, part: Any) -> bool:
    if getattr(part, "ndim", 0) == 2 and part.dtype == problem.backend.dtype:
        return problem.attempt(lambda: problem.backend.all_finite(part))
    if isinstance(part, (int, float, np.floating)) or hasattr(part, "ndim"):
        return bool(np.isfinite(part).all())
    return True
