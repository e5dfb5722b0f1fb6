"""The one fit loop: epochs, history, callbacks, tolerance, progress, checkpoints, and a check that all is finite.

A model supplies `start` and `epoch` (pure: a new state each time, so the last good one always survives) and says what
to report. Nothing here knows which model, solver, backend or cluster is at work. Where the loop stands is one immutable
value, `Reached`, so that it can be stored, resumed, and survive a Ctrl-C at any moment.
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
from fairmf.backends.registry import chosen
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.models.fitted import History
from fairmf.models.objective import Objective, objective
from fairmf.models.problem import FairnessWeights, Problem, problem_for, read_fairness_weights
from fairmf.models.progress import progress_bar
from fairmf.params import settings_of

log = logging.getLogger("fairmf")


@dataclass(frozen=True)
class State:
    """The variables of a fit: at least the factors. Models add their own by subclassing."""

    user_factors: Factors
    item_factors: Factors


class Trainable(Protocol):
    """What the loop needs of a model, or of a model over a cluster."""

    epochs: int
    tolerance: float

    def epoch(self, problem: Problem, state: Any) -> Any:
        """Run one epoch; the given state is left as it is."""

    def objective(self, problem: Problem, state: Any) -> Objective:
        """Return F of a state."""

    def finish(self, problem: Problem, state: Any) -> Any:
        """Return the state after what is left to do when the epochs are over."""

    def report(self, problem: Problem, before: Any, after: Any, value: Objective | None) -> dict[str, Any]:
        """Return what this model adds to the epoch's record."""

    def remedy(self) -> str:
        """Return what a user can change when training diverges."""


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
        """Return its memory, in plain values (numbers, texts, lists, tuples, dictionaries)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there."""


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
        """Return the history up to here."""
        kept_epoch = self.epoch if self.kept is None else self.kept_epoch
        return History(list(self.records), self.verdict or "ceiling", self.reason, kept_epoch)


class Checkpoints(Protocol):
    """Where a fit's stand is stored."""

    def resume(self, start: Any) -> Reached | None:
        """Return where to resume, None for a fresh start. `start` is the state before the first epoch."""

    def after_epoch(self, reached: Reached, *, last: bool) -> None:
        """Store where the fit stands if it is time to, and always after the last epoch."""


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


@dataclass(frozen=True)
class Options:
    """How a fit runs, whatever its model."""

    name: str = ""
    """The model's, for messages and the progress bar."""
    callbacks: Sequence[Callback] = ()
    objective_every: int = 1
    """Compute F every so many epochs; 0 never does."""
    progress: bool | None = None
    """Show a bar; None: on a terminal."""
    settle: bool = True
    """Do what the model still does when the epochs are over."""
    checkpoints: Checkpoints | None = None
    note: Callable[[dict[str, Any]], str] = lambda _: ""
    """What to add to the progress line, from an epoch's record."""


def run(
    model: Trainable, problem: Problem, state: Any, snapshot: Callable[[Any], Any], options: Options | None = None
) -> tuple[Any, History]:
    """Run up to `model.epochs` epochs from `state`, or from a checkpoint; return the state to keep and the history.

    `snapshot` makes a fitted model of a state, for callbacks. Ctrl-C ends the epochs: the last complete one is stored,
    finished and returned. A second Ctrl-C is not caught.
    """
    options = options or Options(type(model).__name__)
    if problem.backend.compiles_now():
        log.info(
            "compiling kernels for the %r backend: the first run takes some seconds longer",
            problem.backend.name,
            extra={"kind": "compiling"},
        )
    checkpoints = options.checkpoints
    reached = _first(state, options)
    interrupted = False
    try:
        # Overflow is not warned about on the way: whatever it leaves behind is found by the check after the epoch.
        with (
            np.errstate(over="ignore", invalid="ignore"),
            progress_bar(options.name, model.epochs, options.progress) as advance,
        ):
            for _ in range(reached.epoch):
                advance("resumed")
            while reached.verdict is None and reached.epoch < model.epochs:
                # One assignment: whenever Ctrl-C comes, `reached` is one whole epoch or the one before.
                reached, note = _next(model, problem, reached, snapshot, options)
                if checkpoints is not None:
                    over = reached.verdict is not None or reached.epoch == model.epochs
                    checkpoints.after_epoch(reached, last=over)
                advance(note)
    except KeyboardInterrupt:
        if reached.epoch == 0:
            raise
        interrupted = True
        log.warning(
            "interrupted: the model keeps epoch %d, the last complete one", reached.epoch, extra={"kind": "interrupted"}
        )
        if checkpoints is not None:
            checkpoints.after_epoch(reached, last=True)
    history = reached.history()
    if interrupted and reached.verdict is None:
        history.verdict, history.reason = "interrupted", "Ctrl-C"
    kept = reached.state if reached.kept is None else reached.kept
    return _finished(model, problem, kept, history, options), history


def _first(state: Any, options: Options) -> Reached:
    resumed = options.checkpoints.resume(state) if options.checkpoints is not None else None
    if resumed is None:
        return Reached(0, state)
    for callback, memory in zip(options.callbacks, resumed.callbacks, strict=True):
        if memory is not None and isinstance(callback, ResumableCallback):
            callback.load_state_dict(memory)
    return resumed


