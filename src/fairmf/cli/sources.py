"""Open what the user names: events from a file, a data set or a database; splits; models."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.options import Flags
from fairmf.cli.terminal import marked
from fairmf.data.events import Events
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    from fairmf.cli import progress as bars
    from fairmf.cli.session import Session
    from fairmf.data import (
        dataset_load,
        datasets,
        interactions,
        read,
        read_csv,
        read_sql,
        sniff,
        split,
        split_io,
    )  # fmt: skip
    from fairmf.data import half_life as half_lives
    from fairmf.data.columns import ColumnName
    from fairmf.data.half_life import HalfLife
    from fairmf.data.interactions import Interactions
    from fairmf.data.sniff import Guess, Peek
    from fairmf.data.split import Split
    from fairmf.models import model_file
    from fairmf.models.base import IterativeModel
    from fairmf.models.factor_model import FactorModel
    from fairmf.types import Array, Record
else:
    # Readers are imported when they are first used: `recommend` loads a model and needs none of them.
    bars = lazy_module("fairmf.cli.progress")
    dataset_load = lazy_module("fairmf.data.dataset_load")
    datasets = lazy_module("fairmf.data.datasets")
    half_lives = lazy_module("fairmf.data.half_life")
    interactions = lazy_module("fairmf.data.interactions")
    model_file = lazy_module("fairmf.models.model_file")
    read = lazy_module("fairmf.data.read")
    read_csv = lazy_module("fairmf.data.read_csv")
    read_sql = lazy_module("fairmf.data.read_sql")
    sniff = lazy_module("fairmf.data.sniff")
    split = lazy_module("fairmf.data.split")
    split_io = lazy_module("fairmf.data.split_io")

PANEL = "Reading the data"
EVENTS_HELP = (
    "file of events: CSV (any delimiter, may be compressed), Parquet (file or folder), Arrow, Feather or MovieLens "
    ".dat. Or the name of a data set (see fairmf datasets list). Or the URL of a database, with --query."
)
DATA_HELP = f"A {EVENTS_HELP}"
_CUTS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces", "::": "double colons"}


@dataclass
class Reading(Flags):
    """Flags that say how to read events. Columns that are not named are guessed, and the guess is printed."""

    place = 1

    user: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of user ids: its name, or its "
        "position from 0 if there is no header. Guessed if not given.")
    ] = None  # fmt: skip
    item: Annotated[
        str | None,
        typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of item ids. Guessed if not given."),
    ] = None
    weight: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of weights, such as play "
        "counts. A negative weight means that the user dislikes the item. With --weight sum, no column is read: the "
        "weight of a user-item pair is its number of rows. Default: every weight is 1.")
    ] = None  # fmt: skip
    time: Annotated[
        str | None,
        typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of times or dates. Guessed if not given."),
    ] = None
    rating: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="COLUMN", help="Column of ratings, for --rating-above.")
    ] = None
    rating_above: Annotated[
        float | None,
        typer.Option(rich_help_panel=PANEL, metavar="NUMBER", help="Keep only rows with a rating above this number."),
    ] = None
    half_life: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PANEL,
            metavar="DAYS",
            help="Halve the weight of an event each time it gets this many days older.",
        ),
    ] = None
    as_of: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="DATE", help="With --half-life: the age of an event is "
        "the time from the event to this date. Default: the date of the newest event.")
    ] = None  # fmt: skip
    delimiter: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, help="One or more characters that separate columns "
        "('tab' for a tab). Guessed if not given.")
    ] = None  # fmt: skip
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", rich_help_panel=PANEL, help="Whether the first line names "
        "the columns. Guessed if not given.")
    ] = None  # fmt: skip
    text_ids: Annotated[
        bool,
        typer.Option("--text-ids", rich_help_panel=PANEL, help="Keep ids as text, even if all of them are integers."),
    ] = False
    encoding: Annotated[str, typer.Option(rich_help_panel=PANEL, help="Encoding of a text file.")] = "utf8"
    query: Annotated[
        str | None, typer.Option(rich_help_panel=PANEL, metavar="SQL", help="Query for a database, such as "
        "'SELECT user, item FROM events'.")
    ] = None  # fmt: skip

    def decay(self) -> HalfLife | None:
        """Return the half-life that was asked for."""
        if self.half_life is None:
            if self.as_of is not None:
                raise Problem("--as-of needs a half-life.", "--half-life 30")
            return None
        return half_lives.HalfLife(self.half_life, self.as_of)

    def given(self) -> list[str]:
        """Return the flags that were given. Some sources accept none of them."""
        defaults = type(self)()
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value != getattr(defaults, name)]


def read_events(source: str, reading: Reading, session: Session, time: bool = False) -> Events:
    """Read the rows of a source, in order; with their times if `time` is set and there are any."""

    if "://" in source:
        return _read_database(source, reading, session)
    if reading.query is not None:
        raise Problem("--query is for databases.", "name one by its URL, such as sqlite:///events.db")
    if not Path(source).exists() and source in datasets.datasets():
        return _read_dataset(source, reading, session)
    return _read_file(source, reading, session, time)


def read_interactions(source: str, reading: Reading, session: Session, reweight: str | None = None) -> Interactions:
    """Read a source as one matrix. From the folder of a split, read the training part."""

    if split_io.is_split(source):
        data = read_split(source, reading, session).train
    else:
        decay = reading.decay()
        events = read_events(source, reading, session, time=decay is not None)
        merging = "sum" if reading.weight == "sum" else "column" if events.weights is not None else None
        data = interactions.Interactions.from_events(events, weights=merging, half_life=decay)
    return data if reweight is None else data.reweighted(reweight)


def read_split(folder: str, reading: Reading | None, session: Session) -> Split:
    """Read a stored split."""

    if reading is not None and (given := reading.given()):
        raise Problem(f"{folder} is a split, whose columns are known: {given[0]} does not apply to it.")
    with session.busy("read"):
        return split.Split.load(folder)


def _read_file(source: str, reading: Reading, session: Session, time: bool) -> Events:

    if Path(source).is_dir() and (Path(source) / "split.json").exists():
        raise Problem(
            f"{source} is the folder of a split, but this verb needs events.",
            "give the file that the split was made from",
        )
    if not Path(source).exists():
        raise _no_such_source(source)
    if source.endswith(".fairmf"):
        raise Problem(f"{source} is a model, not events.", "give the file or folder of the events")
    delimiter = "\t" if reading.delimiter in ("tab", "\\t") else reading.delimiter
    seen = sniff.peek(source, delimiter=delimiter, header=reading.header, encoding=reading.encoding)
    guess = sniff.guess_columns(seen)
    columns = _columns(source, reading, seen, guess, time)
    _say(session, seen, columns, guess, reading)
    with session.timed("read"), bars.byte_bar(session, "read") as progress:
        columns |= {"progress": progress}
        if seen.kind == "parquet":
            return read.read_parquet(source, **columns)
        if seen.kind == "arrow":
            return read.read_arrow(source, **columns)
        return read_csv.read_csv(
            source, **columns, delimiter=seen.delimiter, header=seen.header, text_ids=reading.text_ids,
            encoding=reading.encoding,
        )  # fmt: skip


def _columns(source: str, reading: Reading, seen: Peek, guess: Guess, time: bool) -> Record:
    """Return the columns as arguments of the readers: as flags name them, the others guessed."""
    named = {role: _column(getattr(reading, role), seen) for role in ("user", "item", "time", "rating")}
    named["weights"] = None if reading.weight == "sum" else _column(reading.weight, seen)
    taken = set(named.values())  # a column that a flag names is never guessed for another role
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
    """Return the error for a column that cannot be guessed; it lists the columns to choose from."""
    if role in guess.choices:
        choices = " or ".join(map(str, guess.choices[role]))
        return Problem(f"It is not clear which column of {source} is the {role}: it may be {choices}.", hint)
    listed = ", ".join(map(str, seen.names[:20])) + (", ..." if len(seen.names) > 20 else "")
    return Problem(f"It is not clear which column of {source} is the {role}: there are {listed}.", hint)


def _column(name: str | None, seen: Peek) -> ColumnName | None:
    return int(name) if name is not None and not seen.header and name.isdigit() else name


def _say(session: Session, seen: Peek, columns: Record, guess: Guess, reading: Reading) -> None:
    """Print how the file will be read, with the reason for every column that was guessed."""
    kind = {"parquet": "Parquet", "arrow": "Arrow"}.get(seen.kind)
    if kind is None:
        cut = _CUTS.get(seen.delimiter or "", repr(seen.delimiter))
        kind = f"text separated by {cut}, {'with' if seen.header else 'no'} header"
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
    # Ratings and weights are never used without being asked for, but often they should be.
    if "rating" in likely and columns["rating"] is None:
        name = marked(likely["rating"])
        session.note(
            f"        all ratings are kept; to keep only high values of column {name}: --rating-above NUMBER (3.5 for "
            "ratings from 1 to 5)"
        )
    if "weights" in likely and columns["weights"] is None:
        session.note(f"        to use a column of weights: --weight {marked(likely['weights'])}")


def _read_dataset(name: str, reading: Reading, session: Session) -> Events:

    allowed = {"--weight", "--text-ids"}
    if other := [flag for flag in reading.given() if flag not in allowed]:
        raise Problem(f"{name} is a data set whose columns are known: {other[0]} does not apply to it.")
    entry = datasets.dataset(name)
    filters = [f"ratings above {entry.rating_above:g}"] if entry.rating_above is not None else []
    filters += [f"{kind} with at least {n}" for kind, n in (("items", entry.min_item), ("users", entry.min_user)) if n]
    session.result["read_as"] = {"kind": "data set", "name": name}
    with session.timed("read"), bars.byte_bar(session, name) as progress:
        events = dataset_load.load_dataset(name, progress=progress)
    session.note(f"read as the data set {name}: {', '.join(filters) or 'all rows'}")
    return events


def _read_database(url: str, reading: Reading, session: Session) -> Events:

    shown = read_sql.parse_database_url(url).shown
    session.run.settings["data"] = shown  # the URL without its password
    if reading.query is None:
        raise Problem(f"{shown} needs --query.", "--query 'SELECT user, item FROM events'")
    columns: Record = {"user": reading.user or "user", "item": reading.item or "item", "time": reading.time}
    columns |= {"weights": None if reading.weight == "sum" else reading.weight}
    columns |= {"rating": reading.rating, "rating_above": reading.rating_above}
    session.result["read_as"] = {"kind": "database", "url": shown}
    with session.busy("read"):
        return read_sql.read_sql(reading.query, url, **columns)


def _no_such_source(source: str) -> Problem:

    near = difflib.get_close_matches(source.lower(), datasets.datasets(), n=1, cutoff=0.6)
    folder = Path(source).parent
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    alike = difflib.get_close_matches(Path(source).name, others, n=1, cutoff=0.6)
    if alike:
        hint = f"did you mean {folder / alike[0]}?"
    else:
        hint = f"did you mean the data set {near[0]}?" if near else "to list the data sets: fairmf datasets list"
    return Problem(f"There is no file or data set {source}.", hint)


def load_fitted(path: Path, session: Session) -> FactorModel:
    """Load the model in the file."""

    if path.is_dir():
        if split_io.is_split(path):
            raise Problem(f"{path} is a split, not a model.", "give the model first, then the split")
        raise Problem(f"{path} is a folder; a model is one file.", "to make one: fairmf fit DATA -o model.fairmf")
    if not path.exists():
        raise Problem(f"There is no model {path}.", "to make one: fairmf fit DATA -o model.fairmf")
    with session.busy("load"):
        loaded: FactorModel = model_file.load_model(path)
    return loaded


def check_dial(model: FactorModel, path: Path, flag: str = "--fairness") -> IterativeModel:
    """Return the model if its fairness can be changed after training; otherwise raise a Problem."""
    if not hasattr(model, "with_fairness"):
        raise Problem(
            f"{path} is a {type(model).__name__} model, which has no dial: its fairness cannot be changed, so {flag} "
            "does not apply to it."
        )
    return cast("IterativeModel", model)


def check_stored_users(model: FactorModel, path: Path) -> None:
    """Raise a Problem unless the vectors of the stored users can be computed for another fairness."""
    fitted = model.fitted
    if fitted.interactions is None and fitted.user_sensitivity is None:
        raise Problem(
            f"{path} was stored without its users' histories, so its users cannot be given another fairness.",
            "fit the model without --no-histories",
        )


def data_weighting(model: FactorModel) -> str | None:
    """Return how the model's data were weighted before it balanced them; None if they were not, or nobody knows."""
    known = model.fitted.weighting
    known = getattr(known, "inner", known)  # a balance is a setting of the model and applied on top
    return None if known is None else known.how


