"""Example users: chosen by rule, from those whose lists change most to those whose lists change least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.reporting.content import Catalogue, Example
from fairmf.splitting import HeldOut

LISTED = 10  # places of a list that are shown
HISTORY = 8  # items of a history that are shown: the least popular, which tell most about a taste

Lists = NDArray[np.integer]


def choose(before: Lists, after: Lists, held_out: HeldOut, count: int) -> NDArray[np.int64]:
    """Rows of `count` users, evenly spread over how much of their list changes, most changed first.

    Only users with a history are asked, and those with targets before others.
    """
    history, targets = (np.diff(part.by_user.indptr) for part in (held_out.fold_in, held_out.targets))
    for candidates in (np.flatnonzero((history > 0) & (targets > 0)), np.flatnonzero(history > 0)):
        if len(candidates) >= count:
            break
    kept = shared(before[candidates, :LISTED], after[candidates, :LISTED])
    order = candidates[np.argsort(kept, kind="stable")]
    if count == 0 or not len(order):
        return np.zeros(0, dtype=np.int64)
    places = np.linspace(0, len(order) - 1, min(count, len(order)))
    return order[np.round(places).astype(np.int64)].astype(np.int64)


def shared(before: Lists, after: Lists) -> NDArray[np.int64]:
    """How many items each list has in common with the other one."""
    found = np.zeros(len(before), dtype=np.int64)
    for column in before.T:  # place by place: nothing larger than the lists themselves
        found += (column[:, None] == after).any(axis=1) & (column >= 0)
    return found


def described(rows: NDArray[np.int64], held_out: HeldOut, catalogue: Catalogue) -> tuple[Example, ...]:
    """The example users, numbered: their ids stay out of the page."""
    found = []
    for number, row in enumerate(rows.tolist(), start=1):
        history, targets = (part.by_user.block(row, row + 1).indices for part in (held_out.fold_in, held_out.targets))
        if catalogue.popularity is not None:
            history = history[np.argsort(catalogue.popularity[history], kind="stable")]
        found.append(Example(f"User {number}", tuple(history.tolist()), tuple(targets.tolist())))
    return tuple(found)
