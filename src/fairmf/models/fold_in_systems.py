"""Solve the systems of new users and items against a fitted model (docs/mathematics.md 6 and 11).

What features predict enters the right-hand sides as in training; a row without interactions is the prediction itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fairmf.backends import solve
from fairmf.backends.contract import Factors, HalfStep, RankOne, Vector
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows, has_dislikes
from fairmf.data.interactions import Interactions
from fairmf.data.weighting import SHORT
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.fitted import Fitted, FittedModel
from fairmf.models.fitted_features import FittedFeatures
from fairmf.models.problem import Dislikes, frequency_scaled, serving_problem
from fairmf.threads import use

FEW = 16  # histories that are solved one by one, each in the way that suits its length


def frozen(fitted: Fitted, batch: Interactions, fairness: float, predicted: Factors | None = None) -> Factors:
    """Return u = H^-1 (b - psi q1) for every row, q1 of training. Call it inside `backend.threads`.

    `predicted` are the vectors that the users' features predict: a user without history has that vector.
    """
    problem = serving_problem(fitted, batch)
    backend = problem.backend
    V = backend.array(fitted.item_factors)
    own = None if predicted is None else backend.array(predicted * problem.user_ridge[:, None])
    step = problem.user_half_step(V, shift=fairness * fitted.merit, gramian=fitted.item_gramian, own=own)
    return with_predictions(backend.host(solve.solve_to_convergence(step)), batch.by_user, predicted)


def fold_few(model: FittedModel, history: Any, psi: float) -> Factors | None:
    """Return the vectors of a few histories, all at one psi; None where `frozen` has to solve them.

    One call from `fold_in`, because each access to this module there costs a microsecond.
    """
    fitted = model.fitted
    if sp.issparse(history) and "serving" in vars(fitted) and fitted.serving.folds:  # so it is one on the cpu
        found = one_of_ones(fitted, history, psi)
        if found is not None:
            return found
    rows = few_rows(model, history)
    return None if rows is None else few(model, rows, np.full(len(rows.indptr) - 1, psi, dtype=np.float64))


def one_of_ones(fitted: Fitted, history: Any, psi: float) -> Factors | None:
    """Return the vector of a history of ones, given as a CSR matrix with one row; None for any other history."""
    if history.format != "csr" or history.shape != (1, len(fitted.item_factors)):
        return None
    serving, indptr, indices, values = fitted.serving, history.indptr, history.indices, history.data
    k = len(indices)
    whole = len(values) == k and indptr.item(0) == 0 and indptr.item(1) == k
    if not whole or not 0 < k <= SHORT or indices.dtype != np.int32 or values.dtype != np.float32:
        return None
    return serving.fold_binary(indices, values, psi)


def few(model: FittedModel, rows: Rows, psi: Vector) -> Factors:
    """Return what `frozen` does for a few weighted rows, each at its own psi, where `ServingState.folds`.

    Nothing is set up for a call. For one short history not even BLAS is limited to one thread: it is not used.
    """
    serving = model.fitted.serving
    if len(psi) == 1:  # runs on this thread
        if serving.is_short(len(rows.indices)):
            return serving.fold(rows, psi)
        with use(None):
            return serving.fold(rows, psi)
    with get_backend("cpu").threads(model.num_threads):
        return serving.fold(rows, psi)


def solved(vectors: Factors) -> bool:
    """Return whether `few` has found all vectors: a row without solution is NaN."""
    return all(x == x for x in vectors[:, 0].tolist())


def few_rows(model: FittedModel, history: Any) -> Rows | None:
    """Return the histories as weighted rows, if they are so few that `few` takes them, and the model can; else None."""
    fitted = model.fitted
    matrix = bool(sp.issparse(history)) or type(history) is Interactions
    if not matrix or not 0 < history.shape[0] <= FEW:
        return None
    if "serving" not in vars(fitted) and get_backend(fitted.settings["backend"]).name != "cpu":
        return None
    if not fitted.serving.folds:
        return None
    found = None if isinstance(history, Interactions) else plain_row(fitted, history)
    if found is not None:
        return weighted(fitted, found)
    rows = model._aligned(history).by_user
    return None if has_dislikes(rows) else rows  # the kernels know none


def plain_row(fitted: Fitted, history: Any) -> Rows | None:
    """Return the row of a CSR matrix with one row, over the model's items, if nothing has to be cleaned; else None.

    Values other than 1 and items that do not ascend have to be: `Interactions.from_csr` does it, and warns.
    """
    if history.format != "csr":
        return None
    m, indptr, indices, values = len(fitted.item_factors), history.indptr, history.indices, history.data
    k = len(indices)
    if history.shape != (1, m) or k == 0 or len(values) != k or indptr[0] != 0 or indptr[1] != k:
        return None
    ascending = np.count_nonzero(indices[1:] > indices[:-1]) == k - 1
    if not ascending or indices[0] < 0 or indices[-1] >= m or np.count_nonzero(values == 1) != k:
        return None
    return Rows(np.array([0, k]), indices.astype(np.int32), None)


def weighted(fitted: Fitted, rows: Rows) -> Rows:
    """Return raw rows with the confidences that the model trains on."""
    return rows if fitted.weighting is None else Rows(rows.indptr, rows.indices, fitted.weighting.weights(rows))


def user_predictions(fitted: Fitted, batch: Interactions, features: Any = None) -> Factors | None:
    """Return the vectors that features of these users predict: given ones, or those of users the model knows."""
    side = fitted.user_features if features is None else features_of(fitted, "user")
    if side is None:
        return None
    if features is not None:
        names = None if batch.user_ids is None else batch.user_ids.values.tolist()
        rows = side.encoded(features, "user", names)[1]
        if rows.count != batch.n_users:
            raise InvalidData(f"features has {rows.count:,} rows for {batch.n_users:,} users.")
        return side.predicted(rows)
    if batch is fitted.interactions:
        return side.predicted()
    if batch.user_ids is None or fitted.user_ids is None:
        return None
    known = fitted.user_ids
    where = np.array([known.position(x) if x in known else -1 for x in batch.user_ids.values.tolist()], dtype=np.int64)
    vectors = side.predicted(side.rows.take(np.maximum(where, 0)))
    vectors[where < 0] = 0
    return vectors


def features_of(fitted: Fitted, kind: str) -> FittedFeatures:
    """Return the features of the items or users of a model (`kind`); raise InvalidParameter if it has none."""
    side: FittedFeatures | None = getattr(fitted, f"{kind}_features")
    if side is None:
        raise InvalidParameter(
            f"This model was fitted without {kind}_features.", hint=f"call fit(data, {kind}_features=...)"
        )
    return side


def with_predictions(vectors: Factors, rows: Rows, predicted: Factors | None) -> Factors:
    """Replace the vectors of rows without entries by predictions, where a feature predicts anything."""
    if predicted is None:
        return vectors
    alone = (np.diff(rows.indptr) == 0) & predicted.any(axis=1)
    vectors[alone] = predicted[alone]
    return vectors


def items(
    fitted: Fitted,
    users: Factors,
    batch: Interactions,
    weights: Vector | None = None,
    predicted: Factors | None = None,
) -> Factors:
    """Solve (sum_i c_i u_i u_i' + alpha0 G_U + lambda_f w^2 t t' + lambda_V I) v = sum_i c_i u_i for every row.

    Rows of `batch` are items and columns users; `weights` are the items' w, 1 by default, and `predicted` what their
    features predict, which adds lambda_V times that to the right-hand sides. n, G_U and t are those of `users`, who
    must be as they were trained (not dialled): then this is the items' half-step of training. Call it inside
    `backend.threads`.
    """
    settings = fitted.settings
    backend, side = get_backend(settings["backend"]), fitted.user_features
    counted = users if side is None or side.counted.all() else users[side.counted]
    U, weight, n = backend.array(users), settings["unobserved_weight"], len(counted)
    # Users without a history do not count, if they have features (models/feature_fit.py).
    among = U if counted is users else backend.array(counted)
    t, lambda_f = backend.mean(among), fitted.trained_fairness * weight * n
    shared = weight * backend.gramian(among)
    # Without weights all rows share lambda_f t t'; with them each row has its own multiple of it.
    own = None if weights is None else RankOne(t, lambda_f * np.square(weights))
    if own is None:
        shared = shared + lambda_f * np.outer(t, t)
    ridge = frequency_scaled(
        batch.by_user.sums(), n, settings["regularization"], settings["regularization_exponent"], weight
    )
    right = None if predicted is None else backend.array(predicted * ridge[:, None])
    if batch.n_dislikes:
        dislikes = Dislikes(batch)  # whose rows are items here
        right, batch = dislikes.right(backend, dislikes.by_user, U, right), batch.confidences()
    step = HalfStep(backend, batch.by_user, U, shared, ridge, np.zeros_like(t), own, own=right)
    return with_predictions(backend.host(solve.solve_to_convergence(step)), batch.by_user, predicted)
