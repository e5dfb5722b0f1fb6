"""Add users and items to a fitted model, or replace them, while everything else stays (docs/fold-in.md).

A new user's vector is its own frozen fold-in; a new item's is what the items' half-step of training gives for its row.
`with_users` and `with_items` return a changed copy of the fit, so that a call that fails leaves the model as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, Vector
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows, item_sums, like_counts, liked, replace_rows, transpose
from fairmf.data.ids import Ids, Names, as_list, row_numbers
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.data.weighting import Weighting, put, weighted_like
from fairmf.errors import InvalidData
from fairmf.io.values import plain
from fairmf.models.fitted import Fitted
from fairmf.ranking.item_dial import score_spreads
from fairmf.types import Record, SparseMatrix


class FoldIn(Protocol):
    """Return the vectors of these histories at that fairness, with features of these users."""

    def __call__(self, histories: Interactions, fairness: float, features: Rows | None = None) -> Factors:
        """Call it."""


T = TypeVar("T", bound=Hashable)


def with_users(fitted: Fitted, names: Hashable | Names, batch: Interactions, fold_in: FoldIn) -> Fitted:
    """Append users or replace their rows, with vectors from `fold_in`. The mean user t and q1 stay as trained."""
    where, ids = places(names, fitted.user_ids, len(fitted.user_factors), "user")
    _check_rows(names, where, batch, "user")
    side, features = fitted.user_features, None
    if side is not None:  # new users have none
        fresh = np.flatnonzero(where >= side.rows.count)
        none = Rows(np.zeros(len(fresh) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), None)
        side = side.with_rows(where[fresh], none, False)
        features = side.rows.take(where)
    changes: Record = {
        "user_factors": put(fitted.user_factors, where, fold_in(batch, fitted.fairness, features)),
        "user_ids": ids,
    }
    held = fitted.interactions
    if held is not None:
        rows = replace_rows(held.by_user, where, batch.by_user)
        changes["interactions"] = Interactions(rows, held.n_items, ids, held.item_ids, fitted.weighting)
        changes["popularity"] = item_sums(rows, held.n_items)
        changes["item_counts"] = rows.column_counts(held.n_items)
    else:  # the former histories of replaced users are not known, so only new users can be counted
        appended = batch.take_users(np.flatnonzero(where >= len(fitted.user_factors)))
        changes["popularity"] = fitted.popularity + item_sums(appended.by_user, appended.n_items)
        if fitted.item_counts is not None:
            changes["item_counts"] = fitted.item_counts + appended.by_user.column_counts(batch.n_items)
    if side is not None and features is not None:
        changes["user_features"] = side.with_rows(where, features, np.diff(batch.by_user.indptr) > 0)
    if fitted.user_sensitivity is not None:
        # u(psi) is linear in psi, so that its slope is the difference of two fold-ins.
        slope = fold_in(batch, 0.0, features) - fold_in(batch, 1.0, features)
        changes["user_sensitivity"] = put(fitted.user_sensitivity, where, slope)
    return dataclasses.replace(fitted, **changes)


def with_featured_users(fitted: Fitted, names: Hashable | Names, rows: Rows) -> Fitted:
    """Append users without a history, or give users other features: vectors of those without a history follow."""
    side, U = fitted.user_features, fitted.user_factors
    assert side is not None
    where, ids = places(names, fitted.user_ids, len(U), "user")
    known = where < len(U)
    counted = np.zeros(len(where), dtype=bool)
    counted[known] = side.counted[where[known]]
    vectors = side.predicted(rows).astype(U.dtype)
    changes: Record = {"user_factors": put(U, where[~counted], vectors[~counted]), "user_ids": ids}
    held = fitted.interactions
    if held is not None:
        fresh = where[~known]
        none = Rows(np.zeros(len(fresh) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), None)
        own = replace_rows(held.by_user, fresh, none)
        changes["interactions"] = Interactions(own, held.n_items, ids, held.item_ids, fitted.weighting)
    if fitted.user_sensitivity is not None:
        changes["user_sensitivity"] = put(fitted.user_sensitivity, where[~counted], 0.0)
    changes["user_features"] = side.with_rows(where, rows, counted)
    return dataclasses.replace(fitted, **changes)


def with_featured_items(fitted: Fitted, names: Hashable | Names, rows: Rows) -> Fitted:
    """Append items without interactions, or give items other features: vectors of those without users follow."""
    side, V = fitted.item_features, fitted.item_factors
    assert side is not None
    where, _ = places(names, fitted.item_ids, len(V), "item")
    known = where < len(V)
    counted = np.zeros(len(where), dtype=bool)
    counted[known] = side.counted[where[known]]
    fitted = dataclasses.replace(fitted, item_features=side.with_rows(where, rows, counted))
    given = list(as_list(names))
    chosen = [name for name, warm in zip(given, counted, strict=True) if not warm]
    none = Rows(np.zeros(len(chosen) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), None)
    batch = Interactions(none, len(fitted.user_factors), None, None)
    weights = item_weights(fitted, chosen)
    return with_items(fitted, chosen, batch, side.predicted(rows)[~counted].astype(V.dtype), weights)


def item_predictions(fitted: Fitted, names: Hashable | Names) -> Factors | None:
    """Return what the features of the named items predict, 0 without any; None in a model without features."""
    side = fitted.item_features
    if side is None:
        return None
    where, _ = places(names, fitted.item_ids, len(fitted.item_factors), "item")
    known = where < side.rows.count
    vectors = np.zeros((len(where), side.map.shape[1]), dtype=side.map.dtype)
    vectors[known] = side.predicted(side.rows.take(where[known]))
    return vectors


def item_weights(fitted: Fitted, names: Hashable | Names) -> Vector | None:
    """Return the fairness weights of the named items: as trained, 1 for new ones; None in a model without weights."""
    if fitted.fairness_weights is None:
        return None
    where, _ = places(names, fitted.item_ids, len(fitted.item_factors), "item")
    full = put(fitted.fairness_weights, where[where >= len(fitted.item_factors)], 1.0)
    weights: Vector = full[where]
    return weights


def with_items(
    fitted: Fitted,
    names: Hashable | Names,
    batch: Interactions,
    vectors: Factors,
    weights: Vector | None = None,
) -> Fitted:
    """Append items or replace their columns, from raw rows of `batch`. U and t stay; q1 = alpha0 G_W t follows V."""
    raw, batch = batch, weighted_items(fitted, batch)
    V = fitted.item_factors
    where, ids = places(names, fitted.item_ids, len(V), "item")
    _check_rows(names, where, batch, "item")
    changes: Record = {
        "item_factors": put(V, where, vectors),
        "item_ids": ids,
        "popularity": put(fitted.popularity, where, liked(batch.by_user).sums()),
    }
    # Add the difference, so that q1 keeps its last bits where nothing changes.
    gone, come = where < len(V), np.ones(len(where), dtype=bool)
    side = fitted.item_features
    if side is not None:  # items without interactions do not count (models/feature_fit.py)
        come = np.diff(batch.by_user.indptr) > 0
        gone[gone] = side.counted[: len(V)][where[gone]]
        fresh = np.flatnonzero(where >= side.rows.count)
        none = Rows(np.zeros(len(fresh) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), None)
        side = side.with_rows(where[fresh], none, False)
        changes["item_features"] = side.with_rows(where, side.rows.take(where), come)
    of_gone, of_come = (None, None) if weights is None else (weights[gone], weights[come])
    change = _merit(vectors[come], fitted.mean_user, of_come) - _merit(V[where[gone]], fitted.mean_user, of_gone)
    changes["merit"] = fitted.merit + fitted.settings["unobserved_weight"] * change
    held = fitted.interactions
    if fitted.weighting is not None:
        changes["weighting"] = fitted.weighting.with_items(where, raw.by_user)
    if held is not None:
        rows = replace_rows(held.by_item, where, batch.by_user)
        by_user = transpose(rows, held.n_users)
        if fitted.weighting is not None:
            by_user = _rescaled(by_user, held.by_user, fitted.weighting)
        weighting = changes.get("weighting", fitted.weighting)
        changes["interactions"] = Interactions(by_user, rows.count, held.user_ids, ids, weighting)
    if weights is not None and fitted.fairness_weights is not None:
        changes["fairness_weights"] = put(fitted.fairness_weights, where, weights)
    changes["user_sensitivity"] = None  # every H_i and q1 have changed
    for name in ("item_offsets", "item_prices"):  # replaced items keep theirs, new ones get 0
        if getattr(fitted, name) is not None:
            changes[name] = put(getattr(fitted, name), np.arange(len(V), rows_after(where, len(V))), 0.0)
    if fitted.item_counts is not None:
        changes["item_counts"] = put(fitted.item_counts, where, like_counts(raw.by_user))
    if fitted.item_spread is not None:
        changes["item_spread"] = put(fitted.item_spread, where, spreads_of(fitted, vectors))
    return dataclasses.replace(fitted, **changes)


def spreads_of(fitted: Fitted, vectors: Factors) -> Vector:
    """Return the standard deviation of the scores of vectors of items over the training users.

    A model that was fitted on shards holds no users: their spread is then taken to be as large, for its length, as that
    of the median item. That is exact where users are spread equally in all directions.
    """
    backend, n = get_backend(fitted.settings["backend"]), len(fitted.user_factors)
    if n == 0 and fitted.item_spread is not None:
        lengths = np.linalg.norm(fitted.item_factors.astype(np.float64), axis=1)
        some = (lengths > 0) & (fitted.item_spread > 0)
        ratio = float(np.median(fitted.item_spread[some] / lengths[some])) if some.any() else 0.0
        estimated: Vector = ratio * np.linalg.norm(vectors.astype(np.float64), axis=1)
        return estimated
    with backend.threads(1):
        return score_spreads(backend, backend.array(fitted.user_factors), n, backend.array(vectors))


def exact_spreads(others: Factors, vectors: NDArray[np.float64]) -> Vector:
    """Return the standard deviation of the scores of each vector over the vectors of the other side."""
    wide = others.astype(np.float64)
    centred = (wide.T @ wide) / max(len(wide), 1) - np.outer(wide.mean(axis=0), wide.mean(axis=0))
    spreads: Vector = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", vectors, centred, vectors), 0.0))
    return spreads


def item_batch(fitted: Fitted, item_users: Interactions | SparseMatrix) -> Interactions:
    """Return rows of items over exactly the model's users. The "users" of these Interactions are items."""
    batch, n = as_interactions(item_users, allow_empty=True), len(fitted.user_factors)
    if batch.n_items != n:
        hint = " It looks transposed: items must be rows here." if batch.n_users == n else ""
        raise InvalidData(f"item_users has {batch.n_items:,} users (columns), the model {n:,}.{hint}")
    if fitted.user_ids is not None and batch.item_ids is not None and fitted.user_ids != batch.item_ids:
        raise InvalidData("The columns of item_users are not the model's users, or in another order.")
    return batch


