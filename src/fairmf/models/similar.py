"""Find the nearest users or items by cosine similarity, in blocks: memory never holds all pairs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors
from fairmf.data.csr import Rows
from fairmf.data.ids import Names, as_list, is_one, named, positions
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.fitted import Fitted
from fairmf.ranking.top_n import list_length
from fairmf.types import Array, SparseMatrix

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

ROWS_AT_ONCE = 65_536  # candidates scaled to length 1 at a time
SHORTEST = 1e-12  # a vector shorter than this is zero but for rounding, and has no direction

Ranked = tuple[NDArray[np.int32], NDArray[np.float32]]


def find(
    model: FactorModel,
    kind: str,
    asked: Hashable | Names,
    N: int,
    leave_out: Names | None,
    among: Names | None,
    vectors: Factors | None = None,
) -> tuple[Array, NDArray[np.float32]]:
    """Answer `similar_items` and `similar_users` (`kind` is "item" or "user"): see there.

    `vectors` stand in for the stored ones of the users or items that are asked for.
    """
    of_items, fitted = kind == "item", model.fitted
    factors, ids = (fitted.item_factors, fitted.item_ids) if of_items else (fitted.user_factors, fitted.user_ids)

    def rows(names: Hashable | Names) -> NDArray[np.int64]:
        return positions(as_list(names), ids, len(factors), kind)

    candidates = np.arange(len(factors)) if among is None else np.unique(rows(among))
    if leave_out is not None:
        candidates = np.setdiff1d(candidates, rows(leave_out))
    backend, queries = model._backend(), rows(asked)
    if vectors is not None and len(vectors) != len(queries):
        raise InvalidData(f"item_users has {len(vectors):,} rows for {len(queries):,} items: give one row per item.")
    with backend.threads(model.num_threads):
        found, cosines = nearest(backend, factors, queries, N, candidates, _directed(fitted, of_items), vectors)
    names = named(found, ids)
    return (names[0], cosines[0]) if is_one(asked) else (names, cosines)


def recalculated(model: FactorModel, item_users: Interactions | SparseMatrix | None) -> Factors:
    """Return the vectors of items by their users, for `similar_items(recalculate_item=True)`."""
    if item_users is None:
        raise InvalidParameter("recalculate_item needs the users of the items: item_users.", parameter="item_users")
    if not hasattr(model, "fold_in_items"):
        raise InvalidParameter(f"A {type(model).__name__} cannot recalculate items.", parameter="recalculate_item")
    vectors: Factors = model.fold_in_items(item_users)
    return vectors


def _directed(fitted: Fitted, of_items: bool) -> NDArray[np.bool_]:
    """Return whose vectors have a meaningful direction: those with interactions, as far as that is known, or features.

    Users without any share the one vector that fairness gives them; items without any may keep a little of the random
    start.
    """
    held, side = fitted.interactions, fitted.item_features if of_items else fitted.user_features
    if of_items:
        known = fitted.popularity > 0
    elif held is None:
        known = np.ones(len(fitted.user_factors), dtype=bool)
    else:
        known = np.diff(held.by_user.indptr) > 0
    return known if side is None else known | (np.diff(side.rows.indptr) > 0)


def nearest(
    backend: Backend,
    factors: NDArray[np.floating],
    queries: NDArray[np.int64],
    N: int,
    candidates: NDArray[np.int64],
    directed: NDArray[np.bool_],
    vectors: NDArray[np.floating] | None = None,
) -> Ranked:
    """Return the N candidates (ascending rows of `factors`) most similar to each query, best first: (rows, cosines).

    A query that is a candidate comes first, with similarity 1. Ties go to the lower row. A zero vector, or one that
    is not `directed` (one flag per row), is similar to nothing and nothing to it. Missing slots hold -1 and NaN; there
    are no more slots than rows. `vectors` stand in for those of the queries, which still come first. Call it inside
    `backend.threads`.
    """
    N = list_length(N, len(factors))
    wanted, usable = _unit(factors[queries] if vectors is None else vectors)
    lost = ~(usable & directed[queries])
    candidates = candidates[directed[candidates]]
    best = _empty(len(queries), N)
    for start in range(0, len(candidates), ROWS_AT_ONCE):
        part = candidates[start : start + ROWS_AT_ONCE]
        units, usable = _unit(factors[part])
        part, units = part[usable], units[usable]
        found = _empty(len(queries), min(N, len(part)))
        if found[0].size:
            itself = _places_of(queries, part)  # left out here, and put first below: rounding may rank a twin before it
            backend.top_k(backend.array(wanted), backend.array(units), found[0].shape[1], itself, *found)
            # From places in this block to rows of `factors`; -1 stays missing.
            found = np.where(found[0] < 0, -1, part[found[0]]).astype(np.int32), found[1]
        best = _merged(best, found, N)
    rows, cosines = best
    np.clip(cosines, -1.0, 1.0, out=cosines)  # rounding can go a hair beyond
    own = np.isin(queries, candidates)
    rows[own, 1:], cosines[own, 1:] = rows[own, :-1], cosines[own, :-1]
    rows[own, 0], cosines[own, 0] = queries[own], 1.0
    if vectors is not None:  # not the stored vector itself, but near to it
        cosines[own, 0] = np.einsum("ij,ij->i", wanted[own], _unit(factors[queries[own]])[0])
    rows[lost], cosines[lost] = -1, np.nan
    return rows, cosines


def _unit(vectors: NDArray[np.floating]) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """Scale vectors to length 1, and say which of them have a length."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    usable = norms > SHORTEST
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=usable)
    return vectors * scale.astype(vectors.dtype)[:, None], usable


def _places_of(queries: NDArray[np.int64], rows: NDArray[np.int64]) -> Rows:
    """Return each query's own place among the ascending `rows`, or none: `top_k` leaves it out."""
    places = np.minimum(np.searchsorted(rows, queries), len(rows) - 1)
    there = rows[places] == queries
    indptr = np.concatenate(([0], np.cumsum(there))).astype(np.int64)
    return Rows(indptr, places[there].astype(np.int32), None)


def _merged(first: Ranked, second: Ranked, N: int) -> Ranked:
    """Merge two ranked lists into their N best, ties to the first one's."""
    rows, cosines = (np.concatenate(pair, axis=1) for pair in zip(first, second, strict=True))
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :N]  # NaN goes last
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(cosines, order, axis=1)


def _empty(rows: int, N: int) -> Ranked:
    return np.full((rows, N), -1, dtype=np.int32), np.full((rows, N), np.nan, dtype=np.float32)
