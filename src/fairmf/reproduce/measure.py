"""Fit a model and measure it in one of five ways: points, exposure, epochs, residuals or seconds.

Points are measured on both parts of the held-out users: settings are chosen on the validation users, and results are
reported on the test users.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from fairmf.data.split import HeldOut, Split
from fairmf.errors import NotFinite
from fairmf.metrics.early_stopping import EarlyStopping, Progress
from fairmf.metrics.evaluate import Ranker, evaluate
from fairmf.metrics.evaluation import Evaluation
from fairmf.models.factor_model import FactorModel
from fairmf.models.registry import MODELS
from fairmf.reproduce.pieces import Piece, Result
from fairmf.reproduce.spec import Settings, build

PARTS = ("validation", "test")


def measure(piece: Piece, split: Split) -> Result:
    """Fit the model of a piece and measure it. If the fit diverges, the result is the reason, under `diverged`."""
    try:
        return MEASURES[piece.how["measure"]](piece, split)
    except NotFinite as error:
        return {"diverged": str(error)}


def points(piece: Piece, split: Split) -> Result:
    """Measure metrics at every fairness (dial) and every FairRec share, on validation and test users."""
    model = _fitted(piece, split)
    how, found = piece.how, []
    # None: the model as it was trained.
    for dial in how.get("dials") or [None]:
        options = {**how.get("ranking", {}), **({} if dial is None else {"fairness": dial})}
        for share in how.get("shares") or [0.0]:
            ranker = model if share == 0 else model.with_fairrec(share, **how.get("fairrec", {}))
            point: Result = {"dial": dial, "share": share}
            for part in PARTS:
                held_out = getattr(split, part)
                result = _evaluated(ranker, held_out, split, how["metrics"], options)
                point[part] = result.to_dict()["values"]
                if part == "test" and how.get("per_user"):  # for paired tests between models
                    point["users"] = [_rounded(x) for x in result.per_user[how["per_user"]]]
            found.append(point)
    return {"points": found, "fit_seconds": _seconds_of(model)}


def exposure(piece: Piece, split: Split) -> Result:
    """Measure metrics on the test users, the exposure of items in the first K slots, and coverage by list length."""
    model = _fitted(piece, split)
    how = piece.how
    found = []
    for dial in how.get("dials") or [None]:
        options = {**how.get("ranking", {}), **({} if dial is None else {"fairness": dial})}
        lengths = sorted(how["lengths"])
        told = evaluate(
            model, split.test, at=lengths, metrics=[*how["metrics"], "coverage"], train=split.train, bootstrap=0,
            **options,
        )  # fmt: skip
        # The figure is by rank, so it does not matter which item has which exposure. Items without any are left out.
        counts = {K: np.sort(told.exposure[K])[::-1].astype(int) for K in how["K"]}
        found.append(
            {
                "dial": dial,
                "test": {name: told.to_dict()["values"][name] for name in how["metrics"]},
                "exposure": {str(K): each[each > 0].tolist() for K, each in counts.items()},
                "coverage": {str(K): told[f"coverage@{K}"] for K in lengths},
            }
        )
    return {"points": found, "items": split.train.n_items, "fit_seconds": _seconds_of(model)}


def epochs(piece: Piece, split: Split) -> Result:
    """Measure metrics on the validation users during training, with the seconds of training so far."""
    watch = _Watch(split.validation, split, piece.how)
    _fitted(piece, split, callbacks=[watch], objective_every=0)
    return {"epochs": watch.seen}


def residuals(piece: Piece, split: Split) -> Result:
    """Return FiADMM's residual norms, F and augmented Lagrangian by epoch, up to a divergence if there is one."""
    model = build(piece.model, piece.settings)
    diverged = None
    try:
        _whole(model.fit(split.train, progress=False, settle=False))
    except NotFinite as error:
        diverged = str(error)
    # A fit that diverges keeps the history of its epochs up to there.
    history = model.fitted.history
    columns = {
        "objective": "objective.total",
        "lagrangian": "augmented_lagrangian",
        **{name: f"residuals.{name}" for name in ("items", "users", "consensus", "dual")},
    }
    found: Result = {name: [_finite(x) for x in history.column(path)] for name, path in columns.items()}
    return {**found, **({} if diverged is None else {"stopped": diverged})}


def seconds(piece: Piece, split: Split) -> Result:
    """Return the median seconds of an epoch; the first is left out, because it compiles and warms up."""
    model = build(piece.model, piece.settings)
    _whole(model.fit(split.train, progress=False, settle=False, objective_every=0))
    every = [record["seconds"] for record in model.fitted.history.records]
    return {"seconds_per_epoch": statistics.median(every[1:] or every), "all": every}


# Experiments name one of these in their TOML file.
MEASURES: dict[str, Callable[[Piece, Split], Result]] = {
    "points": points, "exposure": exposure, "epochs": epochs, "residuals": residuals, "seconds": seconds,
}  # fmt: skip


class _Watch:
    """Measure the model every few epochs, as a callback. The time of measuring is not counted."""

    def __init__(self, held_out: HeldOut, split: Split, how: Settings):
        self.held_out, self.split, self.how = held_out, split, how
        self.spent = 0.0
        self.seen: list[Result] = []

    def on_epoch(self, progress: Progress) -> None:
        """Measure after this epoch, if it is due."""
        self.spent += float(progress.record["seconds"])
        every = self.how.get("every", 1)
        # The first epoch as well, so that all lines begin there.
        if progress.epoch % every == 0 or progress.epoch == 1:
            values = _values(
                progress.model, self.held_out, self.split, self.how["metrics"], self.how.get("ranking", {})
            )
            self.seen.append({"epoch": progress.epoch, "seconds": self.spent, **values})


def _fitted(piece: Piece, split: Split, **options: Any) -> FactorModel:
    model = build(piece.model, piece.settings)
    kind = MODELS[piece.model]
    if not kind.is_trained:
        return _whole(model.fit(split.train))
    if piece.how.get("patience"):
        stopping = EarlyStopping(split.validation, piece.how["select"], patience=piece.how["patience"])
        options["callbacks"] = [stopping]
    # Nothing reads the objective here, and computing it takes time.
    elif kind.has_factors:  # the others have no objective to leave out
        options = {"objective_every": 0, **options}
    return _whole(model.fit(split.train, progress=False, **options))


def _whole(model: FactorModel) -> FactorModel:
    """Return the model; raise KeyboardInterrupt if Ctrl-C interrupted its fit, so that no half-trained model counts."""
    if model.fitted.history.verdict == "interrupted":
        raise KeyboardInterrupt
    return model


def _values(ranker: Ranker, held_out: HeldOut, split: Split, metrics: list[str], options: Settings) -> Result:
    values: Result = _evaluated(ranker, held_out, split, metrics, options).to_dict()["values"]
    return values


def _evaluated(ranker: Ranker, held_out: HeldOut, split: Split, metrics: list[str], options: Settings) -> Evaluation:
    return evaluate(ranker, held_out, metrics=metrics, train=split.train, bootstrap=0, **options)


def _rounded(x: float) -> float | None:
    """Three decimals are enough for tests over hundreds of users, and keep stored results small."""
    return round(float(x), 3) if np.isfinite(x) else None


def _seconds_of(model: FactorModel) -> float:
    return float(model.fitted.history.seconds)


def _finite(x: float | None) -> float | None:
    return float(x) if x is not None and np.isfinite(x) else None
