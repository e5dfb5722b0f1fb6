"""Run the epochs of a fit: history, callbacks, tolerance, progress, checkpoints, and a check that all is finite.

A model supplies `start` and `epoch` (pure: a new state each time, so the last good one always survives) and says what
to report. Nothing here knows which model, solver, backend or cluster is at work. `Reached` says in one immutable value
how far the fit is, so that it can be stored, resumed, and survive a Ctrl-C at any moment.

Order of calls: `open_setup` builds the problem; `run` calls `_next` for every epoch and `_finished` after the last.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from fairmf.backends.contract import Factors, Vector
from fairmf.backends.registry import auto_backend
from fairmf.data.csr import item_sums
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.data.weighting import Balance
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.lazy import lazy_module
from fairmf.models.fairness_weights import FairnessWeights, read_fairness_weights
from fairmf.models.fitted import History
from fairmf.models.objective import Objective, objective
from fairmf.models.problem import Problem, problem_for
from fairmf.models.progress import progress_bar
from fairmf.types import Record, SparseMatrix

if TYPE_CHECKING:
    from fairmf.distributed.cluster import RayCluster
    from fairmf.distributed.shards import ShardSource
    from fairmf.models import feature_fit, shard_problem
    from fairmf.models.base import IterativeModel
    from fairmf.models.factor_model import FactorModel
    from fairmf.models.feature_fit import FeatureFit
else:
    feature_fit = lazy_module("fairmf.models.feature_fit")
    shard_problem = lazy_module("fairmf.models.shard_problem")  # fits on one machine do without a cluster's code
log = logging.getLogger("fairmf")
COMPILING = "compiling kernels, once: about 6 s"
LEARNED = 1e-6  # share of the loss at scores of 0 that a model must take away, or it has learned nothing
NOTHING = "%s learned nothing, all its scores are almost 0: lower regularization (now %g) or unobserved_weight (now %g)"

NOT_IN_OLD_FILES = {"in_old_files": False}
"""Metadata of a state's field that checkpoints of older versions lack: it then has its default."""
NOT_STORED = {"stored": False}
"""Metadata of a state's field that follows from the data and the settings: checkpoints leave it out."""


@dataclass(frozen=True)
class State:
    """The variables of a fit: at least the factors. Models add their own by subclassing."""

    user_factors: Factors
    item_factors: Factors
    user_map: Factors | None = field(default=None, kw_only=True)
    item_map: Factors | None = field(default=None, kw_only=True)
    """What predicts users and items from their features (models/feature_maps.py); None without features."""


S = TypeVar("S")  # what the loop carries from epoch to epoch: a State, or the networks of baselines/
if TYPE_CHECKING:  # where no state is named, as in `IterativeModel`, any is meant
    from typing_extensions import TypeVar as TypeVarWithDefault

    StateT = TypeVarWithDefault("StateT", bound=State, default=Any)
else:
    StateT = TypeVar("StateT", bound=State)


class Trainable(Protocol[S]):
    """The methods of a model, or of a model over a cluster, that the loop calls."""

    epochs: int
    tolerance: float

    def epoch(self, problem: Problem, state: S) -> S:
        """Run one epoch; the given state is left as it is."""

    def objective(self, problem: Problem, state: S) -> Objective:
        """Return F of a state."""

    def finish(self, problem: Problem, state: S) -> S:
        """Do what is left after the last epoch, and return the new state."""

    def report(self, problem: Problem, before: S, after: S, value: Objective | None) -> Record:
        """Return what this model adds to the epoch's record."""

    def remedy(self) -> str:
        """Return what a user can change when training diverges."""


Function = Callable[[int, float, "float | None"], object]
"""A function that can be a callback; see `FunctionCallback`."""


class Callback(Protocol):
    """An object that is called after every epoch: it may evaluate the model, stop the fit, or choose what is kept."""

    def on_epoch(self, progress: EpochProgress[Any]) -> None:
        """Look at the epoch, and act on it; see `EpochProgress`."""


class FunctionCallback:
    """A plain function as a callback: it gets the number of the epoch from 0, its seconds and the objective."""

    def __init__(self, function: Callable[[int, float, float | None], object]):
        self.function = function

    def on_epoch(self, progress: EpochProgress[Any]) -> None:
        """Call the function, as implicit calls its `callback`."""
        record = progress.record
        objective = record.get("objective")
        total = objective.get("total") if isinstance(objective, dict) else objective
        self.function(progress.epoch - 1, float(record["seconds"]), total)


