"""`fairmf split FILE -o FOLDER`: training, validation and test, stored for fit, evaluate and the others."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.session import Session
from fairmf.cli.sources import DATA_HELP, Reading, read_events
from fairmf.cli.terminal import marked
from fairmf.data.columns import date_text, time_unit
from fairmf.data.events import Events
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.data.split_methods import split_by_interaction, split_by_time, split_by_user

_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class By(str, Enum):
    """Ways to divide."""

    user = "user"
    interaction = "interaction"
    time = "time"


class Reweight(str, Enum):
    """Other confidences."""

    log = "log"


class Protocol(str, Enum):
    """Ways to draw held-out users."""

    public = "public"
    seeded = "seeded"


def split(
    data: Annotated[str, typer.Argument(metavar="FILE", help=DATA_HELP)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the split to.")],
    session: Session,
    reading: Reading,
    by: Annotated[
        By,
        typer.Option(
            help="user: whole users are held out (the published protocol). interaction: part of what every user did. "
            "time: what came last."
        ),
    ] = By.user,
    heldout: Annotated[
        int | None,
        typer.Option(
            min=1, help="By user: users each for validation and test. [dim]\\[default: a tenth, 10,000 at most][/dim]"
        ),
    ] = None,
    min_user: Annotated[int, typer.Option(min=0, help="Drop users with fewer items, after --min-item.")] = 5,
    min_item: Annotated[int, typer.Option(min=0, help="Drop items with fewer users.")] = 0,
    protocol: Annotated[
        Protocol, typer.Option(help="By user: public repeats the published draw; seeded takes --seed and --share.")
    ] = Protocol.public,
    share: Annotated[float, typer.Option(help="Share of what a held-out user did that is to be found.")] = 0.2,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the draw (by interaction; by user with --protocol seeded).")
    ] = 0,
    reweight: Annotated[
        Reweight | None, typer.Option(help="Confidences as log2(1 + c) instead of as they are; with --weight.")
    ] = None,
    validation_from: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="By time: where validation begins. A number or a date.")
    ] = None,
    test_from: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="By time: where test begins. [dim]\\[default: the last tenth][/dim]"),
    ] = None,
) -> None:
    """Divide events into training, validation and test data, and store them in a folder.

    fit, evaluate and the others read the folder. Another split of the same name is replaced in one step; other files
    in the folder stay.

    [dim]Examples:[/dim]

      fairmf split events.csv -o split

      fairmf split ratings.csv -o split --rating-above 3.5 --heldout 1000

      fairmf split plays.csv -o split --protocol seeded --weight plays --reweight log

      fairmf split events.parquet -o by-time --by time --test-from 2024-01-01
    """
    if output.exists() and not output.is_dir():
        raise Problem(f"{output} is a file; a split is a folder.", "name another folder with --output")
    _check_weights(by, protocol, reading.weight)
    events = read_events(data, reading, session, time=by is By.time)
    with session.busy("split"):
        if by is By.time:
            made = _by_time(events, min_user, min_item, validation_from, test_from, session)
        elif by is By.interaction:
            kept = events.at_least(min_user=min_user, min_item=min_item)
            made = split_by_interaction(_merged(kept, reading.weight), target_share=share, random_state=seed)
        else:
            limits = {"min_user": min_user, "min_item": min_item}
            made = _by_user(events, reading.weight, heldout, limits, protocol.value, share, seed)
        made = made if reweight is None else _log_weights(made)
    with session.busy("write"):
        made.save(output)
    session.run.settings["heldout"] = made.test.n_users if by is By.user else None
    for name, part in (("train", made.train), ("validation", made.validation.targets), ("test", made.test.targets)):
        session.uses(name, part)
    session.record_beside(output)
    session.result |= {"output": str(output), "method": made.method, "parts": made.summary()}
    session.show(_table(made))
    session.note(f"split   {marked(output)}")


def _check_weights(by: By, protocol: Protocol, weight: str | None) -> None:
    if weight is not None and by is By.user and protocol is Protocol.public:
        raise Problem("The public protocol makes binary data, so --weight would be lost.", "add --protocol seeded")
    if weight == "sum" and by is By.time:
        raise Problem("--weight sum counts rows over all time, which a split by time must not.", "drop --weight")


def _merged(events: Events, weight: str | None) -> Events | Interactions:
    """Rows of the same pair added up, where there are weights; without weights the first row of a pair counts."""
    if weight is None:
        return events
    return Interactions.from_events(events, weights="sum" if weight == "sum" else "column")


def _by_user(
    events: Events,
    weight: str | None,
    heldout: int | None,
    limits: dict[str, Any],
    protocol: str,
    share: float,
    seed: int,
) -> Split:
    if protocol == "public" and (share != 0.2 or seed != 0):
        raise Problem("The public protocol fixes --share and --seed.", "add --protocol seeded to choose them")
    if heldout is None:
        left = len(events.at_least(**limits).compact().user_ids)
        if left < 3:
            few = f"Only {left} users are left with --min-user {limits['min_user']} and --min-item {limits['min_item']}"
            raise Problem(f"{few}, which cannot be split.", "lower --min-user and --min-item")
        heldout = max(1, min(10_000, left // 10))
    options: dict[str, Any] = {"protocol": protocol, "target_share": share, "random_state": seed}
    return split_by_user(_merged(events, weight), heldout, **limits, **options)


def _log_weights(made: Split) -> Split:
    """Confidences log2(1 + c), in train and in what is shown of held-out users alike."""
    train = made.train.reweighted("log")
    parts = [
        HeldOut(train if p.fold_in is made.train else p.fold_in.reweighted("log"), p.targets, p.known_users)
        for p in (made.validation, made.test)
    ]
    return Split(train, parts[0], parts[1], made.method)


def _by_time(
    events: Events, min_user: int, min_item: int, validation_from: str | None, test_from: str | None, session: Session
) -> Split:
    if events.times is None:
        raise Problem("A split by time needs times, and no column looks like one.", "--time COLUMN")
    cuts = {"validation_from": _moment(validation_from), "test_from": _moment(test_from)}
    made = split_by_time(events.at_least(min_user=min_user, min_item=min_item), **cuts)
    unit = events.time_unit or time_unit(events.times)
    if unit is not None and any(isinstance(cut, str) for cut in cuts.values()):
        first, last = (date_text(time.item(), unit) for time in (events.times.min(), events.times.max()))
        session.note(f"times   {_UNITS[unit]} since 1970, {first} to {last} (UTC)")
        session.result["time_unit"] = unit
    return made


def _moment(text: str | None) -> Any:
    """A number where it is one; dates are understood by the split itself."""
    if text is None or _NUMBER.fullmatch(text) is None:
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _table(made: Split) -> Any:
    from rich.table import Table

    table = Table(
        caption="scored: users with at least one held-out item; targets: their held-out items", caption_justify="left"
    )
    rows = made.summary()
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "part" else "right")
    for row in rows:
        cells = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values())
        table.add_row(*cells)
    return table