def _next(
    model: Trainable, problem: Problem, reached: Reached, snapshot: Callable[[Any], Any], options: Options
) -> tuple[Reached, str]:
    """Run one epoch, record it and say whether it is the last; with a note for the progress bar."""
    epoch = reached.epoch + 1
    attempt = _Attempt(options.name, model.remedy, epoch, reached.state, reached.history())
    began = time.perf_counter()
    with attempt.finite_steps():
        after = model.epoch(problem, reached.state)
    record: dict[str, Any] = {"epoch": epoch, "seconds": time.perf_counter() - began}
    value = _objective_if_due(model, problem, after, epoch, options.objective_every)
    attempt.check(problem, after, value)
    if value is not None:
        record["objective"] = value.to_dict()
    record |= model.report(problem, reached.state, after, value)
    seen = EpochProgress(epoch, record, after, snapshot)
    for callback in options.callbacks:
        callback.on_epoch(seen)
    memories = tuple(_memory(callback) for callback in options.callbacks)
    following = replace(reached, epoch=epoch, state=after, records=(*reached.records, record), callbacks=memories)
    if seen.kept is not None:
        following = replace(following, kept=seen.kept, kept_epoch=epoch)
    last, total = reached.last_total, None if value is None else value.total
    if seen.stop_reason is not None:
        following = replace(following, verdict="stopped", reason=seen.stop_reason)
    elif last is not None and total is not None and abs(last - total) <= model.tolerance * abs(last):
        following = replace(following, verdict="converged", reason=f"F changed by less than {model.tolerance:g}")
    following = replace(following, last_total=total if model.tolerance > 0 else None)
    return following, ("" if total is None else f"F {total:.6g}") + options.note(record)


def _memory(callback: Callback) -> dict[str, Any] | None:
    # A copy: the callback goes on with its own.
    return copy.deepcopy(callback.state_dict()) if isinstance(callback, ResumableCallback) else None


def _finished(model: Trainable, problem: Problem, kept: Any, history: History, options: Options) -> Any:
    """Return the kept state after the model's last half-step."""
    attempt = _Attempt(options.name, model.remedy, len(history) + 1, kept, history)
    began = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"), attempt.finite_steps():
        finished = model.finish(problem, kept) if options.settle else kept
    attempt.check(problem, finished, None)
    history.final = {"seconds": time.perf_counter() - began}
    if options.objective_every > 0 or model.tolerance > 0:
        history.final["objective"] = objective(problem, finished.user_factors, finished.item_factors).to_dict()
    return finished


def _objective_if_due(model: Trainable, problem: Problem, state: Any, epoch: int, every: int) -> Objective | None:
    # A tolerance compares consecutive epochs, so it needs every one of them.
    due = model.tolerance > 0 or (every > 0 and (epoch % every == 0 or epoch == model.epochs))
    return model.objective(problem, state) if due else None


@dataclass(frozen=True)
class _Attempt:
    """One epoch under way: raises Diverged, with the state before it, as soon as a number is not finite."""

    name: str
    remedy: Callable[[], str]
    epoch: int
    before: Any
    history: History

    @contextlib.contextmanager
    def finite_steps(self) -> Iterator[None]:
        """Turn a backend's NotFinite into Diverged."""
        try:
            yield
        except NotFinite as error:
            raise self.diverged("a step is not finite") from error

    def check(self, problem: Problem, after: Any, value: Objective | None) -> None:
        """Raise Diverged unless the new state and F are finite."""
        wrong = next((name for name, part in vars(after).items() if not _is_finite(problem, part)), None)
        if wrong is None and value is not None and not np.isfinite(value.total):
            wrong = "the objective"
        if wrong is not None:
            raise self.diverged(f"{wrong} is not finite")

    def diverged(self, reason: str) -> Diverged:
        """Return the error to raise."""
        history = self.history
        history.verdict, history.reason, history.kept_epoch = "diverged", reason, self.epoch - 1
        return Diverged(
            f"{self.name}: {reason} any more in epoch {self.epoch}. {self.remedy()} "
            "The model keeps the state before that epoch.",
            self.before,
            history,
        )


def _is_finite(problem: Problem, part: Any) -> bool:
    if getattr(part, "ndim", 0) == 2 and part.dtype == problem.backend.dtype:
        return problem.backend.all_finite(part)
    if isinstance(part, (int, float, np.floating)) or hasattr(part, "ndim"):
        return bool(np.isfinite(part).all())
    return True


# -- the problem of a fit, on this machine or on a cluster -----------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """What a fit works on and with, on this machine or over the workers of a cluster."""

    problem: Problem
    steps: Trainable
    """The model, or the model over a cluster."""
    histories: Interactions | None
    """The interactions, where they are in this process."""
    note: Callable[[dict[str, Any]], str] = lambda _: ""
    """What to add to the progress line, from an epoch's record."""
    checkpoints: Callable[[Checkpoints], Checkpoints] = lambda stored: stored
    """Adapts the checkpoints to the engine."""


@contextlib.contextmanager
def open_setup(model: Any, data: Any, fairness_weights: FairnessWeights | None, cluster: Any) -> Iterator[Setup]:
    """Pose the problem of a model's settings on this data; a cluster's workers are held meanwhile."""
    if model.engine == "ray":
        from fairmf.models.shard_problem import open_on_cluster  # fits on one machine do without

        with open_on_cluster(model, data, fairness_weights, cluster) as found:
            yield found
        return
    if cluster is not None or isinstance(getattr(data, "shards", None), int):
        what = "Data in shards" if cluster is None else "cluster="
        raise InvalidParameter(f"{what} needs engine='ray'. Got engine={model.engine!r} instead.")
    data = as_interactions(data)
    if data.nnz == 0:
        raise InvalidData("There are no interactions to learn from.")
    settings = settings_of(model)
    settings["backend"] = chosen(model.backend, data.nnz * model.factors)
    weights = read_fairness_weights(fairness_weights, data.n_items, data.item_ids)
    yield Setup(problem_for(data, model.lambda_f_for(data.n_users), settings, weights), model, data)