@runtime_checkable
class ResumableCallback(Protocol):
    """A callback that remembers something from epoch to epoch, which a checkpoint has to store.

    A callback without these two methods is taken to have no memory of its own.
    """

    def state_dict(self) -> Record:
        """Return its memory, in plain values (numbers, texts, lists, tuples, dictionaries)."""

    def load_state_dict(self, state: Record) -> None:
        """Replace its memory by one that `state_dict` returned."""


@dataclass(frozen=True)
class Reached(Generic[S]):
    """Hold how far a fit is after an epoch: all that the next epoch, or a fit resumed from a file, needs."""

    epoch: int
    state: S
    records: tuple[Record, ...] = ()
    kept: S | None = None
    """The state that a callback chose to keep; None keeps the last."""
    kept_epoch: int = 0
    last_total: float | None = None
    """F of this epoch, to compare the next one's with; None where there is no tolerance."""
    verdict: str | None = None
    """Why no further epoch follows ("stopped", "converged"); None while they go on."""
    reason: str = ""
    callbacks: tuple[Record | None, ...] = ()
    """The memory of each callback at that time (None: it has none)."""


class Checkpoints(Protocol[S]):
    """Storage for how far a fit is."""

    def resume(self, start: S) -> Reached[S] | None:
        """Return where to resume, None for a fresh start. `start` is the state before the first epoch."""

    def after_epoch(self, reached: Reached[S], *, last: bool) -> None:
        """Store a checkpoint if one is due; one is always due after the last epoch."""


class EpochProgress(Generic[S]):
    """One epoch, as callbacks see it.

    Attributes
    ----------
    epoch
        Its number, from 1.
    record
        Its line in the history; callbacks may add to it.
    state
        The variables of the fit, to be handed to `keep`.
    """

    def __init__(self, epoch: int, record: Record, state: S, snapshot: Callable[[S], FactorModel]):
        self.epoch = epoch
        self.record = record
        self.state = state
        self._snapshot = snapshot
        self.stop_reason: str | None = None
        self.kept: S | None = None

    @property
    def model(self) -> FactorModel:
        """A fitted model with this epoch's factors."""
        return self._snapshot(self.state)

    def stop(self, reason: str) -> None:
        """End the fit after this epoch."""
        self.stop_reason = reason

    def keep(self, state: S) -> None:
        """Let `fit` return the model of this state rather than of the last epoch."""
        self.kept = state


class Diverged(NotFinite):
    """Raised where training diverges; carries the last good state out of the loop."""

    def __init__(self, message: str, state: Any, history: History):
        super().__init__(message)
        self.state = state
        self.history = history


@dataclass(frozen=True)
class Options(Generic[S]):
    """Hold the options of a fit that all models share."""

    name: str = ""
    """Name of the model, for messages and the progress bar."""
    callbacks: Sequence[Callback] = ()
    objective_every: int = 1
    """Compute F every so many epochs; 0 never does."""
    progress: bool | None = None
    """Show a progress bar; None shows it on a terminal."""
    settle: bool = True
    """Call the model's `finish` after the last epoch."""
    checkpoints: Checkpoints[S] | None = None
    note: Callable[[Record], str] = lambda _: ""
    """Returns a text for the end of the progress line, from an epoch's record."""


def run(
    model: Trainable[S],
    problem: Problem,
    state: S,
    snapshot: Callable[[S], FactorModel],
    options: Options[S] | None = None,
) -> tuple[S, History]:
    """Run up to `model.epochs` epochs from `state`, or from a checkpoint; return the state to keep and the history.

    `snapshot` makes a fitted model of a state, for callbacks. Ctrl-C ends the epochs: the last complete one is stored,
    finished and returned. A second Ctrl-C is not caught.
    """
    options = options or Options(type(model).__name__)
    if compiles := problem.backend.compiles_now():
        log.info(COMPILING, extra={"kind": "compiling"})
    checkpoints = options.checkpoints
    reached = (None if checkpoints is None else _resumed(checkpoints, state, options.callbacks)) or Reached(0, state)
    try:
        # Overflow gives no warnings here: `_not_finite` finds what it leaves behind after the epoch.
        with (
            np.errstate(over="ignore", invalid="ignore"),
            progress_bar(options.name, model.epochs, options.progress) as advance,
        ):
            advance("resumed" if reached.epoch else COMPILING if compiles else "", reached.epoch)
            while reached.verdict is None and reached.epoch < model.epochs:
                # One assignment: whenever Ctrl-C comes, `reached` is one whole epoch or the one before.
                reached, note = _next(model, problem, reached, snapshot, options)
                if checkpoints is not None:
                    over = reached.verdict is not None or reached.epoch == model.epochs
                    checkpoints.after_epoch(reached, last=over)
                advance(note)
    except KeyboardInterrupt as error:
        if reached.epoch == 0:
            raise
        message = "interrupted: the model keeps epoch %d, the last complete one"
        log.warning(message, reached.epoch, extra={"kind": "interrupted"})
        if checkpoints is not None:
            checkpoints.after_epoch(reached, last=True)
        if reached.verdict is None:
            reached = replace(reached, verdict="interrupted", reason=str(error) or "Ctrl-C")
    return _finished(model, problem, reached, options)


