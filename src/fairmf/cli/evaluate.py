"""`fairmf evaluate MODEL SPLIT`: measure accuracy for users and exposure of items, of a model or of lists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.catalogue import Catalogue, GroupsOfItems
from fairmf.cli.errors import Problem
from fairmf.cli.level_flags import Served, level_facts, level_name
from fairmf.cli.options import Flags, Intervals, comma_list, integers
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted, read_split
from fairmf.cli.terminal import marked
from fairmf.data.ids import written_id
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.data.split_io import is_split
from fairmf.metrics.evaluate import Evaluation, evaluate_lists
from fairmf.metrics.evaluate import evaluate as measure
from fairmf.metrics.registry import parse_metric
from fairmf.metrics.sentences import told_cold
from fairmf.types import Record


class Part(str, Enum):
    """The held-out users of a split that can be measured on."""

    test = "test"
    validation = "validation"


class Missing(str, Enum):
    """Treat users who have test items but no list as an error, as zeros, or leave them out."""

    error = "error"
    zero = "zero"
    drop = "drop"


PANEL = "Lists of other programs"


@dataclass
class Wanted(Flags):
    """Choose the users, the lengths of the lists and the metrics."""

    part: Annotated[Part, typer.Option(help="Held-out users to measure on.")] = Part.test
    at: Annotated[str, typer.Option(metavar="K,K,...", help="Lengths K of the lists to measure.")] = "20,50,100"
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Metrics to measure, such as ndcg@100,gini@20. 'usual' stands for the most common metrics, 'all' "
            "for all of them. [dim]\\[default: usual][/dim]",
        ),
    ] = None

    def arguments(self) -> Record:
        """Return lengths and metrics as the library's functions take them."""
        return {"at": integers("--at", self.at), "metrics": comma_list(self.metrics)}


@dataclass
class ItemGroups(Flags):
    """Groups of items, for metrics of groups."""

    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table (CSV, Parquet) with one row per item: its id and its group "
        "(seller, genre). It adds metrics of groups.")
    ] = None  # fmt: skip
    group_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of groups in the catalogue; guessed if not given.")
    ] = None

    def read(self, data: Interactions) -> GroupsOfItems | None:
        """Return the groups of every item of the data; None if no catalogue was given."""
        groups = Catalogue(self.catalogue, None, self.group_column).read(data)[1]
        if self.catalogue is not None and groups is None:
            raise Problem(f"{self.catalogue} has no column of groups that can be guessed.", "--group-column COLUMN")
        return groups


@dataclass
class Lists(Flags):
    """Lists that were made before, in place of a model."""

    lists: Annotated[
        Path | None,
        typer.Option(rich_help_panel=PANEL, metavar="FILE", help="Measure the lists in this file, not those of a "
        "model. A Parquet, Arrow or CSV file has the columns user, item, and rank or score. A JSON lines file has user "
        "and items. The ids must be those of SPLIT. With --lists, SPLIT can also be a file of test pairs (user, item).")
    ] = None  # fmt: skip
    train: Annotated[
        Path | None,
        typer.Option(rich_help_panel=PANEL, metavar="FILE", help="Training pairs (user, item), for metrics that need "
        "popularity. Default: those of SPLIT.")
    ] = None  # fmt: skip
    items: Annotated[
        Path | None,
        typer.Option(rich_help_panel=PANEL, metavar="FILE", help="Text file of all item ids, one per line, if SPLIT is "
        "a file. Default: all items that are in the lists, the test pairs and the training pairs together.")
    ] = None  # fmt: skip
    missing: Annotated[
        Missing,
        typer.Option(rich_help_panel=PANEL, help="What to do about users with test items but without a list. error: "
        "stop. zero: count their list as empty. drop: leave them out.")
    ] = Missing.error  # fmt: skip


