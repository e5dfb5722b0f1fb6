"""`fairmf fit DATA -o MODEL`: train a model and store it."""

from __future__ import annotations

import secrets
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.model_flags import ModelSettings, effective_settings
from fairmf.cli.output import check_output
from fairmf.cli.session import Session
from fairmf.cli.sources import DATA_HELP, Reading, read_interactions, read_split
from fairmf.cli.terminal import marked

if TYPE_CHECKING:
    from fairmf.data.interactions import Interactions
    from fairmf.data.split import HeldOut
    from fairmf.models.factor_model import FactorModel


class Reweight(str, Enum):
    """Other confidences."""

    log = "log"
    bm25 = "bm25"


def fit(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help=f"The folder of a split (its training part), or {DATA_HELP}")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write the model to, such as model.fairmf.")],
    session: Session,
    settings: ModelSettings,
    reading: Reading,
    reweight: Annotated[
        Reweight | None, typer.Option(help="Of a file: confidences as log2(1 + c), or by BM25, instead of as they are.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Store every epoch there; the same command goes on where it broke off."),
    ] = None,
    early_stopping: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Stop when this metric, such as ndcg@100, no longer rises on a split's validation users.",
        ),
    ] = None,
    patience: Annotated[int, typer.Option(min=1, help="Epochs without improvement that end the training.")] = 3,
    no_histories: Annotated[
        bool, typer.Option("--no-histories", help="Leave the users' histories out of the file: smaller, and private.")
    ] = False,
) -> None:
    """Train a model and store it in one file.

    --fairness is the knob: 0 is plain iALS, 0.1 mild, 1 clear, 10 strong, whatever the size of the data. It can be
    turned after training, too (evaluate, recommend and tradeoff take --fairness).

    [dim]Examples:[/dim]

      fairmf fit split -o model.fairmf

      fairmf fit events.csv -o model.fairmf --factors 64 --fairness 3

      fairmf fit plays.parquet -o model.fairmf --weight plays --reweight log

      fairmf fit --config model.fit.toml -o again.fairmf
    """  # fmt: skip
    if settings.given.get("random_state", 0) is None:
        settings.given["random_state"] = secrets.randbelow(2**31)  # drawn here, so that the record can repeat it
    model = settings.build()
    session.run.settings |= effective_settings(model)
    check_output(output)
    train, validation = _read(data, reading, session, None if reweight is None else reweight.value, early_stopping)
    session.uses("train", train)
    with session.timed("fit"):
        _train(model, train, validation, session, checkpoint, early_stopping, patience)
    with session.busy("write"):
        model.save(output, interactions=not no_histories)
    session.record_beside(output)
    _report(model, train, output, session)


def _read(
    data: str, reading: Reading, session: Session, reweight: str | None, early_stopping: str | None
) -> tuple[Interactions, HeldOut | None]:
    from fairmf.data.split_io import is_split

    if reweight is not None and is_split(data):
        # Held-out users would be folded in with confidences of another kind than the model was trained on.
        raise Problem("A split has its confidences already.", "fairmf split FILE --reweight log")
    if early_stopping is None:
        return read_interactions(data, reading, session, reweight), None
    if not is_split(data):
        raise Problem(
            "--early-stopping needs validation users, so DATA must be a split.", f"fairmf split {data} -o split"
        )
    split = read_split(data, reading, session)
    return split.train, split.validation


def _train(
    model: Any,
    train: Interactions,
    validation: HeldOut | None,
    session: Session,
    checkpoint: Path | None,
    metric: str | None,
    patience: int,
) -> None:
    from fairmf.models.base import IterativeModel

    if not isinstance(model, IterativeModel):
        if checkpoint is not None or metric is not None:
            raise Problem(
                f"{type(model).__name__} is not trained in epochs: --checkpoint and --early-stopping have no meaning."
            )
        model.fit(train)
        return
    callbacks: list[Any] = []
    if metric is not None and validation is not None:
        from fairmf.metrics.early_stopping import EarlyStopping

        callbacks.append(EarlyStopping(validation, metric, patience=patience, train=train))
    model.fit(train, callbacks=callbacks, progress=session.progress, checkpoint=checkpoint)
    if model.history.verdict == "interrupted":  # half a training is no result
        raise KeyboardInterrupt


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
    session.note(f"data    {train.n_users:,} users, {train.n_items:,} items, {train.nnz:,} interactions")
    epochs = f", {history.kept_epoch} epochs ({history.verdict})" if history.records else ""
    session.note(f"fit     {type(model).__name__} in {session.run.timings['fit']:.1f} s{epochs}")
    session.note(f"model   {marked(output)}")
