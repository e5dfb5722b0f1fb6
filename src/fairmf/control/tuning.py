"""Search settings with Optuna, for quality alone or for quality and even exposure together: `tune`.

Settings are compared on the validation users of a split, and on its test users only with `allow_test`. With one
objective the search is one of successive halving (Li et al. 2020, ASHA): a fit is judged after `prune_every` epochs,
then after twice as many, and so on, and goes on only if it is in the better half of the trials that were judged there.
A fit that goes on continues from its own factors: no epoch is run twice.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fairmf.control.optuna_storage import import_optuna, opened, quietly
from fairmf.control.search_space import DIAL, EVENNESS, Space, read_space
from fairmf.control.tuning_result import Trial, TuningResult, with_settings
from fairmf.data.groups import GroupLabels
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.metrics.early_stopping import Progress
from fairmf.metrics.evaluate import Ranker, evaluate
from fairmf.metrics.registry import parse_metric
from fairmf.models.base import IterativeModel
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_not_negative, check_seed, check_settings
from fairmf.types import Record, Settings

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as OptunaTrial
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

ALSO = ("ndcg@100", "recall@20", "gini@20", "coverage@20")
DIVERGED = "diverged"  # attribute of a failed trial whose settings diverged; other failed trials were interrupted
RECIPE = "recipe"  # attribute of the study: the arguments it was made with


def tune(
    model: IterativeModel,
    split: Split,
    *,
    metric: str = "ndcg@100",
    objectives: Sequence[str] | None = None,
    trials: int = 50,
    timeout: float | None = None,
    space: Settings | None = None,
    also: Sequence[str] = ALSO,
    storage: str | os.PathLike[str] | None = None,
    study_name: str = "fairmf",
    random_state: int | None = 0,
    startup_trials: int = 10,
    prune: bool | None = None,
    prune_every: int = 4,
    groups: GroupLabels | None = None,
    item_features: Any = None,
    user_features: Any = None,
    part: str = "validation",
    allow_test: bool = False,
    progress: bool | None = None,
) -> TuningResult:
    """Search settings of a model with Optuna, for quality alone or for quality and even exposure together.

    Parameters
    ----------
    model
        A FairALS, IALS or FiADMM. Its own settings are tried first; settings outside the space keep their values.
    split
        Training data and held-out users.
    metric
        Metric to optimise.
    objectives
        Several metrics to optimise instead of one, such as ("ndcg@100", "gini@20"); the result has a Pareto front.
    trials
        Number of trials in total, including those of an interrupted search.
    timeout
        Seconds after which no further trial starts.
    space
        What to search, by setting: (low, high), a list of values, or a Range, Doubling or Choice (docs/tuning.md).
        None means the default space.
    also
        Further metrics to measure, for constraints.
    storage
        File that stores the trials. An interrupted search continues there when it is called again.
    study_name
        Name of the study in the storage.
    random_state
        Seed: the same seed gives the same trials. None draws one.
    startup_trials
        Number of first trials that are drawn at random.
    prune
        Whether to stop unpromising fits (successive halving). None means yes with one objective; fits cannot be judged
        by several.
    prune_every
        Epochs after which a fit is judged for the first time; then after twice as many, four times as many, ...
    groups
        A label per item, for metrics of groups.
    item_features, user_features
        Features of items and users, as `fit` takes them. The default space then has `feature_regularization` too.
    part
        "validation" or, with `allow_test`, "test".
    allow_test
        Allow tuning on the test users, whose results then say nothing about other users.
    progress
        Whether to show a progress bar; None shows it in a terminal.

    Returns
    -------
    TuningResult
        Every trial, the best settings under constraints, the best model with its path of evenness, and what that gains
        over the given model.

    Raises
    ------
    MissingDependency
        If Optuna is not installed (extra `[tune]`).
    InvalidParameter
        If the space, an objective or a number is wrong, or the stored study was made for something else.
    InvalidData
        If no held-out user has targets.

    Examples
    --------
    >>> from fairmf import FairALS, split_by_user, synthetic, tune
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = tune(FairALS(factors=8, epochs=2), split, trials=2, space={"regularization": (0.001, 0.1)})
    >>> len(found.trials)
    2
    """
    optuna = import_optuna()
    held_out = _held_out(split, part, allow_test)
    targets = _objectives(metric, objectives)
    pruning = _pruning(prune, len(targets))
    _check_numbers(model, trials, timeout, random_state, startup_trials, prune_every)
    sides = {"item_features": item_features, "user_features": user_features}
    features = {name: given for name, given in sides.items() if given is not None}
    searched = read_space(space, model, several=len(targets) > 1, features=bool(features))
    labels = list(dict.fromkeys([*targets, *(parse_metric(label).label for label in also)]))
    attempt = Attempt(
        model, split, held_out, labels, targets, searched, groups, prune_every if pruning else 0, features
    )
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if random_state is None else int(random_state)
    recipe = _recipe(attempt, seed if random_state is not None else None, startup_trials)
    with quietly(optuna), opened(optuna, storage) as store:
        lower = [parse_metric(label).lower_is_better for label in targets]
        study = open_study(optuna, store, study_name, lower, recipe)
        _search(optuna, study, attempt, trials, timeout, seed, startup_trials, progress)
        found = tuple(_trial(trial, searched) for trial in settled(study))
    return TuningResult(model, split.train, targets, found, study, held_out, features)


def _search(
    optuna: ModuleType,
    study: Study,
    attempt: Attempt,
    trials: int,
    timeout: float | None,
    seed: int,
    startup: int,
    show: bool | None,
) -> None:
    began = time.monotonic()
    remaining = max(trials - len(settled(study)), 0)
    own = {name: getattr(attempt.model, "fairness" if name == DIAL else name, None) for name in attempt.space}
    own |= {EVENNESS: 0.0}
    with progress_bar("trials", remaining, show) as advance:
        for _ in range(remaining):
            if timeout is not None and time.monotonic() - began >= timeout:
                return
            trial = ask(optuna, study, attempt.space, own, seed, startup)
            advance(_settle(optuna, study, trial, attempt))


def _settle(optuna: ModuleType, study: Study, trial: OptunaTrial, attempt: Attempt) -> str:
    """Run one trial and store its result. An interrupted trial does not count and is repeated."""
    states = optuna.trial.TrialState
    began = time.perf_counter()
    try:
        values, pruned = attempt.run(trial)
        state = states.PRUNED if pruned else states.COMPLETE
    except NotFinite:  # settings that diverge are a result, too
        values, state = {}, states.FAIL
        trial.set_user_attr(DIVERGED, True)
    except BaseException:
        study.tell(trial, state=states.FAIL)
        raise
    trial.set_user_attr("metrics", values)
    trial.set_user_attr("seconds", time.perf_counter() - began)
    wanted = [values[label] for label in attempt.targets] if state == states.COMPLETE else None
    study.tell(trial, wanted, state=state)  # last, because from now on the trial counts
    return ", ".join(f"{label} {values[label]:.4f}" for label in attempt.targets if label in values)


def _trial(trial: FrozenTrial, space: Space) -> Trial:
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    settings, served = chosen(trial.params, space)
    attrs, dial, evenness = trial.user_attrs, served.get("fairness"), served.get("evenness")
    state, metrics = names[trial.state.name], dict(attrs["metrics"])
    return Trial(trial.number, state, settings, dial, metrics, attrs["seconds"], evenness)


# -- one trial --------------------------------------------------------------------------------------------------------


def chosen(drawn: Settings, space: Space) -> tuple[Record, Record]:
    """Return the drawn settings of the model, and what its lists are made with: a fairness, an evenness or neither."""
    values: Record = {name: part.value(drawn[name]) for name, part in space.items()}
    names = {DIAL: "fairness", EVENNESS: "evenness"}
    return values, {option: values.pop(name) for name, option in names.items() if name in values}


@dataclasses.dataclass(frozen=True, eq=False)
class Attempt:
    """The inputs of every trial. `prune_every=0` means no pruning."""

    model: IterativeModel
    split: Split
    held_out: HeldOut
    labels: list[str]
    targets: tuple[str, ...]
    space: Space
    groups: GroupLabels | None
    prune_every: int
    features: Record = dataclasses.field(default_factory=dict)
    """The features of a fit, by their names in `fit`."""

    def run(self, trial: OptunaTrial) -> tuple[dict[str, float], bool]:
        """Fit and measure. Return the metrics (after pruning only the objectives), and whether the fit was pruned."""
        settings, served = chosen(trial.params, self.space)
        model = with_settings(self.model, settings)
        watch = Pruning(trial, self, served, model.epochs)
        callbacks = [watch] if self.prune_every else []
        model.fit(self.split.train, callbacks=callbacks, objective_every=0, progress=False, **self.features)
        return (watch.seen, True) if watch.pruned else (self.values(model, self.labels, served), False)

    def values(self, model: Ranker, labels: Sequence[str], served: Record) -> dict[str, float]:
        """Measure a fitted model on the validation users."""
        train, groups = self.split.train, self.groups
        measured = evaluate(model, self.held_out, metrics=labels, groups=groups, train=train, bootstrap=0, **served)
        return {label: float(measured[label]) for label in labels}


class Pruning:
    """Judge a fit at the rungs of successive halving, and stop it unless it is in the better half there."""

    def __init__(self, trial: OptunaTrial, attempt: Attempt, served: Record, epochs: int):
        self.trial, self.attempt, self.served = trial, attempt, served
        self.rungs = rungs(attempt.prune_every, epochs)
        self.pruned = False
        self.seen: dict[str, float] = {}

    def on_epoch(self, progress: Progress) -> None:
        """Evaluate the model at a rung, and compare it with the finished trials that were judged there."""
        if progress.epoch not in self.rungs:
            return
        label = self.attempt.targets[0]
        self.seen = self.attempt.values(progress.model, self.attempt.targets, self.served)
        self.trial.report(self.seen[label], progress.epoch)
        # An interrupted trial does not count: it is repeated.
        others = [t.intermediate_values.get(progress.epoch) for t in settled(self.trial.study)]
        judged = [value for value in others if value is not None]
        if not in_better_half(self.seen[label], judged, parse_metric(label).lower_is_better):
            self.pruned = True
            progress.stop("unpromising against the trials before it")


def rungs(first: int, epochs: int) -> list[int]:
    """Return the epochs at which fits are judged: `first`, doubled again and again, below `epochs`."""
    return [first << k for k in range(epochs.bit_length()) if first << k < epochs] if first else []


def in_better_half(value: float, others: Sequence[float], lower: bool) -> bool:
    """Return whether a value is among the better half of itself and the others (of few, at least the best)."""
    better = sum(other < value if lower else other > value for other in others)
    return better < max(1, (len(others) + 1) // 2)


# -- Optuna -----------------------------------------------------------------------------------------------------------
#
# Trials run one at a time, and only one process may work on a study. A killed process leaves a trial that is still
# "running"; it is marked as failed and repeated. Each trial gets a new sampler that is seeded by the seed and the
# trial's place and sees finished trials only. So an interrupted study draws the same settings as an uninterrupted one.


def open_study(optuna: ModuleType, storage: BaseStorage, name: str, lower: list[bool], recipe: Settings) -> Study:
    """Create a study, or open the stored one of that name if it was made for the same purpose."""
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=["minimize" if less else "maximize" for less in lower],
        pruner=optuna.pruners.NopPruner(),  # `Pruning` decides itself, by finished trials alone
        load_if_exists=True,
    )
    wanted = json.loads(json.dumps(recipe, default=str))  # as the storage returns it, so that both can be compared
    stored = study.user_attrs.get(RECIPE)
    if stored is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(RECIPE, wanted)
    elif stored != wanted:
        differing = [key for key in wanted if stored is None or stored.get(key) != wanted[key]]
        raise InvalidParameter(
            f"The study {name!r} in this storage was made with other settings ({', '.join(differing)}): "
            "choose another study_name, or use the same settings as before."
        )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def settled(study: Study) -> list[FrozenTrial]:
    """Return the finished trials in order: complete, pruned, or failed because they diverged."""
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if t.state.name in ("COMPLETE", "PRUNED") or (t.state.name == "FAIL" and _diverged(t))]


def ask(optuna: ModuleType, study: Study, space: Space, own: Settings, seed: int, startup_trials: int) -> OptunaTrial:
    """Draw the next trial. The first one has the model's own settings, as far as they are in the space."""
    place = len(settled(study))
    drawn_seed = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(seed=drawn_seed, n_startup_trials=startup_trials, multivariate=True)
    if place == 0:  # values outside the space cannot be fixed: the sampler draws them
        known = {name: space[name].drawn(value) for name, value in own.items() if name in space}
        fixed = {name: drawn for name, drawn in known.items() if drawn is not None}
        sampler = optuna.samplers.PartialFixedSampler(fixed, sampler)
    study.sampler = sampler
    return study.ask({name: part.distribution(optuna) for name, part in space.items()})


