"""`fairmf rerank MODEL -o LISTS`: make lists for all training users, so that every item is shown often enough."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from fairmf.cli.errors import Problem
from fairmf.cli.level_flags import Served, check_users_at, level_facts
from fairmf.cli.options import Flags
from fairmf.cli.output import ENDINGS_HELP, SafeCsv, check_output, check_table_output, write_table
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted
from fairmf.cli.terminal import marked
from fairmf.control.fit_offsets import fit_offsets
from fairmf.data.popularity import gini
from fairmf.lazy import lazy_module
from fairmf.models.factor_model import FactorModel

if TYPE_CHECKING:
    import pyarrow as pa

    from fairmf.ranking.fairrec import FairLists
else:
    pa = lazy_module("pyarrow")


class Method(str, Enum):
    """Methods that change lists after training."""

    fairrec = "fairrec"
    offsets = "offsets"


class Order(str, Enum):
    """How FairRec's lists are sorted."""

    score = "score"
    allocation = "allocation"


@dataclass
class Written(Flags):
    """Files to write."""

    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"File to write the lists to: {ENDINGS_HELP}.")
    ] = None
    save_model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --method offsets: file for the model that serves with these offsets."),
    ] = None


@dataclass
class Bounds(Flags):
    """Bounds on the exposure of items."""

    share: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="FairRec: minimum exposure of every item, as a fraction of an equal share. Default: 0.5.",
        ),
    ] = None
    order: Annotated[
        Order | None,
        typer.Option(
            help="FairRec: order of the items in a list. score: best score first. allocation: the order in which "
            "FairRec chose the items. Default: score."
        ),
    ] = None
    min_exposure: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Offsets: minimum exposure, as a fraction of an equal share.")
    ] = None
    max_exposure: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Offsets: maximum exposure, as a multiple of an equal share.")
    ] = None
    iterations: Annotated[int | None, typer.Option(min=1, help="Offsets: number of learning steps. Default: 300.")] = (
        None
    )
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help="Offsets: leave a fifth of the users out of learning. Stop with an error if the offsets do not "
            "clearly lower the Gini of these users' lists. On by default.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0

    def of(self, method: Method) -> dict[str, float | int | str]:
        """Return the given values that belong to a method, by the names of the library."""
        names = (
            ("share", "order") if method is Method.fairrec else ("min_exposure", "max_exposure", "iterations", "check")
        )
        given = {name: getattr(self, name) for name in names}
        return {name: getattr(value, "value", value) for name, value in given.items() if value is not None}


def rerank(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit, with histories.")],
    *,
    session: Session,
    written: Written,
    method: Annotated[
        Method, typer.Option(help="fairrec guarantees a minimum exposure; offsets learns one number per item.")
    ] = Method.fairrec,
    length: Annotated[int, typer.Option("--top", "-n", min=1, help="Items per user.")] = 20,
    served: Served,
    bounds: Bounds,
    safe_csv: SafeCsv = True,
) -> None:
    """Make lists for all training users, so that every item is shown often enough.

    --method fairrec builds the lists of all users together. It guarantees every item a minimum exposure, but it makes
    lists only for the training users, not for new ones. --method offsets learns a number for each item, and adds it to
    the item's scores. This gives a model that can serve any user. It tries to keep the exposure of each item between
    --min-exposure and --max-exposure, but guarantees nothing.

    Both start from the lists at --evenness. An equal share is the exposure that each item would have if all items were
    shown equally often.

    [dim]Examples:[/dim]

      fairmf rerank model.fairmf -o lists.parquet --share 0.5

      fairmf rerank model.fairmf -o lists.parquet --share 0.5 --evenness 0.3

      fairmf rerank model.fairmf --method offsets --min-exposure 0.3 --max-exposure 5 --save-model fair.fairmf
    """
    _check(method, written, bounds)
    before = load_fitted(model, session)
    history = before.fitted.histories("rerank")
    asked = served.read(before, model, session)
    session.result |= level_facts(before, asked)
    if asked is not None:
        check_users_at(before, model, asked)
        before = before.with_evenness(asked)
    session.uses("train", history)
    session.result["users"] = history.n_users
    exposed = exposure_of(before, length, session)
    how = {**bounds.of(method), "random_state": bounds.seed}
    if method is Method.fairrec and written.output is not None:
        table, after = _fairrec(before, length, how, session)
        with session.busy("write"):
            write_table(table, written.output, safe_csv)
    else:
        fair = _offsets(before, length, how, session)
        _write(fair, length, written, safe_csv, session)
        after = exposure_of(fair, length, session)
    _report(exposed, after, session, model, written)