def weighted_items(fitted: Fitted, batch: Interactions) -> Interactions:
    """Weight raw rows of items (items x users) like the training data."""
    how = fitted.weighting
    if how is None or how.user_factor(np.ones(0, dtype=np.int64)) is None:
        return weighted_like(batch, how)
    if batch.weighting is not None:
        raise InvalidData(f"The model weights rows of items by {how.how!r} itself: give the raw ones.")
    if fitted.interactions is None and batch.nnz == 0:  # new items without interactions need no histories
        return batch
    per_user = like_counts(fitted.histories("the weight of a new item").by_user)
    rows = batch.by_user._replace(weights=how.item_weights(batch.by_user, per_user))
    return Interactions(rows, batch.n_items, batch.user_ids, batch.item_ids)


def _rescaled(rows: Rows, before: Rows, how: Weighting) -> Rows:
    """Correct the weights of users whose number of items has changed: one factor of each row depends on it."""
    now, then = how.user_factor(like_counts(rows)), how.user_factor(like_counts(before))
    if now is None or then is None:
        return rows
    ratio = now / then
    weights = np.ones(rows.nnz, dtype=np.float32) if rows.weights is None else rows.weights
    return rows._replace(weights=(weights * np.repeat(ratio, np.diff(rows.indptr))).astype(np.float32))


