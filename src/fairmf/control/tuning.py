"""`tune`: search settings with Optuna, for quality alone or for quality and even exposure together.

Settings are judged on the validation users of a split, never on its test users.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairmf.control.search_space import DIAL, Space, read_space
from fairmf.control.tuning_result import Trial, TuningResult
from fairmf.data.groups import GroupLabels
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData, InvalidParameter, MissingDependency, NotFinite
from fairmf.metrics.evaluate import evaluate
from fairmf.metrics.registry import parse_metric
from fairmf.models.base import IterativeModel
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_not_negative, check_seed, check_settings

# Optuna, as tuning uses it: one trial at a time, each draw seeded by its place, so that a resumed study goes on alike.
#
# A killed process leaves a trial behind that is still "running"; it is marked failed and its place is taken again. The
# sampler of place k is made anew from the seed and k and sees only settled trials, so a study that was interrupted
# draws the same settings as one that was not. One process at a time may work on a study.


DIVERGED = "diverged"  # on a failed trial: it failed by its settings, not by an interruption
RECIPE = "recipe"  # on the study: what it was made for


def import_optuna() -> Any:
    """Optuna, or one clear line on how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise MissingDependency('Tuning needs Optuna, which is not installed: pip install "fairmf[tune]"') from error
    return optuna


