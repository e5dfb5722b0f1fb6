"""`tune`: search settings with Optuna, for quality alone or for quality and even exposure together.

Settings are judged on the validation users of a split, never on its test users.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairmf.control import studies
from fairmf.control.attempt import Attempt, chosen
from fairmf.control.search_space import DIAL, Space, read_space
from fairmf.control.tuning_result import Trial, TuningResult
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.metrics.groups import GroupLabels
from fairmf.metrics.registry import parse_metric
from fairmf.models.iterative import IterativeModel
from fairmf.models.progress import progress_bar
from fairmf.parameters import check_settings
from fairmf.splitting import HeldOut, Split
from fairmf.splitting.checks import check_count, check_not_negative, check_seed

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
    optuna = studies.import_optuna()
    held_out = _held_out(split, part, allow_test)
    targets = _objectives(metric, objectives)
    pruning = _pruning(prune, len(targets))
    _check_numbers(model, trials, timeout, random_state, startup_trials, prune_every)
    searched = read_space(space, model, several=len(targets) > 1)
    labels = list(dict.fromkeys([*targets, *(parse_metric(label).label for label in also)]))
    attempt = Attempt(model, split, held_out, labels, targets, searched, groups, prune_every if pruning else 0)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if random_state is None else int(random_state)
    recipe = _recipe(attempt, seed if random_state is not None else None, startup_trials)
    with studies.quietly(optuna), studies.opened(optuna, storage) as store:
        lower = [parse_metric(label).lower_is_better for label in targets]
        study = studies.open_study(optuna, store, study_name, lower, recipe, startup_trials)
        _search(optuna, study, attempt, trials, timeout, seed, startup_trials, progress)
        found = tuple(_trial(trial, searched) for trial in studies.settled(study))
    return TuningResult(model, split.train, targets, found, study)


def _search(
    optuna: Any, study: Any, attempt: Attempt, trials: int, timeout: float | None, seed: int, startup: int, show: Any
) -> None:
    began = time.monotonic()
    remaining = max(trials - len(studies.settled(study)), 0)
    own = {name: getattr(attempt.model, "fairness" if name == DIAL else name, None) for name in attempt.space}
    with progress_bar("trials", remaining, show) as advance:
        for _ in range(remaining):
            if timeout is not None and time.monotonic() - began >= timeout:
                return
            trial = studies.ask(optuna, study, attempt.space, own, seed, startup)
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
        trial.set_user_attr(studies.DIVERGED, True)
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