def trained_users(fitted: Fitted, fold_in: FoldIn) -> Factors:
    """Return U at the trained fairness: as stored, or solved again if the model serves with another fairness."""
    if fitted.fairness == fitted.trained_fairness:
        return fitted.user_factors
    return fold_in(fitted.histories("an update of items after with_fairness"), fitted.trained_fairness)


def places(names: Hashable | Names, ids: Ids | None, size: int, kind: str) -> tuple[NDArray[np.int64], Ids | None]:
    """Return the row of every name, with the next free rows for new names, and the ids with the new names added."""
    if ids is None:
        where = row_numbers(as_list(names), kind)
        fresh = np.sort(where[where >= size])
        if len(where) and where.min() < 0:
            raise InvalidData(f"Row numbers start at 0; got {where.min()}.")
        if len(np.unique(where)) != len(where):
            raise InvalidData(f"Every {kind} can be given once, but {_first_repeated(where.tolist())} appears twice.")
        if not np.array_equal(fresh, size + np.arange(len(fresh))):
            raise InvalidData(
                f"This model has {kind}s 0 to {size - 1:,}; new ones must take the next free numbers, from {size:,} on "
                f"without a gap. Got {fresh[0]:,}{f' to {fresh[-1]:,}' if len(fresh) > 1 else ''} instead."
            )
        return where, None
    given = Ids(as_list(names)).values.tolist()
    _check_kinds(given, ids, kind)
    if len(set(given)) != len(given):
        raise InvalidData(f"Every {kind} can be given once, but {_first_repeated(given)!r} appears twice.")
    new = [name for name in given if name not in ids]
    added = {name: size + k for k, name in enumerate(new)}
    where = np.array([added[name] if name in added else ids.position(name) for name in given], dtype=np.int64)
    return where, Ids([*ids.values.tolist(), *new]).check(kind) if new else ids


