"""Compute vectors of users, and of items, that were not in training (docs/fold-in.md, docs/mathematics.md 6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import solve
from fairmf.backends.contract import Factors, HalfStep, RankOne, Vector
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.fitted import Fitted, as_list, positions
from fairmf.models.problem import frequency_scaled, problem_for
from fairmf.params import check_not_negative

METHODS = ("frozen", "cohort")


def frozen(fitted: Fitted, batch: Interactions, fairness: float) -> NDArray[Any]:
    """Return u = H^-1 (b - psi q1) for every row, q1 of training. Call it inside `backend.threads`."""
    problem = problem_for(batch, 0.0, fitted.settings)
    backend = problem.backend
    V = backend.array(fitted.item_factors)
    step = problem.user_half_step(V, shift=fairness * fitted.merit, gramian=fitted.item_gramian)
    return backend.host(solve.solve_to_convergence(step))


def items(fitted: Fitted, users: Factors, batch: Interactions, weights: Vector | None = None) -> NDArray[Any]:
    """Solve (sum_i c_i u_i u_i' + alpha0 G_U + lambda_f w^2 t t' + lambda_V I) v = sum_i c_i u_i for every row.

    Rows of `batch` are items and columns users; `weights` are the items' w, 1 by default. n, G_U and t are those of
    `users`, who must be as they were trained (not dialled): then this is the items' half-step of training. Call it
    inside `backend.threads`.
    """
    settings = fitted.settings
    backend, n = get_backend(settings["backend"]), len(users)
    U, weight = backend.array(users), settings["unobserved_weight"]
    t, lambda_f = backend.mean(U), fitted.trained_fairness * weight * n
    shared = weight * backend.gramian(U)
    own = None if weights is None else RankOne(t, lambda_f * np.square(weights))
    if own is None:
        shared = shared + lambda_f * np.outer(t, t)
    ridge = frequency_scaled(
        batch.by_user.sums(), n, settings["regularization"], settings["regularization_exponent"], weight
    )
    return backend.host(
        solve.solve_to_convergence(HalfStep(backend, batch.by_user, U, shared, ridge, np.zeros_like(t), own))
    )


def one_user(fitted: Fitted, names: Any, weights: Any) -> Interactions:
    """Return the history of one user, from the names of its items."""
    m = len(fitted.item_factors)
    columns = positions(as_list(names), fitted.item_ids, m, "item")
    if weights is None:
        columns, values = np.unique(columns), None
    else:
        given = np.atleast_1d(np.asarray(weights, dtype=np.float64))
        if given.shape != columns.shape:
            raise InvalidData(f"There must be one weight for each of the {len(columns):,} items; got {given.size:,}.")
        if not ((given >= 0) & (given <= np.finfo(np.float32).max)).all():
            raise InvalidData("An interaction's weight must be finite and at least 0.")
        columns, at = np.unique(columns[given > 0], return_inverse=True)
        values = np.bincount(at, given[given > 0], minlength=len(columns)).astype(np.float32)
    rows = Rows(np.array([0, len(columns)]), columns.astype(np.int32), values)
    return Interactions(rows, m, None, fitted.item_ids)


def scale_factor(scale: str, batch: int, trained: int) -> float:
    """Return the factor of lambda_f (and rho) from `trained` users to a cohort of `batch` users."""
    share = batch / trained
    factors = {"phi": share, "paper": 1.0, "authors": share**2}
    if scale not in factors:
        raise InvalidParameter(f"scale must be one of {', '.join(map(repr, factors))}. Got {scale!r} instead.")
    return factors[scale]


def check_options(
    model: str, method: str, fairness: float | None, options: Mapping[str, Any], cohort_options: Collection[str]
) -> None:
    """Raise on the first option of `fold_in` that cannot be used."""
    if method not in METHODS:
        raise InvalidParameter(f"method must be 'frozen' or 'cohort'. Got {method!r} instead.")
    unknown = [name for name in options if name not in cohort_options]
    if unknown:
        raise TypeError(f"{model}.fold_in has no option {', '.join(map(repr, unknown))}.")
    if fairness is None:
        return
    if method == "cohort":
        raise InvalidParameter("A cohort is folded in at the trained fairness: fairness= needs method='frozen'.")
    check_fairness(fairness)


def check_fairness(value: Any) -> float:
    """Return a fairness asked for after training; raise InvalidParameter unless it is a finite number >= 0."""
    return check_not_negative("", "fairness", value)
