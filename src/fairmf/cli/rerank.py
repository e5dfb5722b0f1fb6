"""`fairmf rerank MODEL -o LISTS`: lists for all users that give every item enough exposure."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.output import ENDINGS_HELP, SafeCsv, check_output, check_table_output, write_table
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, load_fitted
from fairmf.cli.terminal import marked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Method(str, Enum):
    """How lists are made fairer after training."""

    fairrec = "fairrec"
    offsets = "offsets"


class Order(str, Enum):
    """How FairRec's lists are sorted."""

    score = "score"
    allocation = "allocation"


def rerank(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that fit has stored, with histories.")],
    session: Session,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"File to write the lists to: {ENDINGS_HELP}.")
    ] = None,
    save_model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the model with its offsets, to serve anybody later.")
    ] = None,
    method: Annotated[Method, typer.Option(help="FairRec promises; offsets learn a number per item.")] = Method.fairrec,
    length: Annotated[int, typer.Option("--top", "-n", min=1, help="Items per user.")] = 20,
    fairness: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Turn the dial to this fairness first.")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="FairRec: of an equal share of exposure, what every item is owed. Default 0.5."
        ),
    ] = None,
    order: Annotated[Order | None, typer.Option(help="FairRec: how lists are sorted. Default: score.")] = None,
    min_exposure: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Offsets: the floor, as a part of an equal share.")
    ] = None,
    max_exposure: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Offsets: the cap, as a multiple of an equal share.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Offsets: steps of learning. Default 300.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of what is drawn.")] = 0,
    safe_csv: SafeCsv = True,
) -> None:
    """Give every item a share of the exposure, by FairRec or by learned offsets, in the lists of all training users.

    FairRec allocates all lists together and certifies what every item got; its lists are served as they are. Offsets
    are one number per item, kept in a model that serves any user alone; they aim at floors and caps without a promise.

    [dim]Examples:[/dim]

      fairmf rerank model.fairmf -o lists.parquet --share 0.5

      fairmf rerank model.fairmf --method offsets --min-exposure 0.3 --max-exposure 5 --save-model fair.fairmf
    """
    _check(method, output, save_model, share, order, min_exposure, max_exposure, iterations)
    if output is not None:
        check_table_output(output)
    if save_model is not None:
        check_output(save_model)
    loaded = load_fitted(model, session)
    loaded.fitted.histories("rerank")
    if fairness is not None:
        check_dial(loaded, model)
    before = loaded if fairness is None else loaded.with_fairness(fairness)
    session.uses("train", loaded.fitted.interactions)
    exposed = exposure_of(before, length, session)
    if method is Method.fairrec and output is not None:
        after = _fairrec(before, length, 0.5 if share is None else share, order, seed, output, safe_csv, session)
    else:
        bounds = {"min_exposure": min_exposure, "max_exposure": max_exposure, "iterations": iterations}
        given = {name: value for name, value in bounds.items() if value is not None}
        after = _offsets(before, length, given, seed, output, save_model, safe_csv, session)
    _report(exposed, after, session, model, output, save_model)


def _check(method: Method, output: Path | None, save_model: Path | None, *given: Any) -> None:
    names = ("share", "order", "min-exposure", "max-exposure", "iterations")
    owners = dict.fromkeys(names[:2], Method.fairrec) | dict.fromkeys(names[2:], Method.offsets)
    for name, value in zip(names, given, strict=True):
        if value is not None and owners[name] is not method:
            raise Problem(f"--{name} has no meaning for {method.value}.", f"--method {owners[name].value}")
    if method is Method.fairrec and save_model is not None:
        raise Problem("FairRec's lists are made for all users at once: there is no model to save.", "--method offsets")
    if output is None and (save_model is None or method is Method.fairrec):
        raise Problem("There is nothing to write.", "-o lists.parquet")
    if method is Method.offsets and given[2] is None and given[3] is None:
        raise Problem("Offsets need a floor or a cap.", "--min-exposure 0.3 --max-exposure 5")