def _resumed(checkpoints: Checkpoints[S], start: S, callbacks: Sequence[Callback]) -> Reached[S] | None:
    """Return how far the stored fit is, and give the callbacks their memories back."""
    resumed = checkpoints.resume(start)
    if resumed is not None:
        for callback, memory in zip(callbacks, resumed.callbacks, strict=True):
            if memory is not None and isinstance(callback, ResumableCallback):
                callback.load_state_dict(memory)
    return resumed


def _next(
    model: Trainable[S],
    problem: Problem,
    reached: Reached[S],
    snapshot: Callable[[S], FactorModel],
    options: Options[S],
) -> tuple[Reached[S], str]:
    """Run one epoch, record it and decide whether it is the last; also return a note for the progress bar."""
    epoch, every = reached.epoch + 1, options.objective_every
    began = time.perf_counter()
    try:
        after = model.epoch(problem, reached.state)
    except NotFinite as error:
        raise _diverged(model, options, reached, "a step") from error
    record: Record = {"epoch": epoch, "seconds": time.perf_counter() - began}
    # A tolerance compares consecutive epochs, so it needs F of every one of them.
    due = model.tolerance > 0 or (every > 0 and (epoch % every == 0 or epoch == model.epochs))
    value = model.objective(problem, after) if due else None
    wrong = _not_finite(problem, after, value)
    if wrong is not None:
        raise _diverged(model, options, reached, wrong)
    if value is not None:
        record["objective"] = value.to_dict()
    record |= model.report(problem, reached.state, after, value)
    seen = EpochProgress(epoch, record, after, snapshot)
    for callback in options.callbacks:
        callback.on_epoch(seen)
    memories = tuple(  # copies, because the callbacks go on with their own
        copy.deepcopy(callback.state_dict()) if isinstance(callback, ResumableCallback) else None
        for callback in options.callbacks
    )
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


def _finished(model: Trainable[S], problem: Problem, reached: Reached[S], options: Options[S]) -> tuple[S, History]:
    """Return the kept state after the model's last half-step, and the history of the fit."""
    if reached.kept is not None:  # a callback may have kept an earlier state: EarlyStopping keeps the best
        reached = replace(reached, state=reached.kept, epoch=reached.kept_epoch)
    began = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            finished = model.finish(problem, reached.state) if options.settle else reached.state
    except NotFinite as error:
        raise _diverged(model, options, reached, "a step") from error
    wrong = _not_finite(problem, finished, None)
    if wrong is not None:
        raise _diverged(model, options, reached, wrong)
    history = History(list(reached.records), reached.verdict or "ceiling", reached.reason, reached.epoch)
    history.final = {"seconds": time.perf_counter() - began}
    if isinstance(finished, State) and (options.objective_every > 0 or model.tolerance > 0):
        maps = finished.user_map, finished.item_map
        value = objective(problem, finished.user_factors, finished.item_factors, None, *maps)
        history.final["objective"] = value.to_dict()
        plain = problem.dislikes is None and not problem.has_features
        if plain and value.observed > (1 - LEARNED) * 0.5 * problem.observed_weight:
            log.warning(NOTHING, options.name, problem.regularization, problem.unobserved_weight)
    return finished, history