def _diverged(trial: FrozenTrial) -> bool:
    return DIVERGED in trial.user_attrs and "seconds" in trial.user_attrs


# -- arguments --------------------------------------------------------------------------------------------------------


def _held_out(split: Split, part: str, allow_test: bool) -> HeldOut:
    if not isinstance(split, Split):
        raise InvalidData(
            f"tune needs a Split: training data and validation users. Got {type(split).__name__} instead."
        )
    if part not in ("validation", "test"):
        raise InvalidParameter(f"The 'part' parameter of tune must be 'validation' or 'test'. Got {part!r} instead.")
    if part == "test" and not allow_test:
        raise InvalidParameter(
            "Settings chosen on the test users make the test worthless: use part='validation' "
            "(allow_test=True overrides this)."
        )
    held_out = split.test if part == "test" else split.validation
    if not held_out.n_scored:
        raise InvalidData(f"None of the {part} users has targets: there is no quality to tune for.")
    return held_out


def _objectives(metric: str, objectives: Sequence[str] | None) -> tuple[str, ...]:
    given = [metric] if objectives is None else [objectives] if isinstance(objectives, str) else list(objectives)
    labels = tuple(dict.fromkeys(parse_metric(label).label for label in given))
    if not labels:
        raise InvalidParameter("The 'objectives' parameter of tune must name at least one metric. Got none instead.")
    return labels


