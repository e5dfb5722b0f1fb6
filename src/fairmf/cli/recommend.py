"""`fairmf recommend MODEL [USERS]`: lists for known users, for all, or for new ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.fit import Reweight
from fairmf.cli.output import SafeCsv, check_list_file, check_output, lists_of, write_lists
from fairmf.cli.session import Session
from fairmf.cli.sources import Reading, as_ids, check_dial, ids_from_file, load_fitted, read_histories, read_ids
from fairmf.cli.terminal import marked

if TYPE_CHECKING:
    from fairmf.data.interactions import Interactions

MOST_SHOWN = 50  # users in a table for people


def recommend(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that fit has stored.")],
    session: Session,
    reading: Reading,
    users: Annotated[
        list[str] | None, typer.Argument(metavar="[USERS]...", help="User ids. Without any, all users of training.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the lists: .parquet, .csv or .jsonl (JSON lines).")
    ] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Items per user.")] = 10,
    users_from: Annotated[
        Path | None, typer.Option(metavar="FILE", help="User ids from a file: one a line, or the --user column.")
    ] = None,
    new_users: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Events of users the model need not know; they are folded in."),
    ] = None,
    reweight: Annotated[
        Reweight | None,
        typer.Option(
            help="How new users are weighted. Not needed: a model weights them as it was trained, and refuses another "
            "weighting. Older model files do not say how."
        ),
    ] = None,
    fairness: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Turn the dial to this fairness; nothing is trained.")
    ] = None,
    only: Annotated[Path | None, typer.Option(metavar="FILE", help="Recommend only these items, one a line.")] = None,
    without: Annotated[Path | None, typer.Option(metavar="FILE", help="Never these items, one a line.")] = None,
    repeat: Annotated[bool, typer.Option("--repeat", help="Also recommend what a user has had already.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Users at a time; bounds the memory.")] = 4096,
    safe_csv: SafeCsv = True,
) -> None:
    """Make lists of recommendations for known users, for all users of training, or for new ones.

    Lists go to a file (user, item, score, rank; in JSON lines one user a line) or, for a few users, to the terminal.

    [dim]Examples:[/dim]

      fairmf recommend model.fairmf 17 42

      fairmf recommend model.fairmf -o lists.parquet --top 20

      fairmf recommend model.fairmf --users-from users.txt -o lists.csv --fairness 3

      fairmf recommend model.fairmf --new-users today.csv -o lists.jsonl
    """
    if sum(x is not None for x in (users or None, users_from, new_users)) > 1:
        raise Problem("USERS, --users-from and --new-users are three ways to say who; give one of them.")
    if output is not None:
        check_list_file(output)
        check_output(output)
    loaded = load_fitted(model, session)
    if fairness is not None:
        check_dial(loaded, model)
    if top > loaded.n_items:
        raise Problem(f"--top {top:,} is more than the catalogue has: {loaded.n_items:,} items.")
    who, options = _asked(loaded, users, users_from, new_users, reading, session)
    if reweight is not None and new_users is not None:
        options["user_items"] = _reweighted(loaded, options["user_items"], reweight.value, session)
    count = loaded.n_users if who is None else len(who)
    if output is None and count > MOST_SHOWN and not session.json:
        raise Problem(
            f"Lists of {count:,} users need a file.", "-o lists.parquet (or .csv, .jsonl), or name some users"
        )
    items = loaded.fitted.item_ids
    options |= {"filter_already_liked_items": not repeat, "fairness": fairness, "batch_size": batch_size}
    options |= {"items": None if only is None else read_ids(only, items, "item")}
    options |= {"filter_items": None if without is None else read_ids(without, items, "item")}
    session.result |= {"users": count, "top": top, "output": None if output is None else str(output)}
    with session.timed("recommend"):
        if output is None:
            _print(loaded, who, top, options, session)
            return
        rows = write_lists(loaded, output, who, top, {**options, "progress": session.progress}, safe_csv)
    session.result["rows"] = rows
    session.record_beside(output)
    session.note(f"lists   {marked(output)}: {rows:,} rows for {count:,} users")


def _asked(
    loaded: Any, users: list[str] | None, users_from: Path | None, new_users: str | None, reading: Reading, session: Any
) -> tuple[Any, dict[str, Any]]:
    """Who is asked for (None: everybody), and their histories where those are new."""
    known = loaded.fitted.user_ids
    if new_users is not None:
        who, histories = read_histories(new_users, loaded, reading, session)
        return who, {"user_items": histories, "recalculate_user": True}
    if users_from is not None:
        return ids_from_file(users_from, reading.user, known, "user"), {}
    return (as_ids(users, known) if users else None), {}


def _reweighted(loaded: Any, histories: Interactions, asked: str, session: Session) -> Interactions:
    """Check that --reweight agrees with the model, which weights the histories itself where it knows how."""
    known = loaded.fitted.weighting
    if known is None:
        session.warn(f"The model does not say how its data were weighted: new users are weighted by {asked} alone.")
        return histories.reweighted(asked)
    if known.how != asked:
        raise Problem(
            f"The model was trained on data weighted by {known.how}, so new users cannot be weighted by {asked}.",
            "drop --reweight: the model weights new users itself",
        )
    return histories


def _print(loaded: Any, who: Any, top: int, options: dict[str, Any], session: Session) -> None:
    """The lists on stdout."""
    from rich.table import Table

    lists = list(lists_of(loaded, who, top, {**options, "progress": session.progress}))
    session.result["lists"] = lists
    for entry in lists:
        table = Table(title=f"user {marked(entry['user'])}", title_justify="left", show_header=False, box=None)
        for rank, (item, score) in enumerate(zip(entry["items"], entry["scores"], strict=True), start=1):
            table.add_row(str(rank), marked(item), "popular" if score is None else f"{score:.4f}")
        session.show(table)
