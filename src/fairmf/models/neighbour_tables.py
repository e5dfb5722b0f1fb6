"""Make tables for look-up by other programs: the nearest items or users of each, and the most popular items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairmf.data.ids import named
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.models.progress import progress_bar
from fairmf.params import check_count
from fairmf.types import Array

if TYPE_CHECKING:
    import pyarrow as pa

    from fairmf.models.factor_model import FactorModel
else:
    pa = lazy_module("pyarrow")

ROWS_AT_ONCE = 4096


def similar_table(
    model: FactorModel,
    what: str = "items",
    N: int = 20,
    titles: Sequence[str] | None = None,
    *,
    progress: bool | None = None,
) -> pa.Table:
    """Return the N nearest neighbours of every item or user by cosine, without itself, as a table.

    Parameters
    ----------
    model
        A fitted model of factors.
    what
        "items" or "users".
    N
        Neighbours of each.
    titles
        A title for every item; the table then has the columns title and neighbour_title.
    progress
        Show a progress bar; None shows it on a terminal.

    Returns
    -------
    An Arrow table with the columns item (or user), neighbour, similarity and rank (from 1). Items and users without
    interactions have no neighbours, so no rows.

    Raises
    ------
    InvalidParameter
        If `what` is something else, or N is not a whole number of at least 1.

    Examples
    --------
    >>> from fairmf import IALS, synthetic
    >>> model = IALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> similar_table(model, "items", 3).column_names
    ['item', 'neighbour', 'similarity', 'rank']
    """
    if what not in ("items", "users"):
        raise InvalidParameter(f"'what' must be items or users. Got {what!r} instead.", parameter="what")
    check_count("similar_table", "N", N)
    _check_titles(titles, model.n_items)
    fitted, of_items = model.fitted, what == "items"
    if not of_items:
        fitted.check_users("a table of similar users")
    ids, count = (fitted.item_ids, model.n_items) if of_items else (fitted.user_ids, model.n_users)
    find = model.similar_items if of_items else model.similar_users
    where = {name: k for k, name in enumerate(named(np.arange(count), ids).tolist())}
    parts = []
    with progress_bar(f"similar {what}", -(-count // ROWS_AT_ONCE), progress) as advance:
        for start in range(0, count, ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, count))
            found, cosines = find(named(rows, ids), N=min(N + 1, count))  # each finds itself first
            parts.append(_pairs(rows, found[:, 1:], cosines[:, 1:], where))
            advance(f"{rows[-1] + 1:,} {what}")
    own, other, cosine, rank = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns = {
        what.removesuffix("s"): pa.array(named(own, ids)),
        "neighbour": pa.array(named(other, ids)),
        "similarity": pa.array(cosine.astype(np.float32)),
        "rank": pa.array(rank.astype(np.int32)),
    }
    if titles is not None and of_items:
        texts = pa.array(list(titles), pa.string())
        columns |= {"title": texts.take(pa.array(own)), "neighbour_title": texts.take(pa.array(other))}
    return pa.table(columns)


def popular_table(model: FactorModel, N: int = 100, titles: Sequence[str] | None = None) -> pa.Table:
    """Return the N items with the most interactions: the list for users of whom nothing is known.

    Parameters
    ----------
    model
        A fitted model of factors.
    N
        Number of items.
    titles
        A title for every item.

    Returns
    -------
    An Arrow table with the columns item, popularity (sum of the training confidences) and rank (from 1).

    Examples
    --------
    >>> from fairmf import IALS, synthetic
    >>> model = IALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> popular_table(model, 5)["rank"].to_pylist()
    [1, 2, 3, 4, 5]
    """
    check_count("popular_table", "N", N)
    _check_titles(titles, model.n_items)
    fitted = model.fitted
    rows = fitted.most_popular[:N]
    columns = {
        "item": pa.array(named(rows, fitted.item_ids)),
        "popularity": pa.array(np.asarray(fitted.popularity, dtype=np.float64)[rows]),
        "rank": pa.array(np.arange(1, len(rows) + 1, dtype=np.int32)),
    }
    if titles is not None:
        columns["title"] = pa.array([titles[row] for row in rows.tolist()], pa.string())
    return pa.table(columns)


def _check_titles(titles: Sequence[str] | None, n_items: int) -> None:
    if titles is not None and len(titles) != n_items:
        raise InvalidData(f"There are {len(titles):,} titles for {n_items:,} items: give one for each.")


def _pairs(rows: Array, found: Array, cosines: Array, where: dict[object, int]) -> tuple[Array, Array, Array, Array]:
    """Return (row, neighbour's row, cosine, rank) of all slots that are filled."""
    there = ~np.isnan(cosines)
    own = np.broadcast_to(rows[:, None], cosines.shape)[there]
    rank = np.broadcast_to(np.arange(1, cosines.shape[1] + 1), cosines.shape)[there]
    other = np.array([where[name] for name in found[there].tolist()], dtype=np.int64)
    return own, other, cosines[there], rank