def _not_finite(problem: Problem, state: object, value: Objective | None) -> str | None:
    """Return the name of the first variable, or the objective, that holds NaN or infinity; None if none does."""
    # F holds the square of every factor, and 0 times infinity is NaN: where F is finite, so are they.
    known = value is not None and np.isfinite(value.total)
    for name, part in vars(state).items():
        if getattr(part, "ndim", 0) == 2 and part.dtype == problem.backend.dtype:
            finite = known or problem.backend.all_finite(part)
        elif isinstance(part, (int, float, np.floating)) or hasattr(part, "ndim"):
            finite = bool(np.isfinite(part).all())
        else:
            finite = True
        if not finite:
            return name
    return None if value is None or np.isfinite(value.total) else "the objective"


def _diverged(model: Trainable[S], options: Options[S], reached: Reached[S], wrong: str) -> Diverged:
    """Return the error for what follows the epochs `reached`, if something in it is not finite."""
    last, reason = len(reached.records), f"{wrong} is not finite"
    return Diverged(
        f"{options.name}: {reason} any more in epoch {last + 1}. {model.remedy()} "
        "The model keeps the state before that epoch.",
        reached.state,
        History(list(reached.records), "diverged", reason, last),
    )


# -- the problem of a fit, on this machine or on a cluster -----------------------------------------------------------


@dataclass(frozen=True)
class Setup(Generic[S]):
    """The problem of a fit and who computes its epochs, on this machine or over the workers of a cluster."""

    problem: Problem
    steps: Trainable[S]
    """The model, or the model over a cluster."""
    settings: Record
    """The settings of the model, as they were checked."""
    histories: Interactions | None
    """The interactions, where they are in this process."""
    popularity: Vector | None = None
    """Sum of the raw confidences of every item, where those of the problem are balanced."""
    note: Callable[[Record], str] = lambda _: ""
    """Returns a text for the end of the progress line, from an epoch's record."""
    checkpoints: Callable[[Checkpoints[S]], Checkpoints[S]] = lambda stored: stored
    """Adapts the checkpoints to the engine."""
    features: FeatureFit | None = None
    fairness_weights: Vector | None = None
    """Features and fairness weights of all users and items, also of those that the problem leaves out."""


@contextlib.contextmanager
def open_setup(
    model: IterativeModel[StateT],
    settings: Record,
    data: Interactions | SparseMatrix | ShardSource,
    fairness_weights: FairnessWeights | None,
    cluster: RayCluster | None,
    item_features: Any = None,
    user_features: Any = None,
) -> Iterator[Setup[StateT]]:
    """Build the problem of a fit from a model's settings and the data; hold a cluster's workers until the fit ends."""
    if model.engine == "ray":
        given = (data, fairness_weights, cluster, item_features, user_features)
        with shard_problem.open_on_cluster(model, settings, *given) as found:
            yield found
        return
    if cluster is not None or isinstance(getattr(data, "shards", None), int):
        what = "Data in shards" if cluster is None else "cluster="
        raise InvalidParameter(f"{what} needs engine='ray'. Got engine={model.engine!r} instead.")
    data, popularity = balanced_like(model, as_interactions(data))
    features = None
    if model.backend == "auto":
        settings = settings | {"backend": auto_backend(data.nnz * model.factors)}
    if item_features is not None or user_features is not None:
        features = feature_fit.read(model, data, item_features, user_features)
    weights = None
    if fairness_weights is not None:
        weights = read_fairness_weights(fairness_weights, data.n_items, data.item_ids)
    fitted = features.reduced() if features else data
    own = weights if weights is None or features is None else features.started(weights, "item")
    problem = problem_for(fitted, model.lambda_f_for(fitted.n_users), settings, own)
    problem = problem if features is None else features.with_features(problem)
    yield Setup(problem, model, settings, data, popularity, features=features, fairness_weights=weights)


def balanced_like(model: IterativeModel[StateT], data: Interactions) -> tuple[Interactions, Vector | None]:
    """Return the data with a model's balance, and the raw popularity of items where that changes it."""
    if data.nnz == 0:
        raise InvalidData("There are no interactions to learn from.")
    if model.item_balance == 0 and model.user_balance == 0:
        return data, None
    rows, counts = data.by_user, data.by_user.column_counts(data.n_items)
    how = Balance(model.item_balance, model.user_balance, counts, 1.0, data.weighting)
    how = how.normalised([how.totals(rows)])
    found = data.with_weights(how.balanced(rows), how)  # marked with the weighting, which the model keeps
    found._given = data.fingerprint
    # Confidences that are all 1 add up to the number of users.
    return found, counts.copy() if data.is_binary else item_sums(rows, data.n_items)