@contextlib.contextmanager
def quietly(optuna: Any) -> Iterator[None]:
    """Optuna without its notes on new studies and on experimental parts."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextlib.contextmanager
def opened(optuna: Any, storage: str | os.PathLike[str] | None) -> Iterator[Any]:
    """Open a SQLite file (made if absent), a database by its URL, or memory; close its connections at the end."""
    store = _storage(optuna, storage)
    try:
        yield store
    finally:
        if hasattr(store, "engine"):  # a connection left open would hold the file
            store.remove_session()
            store.engine.dispose()


def _storage(optuna: Any, storage: str | os.PathLike[str] | None) -> Any:
    if storage is None:
        return optuna.storages.InMemoryStorage()
    url = os.fspath(storage)
    if "://" not in url:
        path = Path(url).absolute()
        if path.is_dir() or not path.parent.is_dir():
            raise InvalidParameter(
                f"The 'storage' parameter of tune must be a file in an existing folder. Got {url!r}."
            )
        if path.is_file() and path.stat().st_size and not _is_sqlite(path):
            raise InvalidParameter(
                f"The 'storage' parameter of tune must be a file of trials or a new one: {url!r} cannot be used "
                "(file is not a database)."
            )
        url = f"sqlite:///{path}"
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return optuna.storages.RDBStorage(url)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__  # its own text may hold a URL's password
        shown = "the database" if "://" in os.fspath(storage) else repr(os.fspath(storage))
        raise InvalidParameter(
            f"The 'storage' parameter of tune must be a file of trials or a new one: {shown} cannot be used ({reason})."
        ) from None


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def open_study(
    optuna: Any, storage: Any, name: str, lower: list[bool], recipe: Mapping[str, Any], startup_trials: int
) -> Any:
    """A new study, or the stored one of that name if it was made for the same purpose."""
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=["minimize" if less else "maximize" for less in lower],
        # Its own warm-up is counted in trials that ran to their end, as the sampler's is.
        pruner=optuna.pruners.MedianPruner(n_startup_trials=startup_trials),
        load_if_exists=True,
    )
    wanted = json.loads(json.dumps(recipe, default=str))
    stored = study.user_attrs.get(RECIPE)
    if stored is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(RECIPE, wanted)
    elif stored != wanted:
        differing = [key for key in wanted if stored is None or stored.get(key) != wanted[key]]
        raise InvalidParameter(
            f"The study {name!r} in this storage was made with other settings ({', '.join(differing)}): "
            "choose another study_name, or tune as it was begun."
        )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def settled(study: Any) -> list[Any]:
    """The trials that count, in their order."""
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if t.state.name in ("COMPLETE", "PRUNED") or (t.state.name == "FAIL" and _diverged(t))]


def ask(optuna: Any, study: Any, space: Space, own: Mapping[str, Any], seed: int, startup_trials: int) -> Any:
    """The next trial. The first one tries the settings the model came with, as far as they are in the space."""
    place = len(settled(study))
    drawn_seed = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(seed=drawn_seed, n_startup_trials=startup_trials, multivariate=True)
    if place == 0:
        known = {name: space[name].drawn(value) for name, value in own.items() if name in space}
        fixed = {name: drawn for name, drawn in known.items() if drawn is not None}
        sampler = optuna.samplers.PartialFixedSampler(fixed, sampler)
    study.sampler = sampler
    return study.ask({name: part.distribution(optuna) for name, part in space.items()})


def _diverged(trial: Any) -> bool:
    return DIVERGED in trial.user_attrs and "seconds" in trial.user_attrs


# One trial of tuning: fit with the drawn settings, measure on the validation users, stop early where told to.


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


ALSO = ("ndcg@100", "recall@20", "gini@20", "coverage@20")


def tune(
    model: IterativeModel,
    split: Split,
    *,
    metric: str = "ndcg@100",
    objectives: Sequence[str] | None = None,
    trials: int = 50,
    timeout: float | None = None,
    space: Mapping[str, Any] | None = None,
    also: Sequence[str] = ALSO,
    storage: str | os.PathLike[str] | None = None,
    study_name: str = "fairmf",
    random_state: int | None = 0,
    startup_trials: int = 10,
    prune: bool | None = None,
    prune_every: int = 4,
    groups: GroupLabels | None = None,
    part: str = "validation",
    allow_test: bool = False,
    progress: bool | None = None,
) -> TuningResult:
    """Try settings for `model` until `trials` of them are settled, or `timeout` seconds have passed.

    `metric` is made as good as possible; with `objectives=("ndcg@100", "gini@20")` several are, and the answer is a
    front. `space` says where to look (default: docs/tuning.md); every other setting stays as it is in `model`, whose
    own settings are tried first. `also` are metrics to be measured besides, for constraints. With `storage`, a file, an
    interrupted search goes on where it stopped when called again: `trials` is the total. The first `startup_trials` are
    drawn evenly. `prune` stops unpromising fits, judged every `prune_every` epochs (None: with one objective, the only
    case that Optuna can prune). The same `random_state` gives the same trials.
    """
    optuna = import_optuna()
    held_out = _held_out(split, part, allow_test)
    targets = _objectives(metric, objectives)
    pruning = _pruning(prune, len(targets))
    _check_numbers(model, trials, timeout, random_state, startup_trials, prune_every)
    searched = read_space(space, model, several=len(targets) > 1)
    labels = list(dict.fromkeys([*targets, *(parse_metric(label).label for label in also)]))
    attempt = Attempt(model, split, held_out, labels, targets, searched, groups, prune_every if pruning else 0)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if random_state is None else int(random_state)
    recipe = _recipe(attempt, seed if random_state is not None else None, startup_trials)
    with quietly(optuna), opened(optuna, storage) as store:
        lower = [parse_metric(label).lower_is_better for label in targets]
        study = open_study(optuna, store, study_name, lower, recipe, startup_trials)
        _search(optuna, study, attempt, trials, timeout, seed, startup_trials, progress)
        found = tuple(_trial(trial, searched) for trial in settled(study))
    return TuningResult(model, split.train, targets, found, study)


def _search(
    optuna: Any, study: Any, attempt: Attempt, trials: int, timeout: float | None, seed: int, startup: int, show: Any
) -> None:
    began = time.monotonic()
    remaining = max(trials - len(settled(study)), 0)
    own = {name: getattr(attempt.model, "fairness" if name == DIAL else name, None) for name in attempt.space}
    with progress_bar("trials", remaining, show) as advance:
        for _ in range(remaining):
            if timeout is not None and time.monotonic() - began >= timeout:
                return
            trial = ask(optuna, study, attempt.space, own, seed, startup)
            advance(_settle(optuna, study, trial, attempt))


def _settle(optuna: Any, study: Any, trial: Any, attempt: Attempt) -> str:
    """Run one trial to whatever end, and write it down. An interruption leaves its place to be taken again."""
    states = optuna.trial.TrialState
    began = time.perf_counter()
    try:
        values, pruned = attempt.run(trial)
        state = states.PRUNED if pruned else states.COMPLETE
    except NotFinite:  # a setting that diverges is an answer too
        values, state = {}, states.FAIL
        trial.set_user_attr(DIVERGED, True)
    except BaseException:
        study.tell(trial, state=states.FAIL)
        raise
    trial.set_user_attr("metrics", values)
    trial.set_user_attr("seconds", time.perf_counter() - began)
    wanted = [values[label] for label in attempt.targets] if state == states.COMPLETE else None
    study.tell(trial, wanted, state=state)  # last: only now the trial counts
    return ", ".join(f"{label} {values[label]:.4f}" for label in attempt.targets if label in values)


def _trial(trial: Any, space: Space) -> Trial:
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    settings, dial = chosen(trial.params, space)
    attrs = trial.user_attrs
    return Trial(trial.number, names[trial.state.name], settings, dial, dict(attrs["metrics"]), attrs["seconds"])


# -- reading the arguments --------------------------------------------------------------------------------------------


def _held_out(split: Split, part: str, allow_test: bool) -> HeldOut:
    if not isinstance(split, Split):
        raise InvalidData(
            f"tune needs a Split: training data and validation users. Got {type(split).__name__} instead."
        )
    if part not in ("validation", "test"):
        raise InvalidParameter(f"The 'part' parameter of tune must be 'validation' or 'test'. Got {part!r} instead.")
    if part == "test" and not allow_test:
        raise InvalidParameter(
            "Settings chosen on the test users make the test worthless: tune on part='validation' "
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
        raise InvalidParameter("Optuna cannot prune with several objectives: leave prune=None, or choose one metric.")
    return n_objectives == 1 if prune is None else bool(prune)


def _check_numbers(
    model: Any, trials: Any, timeout: Any, random_state: Any, startup_trials: Any, prune_every: Any
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


def _recipe(attempt: Attempt, seed: int | None, startup_trials: int) -> dict[str, Any]:
    """What a stored study must agree with to be continued."""
    model = attempt.model
    idle = {*attempt.space, "num_threads"}  # searched, or without influence on results
    return {
        "model": type(model).__name__,
        "settings": {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name not in idle},
        "space": {name: repr(part) for name, part in attempt.space.items()},
        "objectives": list(attempt.targets),
        "metrics": attempt.labels,
        "prune_every": attempt.prune_every,
        "random_state": seed,
        "startup_trials": startup_trials,
        "train": attempt.split.train.fingerprint(),
        "held_out": [attempt.held_out.fold_in.fingerprint(), attempt.held_out.targets.fingerprint()],
    }