def _pruning(prune: bool | None, n_objectives: int) -> bool:
    if prune and n_objectives > 1:
        raise InvalidParameter("Fits cannot be judged by several objectives: leave prune=None, or choose one metric.")
    return n_objectives == 1 if prune is None else bool(prune)


def _check_numbers(
    model: object, trials: int, timeout: float | None, random_state: int | None, startup_trials: int, prune_every: int
) -> None:
    if not isinstance(model, IterativeModel):
        raise InvalidParameter(
            f"The 'model' parameter of tune must be a model with settings, such as FairALS(). Got {model!r} instead."
        )
    check_settings(model)
    check_count("tune", "trials", trials, 1)
    check_count("tune", "startup_trials", startup_trials, 1)
    check_count("tune", "prune_every", prune_every, 1)
    check_seed("tune", random_state)
    if timeout is not None:
        check_not_negative("tune", "timeout", timeout)


def _recipe(attempt: Attempt, seed: int | None, startup_trials: int) -> Record:
    """Return the arguments that must be equal to continue a stored study."""
    model = attempt.model
    idle = {*attempt.space, "num_threads"}  # these are searched, or do not change results
    recipe = {"features": sorted(attempt.features)} if attempt.features else {}
    return recipe | {
        "model": type(model).__name__,
        "settings": {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name not in idle},
        "space": {name: repr(part) for name, part in attempt.space.items()},
        "objectives": list(attempt.targets),
        "metrics": attempt.labels,
        "halving": attempt.prune_every,
        "random_state": seed,
        "startup_trials": startup_trials,
        "train": attempt.split.train.fingerprint(),
        "held_out": [attempt.held_out.fold_in.fingerprint(), attempt.held_out.targets.fingerprint()],
    }