def exposure_of(model: Any, length: int, session: Session) -> NDArray[np.int64]:
    """How many of the training users have each item in their list."""
    import numpy as np

    history = model.fitted.interactions
    found = np.zeros(model.n_items, dtype=np.int64)
    with watched(model, history.n_users, session) as ranker:
        for _, lists in ranker.rank(history, length, known_users=True):
            found += np.bincount(lists[lists >= 0], minlength=model.n_items)
    return found


def _fairrec(
    model: Any,
    length: int,
    share: float,
    order: Order | None,
    seed: int,
    output: Path,
    safe_csv: bool,
    session: Session,
) -> NDArray[np.int64]:
    import numpy as np

    ranker = model.with_fairrec(share, order="score" if order is None else order.value, random_state=seed)
    with session.busy("allocate"):
        made = ranker.lists(model.user_factors, model.fitted.interactions, length)
    with session.busy("write"):
        write_table(_lists_table(made, model), output, safe_csv)
    promise = made.certificate
    session.result["certificate"] = {
        "guaranteed": promise.guaranteed, "smallest": promise.realised, "items_below": len(promise.short)
    }  # fmt: skip
    kept = "kept for every item" if promise.kept else f"{len(promise.short):,} items are below it"
    session.show(f"Every item is owed {promise.guaranteed:,} users; the least shown has {promise.realised:,}: {kept}.")
    return np.bincount(made.items[made.items >= 0], minlength=model.n_items)


def _lists_table(made: Any, model: Any) -> Any:
    """A row per filled slot: user, item, score, rank; as `recommend_table` has it."""
    import numpy as np
    import pyarrow as pa

    row, slot = np.nonzero(made.items >= 0)
    fitted = model.fitted
    users = pa.array(np.arange(model.n_users) if fitted.user_ids is None else fitted.user_ids.values)
    items = pa.array(np.arange(model.n_items) if fitted.item_ids is None else fitted.item_ids.values)
    columns = {
        "user": users.take(pa.array(row)),
        "item": items.take(pa.array(made.items[row, slot])),
        "score": pa.array(made.scores[row, slot]),
        "rank": pa.array((slot + 1).astype(np.int32)),
    }
    return pa.table(columns)


def _offsets(
    model: Any,
    length: int,
    given: dict[str, Any],
    seed: int,
    output: Path | None,
    save: Path | None,
    safe_csv: bool,
    session: Session,
) -> NDArray[np.int64]:
    from fairmf.control.offsets import fit_offsets

    with session.timed("learn"):
        found = fit_offsets(model, K=length, **given, random_state=seed, progress=session.progress)
    session.result["violations"] = found.violations
    if save is not None:
        with session.busy("write"):
            found.model.save(save)
    if output is not None:
        with session.timed("write"):
            write_table(found.model.recommend_table(N=length, progress=session.progress), output, safe_csv)
    v = found.violations
    session.show(f"{v['items_below_floor']:,} items are below the floor, {v['items_above_cap']:,} above the cap.")
    return exposure_of(found.model, length, session)


def _report(
    before: Any, after: Any, session: Session, model: Path, output: Path | None, save_model: Path | None
) -> None:
    from rich.table import Table

    from fairmf.data.popularity import gini

    rows = {
        "Gini of exposure": [f"{gini(side):.4f}" for side in (before, after)],
        "items shown to anybody": [f"{(side > 0).mean():.1%}" for side in (before, after)],
        "users who see the least shown item": [f"{side.min():,}" for side in (before, after)],
        "users who see the most shown item": [f"{side.max():,}" for side in (before, after)],
    }
    table = Table("lists of all training users")
    for name in ("as it is", "re-ranked"):
        table.add_column(name, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    for name, side in (("before", before), ("after", after)):
        session.result[name] = {
            "gini": gini(side), "coverage": float((side > 0).mean()), "least": int(side.min()), "most": int(side.max())
        }  # fmt: skip
    session.run.metrics = {f"gini_{name}": session.result[name]["gini"] for name in ("before", "after")}
    session.result |= {"model": str(model)} | {
        name: str(place) for name, place in (("output", output), ("saved_model", save_model)) if place is not None
    }
    session.record_beside(save_model or output or model)
    session.show(table)
    for name, place in (("lists", output), ("model", save_model)):
        if place is not None:
            session.note(f"{name}   {marked(place)}")
