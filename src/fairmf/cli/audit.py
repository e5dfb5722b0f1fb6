"""`fairmf audit MODEL SPLIT`: who gains, who loses, and what it costs, between two rankings of the same users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairmf.cli.catalogue import NO_GROUP, read_catalogue
from fairmf.cli.errors import Problem
from fairmf.cli.evaluate import Part
from fairmf.cli.options import comma_list
from fairmf.cli.output import ENDINGS_HELP, SafeCsv, check_output, check_table_output, write_table
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, load_fitted, read_split
from fairmf.cli.terminal import marked
from fairmf.io.atomic import replacing

if TYPE_CHECKING:
    from fairmf.data.split import HeldOut


def audit(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that fit has stored: what there was before.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    session: Session,
    after: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="What comes after. Default: the same model, dialled.")
    ] = None,
    before_fairness: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Dial of the model before. Default with one model: 0.")
    ] = None,
    after_fairness: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Dial of the model after. Default: what it serves with.")
    ] = None,
    at: Annotated[int, typer.Option(min=1, help="Length of the lists.")] = 20,
    quality: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Accuracy compared user by user. Default: ndcg and recall of the lists."),
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A table (CSV, Parquet) with a row per item: its id, its name, its group."),
    ] = None,
    name_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The catalogue's column of names; found if not given.")
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The catalogue's column of groups (seller, genre); found if not given."),
    ] = None,
    part: Annotated[Part, typer.Option(help="Which held-out users.")] = Part.test,
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the users for the intervals; 0 for none.")] = 200,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    top: Annotated[int, typer.Option(min=0, help="Gainers and losers to list.")] = 10,
    items_output: Annotated[
        Path | None, typer.Option("--items", metavar="FILE", help=f"Write every item's exposure: {ENDINGS_HELP}.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all findings as JSON to this file.")
    ] = None,
    safe_csv: SafeCsv = True,
) -> None:
    """Compare two rankings for the same users: exposure of items and groups, and what each user's list is worth.

    With one model, its dial at 0 is held against what it serves with; with --after, two models against each other.

    [dim]Examples:[/dim]

      fairmf audit model.fairmf split

      fairmf audit model.fairmf split --after-fairness 3 --catalogue items.csv --group-column seller

      fairmf audit old.fairmf split --after new.fairmf -o audit.json
    """
    from fairmf.metrics.audit import audit as compare

    for place, check in ((items_output, check_table_output), (output, _check_json)):
        if place is not None:
            check(place)
    loaded = load_fitted(model, session)
    later = loaded if after is None else load_fitted(after, session)
    split = read_split(data, None, session)
    if after is None and before_fairness is None:
        before_fairness = 0.0
    for side, path, psi, name in (
        (loaded, model, before_fairness, "before"),
        (later, after or model, after_fairness, "after"),
    ):
        if psi is not None:
            check_dial(side, path, f"--{name}-fairness")
    held_out = getattr(split, part.value)
    session.uses(part.value, held_out.fold_in)
    facts = _facts(held_out, catalogue, name_column, group_column, session)
    sides = [
        _called(m, path, psi)
        for m, path, psi in ((loaded, model, before_fairness), (later, after or model, after_fairness))
    ]
    with (
        session.timed("audit"),
        watched(loaded, held_out.n_users, session, sides[0]) as first,
        watched(later, held_out.n_users, session, sides[1]) as second,
    ):
        found = compare(
            first, second, held_out, at=at, quality=comma_list(quality), train=split.train, **facts,
            before_options=_dial(before_fairness), after_options=_dial(after_fairness), before_name=sides[0],
            after_name=sides[1], bootstrap=bootstrap, confidence=confidence, random_state=seed,
        )  # fmt: skip
    if items_output is not None:
        write_table(found.items_table(), items_output, safe_csv)
    _report(found, session, model, output, items_output, top)


def _check_json(path: Path) -> None:
    if path.suffix.lower() != ".json":
        raise Problem(f"The findings are written as JSON, and {path} does not end so.", "-o audit.json")
    check_output(path)


def _called(model: Any, path: Path, fairness: float | None) -> str:
    """What a side is called in sentences."""
    served = getattr(model.fitted, "fairness", None) if fairness is None else fairness
    return path.stem if served is None else f"{path.stem} at fairness {served:g}"


def _dial(fairness: float | None) -> dict[str, float] | None:
    return None if fairness is None else {"fairness": fairness}


def _facts(
    held_out: HeldOut, catalogue: Path | None, name_column: str | None, group_column: str | None, session: Session
) -> dict[str, Any]:
    """The names and the groups of items, as the library takes them."""
    if catalogue is None:
        for flag, value in (("--name-column", name_column), ("--group-column", group_column)):
            if value is not None:
                raise Problem(f"{flag} is a column of a catalogue, and none was given.", "--catalogue FILE")
        return {}
    data = held_out.fold_in
    names, groups = read_catalogue(catalogue, data.item_ids, data.n_items, name_column, group_column)
    if groups is not None and (without := groups.count(NO_GROUP)):
        session.warn(f"{without:,} of {data.n_items:,} items have no group in {catalogue}.")
    return {name: facts for name, facts in (("names", names), ("groups", groups)) if facts is not None}


def _report(
    found: Any, session: Session, model: Path, output: Path | None, items_output: Path | None, top: int
) -> None:
    session.run.metrics = {label: change.to_dict() for label, change in found.metrics.items()}
    session.result |= found.to_dict(top=top)
    if output is not None:
        with replacing(output) as file:
            file.write(found.to_json(top=top).encode())
        session.note(f"audit   {marked(output)}")
    if items_output is not None:
        session.note(f"items   {marked(items_output)}")
    session.record_beside(model if output is None else output)
    session.show(*(marked(sentence) for sentence in found.statements()))
    if found.groups:
        session.show(_group_table(found.groups))
    for title, changes in (("gain most", found.gainers(top)), ("lose most", found.losers(top))):
        if changes:
            session.show(_item_table(title, changes))


def _group_table(groups: Any) -> Any:
    from rich.table import Table

    table = Table("group", title="exposure of groups", title_justify="left")
    for name in ("items", "before", "after", "change"):
        table.add_column(name, justify="right")
    for group in sorted(groups, key=lambda g: -abs(g.share.difference)):
        share = group.share
        cells = f"{share.before:.2%}", f"{share.after:.2%}", f"{100 * share.difference:+.2f} points"
        table.add_row(marked(group.group), f"{group.n_items:,}", *cells)
    return table


def _item_table(title: str, changes: Any) -> Any:
    from rich.table import Table

    table = Table("item", title=f"items that {title}", title_justify="left", caption="users who have it in their list")
    for name in ("before", "after"):
        table.add_column(name, justify="right")
    for change in changes:
        table.add_row(marked(change.name), f"{change.before:,}", f"{change.after:,}")
    return table
