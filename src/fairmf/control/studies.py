"""Optuna, as tuning uses it: one trial at a time, each draw seeded by its place, so that a resumed study goes on alike.

A killed process leaves a trial behind that is still "running"; it is marked failed and its place is taken again. The
sampler of place k is made anew from the seed and k and sees only settled trials, so a study that was interrupted draws
the same settings as one that was not. One process at a time may work on a study.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairmf.control.search_space import Space
from fairmf.errors import InvalidParameter, MissingDependency

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
