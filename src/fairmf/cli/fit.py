"""`fairmf fit DATA -o MODEL`: train a model and store it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairmf.cli.errors import TERMINATED, Problem
from fairmf.cli.model_flags import FLAG_OF, FitSettings, effective_settings
from fairmf.cli.options import Flags, Reweight
from fairmf.cli.output import check_output
from fairmf.cli.session import Session
from fairmf.cli.sources import EVENTS_HELP, Reading, read_interactions, read_split
from fairmf.cli.terminal import marked
from fairmf.data.features import read_table
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.data.split_io import is_split
from fairmf.metrics.early_stopping import EarlyStopping
from fairmf.models.auto_settings import CHOSEN, FEWEST, HELD_OUT
from fairmf.models.base import IterativeModel
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import History
from fairmf.types import Record


@dataclass
class FeatureTables(Flags):
    """Tables of features, by which items and users without interactions get vectors."""

    item_features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A Parquet, Arrow or CSV file with a row per item: its id, and columns such as genre, year or text. "
            "With these columns, the model can also recommend items that have no interactions.",
        ),
    ] = None
    user_features: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same for users: country, device, and so on.")
    ] = None

    def read(self) -> Record:
        """Read the tables; return the arguments of `fit`."""
        given = {"item_features": self.item_features, "user_features": self.user_features}
        return {name: read_table(path) for name, path in given.items() if path is not None}


@dataclass
class Training(FeatureTables):
    """Checkpoints and early stopping."""

    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save every epoch to this folder. After an interruption, run the same command again to resume.",
        ),
    ] = None
    early_stopping: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Stop when this metric, such as ndcg@100, no longer improves on the validation users of a split.",
        ),
    ] = None
    patience: Annotated[
        int, typer.Option(min=1, help="With --early-stopping: stop after this many epochs without improvement.")
    ] = 3


def fit(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help=f"The folder of a split (its training part is used). Or a {EVENTS_HELP}"),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write the model to, such as model.fairmf.")],
    *,
    session: Session,
    settings: FitSettings,
    reading: Reading,
    reweight: Annotated[
        Reweight | None,
        typer.Option(
            help="Transform the weights w of the events: log replaces w by log2(1 + w), bm25 applies BM25 weighting."
        ),
    ] = None,
    training: Training,
    no_histories: Annotated[
        bool,
        typer.Option(
            "--no-histories",
            help="Do not store the users' histories: the file is smaller and does not reveal who had which item.",
        ),
    ] = False,
) -> None:
    """Train a model and store it in one file.

    The best values of five settings depend on the data: --unobserved-weight, --regularization,
    --regularization-exponent, --item-balance and --user-balance. If you give none of them, fit first tries a few values
    on a part of the data, keeps the best and prints them. This takes as long as two to four fits. If you give any of
    them, fit tries nothing, and uses the defaults of the others.

    Evenness says how evenly the recommendation lists of all users show the items. It is not a setting of fit: you
    choose it after training. See fairmf calibrate.

    [dim]Examples:[/dim]

      fairmf fit split -o model.fairmf

      fairmf fit events.csv -o model.fairmf --factors 64 --settings given

      fairmf fit plays.parquet -o model.fairmf --weight plays --reweight log

      fairmf fit split -o model.fairmf --item-features items.parquet

      fairmf fit --config model.fit.toml -o again.fairmf
    """  # fmt: skip
    if settings.given.get("random_state", 0) is None:
        settings.given["random_state"] = secrets.randbelow(
            2**31
        )  # drawn here, so that the run record can repeat the run
    asked = "settings" in settings.given
    model = settings.build()
    session.run.settings |= effective_settings(model)
    check_output(output)
    reweighting = None if reweight is None else reweight.value
    train, validation = _read(data, reading, session, reweighting, training.early_stopping is not None)
    session.uses("train", train)
    if not asked:
        _default_if_few(model, train, session)
    with session.timed("fit"):
        _train(model, train, validation, training, session)
    _tell_chosen(model, session)
    with session.busy("write"):
        model.save(output, interactions=not no_histories)
    session.record_beside(output)
    _report(model, train, output, session)


def _read(
    data: str, reading: Reading, session: Session, reweight: str | None, early_stopping: bool
) -> tuple[Interactions, HeldOut | None]:
    if reweight is not None and is_split(data):
        # Held-out users would be folded in with weights that differ from those of training.
        raise Problem(
            "The weights of a split are fixed.", "transform them when you split: fairmf split FILE --reweight log"
        )
    if not early_stopping:
        return read_interactions(data, reading, session, reweight), None
    if not is_split(data):
        raise Problem(
            "--early-stopping needs validation users, so DATA must be a split.", f"fairmf split {data} -o split"
        )
    split = read_split(data, reading, session)
    return split.train, split.validation


def _default_if_few(model: FactorModel, train: Interactions, session: Session) -> None:
    """Take the default settings where the data are too small to choose by."""
    few = HELD_OUT * (train.nnz - train.n_users) / 2 < 2 * FEWEST  # of half of the users; twice, for unequal halves
    if getattr(model, "settings", None) == "auto" and few:
        model.set_params(settings="given")
        session.run.settings["settings"] = "given"
        session.note(f"settings: the defaults, because {train.nnz:,} interactions are too few to choose by")


def _tell_chosen(model: FactorModel, session: Session) -> None:
    """Say how to give the settings that were chosen, and put them into the record, which then repeats this fit."""
    if getattr(model, "settings", None) != "auto":
        return
    chosen = {name: model.fitted.settings[name] for name in CHOSEN}
    session.result["settings"] = chosen
    session.run.settings |= {**chosen, "settings": "given"}
    flags = " ".join(f"{FLAG_OF.get(name, '--' + name.replace('_', '-'))} {value:g}" for name, value in chosen.items())
    session.note(f"        to use them again: {flags}")


def _train(
    model: FactorModel,
    train: Interactions,
    validation: HeldOut | None,
    how: Training,
    session: Session,
) -> None:
    if not isinstance(model, IterativeModel):
        if how.item_features is not None or how.user_features is not None:
            raise Problem(f"{type(model).__name__} has no vectors: --item-features and --user-features do not apply.")
        if how.checkpoint is not None or how.early_stopping is not None:
            raise Problem(
                f"{type(model).__name__} is not trained in epochs: --checkpoint and --early-stopping do not apply."
            )
        model.fit(train)  # type: ignore[attr-defined]
        return
    callbacks = []
    if how.early_stopping is not None and validation is not None:
        callbacks.append(EarlyStopping(validation, how.early_stopping, patience=how.patience, train=train))
    model.fit(train, callbacks=callbacks, progress=session.progress, checkpoint=how.checkpoint, **how.read())
    if model.history.verdict == "interrupted":
        if model.history.reason == TERMINATED:  # a job that is stopped from outside must not replace a good model
            raise KeyboardInterrupt
        session.interrupted = True
        session.run.settings["epochs"] = model.history.kept_epoch  # the record repeats the model that was kept


def _report(model: FactorModel, train: Interactions, output: Path, session: Session) -> None:
    history = model.history
    objective = history.final.get("objective") or (history.records[-1].get("objective") if history.records else None)
    session.result |= {
        "output": str(output),
        "model": type(model).__name__,
        "users": train.n_users,
        "items": train.n_items,
        "interactions": train.nnz,
        "epochs": history.kept_epoch,
        "verdict": history.verdict,
        "objective": objective,
        "fit_seconds": session.run.timings["fit"],
    }
    if objective is not None:
        session.run.metrics["objective"] = objective
    dislikes = f", {train.n_dislikes:,} of them dislikes" if train.n_dislikes else ""
    session.note(f"data    {train.n_users:,} users, {train.n_items:,} items, {train.nnz:,} interactions{dislikes}")
    epochs = f", {_ended(history)}" if history.records else ""
    session.note(f"fit     {type(model).__name__} in {session.run.timings['fit']:.1f} s{epochs}")
    session.note(f"model   {marked(output)}")


def _ended(history: History) -> str:
    """Say how many epochs ran, and why training ended."""
    epochs = len(history)
    if history.verdict == "interrupted":
        return f"interrupted in epoch {epochs + 1}; the model is that of epoch {history.kept_epoch}"
    ends = {"ceiling": "ran all", "converged": "converged after", "stopped": "stopped early, after"}
    kept = "" if history.kept_epoch == epochs else f", kept epoch {history.kept_epoch}"
    return f"{ends.get(history.verdict, history.verdict)} {epochs} epochs{kept}"
