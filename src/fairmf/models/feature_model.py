"""Add items and users that have features but no interactions yet, and say what each feature does (docs/features.md)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fairmf.backends.contract import Factors
from fairmf.data.csr import Rows
from fairmf.data.ids import Names, as_list
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.models.fitted import on_snapshot
from fairmf.models.fold_in import FoldInModel
from fairmf.types import Record

if TYPE_CHECKING:
    from fairmf.models import fold_in_systems as systems
    from fairmf.models import partial_fit
    from fairmf.models.fitted_features import FittedFeatures
else:
    partial_fit = lazy_module("fairmf.models.partial_fit")
    systems = lazy_module("fairmf.models.fold_in_systems")

Self = TypeVar("Self", bound="FeatureModel")


class FeatureModel(FoldInModel):
    """A model that can be fitted with features of items and users."""

    def add_items(self: Self, features: Any, ids: Names | None = None) -> Self:
        """Add items that nobody has touched yet: each gets the vector that its features predict.

        An item that the model has already gets the new features; its vector changes with them only while it has no
        interactions. No other vector changes. `partial_fit_items` adds interactions, when there are some.

        Parameters
        ----------
        features
            A data frame like the one that the model was fitted with, or a matrix with as many columns.
        ids
            Ids of the rows of a matrix. A data frame has them in its column of ids.

        Returns
        -------
        The model itself, changed.

        Raises
        ------
        InvalidParameter
            If the model was fitted without item_features.
        InvalidData
            If the features do not fit the model's.

        Examples
        --------
        >>> import pandas as pd
        >>> from fairmf import FairALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> items = pd.DataFrame({"item_id": data.item_ids.values, "genre": ["War", "Drama"] * 20})
        >>> model = FairALS(factors=4, epochs=2).fit(data, item_features=items, progress=False)
        >>> model.add_items(pd.DataFrame({"item_id": ["new"], "genre": ["War"]})).n_items
        41
        """
        fitted = self.fitted
        names, rows = _named_rows(systems.features_of(fitted, "item"), features, ids, "item")
        self._fitted = partial_fit.with_featured_items(fitted, names, rows)
        return self

    def add_users(self: Self, features: Any, ids: Names | None = None) -> Self:
        """Add users without a history: each gets the vector that its features predict, as in `add_items`."""
        fitted = self.fitted
        names, rows = _named_rows(systems.features_of(fitted, "user"), features, ids, "user")
        self._fitted = partial_fit.with_featured_users(fitted, names, rows)
        return self

    @on_snapshot
    def predict_items(self, features: Any) -> Factors:
        """Return the vectors that features of items predict, without adding the items: one row each."""
        side = systems.features_of(self.fitted, "item")
        return side.predicted(side.encoded(features, "item")[1])

    @on_snapshot
    def predict_users(self, features: Any) -> Factors:
        """Return the vectors that features of users predict, without adding the users: one row each."""
        side = systems.features_of(self.fitted, "user")
        return side.predicted(side.encoded(features, "user")[1])

    @on_snapshot
    def feature_effects(self, column: str | None = None, *, side: str = "item") -> list[Record]:
        """Return what features add to scores, the largest mean effect first.

        Parameters
        ----------
        column
            A column of the table of features, such as "genre"; None for all features.
        side
            "item" or "user".

        Returns
        -------
        One record per feature: its name, the number of `rows` that have it, the `effect` of one unit of it on the mean
        score over all users, and the `spread` of that effect between users (estimated in a model without users).

        Examples
        --------
        >>> import pandas as pd
        >>> from fairmf import FairALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> items = pd.DataFrame({"item_id": data.item_ids.values, "genre": ["War", "Drama"] * 20})
        >>> model = FairALS(factors=4, epochs=2).fit(data, item_features=items, progress=False)
        >>> sorted(found["feature"] for found in model.feature_effects("genre"))
        ['genre=Drama', 'genre=War']
        """
        fitted = self.fitted
        if side not in ("item", "user"):
            raise InvalidParameter(f"side must be 'item' or 'user'. Got {side!r} instead.")
        found, others = systems.features_of(fitted, side), fitted.item_factors
        if side == "user":
            return found.effects(column, others.mean(axis=0, dtype=float), partial(partial_fit.exact_spreads, others))
        users = fitted.user_factors
        spreads = partial(partial_fit.exact_spreads, users) if len(users) else partial(partial_fit.spreads_of, fitted)
        return found.effects(column, fitted.mean_user, spreads)


def _named_rows(side: FittedFeatures, features: Any, ids: Names | None, kind: str) -> tuple[list[Any], Rows]:
    names, rows = side.encoded(features, kind)
    if names is None:
        if ids is None:
            raise InvalidData(f"A matrix of features has no ids: give add_{kind}s(features, ids=...).")
        names = list(as_list(ids))
    elif ids is not None:
        raise InvalidData("A data frame has its ids in a column: leave out ids=.")
    if len(names) != rows.count:
        raise InvalidData(f"{len(names):,} {kind}s are named, but there are {rows.count:,} rows of features.")
    return names, rows
