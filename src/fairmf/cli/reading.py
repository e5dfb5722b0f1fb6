"""The one place that turns what a person names (a file, a folder, a data set, a database) into events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairmf.cli.byte_bar import byte_bar
from fairmf.cli.failures import Problem
from fairmf.cli.flags import Flags
from fairmf.cli.printed import marked

if TYPE_CHECKING:
    from fairmf.cli.session import Session
    from fairmf.interactions import Events, Interactions
    from fairmf.interactions.columns import ColumnName
    from fairmf.interactions.guessing import Guess, Peek
    from fairmf.splitting import Split

PANEL = "Reading the data"
DATA_HELP = (
    "CSV (any delimiter, compressed or not), Parquet (a file or a folder), Arrow or Feather; MovieLens .dat; the name "
    "of a data set (fairmf datasets list); or a database URL, with --query."
)
_CUTS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces", "::": "double colons"}


@dataclass
class Reading(Flags):
    """How events are read. Columns that are not named are guessed, and the guess is shown."""

    user: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of user ids; a position from 0 "
        "where there is no header. Guessed if not given, as are --item and --time.")
    ] = None  # fmt: skip
    item: Annotated[str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of item ids.")] = (
        None
    )
    weight: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of confidences, such as play "
        "counts; 'sum' counts repeated rows. Without it every pair counts once.")
    ] = None  # fmt: skip
    time: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of times or dates.")
    ] = None
    rating: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of ratings, for --rating-above.")
    ] = None
    rating_above: Annotated[
        float | None, typer.Option(rich_help_panel=PANEL, metavar="NUMBER", help="Keep only rows with a rating above.")
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, help="What stands between columns, one or more characters "
        "('tab' for a tab). Guessed.")
    ] = None  # fmt: skip
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", rich_help_panel=PANEL, help="Whether the first line names "
        "the columns. Guessed.")
    ] = None  # fmt: skip
    text_ids: Annotated[
        bool,
        typer.Option(
            "--text-ids", rich_help_panel=PANEL, help="Keep ids as text, also where all of them are integers."
        ),
    ] = False
    encoding: Annotated[str, typer.Option(rich_help_panel=PANEL, help="Encoding of a text file.")] = "utf8"
    query: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="SQL", help="What to ask a database, such as 'SELECT "
        "user, item FROM events'.")
    ] = None  # fmt: skip

    def _given(self) -> list[str]:
        """The flags that were set, for sources that take none of them."""
        defaults = type(self)()
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value != getattr(defaults, name)]


def read_events(source: str, reading: Reading, session: Session, time: bool = False) -> Events:
    """The rows of a source, in order; with their times if `time` asks for them and there are any."""
    from fairmf.interactions.datasets import datasets

    if "://" in source:
        return _read_database(source, reading, session)
    if reading.query is not None:
        raise Problem("--query is for databases.", "name one by its URL, such as sqlite:///events.db")
    if not Path(source).exists() and source in datasets():
        return _read_dataset(source, reading, session)
    return _read_file(source, reading, session, time)


def read_interactions(source: str, reading: Reading, session: Session, reweight: str | None = None) -> Interactions:
    """What a source holds as one matrix. Of a split's folder it is the training part."""
    from fairmf.interactions import Interactions
    from fairmf.splitting.persistence import is_split

    if is_split(source):
        data = read_split(source, reading, session).train
    else:
        events = read_events(source, reading, session)
        merging = "sum" if reading.weight == "sum" else "column" if events.weights is not None else None
        data = Interactions.from_events(events, weights=merging)
    return data if reweight is None else data.reweighted(reweight)


def read_split(folder: str, reading: Reading | None, session: Session) -> Split:
    """A stored split."""
    from fairmf.splitting import Split

    if reading is not None and (given := reading._given()):
        raise Problem(f"{folder} is a split, read already: {given[0]} has no meaning for it.")
    with session.busy("read"):
        return Split.load(folder)


def _read_file(source: str, reading: Reading, session: Session, time: bool) -> Events:
    from fairmf import interactions
    from fairmf.interactions.guessing import guess_columns, peek

    if Path(source).is_dir() and (Path(source) / "split.json").exists():
        raise Problem(f"{source} is the folder of a split; this verb needs events.", "name the file it was made from")
    if not Path(source).exists():
        raise _no_such_source(source)
    if source.endswith(".fairmf"):
        raise Problem(f"{source} is a model, not events.", "name the file or folder of the events")
    delimiter = "\t" if reading.delimiter in ("tab", "\\t") else reading.delimiter
    seen = peek(source, delimiter=delimiter, header=reading.header, encoding=reading.encoding)
    guess = guess_columns(seen)
    columns = _columns(source, reading, seen, guess, time)
    _say(session, seen, columns, guess, reading)
    with session.timed("read"), byte_bar(session, "read") as progress:
        columns |= {"progress": progress}
        if seen.kind == "parquet":
            return interactions.read_parquet(source, **columns)
        if seen.kind == "arrow":
            return interactions.read_arrow(source, **columns)
        return interactions.read_csv(
            source, **columns, delimiter=seen.delimiter, header=seen.header, text_ids=reading.text_ids,
            encoding=reading.encoding,
        )  # fmt: skip


