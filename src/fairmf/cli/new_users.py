"""Events of users a model does not know, as histories over the model's items."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairmf.cli.failures import Problem
from fairmf.cli.reading import Reading, read_events

if TYPE_CHECKING:
    from fairmf.cli.session import Session
    from fairmf.interactions import Interactions


def read_histories(source: str, model: Any, reading: Reading, session: Session) -> tuple[Any, Interactions]:
    """The source's users and a row for each, over the items of the model; events of other items are left out."""
    import numpy as np

    from fairmf.interactions import Events, Interactions

    items = model.fitted.item_ids
    if items is None:
        raise Problem("This model has no item ids, so the events of a file cannot be told apart.", "fit it on a file")
    text = items.values.dtype.kind not in "iu"
    events = read_events(source, replace(reading, text_ids=reading.text_ids or text), session)
    place = np.array([items.position(item) if item in items else -1 for item in events.item_ids.values.tolist()])
    column = place[events.items]
    known = column >= 0
    if not known.any():
        raise Problem(
            f"None of the {len(events.item_ids):,} items in {source} is known to the model.",
            "are --user and --item the right columns?",
        )
    if not known.all():
        session.warn(f"{int((~known).sum()):,} of {len(known):,} events are on items the model does not know.")
    weights = None if events.weights is None else events.weights[known]
    kept = Events(events.users[known], column[known], events.user_ids, items, weights)
    merging = "sum" if reading.weight == "sum" else "column" if weights is not None else None
    return events.user_ids.values, Interactions.from_events(kept, weights=merging)
