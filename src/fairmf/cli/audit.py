"""`fairmf audit MODEL SPLIT`: compare two rankings for the same users: who gains, who loses, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from rich.table import Table

from fairmf.cli.catalogue import NO_GROUP, Catalogue
from fairmf.cli.errors import Problem
from fairmf.cli.evaluate import Part
from fairmf.cli.level_flags import Asked, Served, level_facts, level_name
from fairmf.cli.options import Flags, Intervals, comma_list
from fairmf.cli.output import ENDINGS_HELP, SafeCsv, check_output, check_table_output, write_table
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted, read_split
from fairmf.cli.terminal import marked
from fairmf.data.split import HeldOut
from fairmf.io.atomic import replacing
from fairmf.metrics.audit import audit as compare
from fairmf.metrics.audit_result import Audit, ColdChange, GroupChange, ItemChange
from fairmf.metrics.sentences import SHARE, shown_change, written
from fairmf.models.evenness import Level
from fairmf.models.factor_model import FactorModel
from fairmf.types import Record

EVENNESS = 0.3
"""The evenness that a model without one is compared with, if none is given."""


@dataclass
class Compared(Flags):
    """The two rankings, and what is compared."""

    after: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="The model after the change. Default: the same model, at another evenness."),
    ] = None
    at: Annotated[int, typer.Option(min=1, help="Length of the lists to compare.")] = 20
    quality: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Accuracy metrics to compare for each user. Default: nDCG and recall of the lists."
        ),
    ] = None
    part: Annotated[Part, typer.Option(help="Held-out users whose lists are compared.")] = Part.test


@dataclass
class Before(Served):
    """The level before the change."""

    side: ClassVar[str] = "before"
    otherwise: ClassVar[str] = (
        "no evenness, and no fairness (as with --before-fairness 0). With --after, the default is the "
        "evenness that fairmf target stored in MODEL. If there is none, MODEL's own scores are used"
    )


@dataclass
class After(Served):
    """The level after the change."""

    side: ClassVar[str] = "after"
    otherwise: ClassVar[str] = (
        "the evenness that fairmf target stored in the model. If there is none, it depends on the lists before the "
        "change. If these use an evenness, the lists after the change use the model's own scores. If not, the default "
        "is 0.3, so that the lists differ"
    )


@dataclass
class Written(Intervals):
    """Set the intervals, how many items are printed, and the files to write."""

    top: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many rows to show in each table: items that gain most, items that lose most, and groups "
            "whose share of exposure changes most.",
        ),
    ] = 10
    items_output: Annotated[
        Path | None,
        typer.Option("--items", metavar="FILE", help=f"Write the exposure of every item to this file: {ENDINGS_HELP}."),
    ] = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all results to this file, as JSON.")
    ] = None
    safe_csv: SafeCsv = True

    def check(self) -> None:
        """Raise a Problem or CannotWrite before any work is done."""
        if self.items_output is not None:
            check_table_output(self.items_output)
        if self.output is not None and self.output.suffix.lower() != ".json":
            raise Problem(
                f"The results are written as JSON, so the name of {self.output} must end in .json.", "-o audit.json"
            )
        if self.output is not None:
            check_output(self.output)


def audit(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model before the change, written by fit.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    *,
    session: Session,
    compared: Compared,
    earlier: Before,
    later: After,
    catalogue: Catalogue,
    written: Written,
) -> None:
    """Compare two sets of lists for the same users: who gains exposure, who loses it, and how accuracy changes.

    With one model, audit compares its lists at --before-evenness with its lists at --after-evenness. Without
    --before-evenness, the lists before the change use the model's own scores, which can differ from evenness 0. With
    --after, audit compares the lists of two models.

    [dim]Examples:[/dim]

      fairmf audit model.fairmf split --after-evenness 0.3

      fairmf audit model.fairmf split --after-evenness 0.3 --catalogue items.csv --group-column seller

      fairmf audit old.fairmf split --after new.fairmf -o audit.json
    """
    written.check()
    before = load_fitted(model, session)
    after = before if compared.after is None else load_fitted(compared.after, session)
    split = read_split(data, None, session)
    paths = model, compared.after or model
    levels = _levels((before, after), paths, (earlier, later), session)
    held_out = getattr(split, compared.part.value)
    session.uses(compared.part.value, held_out.fold_in)
    facts = _facts(held_out, catalogue, session)
    names = [
        f"{path.name} {level_name(side, asked)}"
        for side, path, asked in zip((before, after), paths, levels, strict=True)
    ]
    with (
        session.timed("audit"),
        watched(before, held_out.n_users, session, names[0]) as first,
        watched(after, held_out.n_users, session, names[1]) as second,
    ):
        found = compare(
            first, second, held_out, at=compared.at, quality=comma_list(compared.quality), train=split.train, **facts,
            before_options={"evenness": levels[0]}, after_options={"evenness": levels[1]}, before_name=names[0],
            after_name=names[1], **written.arguments(),
        )  # fmt: skip
    session.result |= {
        f"{side}_level": level_facts(of, asked)
        for side, of, asked in zip(("before", "after"), (before, after), levels, strict=True)
    }
    _report(found, session, model, written)


def _levels(
    models: tuple[FactorModel, FactorModel], paths: tuple[Path, Path], flags: tuple[Served, Served], session: Session
) -> tuple[Asked, Asked]:
    """Return the levels of both sides. One model alone is compared with itself without evenness."""
    before, after = (side.read(model, path, session) for side, model, path in zip(flags, models, paths, strict=True))
    if models[0] is not models[1]:
        return before, after
    if not flags[0].given():
        fitted, has_dial = models[0].fitted, hasattr(models[0], "with_fairness")
        # Learned offsets hold at the level they were learned at, so that they stay on both sides.
        items = (0.0, 0.0, 0.0) if fitted.item_offsets is None else fitted.served().on_items
        before = Level(0.0 if has_dial else None, *items)
        if not flags[1].given() and fitted.item_offsets is None and fitted.served(before) == fitted.served(after):
            after = EVENNESS
            session.note(f"level   {paths[0].name} without evenness is compared with evenness {EVENNESS:g}")
    if models[0].fitted.served(before) == models[0].fitted.served(after):
        raise Problem(
            f"Both sides are {paths[0].name} {level_name(models[0], after)}: there is nothing to compare.",
            "--after-evenness 0.3, or another model: --after MODEL",
        )
    return before, after


def _facts(held_out: HeldOut, catalogue: Catalogue, session: Session) -> Record:
    """Return the names and the groups of items that are known, as arguments of `compare`."""
    names, groups = catalogue.read(held_out.fold_in)
    if groups is not None and (without := sum(group in (NO_GROUP, [NO_GROUP]) for group in groups)):
        session.warn(f"{without:,} of {len(groups):,} items have no group in {catalogue.catalogue}.")
    return {name: facts for name, facts in (("names", names), ("groups", groups)) if facts is not None}


def _report(found: Audit, session: Session, model: Path, written: Written) -> None:
    output, items_output, top = written.output, written.items_output, written.top
    session.run.metrics = {label: change.to_dict() for label, change in found.metrics.items()}
    session.result |= found.to_dict(top=top)
    if items_output is not None:
        write_table(found.items_table(), items_output, written.safe_csv)
    if output is not None:
        with replacing(output) as file:
            file.write(found.to_json(top=top).encode())
        session.note(f"audit   {marked(output)}")
    if items_output is not None:
        session.note(f"items   {marked(items_output)}")
    session.record_beside(model if output is None else output)
    session.show(*(marked(sentence) for sentence in found.statements()))
    if found.cold is not None:
        session.show(_cold_table(found.cold))
    if found.groups and top > 0:
        session.show(_group_table(found.groups, top))
    for title, changes in (("gain most", found.gainers(top)), ("lose most", found.losers(top))):
        if changes:
            session.show(_item_table(title, changes))


def _cold_table(cold: ColdChange) -> Table:
    """Show what the items without interactions get, beside their share of the catalogue."""
    title = f"items without interactions in training: {cold.n_cold:,}, {cold.of_catalogue:.2%} of the catalogue"
    table = Table("", title=title, title_justify="left")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right")
    rows = [("share of exposure", cold.share), *([] if cold.recall is None else [("held-out ones found", cold.recall)])]
    for name, change in rows:
        cells = f"{change.before:.2%}", f"{change.after:.2%}", f"{100 * change.difference:+.2f} points"
        table.add_row(name, *cells)
    return table


def _group_table(groups: Sequence[GroupChange], top: int) -> Table:
    """Show the groups whose share of exposure changes most."""
    hidden = len(groups) - top
    caption = f"{hidden:,} more groups change less; --top {len(groups)} shows all" if hidden > 0 else None
    table = Table("group", title="exposure of groups", title_justify="left", caption=caption, caption_justify="left")
    for name in ("items", "before", "after", "change"):
        table.add_column(name, justify="right")
    for group in sorted(groups, key=lambda g: -abs(g.share.difference))[:top]:
        share = group.share
        cells = written(SHARE, share.before), written(SHARE, share.after), shown_change(SHARE, share)
        table.add_row(marked(group.group), f"{group.n_items:,}", *cells)
    return table


def _item_table(title: str, changes: Sequence[ItemChange]) -> Table:
    table = Table(
        "item", title=f"items that {title}", title_justify="left", caption="number of users whose list holds the item"
    )
    for name in ("before", "after"):
        table.add_column(name, justify="right")
    for change in changes:
        table.add_row(marked(change.name), f"{change.before:,}", f"{change.after:,}")
    return table
