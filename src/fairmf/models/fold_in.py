"""Fold in users and items that were not in training, add them to a model, explain scores (docs/fold-in.md).

The formulas are in docs/mathematics.md 6; partial_fit.py and explain.py have the parts that are not about solving.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fairmf.backends.contract import Factors, Vector
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows, summed_weights
from fairmf.data.events import Events
from fairmf.data.ids import Names, as_list, positions
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.lazy import lazy_module
from fairmf.models.evenness import Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted, check_fairness, on_snapshot
from fairmf.types import SparseMatrix

if TYPE_CHECKING:
    from fairmf.models import explain as explanations
    from fairmf.models import fold_in_systems as systems
    from fairmf.models import partial_fit, recommend_for
    from fairmf.models.explain import Explanation
else:  # models that only recommend do without
    systems, partial_fit = lazy_module("fairmf.models.fold_in_systems"), lazy_module("fairmf.models.partial_fit")
    recommend_for, explanations = lazy_module("fairmf.models.recommend_for"), lazy_module("fairmf.models.explain")

Self = TypeVar("Self", bound="FoldInModel")


class FoldInModel(FactorModel):
    """A model that solves new users and items against the factors it was trained to."""

    cohort_options: ClassVar[tuple[str, ...]] = ()
    """Options that `fold_in(method="cohort")` of this model takes besides `scale`."""

    @abc.abstractmethod
    def remedy(self) -> str:
        """Return what a user can change when numbers are not finite."""

    @on_snapshot
    def fold_in(
        self,
        history: Interactions | SparseMatrix | Events,
        *,
        fairness: float | None = None,
        method: str = "frozen",
        scale: str = "phi",
        features: Any = None,
        **options: Any,
    ) -> Factors:
        """Return user vectors for new histories, one row each (docs/fold-in.md).

        Parameters
        ----------
        history
            One row per user: Interactions, a SciPy sparse matrix, or Events, whose users are the rows. Events with
            times lose weight with age if the model was fitted with a half-life.
        fairness
            The fairness psi with method="frozen"; by default the one the model serves with.
        method
            "frozen" solves u = H^-1 (b - psi q1) with q1 = alpha0 G_V t of training: each user's vector depends on that
            user's history alone. "cohort" optimises U and its mean t over this batch of n_b users, with V fixed.
        scale
            How lambda_f carries over to a cohort: "phi" (the same fairness: times n_b/n), "paper" (unchanged) or
            "authors" (times (n_b/n)^2).
        features
            In a model that was fitted with user_features: those of these users, with method="frozen". Users that the
            model knows have theirs already, if both have user ids.
        **options
            FiADMM's cohort takes `epochs`.

        Returns
        -------
        One row per user, as long as the item vectors.

        Raises
        ------
        InvalidData
            If the columns are not the training items.
        InvalidParameter
            If `method`, `scale` or `fairness` is not allowed.
        NotFinite
            If a user's system has no finite solution.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> model = FairALS(factors=4, epochs=2).fit(data, progress=False)
        >>> model.fold_in(data.take_users([0, 1, 2])).shape
        (3, 4)
        """
        fitted = self.fitted
        check_options(type(self).__name__, method, fairness, options, self.cohort_options)
        psi = fitted.fairness if fairness is None else fairness
        found = systems.fold_few(self, history, psi) if method == "frozen" and features is None else None
        if found is not None:
            no_solution = any(x != x for x in found[:, 0].tolist())  # NaN; NumPy takes longer for so few
            return self._finite(found) if no_solution else found
        batch = self._aligned(history)
        if method == "frozen":
            return self._fold_in_all(batch, psi, features, aligned=True)
        fitted.check_users("a cohort's fold-in")
        if not batch.n_users:
            return np.zeros((0, fitted.item_factors.shape[1]), dtype=fitted.item_factors.dtype)
        with get_backend(fitted.settings["backend"]).threads(self.num_threads):
            factor = scale_factor(scale, batch.n_users, self.n_users)
            return self._finite(self._fold_in_cohort(batch, factor, **options))

    def _fold_in_all(
        self, history: Interactions, fairness: float, features: Any = None, *, aligned: bool = False
    ) -> Factors:
        """Return the vectors of all users, solved together: `fold_in` solves a few users each in a way of its own.

        The bits then do not depend on how many users there are. `aligned` says that the history has the model's items
        and weights.
        """
        fitted, batch = self.fitted, history if aligned else self._aligned(history)
        with get_backend(fitted.settings["backend"]).threads(self.num_threads):
            predicted = systems.user_predictions(fitted, batch, features)
            return self._finite(systems.frozen(fitted, batch, fairness, predicted))

    def _finite(self, vectors: Factors) -> Factors:
        if not get_backend(self.fitted.settings["backend"]).all_finite(vectors):
            raise NotFinite(f"{type(self).__name__}: these users have no finite vectors. {self.remedy()}")
        return vectors

    @abc.abstractmethod
    def _fold_in_cohort(self, cohort: Interactions, factor: float, **options: Any) -> Factors:
        """Fold a batch in by its own mean; `factor` scales the trained lambda_f."""

    @on_snapshot
    def with_fairness(self: Self, fairness: float) -> Self:
        """Return the same model at another fairness, without training.

        It shares V, solves the users again from their histories, and serves with that fairness by default. A model that
        was stored without histories uses `user_sensitivity` instead, if that was stored.
        `with_fairness(a).with_fairness(b)` equals `with_fairness(b)`.

        Parameters
        ----------
        fairness
            The fairness psi, a number >= 0.

        Returns
        -------
        A new model; this one stays as it is.

        Raises
        ------
        MissingHistories
            If the model was stored with neither histories nor `user_sensitivity`.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> model = FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
        >>> model.with_fairness(3.0).fitted.fairness
        3.0
        """
        turned = copy.copy(self)
        turned._fitted = dataclasses.replace(
            self.fitted,
            fairness=check_fairness(fairness),
            user_factors=self._at_fairness(None, fairness),
        )
        return turned

    @on_snapshot
    def fold_in_user(
        self, items: Hashable | Names, weights: ArrayLike | None = None, *, fairness: float | None = None
    ) -> Factors:
        """Return the vector of one user from a list of items; the same as `fold_in` of a matrix with one row.

        Parameters
        ----------
        items
            The user's items, by id (by row number in a model without ids).
        weights
            A confidence for each item, 1 by default; below 0 it is that of a dislike. An item that is named twice
            counts as in `Interactions`: once, or with the sum of its weights.
        fairness
            The fairness psi; by default the one the model serves with.

        Returns
        -------
        One vector.

        Raises
        ------
        InvalidData
            If an item is not in the model, or a weight is missing.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> model = FairALS(factors=4, epochs=2).fit(data, progress=False)
        >>> model.fold_in_user(data.item_ids.values[:3]).shape
        (4,)
        """
        found = recommend_for.fold_one(self, items, weights, fairness)
        if found is None:
            found = self.fold_in(one_user(self.fitted, items, weights), fairness=fairness)
        return found.reshape(-1)

    @on_snapshot
    def fold_in_items(self, item_users: Interactions | SparseMatrix, *, features: Any = None) -> Factors:
        """Return the vectors of items that were not in training.

        These are what the items' half-step of training gives, with the users as trained and fairness weight 1.

        Parameters
        ----------
        item_users
            One row per item, one column per user of the model.
        features
            In a model that was fitted with item_features: those of these items, row by row. What they predict and what
            the users did are combined as in training; an item without users has the vector that its features predict.

        Returns
        -------
        One row per item, as long as the user vectors.

        Raises
        ------
        InvalidData
            If the columns are not the training users, or the features have another number of rows.
        MissingHistories
            If the model does not hold its users, or only at another fairness and without their histories.
        """
        predicted = None
        if features is not None:
            side = systems.features_of(self.fitted, "item")
            predicted = side.predicted(side.encoded(features, "item")[1])
        return self._fold_in_items(item_users, None, predicted)

    def _fold_in_items(
        self, item_users: Interactions | SparseMatrix, weights: Vector | None, predicted: Factors | None = None
    ) -> Factors:
        fitted = self.fitted
        fitted.check_users("fold_in_items")
        batch = partial_fit.weighted_items(fitted, partial_fit.item_batch(fitted, item_users))
        if predicted is not None and len(predicted) != batch.n_users:  # its rows are items
            raise InvalidData(f"features has {len(predicted):,} rows for {batch.n_users:,} items.")
        users = partial_fit.trained_users(fitted, self._folded)
        backend = get_backend(fitted.settings["backend"])
        with backend.threads(self.num_threads):
            vectors = systems.items(fitted, users, batch, weights, predicted)
        if not backend.all_finite(vectors):
            raise NotFinite(f"{type(self).__name__}: these items have no finite vectors. {self.remedy()}")
        return vectors

    def _folded(self, histories: Interactions, fairness: float, features: Rows | None = None) -> Factors:
        return self.fold_in(histories, fairness=fairness, features=features)

    # -- updates ----------------------------------------------------------------------------------------------------

    def partial_fit_users(
        self: Self, userids: Hashable | Names, user_items: Interactions | SparseMatrix | Events
    ) -> Self:
        """Add users, or replace the histories of users the model has.

        Their vectors are their own fold-in at the fairness the model serves with. Nobody else's vector changes, and t
        and q1 stay those of training (docs/fold-in.md). A call that fails changes nothing.

        Parameters
        ----------
        userids
            Ids of the users; unknown ones are added. In a model without ids these are row numbers, and new users take
            the next free ones.
        user_items
            Their histories, one row for each of `userids`, as in `fold_in`.

        Returns
        -------
        The model itself, changed.

        Raises
        ------
        InvalidData
            If ids and rows do not match, a user is named twice, or an id is of another type than the model's.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> model = FairALS(factors=4, epochs=2).fit(data, progress=False)
        >>> model.partial_fit_users(data.user_ids.values[:1], data.take_users([0])).n_users
        60
        """
        model = copy.copy(self)
        self._fitted = partial_fit.with_users(model.fitted, userids, model._aligned(user_items), model._folded)
        return self

    def partial_fit_items(self: Self, itemids: Hashable | Names, item_users: Interactions | SparseMatrix) -> Self:
        """Add items, or solve items the model has again.

        Their vectors are those of `fold_in_items`; items the model has keep the fairness weights they were trained
        with. The items enter the histories of the users who had them, but no user's vector changes until it is solved
        again (docs/fold-in.md). A call that fails changes nothing.

        Parameters
        ----------
        itemids
            Ids of the items, as in `partial_fit_users`.
        item_users
            One row (items x users) for each of `itemids`.

        Returns
        -------
        The model itself, changed.

        Raises
        ------
        InvalidData
            If ids and rows do not match, an item is named twice, or an id is of another type than the model's.
        """
        model = copy.copy(self)
        batch = partial_fit.item_batch(model.fitted, item_users)
        weights = partial_fit.item_weights(model.fitted, itemids)
        vectors = model._fold_in_items(batch, weights, partial_fit.item_predictions(model.fitted, itemids))
        self._fitted = partial_fit.with_items(model.fitted, itemids, batch, vectors, weights)
        return self

    # -- reasons ----------------------------------------------------------------------------------------------------

    @on_snapshot
    def explain(
        self,
        user: Hashable,
        item: Hashable,
        *,
        user_items: Interactions | SparseMatrix | None = None,
        evenness: float | Level | None = None,
        fairness: float | None = None,
    ) -> Explanation:
        """Split the score of an item into what each past item adds and what fairness takes away.

        The score is that of the user's fold-in: for FairALS and IALS the stored user's, up to the solver's tolerance.

        Parameters
        ----------
        user
            A user of the model. With `user_items` only a name for the answer, or None.
        item
            The item whose score is explained.
        user_items
            The history of a user who is not in the model: one row.
        evenness
            As in `recommend`.
        fairness
            For experts: the fairness psi; by default the one the model serves with.

        Returns
        -------
        An `Explanation`: `print` shows it as text, `to_dict()` gives plain values.

        Raises
        ------
        InvalidData
            If the user or item is not in the model.
        MissingHistories
            If the model was stored without histories and none is given.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> model = FairALS(factors=4, epochs=2).fit(data, progress=False)
        >>> found = model.explain(data.user_ids.values[0], data.item_ids.values[1])
        >>> total = sum(amount for _, amount in found.contributions) - found.fairness_cost
        >>> abs(found.score - total) < 1e-6
        True
        """
        fitted = self.fitted
        level = fitted.served(evenness, fairness)
        column = positions([item], fitted.item_ids, self.n_items, "item")[0]
        if user_items is None:
            history = fitted.histories("explain").take_users(self._user_rows([user]))
        else:
            history = self._aligned(user_items)
            if history.n_users != 1:
                raise InvalidData(f"explain takes the history of one user; user_items has {history.n_users:,} rows.")
        with get_backend(fitted.settings["backend"]).threads(self.num_threads):
            return explanations.explain(fitted, user, history, int(column), level)


# -- arguments ---------------------------------------------------------------------------------------------------------

METHODS = ("frozen", "cohort")


def one_user(fitted: Fitted, names: Hashable | Names, weights: ArrayLike | None) -> Interactions:
    """Return the history of one user, from the names of its items."""
    m = len(fitted.item_factors)
    columns = positions(as_list(names), fitted.item_ids, m, "item")
    if weights is None:
        columns, values = np.unique(columns), None
    else:
        given = np.atleast_1d(np.asarray(weights, dtype=np.float64))
        if given.shape != columns.shape:
            raise InvalidData(f"There must be one weight for each of the {len(columns):,} items; got {given.size:,}.")
        if not (np.abs(given) <= np.finfo(np.float32).max).all():
            raise InvalidData("An interaction's weight must be finite.")
        found, values = summed_weights(columns, given)
        columns = found.astype(np.int64)
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
    model: str, method: str, fairness: float | None, options: Collection[str], cohort_options: Collection[str]
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
