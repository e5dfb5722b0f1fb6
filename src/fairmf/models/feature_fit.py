"""Fit with features: leave items and users without interactions out of the objective, and put them back afterwards.

An item that nobody has touched would be drawn to 0 by the unobserved and the fairness term, and hardly ever be shown.
So the side that has features is fitted on its rows with interactions alone, and all others get the vector that their
features predict (docs/mathematics.md 11). From its first interaction on, an item enters in full.

Order of calls: `open_setup` calls `read`, then `FeatureFit.reduced` for the data and `with_features` for the problem;
`_results` calls `FeatureFit.completed`.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.data.csr import Rows
from fairmf.data.features import FeatureRows, read_features
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData
from fairmf.lazy import cached_property
from fairmf.models.feature_maps import SideFeatures
from fairmf.models.fit_loop import State
from fairmf.models.fitted import Fitted
from fairmf.models.fitted_features import FittedFeatures
from fairmf.models.problem import Problem
from fairmf.ranking.item_dial import score_spreads
from fairmf.types import Record

if TYPE_CHECKING:
    from fairmf.models.base import IterativeModel
    from fairmf.models.shard_terms import WholeShards

log = logging.getLogger("fairmf")


@dataclass(frozen=True)
class FeatureFit:
    """The features of a fit, and which rows of each side have interactions."""

    data: Interactions
    """All users and items, with the confidences of the fit."""
    items: FeatureRows | None
    users: FeatureRows | None
    strength: float
    """The setting `feature_regularization`."""

    @cached_property
    def warm_items(self) -> NDArray[np.int64] | None:
        """Rows of the items that are fitted, those with likes or dislikes; None where all are."""
        entries = np.bincount(self.data.by_user.indices, minlength=self.data.n_items)
        return None if self.items is None or entries.all() else np.flatnonzero(entries)

    @cached_property
    def warm_users(self) -> NDArray[np.int64] | None:
        """Rows of the users that are fitted; None where all are."""
        counts = np.diff(self.data.by_user.indptr)
        return None if self.users is None or counts.all() else np.flatnonzero(counts)

    def reduced(self) -> Interactions:
        """Return the interactions without the users and items that are left out."""
        rows, items, users = self.data.by_user, self.warm_items, self.warm_users
        n_items, item_ids, user_ids = self.data.n_items, self.data.item_ids, self.data.user_ids
        if items is None and users is None:
            return self.data
        if items is not None:
            place = np.full(n_items, -1, dtype=np.int32)
            place[items] = np.arange(len(items), dtype=np.int32)
            rows, n_items = Rows(rows.indptr, place[rows.indices], rows.weights), len(items)
            item_ids = None if item_ids is None else item_ids.take(items)
        if users is not None:
            rows = rows.take(users)
            user_ids = None if user_ids is None else user_ids.take(users)
        # The weighting belongs to all items: it weights histories, not the rows of a fit.
        return Interactions(rows, n_items, user_ids, item_ids, self.data.weighting)

    def with_features(self, problem: Problem) -> Problem:
        """Return the problem with the features of the rows that are fitted."""
        sides: dict[str, SideFeatures] = {}
        for name, given, chosen in (("item", self.items, self.warm_items), ("user", self.users, self.warm_users)):
            if given is None:
                continue
            rows = given.rows if chosen is None else given.rows.take(chosen)
            sides[f"{name}_side"] = problem.side_features(name, rows, given.n_features, self.strength)
        return dataclasses.replace(problem, **sides)  # type: ignore[arg-type]

    def started(self, factors: Factors, side: str) -> Factors:
        """Return the rows of given factors that are fitted, if the factors are those of all rows."""
        chosen, size = (self.warm_items, self.data.n_items) if side == "item" else (self.warm_users, self.data.n_users)
        return factors if chosen is None or len(factors) != size else factors[chosen]

    def completed(self, fitted: Fitted, state: State, problem: Problem, fairness_weights: Vector | None) -> Fitted:
        """Return the results with all users and items: those that were left out get what their features predict."""
        backend, n_users = problem.backend, problem.n_users
        data: Interactions | WholeShards = self.data
        changes: Record = {}
        U, V = fitted.user_factors, fitted.item_factors
        if self.items is not None and state.item_map is not None:
            changes["item_features"] = side = _side(self.items, state.item_map, self.warm_items, backend)
            V = changes["item_factors"] = _filled(V, side, self.warm_items)
            changes["item_spread"] = score_spreads(backend, state.user_factors, n_users, backend.array(V))
        if self.users is not None and state.user_map is not None:
            changes["user_features"] = side = _side(self.users, state.user_map, self.warm_users, backend)
            U = changes["user_factors"] = _filled(U, side, self.warm_users)
        if self.warm_items is not None:
            changes["item_counts"] = self._item_counts()
            if len(fitted.popularity) != data.n_items:  # with a balance it is that of the raw data, of all items
                changes["popularity"] = np.zeros(data.n_items)
                changes["popularity"][self.warm_items] = fitted.popularity
        return dataclasses.replace(
            fitted, **changes, item_ids=data.item_ids, fairness_weights=fairness_weights, weighting=data.weighting,
            **self._users_of(fitted),
        )  # fmt: skip

    def _item_counts(self) -> Vector:
        """Return the number of users of every item."""
        return self.data.by_user.column_counts(self.data.n_items)

    def _users_of(self, fitted: Fitted) -> Record:
        """Return ids and histories of all users, of whom `fitted` has those that were fitted."""
        histories = None if fitted.interactions is None else self.data
        return {"user_ids": self.data.user_ids, "interactions": histories}


def read(model: IterativeModel[Any], data: Interactions, item_features: Any, user_features: Any) -> FeatureFit | None:
    """Read the features that a fit was given; None without any. Call it with the confidences of the fit."""
    items, users = read_sides(model, data, item_features, user_features)
    none = items is None and users is None
    return None if none else FeatureFit(data, items, users, model.feature_regularization)


def check_sides(data: Interactions, item_features: Any, user_features: Any) -> None:
    """Raise InvalidData if features do not fit the data."""
    if item_features is not None:
        read_features(item_features, data.item_ids, data.n_items, "item")
    if user_features is not None:
        read_features(user_features, data.user_ids, data.n_users, "user")


def read_sides(
    model: IterativeModel[Any], data: Interactions | WholeShards, item_features: Any, user_features: Any
) -> tuple[FeatureRows | None, FeatureRows | None]:
    """Read the features of the items and of the users of some data; None for a side without any."""
    found: dict[str, FeatureRows] = {}
    for kind, given in (("item", item_features), ("user", user_features)):
        if given is not None:
            ids, size = (data.item_ids, data.n_items) if kind == "item" else (data.user_ids, data.n_users)
            found[kind], others = read_features(given, ids, size, kind)
            _say_what_was_read(type(model).__name__, kind, found[kind], others)
    return found.get("item"), found.get("user")


def _say_what_was_read(model: str, kind: str, found: FeatureRows, others: int) -> None:
    lacking = int((np.diff(found.rows.indptr) == 0).sum())
    if lacking == found.rows.count:
        raise InvalidData(f"{kind}_features is empty: no {kind} of the data has a feature.")
    log.info("%s: %d features of %ss", model, found.n_features, kind, extra={"kind": "features"})
    if lacking:
        log.info("%d %ss of the data have no features", lacking, kind, extra={"kind": "features"})
    if others:
        message = "%d %ss of the table of features are not in the data: model.add_%ss adds them"
        log.info(message, others, kind, kind, extra={"kind": "features"})


def _side(given: FeatureRows, M: Factors, chosen: NDArray[np.int64] | None, backend: Backend) -> FittedFeatures:
    counted = np.ones(given.rows.count, dtype=bool)
    if chosen is not None:
        counted[:] = False
        counted[chosen] = True
    return FittedFeatures(given.rows, backend.host(M), counted, given.encoder)


def _filled(factors: Factors, side: FittedFeatures, chosen: NDArray[np.int64] | None) -> Factors:
    if chosen is None or len(factors) == 0:
        return factors
    out: Factors = side.predicted().astype(factors.dtype)
    out[chosen] = factors
    return out