def _check(method: Method, written: Written, bounds: Bounds) -> None:
    """Raise a Problem or CannotWrite before any work is done."""
    for other in Method:
        if other is not method and (given := bounds.of(other)):
            flag = next(iter(given)).replace("_", "-")
            raise Problem(f"--{flag} does not apply to {method.value}.", f"--method {other.value}")
    if method is Method.fairrec and written.save_model is not None:
        raise Problem("FairRec makes lists for all users at once: there is no model to save.", "--method offsets")
    if written.output is None and (written.save_model is None or method is Method.fairrec):
        raise Problem("There is nothing to write.", "-o lists.parquet")
    if method is Method.offsets and bounds.min_exposure is None and bounds.max_exposure is None:
        raise Problem("Offsets need a minimum or a maximum exposure.", "--min-exposure 0.3 --max-exposure 5")
    if written.output is not None:
        check_table_output(written.output)
    if written.save_model is not None:
        check_output(written.save_model)


def exposure_of(model: FactorModel, length: int, session: Session) -> NDArray[np.int64]:
    """Count how many of the training users have each item in their list."""
    history = model.fitted.histories("rerank")
    found = np.zeros(model.n_items, dtype=np.int64)
    with watched(model, history.n_users, session) as ranker:
        for _, lists in ranker.rank(history, length, known_users=True):
            found += np.bincount(lists[lists >= 0], minlength=model.n_items)
    return found


def _fairrec(
    model: FactorModel, length: int, how: dict[str, float | int | str], session: Session
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return the lists that FairRec makes, and the exposure of every item in them."""
    ranker = model.with_fairrec(**{"share": 0.5, **how})  # type: ignore[arg-type]
    with session.busy("allocate"):
        made = ranker.lists(model.user_factors, model.fitted.histories("rerank"), length)
    promise = made.certificate
    session.result["certificate"] = {
        "guaranteed": promise.guaranteed, "smallest": promise.realised, "items_below": len(promise.short)
    }  # fmt: skip
    kept = "met for every item" if promise.kept else f"{len(promise.short):,} items are below it"
    session.show(
        f"Guaranteed exposure of every item: {promise.guaranteed:,} users ({kept}). The least shown item reaches "
        f"{promise.realised:,}."
    )
    return _lists_table(made, model), np.bincount(made.items[made.items >= 0], minlength=model.n_items)


def _lists_table(made: FairLists, model: FactorModel) -> pa.Table:
    """Return one row per filled slot: user, item, score, rank, as `recommend_table` does."""
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


def _offsets(model: FactorModel, length: int, how: dict[str, float | int | str], session: Session) -> FactorModel:
    """Return the model with learned offsets."""
    with session.timed("learn"):
        found = fit_offsets(model, K=length, **how, progress=session.progress)  # type: ignore[arg-type]
    session.result["violations"] = v = found.violations
    session.show(
        f"{v['items_below_floor']:,} items are below the minimum exposure, {v['items_above_cap']:,} are above the "
        f"maximum."
    )
    if found.check is not None:
        session.result["check"] = dataclasses.asdict(found.check)
        session.show(f"{found.check}.")
    fair: FactorModel = found.model
    return fair


def _write(fair: FactorModel, length: int, written: Written, safe_csv: bool, session: Session) -> None:
    if written.save_model is not None:
        with session.busy("write"):
            fair.save(written.save_model)
    if written.output is not None:
        with session.timed("write"):
            write_table(fair.recommend_table(N=length, progress=session.progress), written.output, safe_csv)


def _report(
    before: NDArray[np.int64], after: NDArray[np.int64], session: Session, model: Path, written: Written
) -> None:
    rows = {
        "Gini of exposure": [f"{gini(side):.4f}" for side in (before, after)],
        "items in at least one list": [f"{(side > 0).mean():.1%}" for side in (before, after)],
        "users who see the least shown item": [f"{side.min():,}" for side in (before, after)],
        "users who see the most shown item": [f"{side.max():,}" for side in (before, after)],
    }
    table = Table(f"lists of all {session.result['users']:,} training users")
    for name in ("before", "re-ranked"):
        table.add_column(name, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    for name, side in (("before", before), ("after", after)):
        session.result[name] = {
            "gini": gini(side), "coverage": float((side > 0).mean()), "least": int(side.min()), "most": int(side.max())
        }  # fmt: skip
    session.run.metrics = {f"gini_{name}": session.result[name]["gini"] for name in ("before", "after")}
    places = {"output": written.output, "saved_model": written.save_model}
    session.result |= {"model": str(model)} | {name: str(place) for name, place in places.items() if place is not None}
    session.record_beside(written.save_model or written.output or model)
    session.show(table)
    for name, place in (("lists", written.output), ("model", written.save_model)):
        if place is not None:
            session.note(f"{name}   {marked(place)}")