def rows_after(where: NDArray[np.integer], size: int) -> int:
    """Return the number of rows after `where` is filled."""
    return max(size, int(where.max(initial=-1)) + 1)


def _check_rows(names: Hashable | Names, where: NDArray[np.int64], batch: Interactions, kind: str) -> None:
    if batch.n_users != len(where):
        raise InvalidData(f"{len(where):,} {kind}s are named, but the matrix has {batch.n_users:,} rows, one for each.")
    if batch.user_ids is not None and batch.user_ids.values.tolist() != [plain(x) for x in as_list(names)]:
        raise InvalidData(f"The rows of the matrix are not the given {kind}s, or are in another order.")


def _check_kinds(given: Sequence[object], ids: Ids, kind: str) -> None:
    """Raise InvalidData for ids of another type than the model's: '12' for 12 would silently become a new id."""
    known = {int} if ids.values.dtype.kind in "iu" else {type(x) for x in ids.values.tolist()}
    strange = next((x for x in given if type(x) not in known), None) if len(ids) else None
    if strange is not None:
        kinds = ", ".join(sorted(x.__name__ for x in known))
        raise InvalidData(f"This model's {kind} ids are of type {kinds}; {strange!r} is {type(strange).__name__}.")


def _first_repeated(names: list[T]) -> T:
    seen: set[T] = set()
    return next(x for x in names if x in seen or seen.add(x))  # type: ignore[func-returns-value]


def _merit(vectors: Factors, t: Vector, weights: Vector | None) -> Vector:
    """Return G_W t of these vectors alone."""
    wide = vectors.astype(np.float64)
    scores = wide @ t
    result: Vector = wide.T @ (scores if weights is None else weights**2 * scores)
    return result