def evaluate(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="A model written by fit; not with --lists.")
    ] = None,
    data: Annotated[
        str | None, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")
    ] = None,
    *,
    session: Session,
    wanted: Wanted,
    of_items: ItemGroups,
    lists: Lists,
    served: Served,
    intervals: Intervals,
) -> None:
    """Measure a model, or lists that any program made, on held-out users: accuracy and how evenly items are exposed.

    With --evenness, the lists are made at that evenness. The model is not trained again. Gini and coverage depend on
    the number of users: compare them only for the same users.

    [dim]Examples:[/dim]

      fairmf evaluate model.fairmf split

      fairmf evaluate model.fairmf split --evenness 0.3 --metrics ndcg@100,gini@20

      fairmf evaluate --lists lists.parquet split --json

      fairmf evaluate --lists lists.csv test.parquet --train train.parquet --at 10
    """
    part, options = wanted.part.value, wanted.arguments() | intervals.arguments()
    if lists.lists is not None:
        if any(value is not None for value in vars(served).values()):
            raise Problem("--lists are made already: --evenness and the like are for models.")
        if model is None or data is not None:
            raise Problem("With --lists, give one argument: the split, or a file of test pairs.")
        _evaluate_file(lists.lists, model, lists, of_items, options | {"part": part}, session)
        return
    given = [f"--{name}" for name in ("train", "items") if getattr(lists, name) is not None]
    if given:
        raise Problem(f"{given[0]} is for lists: it needs --lists FILE.")
    if model is None or data is None:
        raise Problem(
            f"Missing argument {'MODEL' if model is None else 'SPLIT'}.",
            "fairmf evaluate MODEL SPLIT, or fairmf evaluate --lists FILE SPLIT",
        )
    loaded = load_fitted(model, session)
    asked = served.read(loaded, model, session)
    split = read_split(data, None, session)
    held_out = getattr(split, part)
    groups = of_items.read(split.train)
    session.uses(part, held_out.fold_in)
    with session.timed("evaluate"), watched(loaded, held_out.n_users, session) as ranker:
        found = measure(ranker, held_out, train=split.train, groups=groups, evenness=asked, **options)
    session.result |= {"model": str(model), "part": part, **level_facts(loaded, asked)}
    session.record_beside(model)
    how = level_name(loaded, asked)
    _show(found, f"{how.capitalize()}, for", part, session)


def _evaluate_file(
    file: Path, place: Path, lists: Lists, of_items: ItemGroups, wanted: Record, session: Session
) -> None:
    """Measure the lists of a file on a split, or on a file of test pairs."""
    part = wanted.pop("part")
    options: Record = {"missing": lists.missing.value, **wanted}
    test: HeldOut | Path
    train: Interactions | Path | None
    if is_split(str(place)):
        if lists.items is not None:
            raise Problem("--items is for files of test pairs: a split has its own items.")
        split = read_split(str(place), None, session)
        held_out: HeldOut = getattr(split, part)
        test, train = held_out, split.train if lists.train is None else lists.train
        options["groups"] = of_items.read(split.train)
        session.uses(part, held_out.fold_in)
    else:
        if of_items.catalogue is not None:
            raise Problem("--catalogue needs a split, whose items it describes.")
        test, train = place, lists.train
        options["items"] = "union" if lists.items is None else _item_ids(lists.items)
    with session.timed("evaluate"):
        found = evaluate_lists(file, test, train=train, **options)
    session.result |= {"lists": str(file), "test": str(place), "part": part}
    session.record_beside(file)
    _show(found, f"Lists of {marked(file.name)}, for", part if isinstance(test, HeldOut) else "test", session)


def _item_ids(path: Path) -> list[int | str]:
    try:
        lines = path.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeError) as error:
        raise Problem(f"{path} cannot be read: {error}.") from None
    return [written_id(line.strip()) for line in lines if line.strip()]


def _show(found: Evaluation, how: str, part: str, session: Session) -> None:
    session.run.metrics = found.values
    session.result |= found.to_dict()
    users = f"{found.n_users:,} {part} users, {found.n_scored:,} of them with held-out items"
    ends = "; ± half the interval" if found.intervals else ""
    told = [] if not found.n_cold else [told_cold(found.n_cold, found.n_items)]
    session.show(metric_table(found), f"{how} {users}{ends}; ↑ higher is better", *told)


def metric_table(found: Evaluation) -> Table:
    """Show an Evaluation as a table: a row per metric, a column per K, intervals beside the values."""
    cutoffs = sorted({int(label.partition("@")[2]) for label in found.values})
    names = list(dict.fromkeys(label.partition("@")[0] for label in found.values))
    table = Table()
    table.add_column("metric", no_wrap=True)
    for K in cutoffs:
        table.add_column(f"@{K}", justify="right", no_wrap=True)
    for name in names:
        arrow = "↓" if parse_metric(f"{name}@{cutoffs[0]}").lower_is_better else "↑"
        table.add_row(f"{name} {arrow}", *(value_cell(found, f"{name}@{K}") for K in cutoffs))
    return table


def value_cell(found: Evaluation, label: str) -> str:
    """Return a metric and half its interval, if it has one."""
    if label not in found.values:
        return ""
    # Popularity is a count and may be large; all other metrics are at most 1.
    value = f"{found.values[label]:,.4g}" if abs(found.values[label]) >= 10 else f"{found.values[label]:.4f}"
    low, high = found.intervals.get(label, (0.0, 0.0))
    if low == high:  # all samples of users agree, as for shares that are 0 in every sample: that says nothing
        return value
    half = (high - low) / 2
    return f"{value} ± {half:,.2g}" if abs(found.values[label]) >= 10 else f"{value} ± {half:.4f}"