def _columns(source: str, reading: Reading, seen: Peek, guess: Guess, time: bool) -> dict[str, Any]:
    """The readers' arguments: what flags say, and guesses for the rest."""
    named = {role: _column(getattr(reading, role), seen) for role in ("user", "item", "time", "rating")}
    named["weights"] = None if reading.weight == "sum" else _column(reading.weight, seen)
    taken = set(named.values())
    wanted = ["user", "item", *(["time"] if time else []), *(["rating"] if reading.rating_above is not None else [])]
    for role in wanted:
        if named[role] is None and guess.columns.get(role) not in taken:
            named[role] = guess.columns.get(role)
    for role in ("user", "item"):
        if named[role] is None:
            raise unclear(source, seen, guess, role, f"--{role} COLUMN")
    if reading.rating_above is None and named["rating"] is not None:
        raise Problem("--rating needs a threshold.", "--rating-above 3.5 keeps ratings above 3.5")
    if reading.rating_above is not None and named["rating"] is None:
        raise unclear(source, seen, guess, "rating", "--rating COLUMN")
    if not time:
        named["time"] = None
    return {**named, "rating_above": reading.rating_above}


def unclear(source: object, seen: Peek, guess: Guess, role: str, hint: str) -> Problem:
    """The problem that a column cannot be guessed, with those there are to choose from."""
    if role in guess.choices:
        choices = " or ".join(map(str, guess.choices[role]))
        return Problem(f"It is not clear which column of {source} is the {role}: it may be {choices}.", hint)
    listed = ", ".join(map(str, seen.names[:20])) + (", ..." if len(seen.names) > 20 else "")
    return Problem(f"It is not clear which column of {source} is the {role}: there are {listed}.", hint)


def _column(name: str | None, seen: Peek) -> ColumnName | None:
    return int(name) if name is not None and not seen.header and name.isdigit() else name


def _say(session: Session, seen: Peek, columns: dict[str, Any], guess: Guess, reading: Reading) -> None:
    """Show how the file is read, with the reason for every column that was guessed, before it is read."""
    kind = {"parquet": "Parquet", "arrow": "Arrow"}.get(seen.kind)
    if kind is None:
        cut = _CUTS.get(seen.delimiter or "", repr(seen.delimiter))
        kind = f"text cut at {cut}, {'with' if seen.header else 'no'} header"
    used = {role: name for role, name in columns.items() if name is not None and role != "rating_above"}
    flags = {role: getattr(reading, "weight" if role == "weights" else role) for role in used}
    reasons = {role: guess.reasons[role] for role in used if flags[role] is None}
    shown = ", ".join(
        f"{role}={name}" + (f" ({reasons[role]})" if role in reasons else "") for role, name in used.items()
    )
    session.note(f"read as {marked(f'{kind}: {shown}')}")
    session.result["read_as"] = {"kind": seen.kind, **{role: str(name) for role, name in used.items()}}
    session.result["read_as"]["guessed"] = reasons
    likely = {role: name for role, name in guess.columns.items() if name not in used.values()}
    if "rating" in likely and columns["rating"] is None:
        name = marked(likely["rating"])
        session.note(f"        every rating counts; --rating-above 3.5 would keep the high ones of {name}")
    if "weights" in likely and columns["weights"] is None:
        session.note(f"        --weight {marked(likely['weights'])} would use that column as confidences")


def _read_dataset(name: str, reading: Reading, session: Session) -> Events:
    from fairmf.interactions.datasets import dataset, load_dataset

    allowed = {"--weight", "--text-ids"}
    if other := [flag for flag in reading._given() if flag not in allowed]:
        raise Problem(f"{name} is a data set whose columns are known: {other[0]} has no meaning for it.")
    entry = dataset(name)
    filters = [f"ratings above {entry.rating_above:g}"] if entry.rating_above is not None else []
    filters += [f"{kind} with at least {n}" for kind, n in (("items", entry.min_item), ("users", entry.min_user)) if n]
    session.result["read_as"] = {"kind": "data set", "name": name}
    with session.timed("read"), byte_bar(session, name) as progress:
        events = load_dataset(name, progress=progress)
    session.note(f"read as the data set {name}: {', '.join(filters) or 'all of it'}")
    return events


def _read_database(url: str, reading: Reading, session: Session) -> Events:
    from fairmf.interactions import read_sql
    from fairmf.interactions.database_urls import parse_database_url

    shown = parse_database_url(url).shown
    session.run.settings["data"] = shown  # without a password
    if reading.query is None:
        raise Problem(f"{shown} needs --query.", "--query 'SELECT user, item FROM events'")
    columns: dict[str, Any] = {"user": reading.user or "user", "item": reading.item or "item", "time": reading.time}
    columns |= {"weights": None if reading.weight == "sum" else reading.weight}
    columns |= {"rating": reading.rating, "rating_above": reading.rating_above}
    session.result["read_as"] = {"kind": "database", "url": shown}
    with session.busy("read"):
        return read_sql(reading.query, url, **columns)


def _no_such_source(source: str) -> Problem:
    import difflib

    from fairmf.interactions.datasets import datasets

    near = difflib.get_close_matches(source.lower(), datasets(), n=1, cutoff=0.6)
    folder = Path(source).parent
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    alike = difflib.get_close_matches(Path(source).name, others, n=1, cutoff=0.6)
    if alike:
        hint = f"did you mean {folder / alike[0]}?"
    else:
        hint = f"did you mean the data set {near[0]}?" if near else "fairmf datasets list names the data sets there are"
    return Problem(f"There is no file or data set {source}.", hint)