def read_histories(source: str, model: FactorModel, reading: Reading, session: Session) -> tuple[Array, Interactions]:
    """Read the events of new users.

    Return the users and their interactions with the model's items. Events with other items are dropped.
    """

    items = model.fitted.item_ids
    if items is None:
        raise Problem(
            "This model has no item ids, so the items in a file cannot be matched to it.", "fit the model on a file"
        )
    # The file's ids must have the type of the model's ids: "7" in a file is the text "7" if the model has texts.
    text = items.values.dtype.kind not in "iu"
    own = half_lives.half_life_of(model.fitted.weighting)
    if reading.decay() not in (None, own):
        was = "without a half-life" if own is None else f"with a half-life of {own.days:g} days"
        raise Problem(f"The model was fitted {was}.", "leave --half-life out: the model remembers it")
    reading = replace(reading, text_ids=reading.text_ids or text)
    events = read_events(source, reading, session, time=own is not None)
    if not any(item in items for item in events.item_ids.values.tolist()):
        raise Problem(
            f"None of the {len(events.item_ids):,} items in {source} is known to the model.",
            "are --user and --item the right columns?",
        )
    merging = "sum" if reading.weight == "sum" else "column" if events.weights is not None else None
    histories, others = half_lives.histories_of(events, items, reading.decay() or own, merging)
    if others:
        session.warn(f"{others:,} of {len(events):,} events are dropped: the model does not know their items.")
    if own is not None and events.times is None:
        session.warn("No column looks like times, so that all events of new users count as recent ones.")
    return events.user_ids.values, histories
