"""`fairmf split FILE -o FOLDER`: split events into training, validation and test data, and store them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from fairmf.cli.errors import Problem
from fairmf.cli.options import Flags
from fairmf.cli.session import Session
from fairmf.cli.sources import DATA_HELP, Reading, read_events
from fairmf.cli.terminal import marked
from fairmf.data.columns import date_text, time_unit
from fairmf.data.events import Events
from fairmf.data.half_life import HalfLife
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.data.split_known import split_by_interaction, split_by_item
from fairmf.data.split_methods import split_by_time, split_by_user
from fairmf.types import Record

_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class By(str, Enum):
    """Kinds of events that can be held out."""

    user = "user"
    interaction = "interaction"
    time = "time"
    item = "item"


class SplitReweight(str, Enum):
    """Transformations of weights that can be applied before the split, because they use each weight alone."""

    log = "log"


class Protocol(str, Enum):
    """Ways to draw held-out users."""

    public = "public"
    seeded = "seeded"


@dataclass
class Draw(Flags):
    """Which users and items are kept, and which are held out."""

    heldout: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --by user: number of validation users. The number of test users is the same. "
            "[dim]\\[default: a tenth of the users, at most 10,000][/dim]",
        ),
    ] = None
    min_user: Annotated[int, typer.Option(min=0, help="Drop users with fewer items than this (after --min-item).")] = 5
    min_item: Annotated[int, typer.Option(min=0, help="Drop items with fewer users than this.")] = 0
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="With --by user: how users and items are drawn. public: as in Liang et al. 2018, so that results can "
            "be compared with papers. seeded: at random, by --seed and --share."
        ),
    ] = Protocol.public
    share: Annotated[
        float,
        typer.Option(
            help="Share of the items of a held-out user that the model has to find. --protocol public fixes it at 0.2."
        ),
    ] = 0.2
    cold_share: Annotated[
        float,
        typer.Option(
            help="With --by item: share of the items that are held out for validation. The same number of other "
            "items is held out for the test."
        ),
    ] = 0.1
    recency: Annotated[
        bool, typer.Option("--recency", help="With --by interaction: hold out the newest items of each user.")
    ] = False
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed, for --by interaction, --by item and --protocol seeded.")
    ] = 0

    def limits(self) -> dict[str, int]:
        """Return the least numbers of items and users, as the library takes them."""
        return {"min_user": self.min_user, "min_item": self.min_item}


@dataclass
class Cuts(Flags):
    """Set the times at which validation and test data begin."""

    validation_from: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="With --by time: start of the validation period, a number or a date."),
    ] = None
    test_from: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="With --by time: start of the test period. "
            "[dim]\\[default: when the last tenth of the events begins][/dim]",
        ),
    ] = None


def split(
    data: Annotated[str, typer.Argument(metavar="FILE", help=DATA_HELP)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the split to.")],
    *,
    session: Session,
    reading: Reading,
    by: Annotated[
        By,
        typer.Option(
            help="What to hold out. user: whole users, as most papers do. interaction: some items of every user. "
            "time: the latest events. item: all interactions of some items, as if these were new."
        ),
    ] = By.user,
    draw: Draw,
    reweight: Annotated[
        SplitReweight | None,
        typer.Option(help="Transform the weights w given by --weight: log replaces w by log2(1 + w)."),
    ] = None,
    cuts: Cuts,
) -> None:
    """Split events into training, validation and test data, and store them in a folder.

    Other commands, such as fit and evaluate, read this folder. If it already holds a split, that split is replaced;
    other files in the folder are kept.

    [dim]Examples:[/dim]

      fairmf split events.csv -o split

      fairmf split ratings.csv -o split --rating-above 3.5 --heldout 1000

      fairmf split plays.csv -o split --protocol seeded --weight plays --reweight log

      fairmf split events.parquet -o by-time --by time --test-from 2024-01-01

      fairmf split events.parquet -o new-items --by item --cold-share .1
    """
    if output.exists() and not output.is_dir():
        raise Problem(f"{output} is a file; a split is a folder.", "choose another folder with --output")
    _check_weights(by, draw, reading)
    decay = reading.decay()
    events = read_events(data, reading, session, time=by is By.time or draw.recency or decay is not None)
    with session.busy("split"):
        if by is By.time:
            made = _by_time(events if decay is None else decay.decayed(events), draw, cuts, session)
        elif by is By.interaction:
            kept = _merged(events.at_least(**draw.limits()), reading.weight, decay, draw.recency)
            share = {"target_share": draw.share, "random_state": draw.seed}
            made = split_by_interaction(kept, **share, recency=draw.recency)  # type: ignore[arg-type]
        elif by is By.item:
            kept = _merged(events.at_least(**draw.limits()), reading.weight, decay)
            made = split_by_item(kept, cold_share=draw.cold_share, target_share=draw.share, random_state=draw.seed)
        else:
            made = _by_user(events, reading.weight, draw, decay)
        made = made if reweight is None else _log_weights(made)
    with session.busy("write"):
        made.save(output)
    # The record stores the number that was chosen, so that it repeats this split.
    session.run.settings["heldout"] = made.test.n_users if by is By.user else None
    for name, part in (("train", made.train), ("validation", made.validation.targets), ("test", made.test.targets)):
        session.uses(name, part)
    session.record_beside(output)
    session.result |= {"output": str(output), "method": made.method, "parts": made.summary()}
    dropped = _dropped(events, made, draw)
    session.result["dropped"] = dropped
    for kind, count in dropped.items():
        if count:
            session.note(f"dropped {count:,} {_REASONS[kind].format(draw.min_user, draw.min_item)}")
    if not any(dropped.values()):
        session.note("dropped 0 users and 0 items")
    session.show(_table(made))
    session.note(f"split   {marked(output)}")


def _check_weights(by: By, draw: Draw, reading: Reading) -> None:
    weight, protocol = reading.weight, draw.protocol
    for flag, given in (("--weight", weight), ("--half-life", reading.half_life)):
        if given is not None and by is By.user and protocol is Protocol.public:
            raise Problem(f"The public protocol ignores weights, so {flag} does not apply.", "add --protocol seeded")
    if weight == "sum" and by is By.time:
        raise Problem(
            "--weight sum counts rows over all time, so training would see the test period.", "leave --weight out"
        )
    if draw.recency and by is not By.interaction:
        raise Problem("--recency is for --by interaction.", "--by time holds out the newest events of everybody")
    if draw.recency and weight == "sum":
        raise Problem("--recency takes the first row of each pair, so --weight sum does not apply.")


def _merged(events: Events, weight: str | None, decay: HalfLife | None, recency: bool = False) -> Events | Interactions:
    """Add up the rows of each pair if there are weights; without weights the first row of a pair counts.

    With `recency` the events stay rows with times, of which the first of each pair counts.
    """
    if recency:
        return events if decay is None else decay.decayed(events)
    if weight is None and decay is None:
        return events
    merging = None if weight is None else "sum" if weight == "sum" else "column"
    return Interactions.from_events(events, weights=merging, half_life=decay)


def _by_user(events: Events, weight: str | None, draw: Draw, decay: HalfLife | None) -> Split:
    if draw.protocol is Protocol.public and (draw.share != 0.2 or draw.seed != 0):
        raise Problem("The public protocol fixes --share and --seed.", "add --protocol seeded to choose them")
    heldout = draw.heldout
    if heldout is None:
        left = len(events.at_least(**draw.limits()).compact().user_ids)
        if left < 3:
            few = f"Only {left} users are left with --min-user {draw.min_user} and --min-item {draw.min_item}"
            raise Problem(f"{few}: too few to split.", "lower --min-user and --min-item")
        heldout = max(1, min(10_000, left // 10))  # 10,000 is the number of the published split of MovieLens-20M
    options: Record = {"target_share": draw.share, "random_state": draw.seed, **draw.limits()}
    return split_by_user(_merged(events, weight, decay), heldout, protocol=draw.protocol.value, **options)


def _log_weights(made: Split) -> Split:
    """Transform weights w to log2(1 + w), in the training data and in the histories of held-out users."""
    train = made.train.reweighted("log")
    parts = [
        HeldOut(train if p.fold_in is made.train else p.fold_in.reweighted("log"), p.targets, p.known_users)
        for p in (made.validation, made.test)
    ]
    return Split(train, parts[0], parts[1], made.method)


def _by_time(events: Events, draw: Draw, cuts: Cuts, session: Session) -> Split:
    if events.times is None:
        raise Problem("A split by time needs times, and no column looks like times.", "--time COLUMN")
    moments: Record = {"validation_from": _moment(cuts.validation_from), "test_from": _moment(cuts.test_from)}
    made = split_by_time(events.at_least(**draw.limits()), **moments)
    unit = events.time_unit or time_unit(events.times)
    if unit is not None and any(isinstance(moment, str) for moment in moments.values()):
        first, last = (date_text(time.item(), unit) for time in (events.times.min(), events.times.max()))
        session.note(f"times   {_UNITS[unit]} since 1970, {first} to {last} (UTC)")
        session.result["time_unit"] = unit
    return made


_REASONS = {
    "rare_items": "items with fewer than {1} users (--min-item {1})",
    "users_of_rare_items": "users who have no other items than those",
    "small_users": "users with fewer than {0} items (--min-user {0})",
    "items_of_small_users": "items that only those users have",
    "late_users": "users who have no event before the test period",
    "untrained_items": "items that no training user has: a model cannot learn them",
}
"""Why users and items are not in a split, in the order in which they are dropped."""


def _dropped(events: Events, made: Split, draw: Draw) -> dict[str, int]:
    """Count the users and items of the file that the split leaves out, by reason."""
    rare, kept = events.at_least(min_item=draw.min_item), events.at_least(**draw.limits())
    (users, items), (users_left, items_left), (users_kept, items_kept) = map(_counts, (events, rare, kept))
    found = (
        items - items_left, users - users_left, users_left - users_kept, items_left - items_kept,
        users_kept - made.test.n_users if made.method == "by_time" else 0, items_kept - made.train.n_items,
    )  # fmt: skip
    return dict(zip(_REASONS, found, strict=True))


def _counts(events: Events) -> tuple[int, int]:
    """Count the users and the items that have at least one row."""
    users = np.bincount(events.users, minlength=len(events.user_ids))
    return int(np.count_nonzero(users)), int(
        np.count_nonzero(np.bincount(events.items, minlength=len(events.item_ids)))
    )


def _moment(text: str | None) -> int | float | str | None:
    """Read a number where the text is one; the library reads dates."""
    if text is None or _NUMBER.fullmatch(text) is None:
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _table(made: Split) -> Table:
    caption = "scored: users with at least one held-out item; targets: their held-out items"
    table = Table(caption=caption, caption_justify="left")
    rows = made.summary()
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "part" else "right")
    for row in rows:
        cells = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values())
        table.add_row(*cells)
    return table
