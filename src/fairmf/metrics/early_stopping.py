"""Stop a fit early: a callback that evaluates one metric on held-out users after each epoch."""

from __future__ import annotations

import math
from typing import Any, Protocol

from fairmf.data.groups import GroupLabels
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import cached_property
from fairmf.metrics.evaluate import Ranker, evaluate
from fairmf.metrics.plan import check_held_out
from fairmf.metrics.registry import parse_metric
from fairmf.params import check_count, check_not_negative
from fairmf.types import Record

# What a checkpoint stores, besides the settings.
_MEMORY = ("scores", "best_epoch", "best_value", "_last_epoch", "_epochs_seen")


class Progress(Protocol):
    """The argument that the fit loop passes to its callbacks after an epoch."""

    @property
    def epoch(self) -> int:
        """Number of this epoch, from 1."""
        ...

    @property
    def model(self) -> Ranker:
        """The model after this epoch."""
        ...

    @property
    def record(self) -> Record:
        """The record of this epoch in the history. Callbacks may add to it."""
        ...

    @property
    def state(self) -> object:
        """A snapshot of the model's state after this epoch, for `keep`."""
        ...

    def stop(self, reason: str) -> None:
        """End the fit after this epoch."""
        ...

    def keep(self, state: object) -> None:
        """Make the fit return the model of this state, not that of the last epoch."""
        ...


class EarlyStopping:
    """Stop when `metric` has not improved on held-out users for `patience` evaluations; keep the best epoch.

    The value is added to the epoch's record under "validation". One object can serve several fits, one after the other:
    it starts over when the number of the epoch goes back.

    Parameters
    ----------
    held_out
        The users to evaluate on, such as `split.validation`.
    metric
        Full name of the metric.
    patience
        Number of evaluations without improvement after which the fit stops.
    every
        Epochs between two evaluations.
    minimise
        Whether less is better; None decides by the metric (less for Gini, more for nDCG).
    min_change
        Smallest change that counts as an improvement.
    train, groups
        Inputs of the metrics that need them, as in `evaluate`.
    **rank_options
        Options of the model's `rank`, such as fairness=.

    Raises
    ------
    InvalidParameter
        If the metric is unknown or a number is out of its range.
    InvalidData
        If `held_out` is not one held-out set.

    Examples
    --------
    >>> from fairmf import EarlyStopping, FairALS, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> stopping = EarlyStopping(split.validation, "ndcg@20", patience=2)
    >>> model = FairALS(factors=8, epochs=6).fit(split.train, callbacks=[stopping])
    >>> 1 <= stopping.best_epoch <= 6
    True
    """

    def __init__(
        self,
        held_out: HeldOut,
        metric: str = "ndcg@100",
        *,
        patience: int = 3,
        every: int = 1,
        minimise: bool | None = None,
        min_change: float = 0.0,
        train: Interactions | None = None,
        groups: GroupLabels | None = None,
        **rank_options: Any,
    ):
        wanted = parse_metric(metric)
        check_held_out(held_out)
        self.held_out = held_out
        self.metric = wanted.label
        self.patience = check_count("EarlyStopping", "patience", patience, 1)
        self.every = check_count("EarlyStopping", "every", every, 1)
        self.minimise = wanted.lower_is_better if minimise is None else minimise
        self.min_change = check_not_negative("EarlyStopping", "min_change", min_change)
        self.train = train
        self.groups = groups
        self.rank_options = rank_options
        self._start_over()

    def _start_over(self) -> None:
        self.scores: list[tuple[int, float]] = []
        self.best_epoch: int | None = None
        self.best_value: float | None = None
        self._last_epoch: int | None = None
        self._epochs_seen = 0

    def on_epoch(self, progress: Progress) -> None:
        """Evaluate the model; keep it if it is the best so far, or stop the fit. Called by the fit loop."""
        # The epochs of a new fit start at 1 again.
        if self._last_epoch is not None and progress.epoch <= self._last_epoch:
            self._start_over()
        self._last_epoch = progress.epoch
        self._epochs_seen += 1
        if self._epochs_seen % self.every:
            return
        value = self._score(progress.model)
        self.scores.append((progress.epoch, value))
        # Other callbacks may have added values of their own.
        progress.record.setdefault("validation", {})[self.metric] = value
        if self._improves(value):
            self.best_epoch, self.best_value = progress.epoch, value
            progress.keep(progress.state)
            return
        since = sum(self.best_epoch is None or epoch > self.best_epoch for epoch, _ in self.scores)
        if since >= self.patience:
            # The fit ends after this epoch, but returns the model of the best one, which `keep` has named.
            progress.stop(
                f"{self.metric} has not improved for {since} evaluations: "
                f"best {self.best_value:.5g} at epoch {self.best_epoch}."
            )

    # -- state for checkpoints (models/fit_loop.py) ------------------------------------------------------------------

    def state_dict(self) -> Record:
        """Return the scores so far and the settings, for a checkpoint."""
        return {"rules": self._rules(), **{name: getattr(self, name) for name in _MEMORY}}

    def load_state_dict(self, state: Record) -> None:
        """Continue from a checkpoint; raise InvalidParameter if the settings differ."""
        now = self._rules()
        for name, value in state["rules"].items():
            if now.get(name) != value:
                raise InvalidParameter(
                    f"The checkpoint's EarlyStopping has {name} {value!r}, this one {now.get(name)!r}: "
                    "resume with the same settings, or use another folder."
                )
        for name in _MEMORY:
            setattr(self, name, state[name])

    def _rules(self) -> Record:
        # Scores can be compared only with scores of the same users, hence their fingerprint.
        names = ("metric", "patience", "every", "minimise", "min_change")
        return {name: getattr(self, name) for name in names} | {"held_out": self._held_out_fingerprint}

    @cached_property
    def _held_out_fingerprint(self) -> str:
        parts = (self.held_out.fold_in, self.held_out.targets)
        return " ".join(part.fingerprint() for part in parts)

    def _score(self, model: Ranker) -> float:
        wanted: Record = {"metrics": [self.metric], "train": self.train, "groups": self.groups}
        # One number is compared with the last best one: nobody reads an interval.
        result = evaluate(model, self.held_out, bootstrap=0, **wanted, **self.rank_options)
        value = result[self.metric]
        if math.isnan(value):
            raise InvalidData(f"{self.metric} is undefined on the held-out users: none of them has targets or a list.")
        return value

    def _improves(self, value: float) -> bool:
        if self.best_value is None:
            return True
        gain = self.best_value - value if self.minimise else value - self.best_value
        return gain > self.min_change
