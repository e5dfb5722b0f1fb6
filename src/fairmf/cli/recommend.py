"""`fairmf recommend MODEL [USERS]`: recommend items to known users, to all users, or to new ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table

from fairmf.cli.catalogue import Titles
from fairmf.cli.errors import Problem
from fairmf.cli.level_flags import Asked, Served, level_facts
from fairmf.cli.options import Flags, Reweight
from fairmf.cli.output import ListsOf, SafeCsv, Users, check_list_file, write_lists
from fairmf.cli.session import Session
from fairmf.cli.sources import Reading, data_weighting, load_fitted, read_histories, unclear
from fairmf.cli.terminal import marked
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids, written_id
from fairmf.data.interactions import Interactions
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    from pyarrow import feather, parquet

    from fairmf.data import read, read_csv, sniff, text_source
    from fairmf.data.columns import ColumnName
    from fairmf.data.sniff import Peek
    from fairmf.models.factor_model import FactorModel
    from fairmf.types import Record
else:  # for ids in a file
    feather, parquet = lazy_module("pyarrow.feather"), lazy_module("pyarrow.parquet")
    read, read_csv = lazy_module("fairmf.data.read"), lazy_module("fairmf.data.read_csv")
    sniff, text_source = lazy_module("fairmf.data.sniff"), lazy_module("fairmf.data.text_source")

MOST_SHOWN = 50  # users on the terminal
TABLES = (".parquet", ".pq", ".arrow", ".arrows", ".feather", ".ipc")


class Unknown(str, Enum):
    """Choose what to do for users that the model does not know."""

    error = "error"
    popular = "popular"


@dataclass
class NamedUsers(Flags):
    """Name users by their ids or in a file, or give the events of new users."""

    users: Annotated[
        list[str] | None, typer.Argument(metavar="USERS", help="User ids. If none are given: all training users.")
    ] = None
    users_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read user ids from this file: one per line, or the --user column of a table."
        ),
    ] = None
    new_users: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Recommend to the users in this file of events. The model need not know them."
        ),
    ] = None
    unknown: Annotated[
        Unknown,
        typer.Option(
            help="What to do about user ids that the model does not know. error: stop. popular: recommend the most "
            "popular items."
        ),
    ] = Unknown.error
    reweight: Annotated[
        Reweight | None,
        typer.Option(
            help="Weighting of the new users' events. Needed only for older model files, which do not store the "
            "weighting of their training data."
        ),
    ] = None


@dataclass
class Lists(Flags):
    """The file for the lists, and their length."""

    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the lists: .parquet, .csv or .jsonl (JSON lines).")
    ] = None
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Items per user.")] = 10


@dataclass
class Choice(Flags):
    """Which items to recommend."""

    only: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Recommend only the items in this file, one id per line.")
    ] = None
    without: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Never recommend the items in this file, one id per line.")
    ] = None
    repeat: Annotated[bool, typer.Option("--repeat", help="Also recommend items that the user already has.")] = False
    batch_size: Annotated[int, typer.Option(min=1, help="Users per batch; smaller batches need less memory.")] = 4096
    safe_csv: SafeCsv = True

    def options(self, model: FactorModel, evenness: Asked) -> Record:
        """Return the choice as arguments of `recommend`."""
        items = model.fitted.item_ids
        return {
            "filter_already_liked_items": not self.repeat,
            "evenness": evenness,
            "batch_size": self.batch_size,
            "items": None if self.only is None else read_ids(self.only, items, "item"),
            "filter_items": None if self.without is None else read_ids(self.without, items, "item"),
        }


def recommend(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    *,
    session: Session,
    reading: Reading,
    lists: Lists,
    served: Served,
    named: NamedUsers,
    choice: Choice,
    catalogue: Titles,
) -> None:
    """Recommend items to some training users, to all of them, or to new users.

    Without --output, the lists of up to 50 users are printed. CSV and Parquet files have the columns user, item, score
    and rank. JSON lines files have one user per line. With --catalogue, printed lists and files also have the
    titles of the items.

    [dim]Examples:[/dim]

      fairmf recommend model.fairmf 17 42

      fairmf recommend model.fairmf 17 --catalogue movies.csv

      fairmf recommend model.fairmf -o lists.parquet --top 20

      fairmf recommend model.fairmf --users-from users.txt -o lists.csv --evenness 0.3

      fairmf recommend model.fairmf --users-from users.txt -o lists.csv --unknown popular

      fairmf recommend model.fairmf --new-users today.csv -o lists.jsonl
    """
    if sum(x is not None for x in (named.users or None, named.users_from, named.new_users)) > 1:
        raise Problem("USERS, --users-from and --new-users are three ways to name users: use one of them.")
    output, top = lists.output, lists.top
    if output is not None:
        check_list_file(output)
    loaded = load_fitted(model, session)
    asked = served.read(loaded, model, session)
    if top > loaded.n_items:
        raise Problem(f"--top {top:,} is more than the catalogue has: {loaded.n_items:,} items.")
    who, histories = _users(loaded, named, reading, session)
    options = {**histories, **choice.options(loaded, asked), "progress": session.progress}
    titles = catalogue.titles(loaded.fitted.item_ids, loaded.n_items)
    made = ListsOf(loaded, who, top, options, titles)
    count = loaded.n_users if who is None else len(who)
    if named.unknown is Unknown.popular and who is not None and not histories:
        made, strangers = _with_strangers(made)
        session.result["unknown_users"] = strangers
        if strangers:
            session.note(f"users   {strangers:,} of {count:,} are not in the model: they get the most popular items")
    if output is None and count > MOST_SHOWN and not session.json:
        raise Problem(
            f"Lists of {count:,} users need a file.", "-o lists.parquet (or .csv, .jsonl), or name some users"
        )
    session.result |= {"users": count, "top": top, "output": None if output is None else str(output)}
    session.result |= level_facts(loaded, asked)
    with session.timed("recommend"):
        if output is None:
            _print(made, session)
            return
        rows = write_lists(made, output, choice.safe_csv)
    session.result["rows"] = rows
    session.record_beside(output)
    session.note(f"lists   {marked(output)}: {rows:,} rows for {count:,} users")


def _users(loaded: FactorModel, named: NamedUsers, reading: Reading, session: Session) -> tuple[Users, Record]:
    """Return the users (None: all of them), and as arguments of `recommend` the histories of new ones."""
    known = loaded.fitted.user_ids
    if named.new_users is not None:
        who, histories = read_histories(named.new_users, loaded, reading, session)
        if named.reweight is not None:
            histories = _reweighted(loaded, histories, named.reweight.value, session)
        return who, {"user_items": histories, "recalculate_user": True}
    if named.users_from is not None:
        return ids_from_file(named.users_from, reading.user, known, "user"), {}
    return (as_ids(named.users, known) if named.users else None), {}


def _with_strangers(made: ListsOf) -> tuple[ListsOf, int]:
    """Give users whom the model does not know the most popular items, after the lists of the others."""
    model, who = made.model, list(made.users or [])
    ids = model.fitted.user_ids
    known = [user in (range(model.n_users) if ids is None else ids) for user in who]
    strangers = [user for user, there in zip(who, known, strict=True) if not there]
    if not strangers:
        return made, 0
    nothing = Interactions(_no_rows(len(strangers)), model.n_items, Ids(strangers), model.fitted.item_ids)
    popular = replace(made, users=strangers, options=made.options | {"user_items": nothing, "recalculate_user": True})
    if not any(known):
        return popular, len(strangers)
    kept = [user for user, there in zip(who, known, strict=True) if there]
    return replace(made, users=kept, then=popular), len(strangers)


def _no_rows(count: int) -> Rows:
    return Rows(np.zeros(count + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), None)


def _reweighted(loaded: FactorModel, histories: Interactions, asked: str, session: Session) -> Interactions:
    """Check that --reweight agrees with the model. A model that stores its weighting applies it by itself."""
    known = data_weighting(loaded)
    if known is None:
        session.warn(f"The model does not say how its data were weighted: new users are weighted by {asked} alone.")
        found = histories.reweighted(asked)
        return Interactions(found.by_user, found.n_items, found.user_ids, found.item_ids)  # raw ones to the model
    if known != asked:
        raise Problem(
            f"The model was trained on data weighted by {known}, so new users cannot be weighted by {asked}.",
            "drop --reweight: the model weights new users itself",
        )
    return histories


def _print(made: ListsOf, session: Session) -> None:
    lists = list(made)
    session.result["lists"] = lists
    for entry in lists:
        table = Table(title=f"user {marked(entry['user'])}", title_justify="left", show_header=False, box=None)
        scores = ["popular" if score is None else f"{score:.4f}" for score in entry["scores"]]
        # Titles last: they may be long, and a narrow terminal wraps the last column.
        columns = [entry["items"], scores, *([entry["titles"]] if "titles" in entry else [])]
        for rank, row in enumerate(zip(*columns, strict=True), start=1):
            table.add_row(str(rank), *map(marked, row))
        session.show(table)


# -- ids that are typed or in a file --------------------------------------------------------------------------------


def as_ids(texts: list[str], known: Ids | None) -> list[int | str]:
    """Convert ids that were typed to the type of the model's ids.

    The result is integers if the model's ids are integers, or if it has none and row numbers are meant; else texts.
    """
    if known is not None and known.values.dtype.kind not in "iu":
        return list(texts)
    # A text that is no integer stays a text: the model reports it as unknown.
    return [written_id(text) for text in texts]


def read_ids(path: Path, known: Ids | None, kind: str) -> list[int | str]:
    """Read a file with one id per line."""
    return ids_from_file(path, None, known, kind)


def ids_from_file(path: Path, column: str | None, known: Ids | None, kind: str) -> list[int | str]:
    """Read ids from a file with one per line, or from a column of a table."""
    if not path.is_file():
        raise Problem(
            f"There is no file {path} with {kind} ids.", "it holds one id per line, or is a table with --user COLUMN"
        )
    texts = _lines(path) if column is None and path.suffix.lower() not in TABLES else _id_column(path, column, kind)
    if not texts:
        raise Problem(f"{path} holds no {kind} ids.")
    return as_ids(list(dict.fromkeys(texts)), known)


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise Problem(f"{path} is not text.", "it should hold one id per line") from None
    return [line.strip() for line in lines if line.strip()]


def _id_column(path: Path, column: str | None, kind: str) -> list[str]:
    seen = sniff.peek(path)
    guess = sniff.guess_columns(seen)
    name = column if column is not None else guess.columns.get(kind)
    if name is None:
        if len(seen.names) > 1:
            raise unclear(path, seen, guess, kind, "--user COLUMN")
        name = seen.names[0]
    name = int(name) if not seen.header and str(name).isdigit() else name
    if name not in seen.names:
        raise Problem(
            f"Column {name!r} is not in {path}: there are {', '.join(map(str, seen.names))}.", "--user COLUMN"
        )
    return [str(value) for value in _values(path, seen, name) if value is not None]


def _values(path: Path, seen: Peek, name: ColumnName) -> list[object]:
    if seen.kind == "csv":
        with read.reading(path, "CSV"):
            rows = list(read_csv.text_rows(text_source.TextSource.of_file(path), str(seen.delimiter)))
        place = seen.names.index(name)
        return [row[place] for row in rows[1 if seen.header else 0 :] if len(row) > place]
    with read.reading(path, seen.kind.capitalize()):
        if seen.kind == "parquet":
            return list(parquet.read_table(path, columns=[name]).column(0).to_pylist())
        return list(feather.read_table(path, columns=[name]).column(0).to_pylist())
