"""`fairmf inspect FILE`: describe events before a model is trained on them, or a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from fairmf.cli.errors import Problem
from fairmf.cli.inspect_model import inspect_model, is_model
from fairmf.cli.session import Session
from fairmf.cli.sources import DATA_HELP, Reading, read_events
from fairmf.data.columns import date_text, time_unit
from fairmf.data.events import Events
from fairmf.data.interactions import Interactions
from fairmf.data.popularity import gini
from fairmf.types import Array, Record


def inspect(
    data: Annotated[str, typer.Argument(metavar="FILE", help=f"{DATA_HELP} Or a model written by fit.")],
    session: Session,
    reading: Reading,
) -> None:
    """Describe a file of events: how it is read, counts, popularity of items, repeated rows and possible problems.

    FILE can also be a model. Then inspect shows its settings and, if the model is calibrated, the Gini and
    the accuracy at each evenness.

    [dim]Examples:[/dim]

      fairmf inspect events.csv

      fairmf inspect ratings.dat --rating-above 3.5

      fairmf inspect model.fairmf

      fairmf inspect plays.tsv.gz --user 0 --item 2 --weight 3 --no-header

      fairmf inspect sqlite:///shop.db --query "SELECT customer AS user, product AS item FROM orders" --json
    """
    if is_model(data):
        if given := reading.given():
            raise Problem(f"{data} is a model, not events: {given[0]} does not apply to it.")
        inspect_model(Path(data), session)
        return
    events = read_events(data, reading, session, time=True)
    if (decay := reading.decay()) is not None:
        events = decay.decayed(events)
    with session.busy("count"):
        merged = Interactions.from_events(events)
        session.uses("data", merged)
        facts = describe(events, merged)
        facts["warnings"] = warnings_about(facts)
    session.result |= facts
    session.run.metrics = {name: value for name, value in facts.items() if isinstance(value, (int, float))}
    session.show(*_tables(facts))
    for warning in facts["warnings"]:
        session.warn(warning)


def describe(events: Events, merged: Interactions) -> Record:
    """Compute the counts and figures of the events, as plain values."""
    per_item = np.diff(merged.by_item.indptr)
    per_user = np.diff(merged.by_user.indptr)
    ordered = np.sort(per_item)[::-1]  # most popular item first
    total = int(per_item.sum())
    facts: Record = {
        "rows": len(events),
        "users": merged.n_users,
        "items": merged.n_items,
        "interactions": merged.nnz,
        "repeated_rows": len(events) - merged.nnz,
        "density": merged.nnz / (merged.n_users * merged.n_items),
        "per_user": _spread(per_user),
        "per_item": _spread(per_item),
        "popularity_gini": float(gini(per_item)),
        "top_1_percent_share": float(ordered[: max(1, round(0.01 * len(ordered)))].sum() / total),
        "top_10_percent_share": float(ordered[: max(1, round(0.10 * len(ordered)))].sum() / total),
        "bottom_half_share": float(ordered[len(ordered) - len(ordered) // 2 :].sum() / total),
        "items_with_one": int((per_item == 1).sum()),
        "users_below_five": int((per_user < 5).sum()),
        "user_ids": _kind(events.user_ids.values),
        "item_ids": _kind(events.item_ids.values),
    }
    if events.weights is not None:
        facts["weights"] = _spread(events.weights)
        facts["dislikes"] = int((events.weights < 0).sum())
    if events.times is not None:
        unit = events.time_unit or time_unit(events.times)
        facts["times"] = {"first": events.times.min().item(), "last": events.times.max().item(), "unit": unit}
    return facts


def warnings_about(facts: Record) -> list[str]:
    """Return warnings about likely mistakes and later problems."""
    found = []
    if facts["users"] < 10 or facts["items"] < 10:
        found.append(f"only {facts['users']:,} users and {facts['items']:,} items: are these the right columns?")
    if facts["items"] > 20 * facts["users"]:
        found.append(
            f"there are {facts['items'] / facts['users']:.0f} times as many items as users: are the columns swapped?"
        )
    if facts["users"] == facts["rows"] > 10:
        found.append(
            "every row has a different user: the user column may be a row number, and nothing can be learned from it."
        )
    if facts["repeated_rows"]:
        share = facts["repeated_rows"] / facts["rows"]
        found.append(
            f"{facts['repeated_rows']:,} rows ({share:.1%}) repeat a pair of user and item and count once; "
            "--weight sum counts all."
        )
    if facts["users_below_five"]:
        share = facts["users_below_five"] / facts["users"]
        found.append(f"{facts['users_below_five']:,} users ({share:.1%}) have fewer than 5 items: split drops them.")
    if facts.get("weights", {}).get("most", 0) > 100 * max(facts.get("weights", {}).get("median", 0), 1):
        found.append("a few weights are very large: consider fit --reweight log.")
    if facts["density"] > 0.5:
        found.append(
            f"{facts['density']:.0%} of all pairs are interactions. If they include low ratings, see --rating-above."
        )
    return found


def _spread(values: Array) -> dict[str, float]:
    numbers = np.asarray(values, dtype=np.float64)
    return {
        "least": float(numbers.min()),
        "median": float(np.median(numbers)),
        "mean": float(numbers.mean()),
        "most": float(numbers.max()),
    }


def _kind(values: Array) -> str:
    return (
        "integers" if values.dtype.kind in "iu" else "text" if isinstance(values[0], str) else type(values[0]).__name__
    )


def _tables(facts: Record) -> list[Table]:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    for name in ("rows", "users", "items", "interactions"):
        kind = {"users": facts["user_ids"], "items": facts["item_ids"]}.get(name)
        table.add_row(name, f"{facts[name]:,}", f"ids are {kind}" if kind else "")
    table.add_row("density", f"{facts['density']:.3%}", "of all pairs")
    for name, label in (("per_user", "items per user"), ("per_item", "users per item"), ("weights", "weights")):
        if name in facts:
            s = facts[name]
            rest = f"median (least {s['least']:,.6g}, mean {s['mean']:,.1f}, most {s['most']:,.6g})"
            table.add_row(label, f"{s['median']:,.6g}", rest)
    if "times" in facts:
        first, last = (date_text(facts["times"][end], facts["times"]["unit"]) for end in ("first", "last"))
        table.add_row("times", "", f"{first} to {last}")
    rest = f"Gini of the items, among {facts['users']:,} users (0: all equally popular, 1: one item has all)"
    table.add_row("popularity", f"{facts['popularity_gini']:.3f}", rest)
    table.add_row("", f"{facts['top_1_percent_share']:.1%}", "of the interactions are with the top 1 % of items")
    table.add_row("", f"{facts['top_10_percent_share']:.1%}", "with the top 10 %")
    table.add_row("", f"{facts['bottom_half_share']:.1%}", "with the less popular half")
    table.add_row("", f"{facts['items_with_one']:,}", "items have a single user")
    return [table]
